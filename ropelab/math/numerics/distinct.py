"""How many different codes some positions have, exactly, by hashing.

The leading pairs of every position are hashed to 64 bits. Different hashes prove different codes.
Positions with equal hashes are hashed again with more pairs, until they part or no pair is left;
what is left is compared number by number.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ropelab.math.numerics.code import Code
from ropelab.math.numerics.formats import FloatFormat, round_to
from ropelab.math.numerics.ranges import BLOCK, blocks

Integers = Int[np.ndarray, "n"]

CAPACITY = 1 << 22
"""Positions with repeated hashes that are compared at once."""


def keys_of(
    values: Float[np.ndarray, "features n"], fmt: FloatFormat
) -> Int[np.ndarray, "features n"]:
    """The stored numbers as integers that are equal exactly when the numbers are."""
    return (round_to(values, fmt) + 0.0).view(np.int64)  # + 0.0 makes -0 and 0 one number


def mixed(
    keys: Int[np.ndarray, "features n"], seed: Integers | None = None
) -> Int[np.ndarray, " n"]:
    """A 64-bit hash of every column; a single number is hashed without loss."""
    state = np.zeros_like(keys[0]) if seed is None else seed.copy()
    for row in keys:
        state ^= row
        state *= -0x61C8864680B583EB
        state ^= state >> 32
    state *= -0x40A7B892E31B1A47
    return state


@dataclass(eq=False)
class Tally:
    """The distinct codes of one format, counted by their hashes.

    A code of up to 64 bits is hashed without loss. Of longer ones the leading pairs are hashed;
    the positions whose hashes are not alone are gathered in a second look and compared.

    shares: the hashes are held and counted in so many shares, one after the other.
    """

    code: Code
    fmt: FloatFormat
    shares: int
    distinct: int = 0
    doubtful: int = 0
    _held: list[Integers] = field(default_factory=list)
    _repeated: list[Integers] = field(default_factory=list)
    _gathered: list[tuple[Integers, Integers]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How many times to look again."""
        return -(-self.doubtful // CAPACITY)

    def add(
        self, share: int, positions: Float[np.ndarray, " n"], keys: Int[np.ndarray, "features n"]
    ) -> None:
        """Some positions and the stored numbers of their leading pairs."""
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
        if not self.code.packs(self.fmt) and equal.any():
            repeated = np.unique(hashes[1:][equal])
            self._repeated.append(repeated)
            self.distinct -= repeated.size
            self.doubtful += int(equal.sum()) + repeated.size

    def gather(self, number: int, rounds: int, positions: Float[np.ndarray, " n"]) -> None:
        """Keep those of some positions whose hashes are repeated, if it is their round."""
        hashes = self._leading(positions)
        wanted = self._fresh(positions, hashes) & _of_share(hashes, number, rounds)
        for repeated in self._repeated:
            places = np.flatnonzero(wanted)
            found = _among(hashes[places], repeated)
            places = places[found]
            self._gathered.append((hashes[places], positions[places].astype(np.int64)))

    def compare(self) -> None:
        """Count the codes of what was gathered."""
        hashes, positions = (np.concatenate(parts) for parts in zip(*self._gathered, strict=True))
        self._gathered.clear()
        self.distinct += count_equal_hashes(self.code, self.fmt, hashes, positions)

    def _leading(self, positions: Float[np.ndarray, " n"]) -> Integers:
        lead = self.code.leading(self.fmt)
        size = BLOCK // (len(lead) * self.code.per_pair)
        parts = [
            self._hashes(keys_of(self.code.values(positions[low:high], lead), self.fmt))
            for low, high in blocks(0, positions.size, size)
        ]
        return np.concatenate(parts)

    def _hashes(self, keys: Int[np.ndarray, "features n"]) -> Integers:
        return mixed(_packed(keys) if len(keys) == 2 and self.code.packs(self.fmt) else keys)

    def _fresh(
        self, positions: Float[np.ndarray, " n"], hashes: Integers
    ) -> Bool[np.ndarray, " n"]:
        """Whether the code of a position may differ from that of the one before."""
        decides = hashes
        if not self.code.packs(self.fmt):  # then only equal positions have equal codes for sure
            decides = self.code.chain.positions(positions).view(np.int64)
        fresh = np.ones(positions.size, dtype=bool)
        np.not_equal(decides[1:], decides[:-1], out=fresh[1:])
        return fresh


def _packed(keys: Int[np.ndarray, "2 n"]) -> Int[np.ndarray, "1 n"]:
    """Two numbers of at most 32 bits each as one of 64."""
    first, second = keys.view(np.float64).astype(np.float32).view(np.uint32).astype(np.int64)
    return ((first << 32) | second)[None]


def _of_share(hashes: Integers, share: int, shares: int) -> Bool[np.ndarray, " n"]:
    return (hashes >> 17) % shares == share


def _among(hashes: Integers, sorted_: Integers) -> Bool[np.ndarray, " n"]:
    places = np.searchsorted(sorted_, hashes)
    places[places == sorted_.size] = 0
    return sorted_[places] == hashes


def count_equal_hashes(code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers) -> int:
    """The number of different codes among positions whose leading pairs hash to `hashes`."""
    lead = code.leading(fmt)
    distinct = 0
    for pairs in groups(range(lead.stop, code.pairs.stop), len(lead)):
        distinct += hashes.size
        hashes, positions = _repeated(hashes, positions)
        distinct -= hashes.size
        if not hashes.size:
            return distinct
        hashes = _extended(code, fmt, hashes, positions, pairs)
    distinct += hashes.size
    hashes, positions = _repeated(hashes, positions)
    return distinct - hashes.size + _count_equal(code, fmt, hashes, positions)


def groups(pairs: range, size: int) -> list[range]:
    """A range of pairs in pieces of at most `size`."""
    return [pairs[at : at + size] for at in range(0, len(pairs), size)]


def _repeated(hashes: Integers, positions: Integers) -> tuple[Integers, Integers]:
    """Those whose hash occurs more than once, sorted by hash."""
    order = np.argsort(hashes)
    hashes = hashes[order]
    equal = hashes[1:] == hashes[:-1]
    if not equal.any():
        return hashes[:0], positions[:0]
    repeated = np.zeros(hashes.size, dtype=bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return hashes[repeated], positions[order[repeated]]


def _extended(
    code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers, pairs: range
) -> Integers:
    """The hashes with more pairs mixed in."""
    parts = [
        mixed(_keys(code, fmt, positions[start:stop], pairs), hashes[start:stop])
        for start, stop in blocks(0, hashes.size, BLOCK // len(pairs))
    ]
    return np.concatenate(parts)


def _count_equal(code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers) -> int:
    """Different codes among positions sorted by the hash of their whole code.

    Each is compared with the first of its hash; those that differ from it although their hashes
    are equal (chance: 2^-64 for two positions) are counted by comparing them all.
    """
    if not hashes.size:
        return 0
    first = np.ones(hashes.size, dtype=bool)
    first[1:] = hashes[1:] != hashes[:-1]
    if code.single:  # and then its hash is the code
        return int(first.sum())
    leaders = positions[np.flatnonzero(first)[first.cumsum() - 1]]
    strangers = []
    for start, stop in blocks(0, hashes.size, BLOCK // len(code.pairs)):
        here = _keys(code, fmt, positions[start:stop], code.pairs)
        there = _keys(code, fmt, leaders[start:stop], code.pairs)
        strangers.append(here[:, (here != there).any(0)])
    different = np.concatenate(strangers, axis=1)
    return int(first.sum()) + (np.unique(different, axis=1).shape[1] if different.size else 0)


def _keys(
    code: Code, fmt: FloatFormat, positions: Integers, pairs: range
) -> Int[np.ndarray, "features n"]:
    return keys_of(code.values(positions.astype(np.float64), pairs), fmt)
