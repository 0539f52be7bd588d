"""Count the distinct stored encodings of a range of positions, exactly, in one of three ways.

A proof (`proves_distinct`): two positions D apart with the same stored cos and sin in every pair
would have both points of the circle in one rounding cell, so D * theta_i (theta_i as stored) would
be nearly a number of whole turns in every pair. Each D is tried against one pair after the other
until it is excluded. If no D is left, no two positions collide, whatever the offset.

Steps (`count_angles`): a stored angle grows with the position in steps, one at every value midway
between two values of the format. Coarse formats have few such values, so the positions next to them
are found by division and computed exactly; all others store the same as the one before them.

Hashes (`Tally`): the leading pairs of every position are hashed to 64 bits. Different hashes prove
different encodings. Positions with equal hashes are hashed again with more pairs, until they part
or no pair is left; the rest is compared number by number.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ropelab.math.numerics.angle_errors import wrapped
from ropelab.math.numerics.chain import BLOCK, Chain, blocks, span
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FloatFormat, round_to

Integers = Int[np.ndarray, "n"]

# Positions with repeated hashes that are compared at once.
CAPACITY = 1 << 22
# Bits of precision up to which a format has few enough values to list them.
COARSE = 11
# Candidates are visited where they are fewer than all positions of all pairs over this.
WORTH = 2


def proves_distinct(encoding: PositionEncoding, fmt: FloatFormat, offset: int, length: int) -> bool:
    """Return True if all positions offset .. offset + length - 1 provably differ when stored.

    False proves nothing. Only encodings that store both cos and sin can be judged this way.
    """
    if encoding.component not in ("pair", "vector"):
        return False
    near = _excluded_beyond(encoding, fmt, offset + length - 1)
    theta = encoding.chain.inv_freq[encoding.pairs.start : encoding.pairs.stop]
    for start, stop in blocks(1, length):
        left = span(start, stop)
        for frequency, bound in zip(theta, near.tolist(), strict=True):
            left = left[wrapped(left * frequency) <= bound]
            if not left.size:
                break
        if left.size:
            return False
    return True


def _excluded_beyond(
    encoding: PositionEncoding, fmt: FloatFormat, last: int
) -> Float[np.ndarray, " pairs"]:
    """For each pair, how far D * theta may be from whole turns if two encodings are equal."""
    pairs = slice(encoding.pairs.start, encoding.pairs.stop)
    errors = encoding.chain.rounding_bounds(np.array([last], dtype=np.float64))[pairs, 0]
    # Numbers up to 1 that round to the same value are at most one spacing below 1 apart, so a cell
    # is a square of that side, and its diagonal the longest chord.
    cell = math.sqrt(2) * fmt.epsilon / 2
    diagonal = 2 * math.asin(min(cell / 2, 1.0))
    # The uncertainty of float64 itself in D * theta, in cos and in sin.
    own = last * encoding.chain.inv_freq[pairs] * 2.0**-50 + 2.0**-50
    return diagonal + 2 * errors + own


def count_angles(chain: Chain, offset: int, length: int) -> int | None:
    """Return the number of different rows of stored angles among `length` positions.

    None where a visit to every position is needed, or quicker.
    """
    fmt, last = chain.plan.angle, offset + length - 1
    if chain.recurrent or chain.plan.position.precision < 53 or fmt.precision > COARSE:
        return None
    rotating = chain.inv_freq[chain.inv_freq > 0]
    if not (rotating.size and np.isfinite(chain.inv_freq).all()):
        return None
    midway = midway_values(fmt, float(rotating.min()), float(rotating.max()) * (last + 1))
    if 3 * WORTH * int(np.searchsorted(midway, rotating * last).sum()) > length * rotating.size:
        return None
    changes = [_steps(chain, pair, midway, offset, last) for pair in range(chain.spectrum.pairs)]
    return 1 + np.unique(np.concatenate(changes)).size


def midway_values(fmt: FloatFormat, smallest: float, largest: float) -> Float[np.ndarray, " n"]:
    """Return the midpoints of neighbouring values of a format from `smallest` to `largest`.

    Ascending; some beyond either end are among them.
    """
    step = 2.0 ** (1 - fmt.precision)
    fractions = np.arange(2 ** (fmt.precision - 1)) * step + step / 2
    lowest = max(fmt.min_exponent, math.floor(math.log2(smallest)) - 1)
    highest = min(fmt.max_exponent, math.ceil(math.log2(largest)))
    exponents = np.arange(lowest, highest + 1)[:, None]
    normal = np.ldexp(1 + fractions, exponents).ravel()
    if lowest > fmt.min_exponent:
        return normal
    return np.concatenate((np.ldexp(fractions, fmt.min_exponent), normal))


def _steps(
    chain: Chain, pair: int, midway: Float[np.ndarray, " n"], offset: int, last: int
) -> Float[np.ndarray, " k"]:
    """Return the positions m, offset <= m < last, after which a pair stores another angle."""
    theta = float(chain.inv_freq[pair])
    if theta == 0:
        return np.empty(0)
    low, high = np.searchsorted(midway, [theta * (offset - 1), theta * (last + 1)])
    # The quotient may be off by a rounding, so the positions beside it are tried too.
    near = np.floor(midway[low:high] / theta)
    places = np.unique(np.concatenate((near - 1, near, near + 1)))
    places = places[(places >= offset) & (places < last)]
    pairs = slice(pair, pair + 1)
    here, there = (chain.angles(m, pairs)[0].view(np.int64) for m in (places, places + 1))
    return places[here != there]


def keys_of(
    values: Float[np.ndarray, "features n"], fmt: FloatFormat
) -> Int[np.ndarray, "features n"]:
    """Return the stored numbers as integers that are equal exactly when the numbers are."""
    return (round_to(values, fmt) + 0.0).view(np.int64)  # + 0.0 makes -0 and 0 one number


def distinct_among(
    encoding: PositionEncoding, fmt: FloatFormat, positions: Float[np.ndarray, " n"]
) -> int:
    """Count the distinct stored encodings of a few positions, by sorting them."""
    keys = keys_of(encoding.values(positions, encoding.pairs), fmt)
    ordered = keys[:, np.lexsort(keys)]
    return 1 + int((ordered[:, 1:] != ordered[:, :-1]).any(0).sum())


def mixed(
    keys: Int[np.ndarray, "features n"], seed: Integers | None = None
) -> Int[np.ndarray, " n"]:
    """Return a 64-bit hash of every column; a single number is hashed without loss."""
    state = np.zeros_like(keys[0]) if seed is None else seed.copy()
    # Every step is invertible: multiplication by an odd number, and xor with the upper half, which
    # must be shifted without its sign: with it x and ~x would become one. The odd numbers are those
    # of Fibonacci hashing (2^64 over the golden ratio) and splitmix64, as signed ones.
    for row in keys:
        state ^= row
        state *= -0x61C8864680B583EB
        state ^= (state.view(np.uint64) >> np.uint64(32)).view(np.int64)
    state *= -0x40A7B892E31B1A47
    return state


@dataclass(eq=False)
class Tally:
    """The distinct encodings in one format, counted by their hashes.

    Up to 64 bits are hashed without loss. Of longer encodings the leading pairs are hashed; the
    positions whose hashes are not alone are gathered in a second pass and compared.

    shares: the hashes are held and counted in so many shares, one after the other.
    """

    encoding: PositionEncoding
    fmt: FloatFormat
    shares: int
    distinct: int = 0
    doubtful: int = 0
    _held: list[Integers] = field(default_factory=list)
    _repeated: list[Integers] = field(default_factory=list)
    _gathered: list[tuple[Integers, Integers]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """The number of further passes."""
        return -(-self.doubtful // CAPACITY)

    def add(
        self, share: int, positions: Float[np.ndarray, " n"], keys: Int[np.ndarray, "features n"]
    ) -> None:
        """Add some positions, with the stored numbers of their leading pairs."""
        hashes = self._hashes(keys)
        wanted = self._fresh(positions, hashes)
        if self.shares > 1:
            wanted &= _of_share(hashes, share, self.shares)
        self._held.append(hashes if wanted.all() else hashes[wanted])

    def close_share(self) -> None:
        """Count the hashes of one share, and forget those that are alone."""
        if not self._held:
            return
        hashes = np.concatenate(self._held)
        self._held.clear()
        hashes.sort()
        equal = hashes[1:] == hashes[:-1]
        self.distinct += hashes.size - int(equal.sum())
        if not self.encoding.packs(self.fmt) and equal.any():
            repeated = np.unique(hashes[1:][equal])
            self._repeated.append(repeated)
            self.distinct -= repeated.size
            self.doubtful += int(equal.sum()) + repeated.size

    def gather(self, number: int, rounds: int, positions: Float[np.ndarray, " n"]) -> None:
        """Keep those of some positions whose hashes are repeated, if it is their round."""
        lead = self.encoding.leading(self.fmt)
        size = BLOCK // (len(lead) * self.encoding.per_pair)
        parts = [
            self._hashes(keys_of(self.encoding.values(positions[low:high], lead), self.fmt))
            for low, high in blocks(0, positions.size, size)
        ]
        hashes = np.concatenate(parts)
        wanted = self._fresh(positions, hashes) & _of_share(hashes, number, rounds)
        for repeated in self._repeated:
            places = np.flatnonzero(wanted)
            found = np.searchsorted(repeated, hashes[places])
            found[found == repeated.size] = 0
            places = places[repeated[found] == hashes[places]]
            self._gathered.append((hashes[places], positions[places].astype(np.int64)))

    def compare(self) -> None:
        """Count the distinct encodings among the gathered positions."""
        hashes, positions = (np.concatenate(parts) for parts in zip(*self._gathered, strict=True))
        self._gathered.clear()
        self.distinct += count_equal_hashes(self.encoding, self.fmt, hashes, positions)

    def _hashes(self, keys: Int[np.ndarray, "features n"]) -> Integers:
        if len(keys) == 2 and self.encoding.packs(self.fmt):
            halves = keys.view(np.float64).astype(np.float32).view(np.uint32).astype(np.int64)
            keys = ((halves[0] << 32) | halves[1])[None]
        return mixed(keys)

    def _fresh(
        self, positions: Float[np.ndarray, " n"], hashes: Integers
    ) -> Bool[np.ndarray, " n"]:
        """Return False where the encoding of a position certainly equals the one before."""
        decides = hashes
        if not self.encoding.packs(self.fmt):  # then only equal stored positions are certain
            decides = self.encoding.chain.positions(positions).view(np.int64)
        fresh = np.ones(positions.size, dtype=bool)
        np.not_equal(decides[1:], decides[:-1], out=fresh[1:])
        return fresh


def _of_share(hashes: Integers, share: int, shares: int) -> Bool[np.ndarray, " n"]:
    return (hashes >> 17) % shares == share


def count_equal_hashes(
    encoding: PositionEncoding, fmt: FloatFormat, hashes: Integers, positions: Integers
) -> int:
    """Count the distinct encodings among positions whose leading pairs hash to `hashes`."""

    def keys(positions: Integers, pairs: range) -> Int[np.ndarray, "features n"]:
        return keys_of(encoding.values(positions.astype(np.float64), pairs), fmt)

    size = len(encoding.leading(fmt))
    rest = encoding.pairs[size:]
    distinct = 0
    while True:
        distinct += hashes.size
        hashes, positions = _repeated(hashes, positions)
        distinct -= hashes.size
        if not (rest and hashes.size):
            break
        pairs, rest = rest[:size], rest[size:]
        parts = [
            mixed(keys(positions[low:high], pairs), hashes[low:high])
            for low, high in blocks(0, hashes.size, BLOCK // len(pairs))
        ]
        hashes = np.concatenate(parts)
    if not hashes.size:
        return distinct
    first = np.ones(hashes.size, dtype=bool)
    first[1:] = hashes[1:] != hashes[:-1]
    distinct += int(first.sum())
    if encoding.single:  # a single number is hashed without loss
        return distinct
    # Each is compared with the first of its hash; those that differ from it although their hashes
    # are equal (chance: 2^-64 for two positions) are counted by comparing them all.
    leaders = positions[np.flatnonzero(first)[first.cumsum() - 1]]
    strangers = []
    for low, high in blocks(0, hashes.size, BLOCK // len(encoding.pairs)):
        here, there = (keys(each[low:high], encoding.pairs) for each in (positions, leaders))
        strangers.append(here[:, (here != there).any(0)])
    different = np.concatenate(strangers, axis=1)
    return distinct + (np.unique(different, axis=1).shape[1] if different.size else 0)


def _repeated(hashes: Integers, positions: Integers) -> tuple[Integers, Integers]:
    """Return those whose hash occurs more than once, sorted by hash."""
    order = np.argsort(hashes)
    hashes = hashes[order]
    equal = hashes[1:] == hashes[:-1]
    if not equal.any():
        return hashes[:0], positions[:0]
    repeated = np.zeros(hashes.size, dtype=bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return hashes[repeated], positions[order[repeated]]
