"""What a position code can still tell apart: colliding neighbours and distinct codes, exactly.

Two positions collide when all the stored numbers of their codes are equal. Positions are streamed,
so memory does not grow with the length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ropelab.numerics.code import Code
from ropelab.numerics.distinct import Integers, count_distinct, keys_of, mixed
from ropelab.numerics.formats import FloatFormat
from ropelab.numerics.ranges import BLOCK, blocks, octaves, span
from ropelab.numerics.sieve import proves_distinct

CAPACITY = 1 << 22
"""Hashes held at once; a longer range is streamed several times, one share of the hashes each."""


Floats = Float[np.ndarray, "n"]
Features = Float[np.ndarray, "features n"]


@dataclass(frozen=True)
class Census:
    """What was found out about one code in one format over one range of positions.

    adjacent_collisions: positions m with code(m) = code(m+1), both in the range.
    first_collision: the smallest such m, None if there is none.
    by_octave: (start, stop, collisions) for the octaves of m.
    """

    positions: int
    distinct: int
    adjacent_collisions: int
    first_collision: int | None
    by_octave: tuple[tuple[int, int, int], ...]


def take_census(
    code: Code,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Callable[[float], object] = lambda steps: None,
    capacity: int = CAPACITY,
) -> list[Census]:
    """Count collisions and distinct codes for every format in which the code may be stored.

    Args:
        offset, length: the positions offset .. offset + length - 1.
        advance: told the share of the work done since the last call; the shares add up to 1.
        capacity: at most about this many hashes are held at once, per format.
    """
    counters = [_Counter(code, fmt, offset, offset + length, capacity) for fmt in formats]
    open_ = [c for c in counters if not proves_distinct(code, c.fmt, offset, length)]
    shares = max((counter.shares for counter in open_), default=0)
    lead = max((code.leading(counter.fmt) for counter in open_), key=len, default=range(0))
    for share in range(shares):
        for start, stop in blocks(
            offset, offset + length, BLOCK // max(len(lead) * code.per_pair, 2)
        ):
            # One position more than the block, to compare its last one with its neighbour.
            positions = span(start, min(stop + 1, offset + length))
            values = code.values(positions, lead)
            for counter in open_:
                counter.add(share, positions, values, stop - start)
            advance((stop - start) / length / shares)
        for counter in open_:
            counter.close_share()
    advance(0 if shares else 1)
    return [counter.census(proved=counter not in open_) for counter in counters]


@dataclass(eq=False)
class _Counter:
    """The running census of one format."""

    code: Code
    fmt: FloatFormat
    start: int
    stop: int
    capacity: int
    distinct: int = 0
    first_collision: int | None = None
    held: list[tuple[Integers, Integers]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.edges = list(octaves(self.start, self.stop))
        self.collisions = np.zeros(len(self.edges), dtype=np.int64)
        # Stored angles only ever grow with the position.
        self.angles = self.code.channel == "angle"
        self.shares = 1 if self.angles else -(-(self.stop - self.start) // self.capacity)
        self.rising = self.falling = True

    def add(self, share: int, positions: Floats, values: Features, count: int) -> None:
        """One block of `count` positions (and one more), with the values of the leading pairs.

        Of equal neighbours only the first is hashed: a run of them has one code.
        """
        values = self._leading(values)
        keys = keys_of(values, self.fmt)
        equal = self._equal_neighbours(positions, keys)
        if share == 0:
            self._note(positions[:-1][equal])
            self._note_direction(values)
        if self.angles:
            return
        hashes, heads = mixed(keys[:, :count]), positions[:count].astype(np.int64)
        fresh = np.ones(count, dtype=bool)
        fresh[1:] = ~equal[: count - 1]
        if self.shares > 1:
            fresh &= (hashes >> 17) % self.shares == share
        whole = bool(fresh.all())
        self.held.append((hashes, heads) if whole else (hashes[fresh], heads[fresh]))

    def _leading(self, values: Features) -> Features:
        """The rows of this format's leading pairs, of rows for at least as many pairs."""
        if self.code.per_pair == 0:
            return values
        return values[: len(self.code.leading(self.fmt)) * self.code.per_pair]

    def _equal_neighbours(
        self, positions: Floats, keys: Int[np.ndarray, "features n"]
    ) -> Bool[np.ndarray, "n-1"]:
        """For each position but the last: is its whole code that of the next one?"""
        equal = (keys[:, 1:] == keys[:, :-1]).all(0)
        if not equal.any():
            return equal
        # Where even the stored positions are equal (bits, for nan), everything after them is.
        stored = self.code.chain.positions(positions).view(np.int64)
        doubtful = equal & (stored[1:] != stored[:-1])
        rest = range(self.code.leading(self.fmt).stop, self.code.pairs.stop)
        while rest and doubtful.any():
            places = np.flatnonzero(doubtful)
            crowded = 4 * places.size > positions.size
            width = positions.size if crowded else 2 * places.size
            pairs, rest = _cut(rest, max(BLOCK // width, 1))
            if crowded:
                everywhere = keys_of(self.code.values(positions, pairs), self.fmt)
                parted = (everywhere[:, 1:] != everywhere[:, :-1]).any(0)
            else:
                parted = np.zeros_like(equal)
                here = keys_of(self.code.values(positions[places], pairs), self.fmt)
                there = keys_of(self.code.values(positions[places + 1], pairs), self.fmt)
                parted[places] = (here != there).any(0)
            equal &= ~(parted & doubtful)
            doubtful &= ~parted
        return equal

    def _note(self, colliding: Floats) -> None:
        if not colliding.size:
            return
        if self.first_collision is None:
            self.first_collision = int(colliding[0])
        edges = [start for start, _ in self.edges] + [self.stop]
        self.collisions += np.diff(np.searchsorted(colliding, edges))

    def _note_direction(self, values: Features) -> None:
        if self.code.single and (self.rising or self.falling):
            here, there = values[0, :-1], values[0, 1:]
            self.rising &= bool((there >= here).all())
            self.falling &= bool((there <= here).all())

    @property
    def monotone(self) -> bool:
        """Whether equal codes can only be neighbours: rounding keeps the order of numbers."""
        return self.angles or (self.code.single and (self.rising or self.falling))

    def close_share(self) -> None:
        """Count the codes of one share of the hashes, and forget them."""
        if self.held and self.monotone:
            self.held.clear()
        elif self.held:
            hashes, heads = (np.concatenate(parts) for parts in zip(*self.held, strict=True))
            self.held.clear()
            self.distinct += count_distinct(self.code, self.fmt, hashes, heads)

    def census(self, *, proved: bool) -> Census:
        """The result; `proved` means that all codes are known to be different."""
        total = self.stop - self.start
        adjacent = int(self.collisions.sum())
        distinct = total - adjacent if proved or self.monotone else self.distinct
        counts = self.collisions.tolist()
        by_octave = tuple((*edge, n) for edge, n in zip(self.edges, counts, strict=True))
        return Census(total, distinct, adjacent, self.first_collision, by_octave)


def _cut(pairs: range, size: int) -> tuple[range, range]:
    return pairs[:size], pairs[size:]
