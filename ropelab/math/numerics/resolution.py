"""The positions that stay distinct: colliding neighbours and distinct encodings.

Two positions collide when all the stored numbers of their encodings are equal. Distinct
encodings are counted in one of three ways.

A proof (`proves_distinct`): two positions D apart with one encoding have D * theta_i
near whole turns in every pair. If some pair excludes each D, none collide, whatever the
offset.

Steps (`count_angles`): a stored angle grows with the position in steps, at the
midpoints between two values of the format, which are found by division: coarse formats
have few.

Hashes (`count_equal_hashes`): the leading pairs of every position are hashed to 64
bits; where they are equal, so are more pairs, until they part; the rest is compared
number by number.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.casts import EXACT
from ropelab.math.numerics.chain import BLOCK, Chain, Positions, blocks, octaves, span
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FloatFormat, round_to
from ropelab.runs.arrays import Bool, Float, Int

# Hashes held at once, 8 bytes each; a longer range is streamed several times, a share
# each.
HELD = 1 << 24
# Bits of precision up to which a format has few enough values to list them.
COARSE = 11
# Candidates are visited where they are fewer than all positions of all pairs over this.
WORTH = 2

Advance = Callable[[float], object]
Keys = Int[np.ndarray, "features n"]
Integers = Int[np.ndarray, "n"]


@dataclass(frozen=True)
class Census:
    """The counts of an encoding in a format over a range of positions."""

    positions: int
    distinct: int
    adjacent_collisions: int  # positions m that collide with m+1, both in the range
    first_collision: int | None  # the smallest such m
    by_octave: tuple[tuple[int, int, int], ...]  # (start, stop, collisions)


def take_census(
    encoding: PositionEncoding,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Advance = lambda steps: None,
    held: int = HELD,
    neighbours: bool = True,
) -> list[Census]:
    """Count collisions and distinct encodings for every format.

    Collisions are counted if `neighbours` (slower), else 0. At most about `held` hashes
    are held at once per format. `advance` gets shares that add up to 1.
    """
    stop = offset + length
    edges = [start for start, _ in octaves(offset, stop)]
    edges.append(stop)

    counters = []
    for fmt in formats:
        proved = proves_distinct(encoding, fmt, offset, length)
        counters.append(_Counter(encoding, fmt, edges, proved))

    doubtful = [counter for counter in counters if not counter.proved]
    if not doubtful:
        advance(1)
        return [counter.census() for counter in counters]

    all_leading = [encoding.leading(counter.fmt) for counter in doubtful]
    leading = max(all_leading, key=len)
    features = max(len(leading) * encoding.per_pair, 2)
    size = BLOCK // features

    # Distinct angles follow from their collisions, as those of a single number mostly
    # do.
    hashed = encoding.component != "angle"
    neighbours = neighbours or encoding.single or not hashed
    shares = 1
    if hashed:
        shares = -(-length // held)

    for share in range(shares):
        for low, high in blocks(offset, stop, size):
            # The positions go one beyond the block, so that its last position is compared
            # with its neighbour.
            positions = span(low, min(high + 1, stop))
            values = encoding.values(positions, leading)
            for counter in doubtful:
                keys = counter.keys_of(values)
                if share == 0 and neighbours:
                    counter.compare(positions, keys, values[0])
                if hashed:
                    own = slice(high - low)
                    counter.hold(positions[own], keys[:, own], share, shares)
            advance((high - low) / length / shares)
        for counter in doubtful:
            counter.close_share()

    advance(0)
    return [counter.census() for counter in counters]


def count_distinct(
    chain: Chain,
    tables: Sequence[FloatFormat],
    offset: int,
    length: int,
) -> dict[FloatFormat, int]:
    """Count the positions with distinct stored cos and sin, per format of the table."""
    counts = {}
    pairs = range(chain.spectrum.pairs)
    if EXACT in tables:
        # An exact table distinguishes what the angles do: no two of these are the same
        # direction.
        count = count_angles(chain, offset, length)
        if count is None:
            angles = PositionEncoding(chain, "angle", pairs)
            (census,) = take_census(angles, [EXACT], offset, length)
            count = census.distinct
        counts[EXACT] = count

    rounded = [table for table in tables if table != EXACT]
    vector = PositionEncoding(chain, "vector", pairs)
    censuses = take_census(vector, rounded, offset, length, neighbours=False)
    for fmt, census in zip(rounded, censuses, strict=True):
        counts[fmt] = census.distinct
    return counts


@dataclass(eq=False)
class _Counter:
    """The running counts of one format."""

    encoding: PositionEncoding
    fmt: FloatFormat
    edges: Sequence[int]  # of the octaves that the range touches
    proved: bool  # no two positions collide, so nothing need be counted
    first_collision: int | None = None
    hashed: int = 0  # distinct encodings in the finished shares
    rising: bool = True  # no number was below the one before it
    falling: bool = True
    hashes: list[Integers] = field(default_factory=list)
    positions: list[Positions] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.collisions = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def census(self) -> Census:
        length = self.edges[-1] - self.edges[0]
        collisions = self.collisions.tolist()
        # Rounding keeps order, so of a monotone number only neighbours can be equal;
        # stored angles only ever grow with the position.
        monotone = self.encoding.single and (self.rising or self.falling)
        distinct = self.hashed
        if self.proved:
            distinct = length
        elif monotone or self.encoding.component == "angle":
            distinct = length - sum(collisions)

        starts = self.edges[:-1]
        stops = self.edges[1:]
        by_octave = zip(starts, stops, collisions, strict=True)
        return Census(
            positions=length,
            distinct=distinct,
            adjacent_collisions=sum(collisions),
            first_collision=self.first_collision,
            by_octave=tuple(by_octave),
        )

    def keys_of(self, values: Float[np.ndarray, "features n"]) -> Keys:
        """Return the stored numbers of the leading pairs."""
        pairs = self.encoding.leading(self.fmt)
        # A score is one number for all pairs.
        count = max(len(pairs) * self.encoding.per_pair, 1)
        return keys_of(values[:count], self.fmt)

    def compare(self, positions: Positions, keys: Keys, number: Positions) -> None:
        """Count the positions that collide with the next; `number`: before rounding."""
        encoding = self.encoding
        if encoding.single and (self.rising or self.falling):
            here = number[:-1]
            there = number[1:]
            self.rising &= bool((there >= here).all())
            self.falling &= bool((there <= here).all())

        equal = _equals_next(keys)
        if not equal.any():
            return

        # Where even the stored positions are equal (bits, for nan), everything after
        # them is.
        stored = encoding.chain.positions(positions).view(np.int64)
        moves = stored[1:] != stored[:-1]
        doubtful = np.flatnonzero(equal & moves)

        compared = len(encoding.leading(self.fmt))
        rest = encoding.pairs[compared:]
        while rest and doubtful.size:
            # Each position is computed once, even if it is in two doubtful pairs of
            # neighbours. Marking positions is five times as quick as np.union1d.
            marked = np.zeros(positions.size, dtype=bool)
            marked[doubtful] = True
            marked[doubtful + 1] = True
            needed = np.flatnonzero(marked)

            size = max(BLOCK // needed.size, 1)
            pairs = rest[:size]
            rest = rest[size:]
            values = encoding.values(positions[needed], pairs)
            equals_next = _equals_next(keys_of(values, self.fmt))

            # The column of each doubtful position among those needed.
            columns = marked.cumsum()[doubtful] - 1
            same = equals_next[columns]
            equal[doubtful[~same]] = False
            doubtful = doubtful[same]

        colliding = positions[:-1][equal]
        if colliding.size and self.first_collision is None:
            self.first_collision = int(colliding[0])
        counts_before_edges = np.searchsorted(colliding, self.edges)
        self.collisions += np.diff(counts_before_edges)

    def hold(
        self,
        positions: Positions,
        keys: Keys,
        share: int,
        shares: int,
    ) -> None:
        """Keep the hashes of a share of the positions, and the positions if needed."""
        packs = self.encoding.packs(self.fmt)
        if packs and len(keys) == 2:
            keys = _pack_two(keys)
        hashes = mix_bits(keys)

        # Leave out those that certainly equal the one before: by hashes that lose
        # nothing, else by stored positions.
        decides = hashes
        if not packs:
            decides = self.encoding.chain.positions(positions).view(np.int64)
        wanted = _starts_of_runs(decides)
        if shares > 1:
            wanted &= (hashes >> 17) % shares == share

        self.hashes.append(hashes[wanted])
        if not packs:
            self.positions.append(positions[wanted])

    def close_share(self) -> None:
        """Count the distinct encodings among those held, and drop them."""
        if not self.hashes:
            return

        hashes = np.concatenate(self.hashes)
        self.hashes.clear()
        if self.encoding.packs(self.fmt):
            hashes.sort()
            if hashes.size:
                self.hashed += int(_starts_of_runs(hashes).sum())
            return

        positions = np.concatenate(self.positions)
        self.positions.clear()
        self.hashed += count_equal_hashes(self.encoding, self.fmt, hashes, positions)


def _pack_two(keys: Keys) -> Keys:
    """Return two rows of numbers that float32 holds as one row of 64 bits."""
    singles = keys.view(np.float64).astype(np.float32)
    first, second = singles.view(np.uint32).astype(np.int64)
    return ((first << 32) | second)[None]


def _equals_next(keys: Keys) -> Bool[np.ndarray, " n-1"]:
    """Return True at every column that equals the next one."""
    here = keys[:, :-1]
    there = keys[:, 1:]
    return np.asarray((here == there).all(0))


def _starts_of_runs(values: Integers) -> Bool[np.ndarray, " n"]:
    """Return True at every value that differs from the one before it."""
    differs = values[1:] != values[:-1]
    return np.append(True, differs)


def proves_distinct(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    offset: int,
    length: int,
) -> bool:
    """Return True if all positions provably differ when stored.

    They are offset .. offset + length - 1. False proves nothing; it is returned where
    cos and sin are not both stored.
    """
    if encoding.component not in ("pair", "vector"):
        return False

    chain = encoding.chain
    last = offset + length - 1
    pairs = slice(encoding.pairs.start, encoding.pairs.stop)
    theta = chain.inv_freq[pairs]
    bounds = chain.rounding_bounds(np.array([last], dtype=np.float64))
    errors = bounds[pairs, 0]

    # Numbers up to 1 that round to the same value are at most one spacing below 1
    # apart, so a cell is a square of that side, and its diagonal the longest chord.
    cell = math.sqrt(2) * fmt.epsilon / 2
    half_chord = min(cell / 2, 1.0)
    diagonal = 2 * math.asin(half_chord)
    # The uncertainty of float64 itself in D * theta, in cos and in sin.
    own = last * theta * 2.0**-50 + 2.0**-50
    # The largest distance of D * theta from whole turns if two encodings are equal.
    near = (diagonal + 2 * errors + own).tolist()

    for start, stop in blocks(1, length):
        distances = span(start, stop)
        for frequency, bound in zip(theta, near, strict=True):
            angles = wrap_angle(distances * frequency)
            distances = distances[angles <= bound]
            if not distances.size:
                break
        if distances.size:
            return False
    return True


def count_angles(chain: Chain, offset: int, length: int) -> int | None:
    """Count the different rows of stored angles; None where visiting all is quicker."""
    fmt = chain.plan.angle
    last = offset + length - 1
    inv_freq = chain.inv_freq
    if chain.recurrent or chain.plan.position.precision < 53:
        return None
    if fmt.precision > COARSE or not np.isfinite(inv_freq).all():
        return None

    midway = midway_values(fmt)
    rotating = np.flatnonzero(inv_freq)
    # Where the step after a position is: those after the first are found by division.
    first_and_last = (max(offset - 1, 1), last + 1)
    angles = np.outer(inv_freq[rotating], first_and_last)
    ends = np.searchsorted(midway, angles)
    candidates = 3 * int(np.diff(ends).sum())
    if WORTH * candidates > length * rotating.size:
        return None

    changes = [np.empty(0)]
    for pair, (low, high) in zip(rotating.tolist(), ends.tolist(), strict=True):
        # The quotient may be off by a rounding, so the positions beside it are tried
        # too.
        near = np.floor(midway[low:high] / inv_freq[pair])
        beside = np.concatenate(([offset], near - 1, near, near + 1))
        places = np.unique(beside)
        places = places[(places >= offset) & (places < last)]

        # Compared by their bits, for nan equals nan there.
        chosen = slice(pair, pair + 1)
        here = chain.angles(places, chosen)[0]
        there = chain.angles(places + 1, chosen)[0]
        changed = here.view(np.int64) != there.view(np.int64)
        changes.append(places[changed])
    return 1 + np.unique(np.concatenate(changes)).size


def midway_values(fmt: FloatFormat) -> Positions:
    """Return the midpoints of neighbouring values of a coarse format from 0 on."""
    step = 2.0 ** (1 - fmt.precision)
    count = 2 ** (fmt.precision - 1)
    fractions = np.arange(count) * step + step / 2
    exponents = np.arange(fmt.min_exponent, fmt.max_exponent + 1)

    subnormal = np.ldexp(fractions, fmt.min_exponent)
    normal = np.ldexp(1 + fractions, exponents[:, None])
    return np.concatenate((subnormal, normal.ravel()))


def keys_of(values: Float[np.ndarray, "features n"], fmt: FloatFormat) -> Keys:
    """Return stored numbers as integers that are equal exactly when the numbers are."""
    # + 0.0 makes -0 and 0 one number.
    stored = round_to(values, fmt) + 0.0
    return stored.view(np.int64)


def distinct_among(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    positions: Positions,
) -> int:
    """Count the distinct stored encodings of a few positions, by sorting them."""
    keys = keys_of(encoding.values(positions, encoding.pairs), fmt)
    order = np.lexsort(keys)
    differs = ~_equals_next(keys[:, order])
    return 1 + int(differs.sum())


def mix_bits(keys: Keys, seed: Integers | None = None) -> Integers:
    """Return a 64-bit hash of every column; a single number is hashed without loss."""
    if seed is None:
        state = np.zeros_like(keys[0])
    else:
        state = seed.copy()

    # Every step is invertible: multiplication by an odd number, and xor with the upper
    # half, which must be shifted without its sign: with it x and ~x would become one.
    # The odd numbers are those of Fibonacci hashing (2^64 over the golden ratio) and
    # splitmix64, as signed ones.
    for row in keys:
        state ^= row
        state *= -0x61C8864680B583EB
        upper_half = state.view(np.uint64) >> np.uint64(32)
        state ^= upper_half.view(np.int64)
    state *= -0x40A7B892E31B1A47
    return state


def count_equal_hashes(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    hashes: Integers,
    positions: Positions,
) -> int:
    """Count distinct encodings; the leading pairs of `positions` hash to `hashes`."""
    lead = encoding.leading(fmt)
    rest = encoding.pairs[len(lead) :]
    distinct = 0

    while True:
        distinct += hashes.size
        hashes, positions = _find_repeated(hashes, positions)
        distinct -= hashes.size
        if not (rest and hashes.size):
            break

        pairs = rest[: len(lead)]
        rest = rest[len(lead) :]
        parts = []
        for low, high in blocks(0, hashes.size, BLOCK // len(pairs)):
            values = encoding.values(positions[low:high], pairs)
            mixed = mix_bits(keys_of(values, fmt), hashes[low:high])
            parts.append(mixed)
        hashes = np.concatenate(parts)

    if not hashes.size:
        return distinct
    first = _starts_of_runs(hashes)
    distinct += int(first.sum())

    # Each position is compared with the first position of the same hash. Two positions
    # have equal hashes but other values with a chance of 2^-64. Such positions are counted
    # by comparing all of them.
    numbers_of_runs = first.cumsum() - 1
    leaders = positions[np.flatnonzero(first)[numbers_of_runs]]
    strangers = []
    pairs = encoding.pairs
    for low, high in blocks(0, hashes.size, BLOCK // len(pairs)):
        own = encoding.values(positions[low:high], pairs)
        of_leaders = encoding.values(leaders[low:high], pairs)
        keys = keys_of(own, fmt)
        keys_of_leaders = keys_of(of_leaders, fmt)
        differs = (keys != keys_of_leaders).any(0)
        strangers.append(keys[:, differs])

    different = np.concatenate(strangers, axis=1)
    if not different.size:
        return distinct
    return distinct + np.unique(different, axis=1).shape[1]


def _find_repeated(
    hashes: Integers,
    positions: Positions,
) -> tuple[Integers, Positions]:
    """Return those whose hash occurs more than once, sorted by hash."""
    order = np.argsort(hashes)
    hashes = hashes[order]
    equal = hashes[1:] == hashes[:-1]
    repeated = np.zeros(hashes.size, dtype=bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return hashes[repeated], positions[order[repeated]]
