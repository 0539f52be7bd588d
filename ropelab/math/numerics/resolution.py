"""The positions that stay distinct: colliding neighbours and distinct encodings, exactly.

Two positions collide when all the stored numbers of their encodings are equal. Positions are
streamed, so memory does not grow with the length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ropelab.math.numerics.chain import BLOCK, blocks, octaves, span
from ropelab.math.numerics.distinct import Tally, count_angles, keys_of, proves_distinct
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FloatFormat

# Hashes held at once, 8 bytes each; a longer range is streamed several times, a share each.
HELD = 1 << 24

Advance = Callable[[float], object]
Floats = Float[np.ndarray, "n"]
Features = Float[np.ndarray, "features n"]


@dataclass(frozen=True)
class Census:
    """The counts of one encoding in one format over one range of positions.

    adjacent_collisions: positions m that collide with m+1, both in the range.
    first_collision: the smallest such m, None if there is none.
    by_octave: (start, stop, collisions) for the octaves of m.
    """

    positions: int
    distinct: int
    adjacent_collisions: int
    first_collision: int | None
    by_octave: tuple[tuple[int, int, int], ...]


def take_census(
    encoding: PositionEncoding,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Advance = lambda steps: None,
    held: int = HELD,
) -> list[Census]:
    """Count collisions and distinct encodings for every format in which these may be stored.

    Args:
        offset, length: the positions offset .. offset + length - 1.
        advance: called with the share of the work done since the last call; they add up to 1.
        held: at most about this many hashes are held at once, per format.
    """
    found = []
    for counter in _counted(encoding, formats, offset, length, advance, held, neighbours=True):
        counts = counter.collisions.tolist()
        by_octave = tuple((*edge, n) for edge, n in zip(counter.edges, counts, strict=True))
        first = counter.first_collision
        found.append(Census(length, counter.distinct, sum(counts), first, by_octave))
    return found


def count_distinct(
    encoding: PositionEncoding,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    held: int = HELD,
) -> list[int]:
    """Count the distinct encodings alone, as `take_census` does, for every format."""
    alone = encoding.component == "angle"  # their number follows from the neighbours'
    if alone and len(encoding.pairs) == encoding.chain.spectrum.pairs:
        found = count_angles(encoding.chain, offset, length)
        if found is not None:
            return [found] * len(formats)
    counters = _counted(
        encoding, formats, offset, length, lambda steps: None, held, neighbours=alone
    )
    return [counter.distinct for counter in counters]


@dataclass(eq=False)
class _Counter:
    """The running census of one format.

    edges: (start, stop) of the octaves that the range touches.
    rising, falling: so far, each number was at least, or at most, the one before it.
    """

    encoding: PositionEncoding
    fmt: FloatFormat
    length: int
    edges: Sequence[tuple[int, int]]
    tally: Tally
    proved: bool
    collisions: Int[np.ndarray, " octaves"] = field(init=False)
    first_collision: int | None = None
    rising: bool = True
    falling: bool = True

    def __post_init__(self) -> None:
        self.collisions = np.zeros(len(self.edges), dtype=np.int64)

    @property
    def distinct(self) -> int:
        """The number of distinct encodings."""
        if self.proved:
            return self.length
        # Rounding keeps the order of numbers, so of a monotone number only neighbours can be equal;
        # stored angles only ever grow with the position.
        monotone = self.encoding.single and (self.rising or self.falling)
        if monotone or self.encoding.component == "angle":
            return self.length - int(self.collisions.sum())
        return self.tally.distinct

    def add(
        self, share: int, positions: Floats, values: Features, count: int, neighbours: bool
    ) -> None:
        """Add a block of positions, with the values of at least as many pairs as are leading.

        Args:
            count: how many of the positions are the block's own.
        """
        encoding = self.encoding
        if encoding.per_pair:
            values = values[: len(encoding.leading(self.fmt)) * encoding.per_pair]
        keys = keys_of(values, self.fmt)
        if share == 0 and neighbours:
            self._note(positions[:-1][self._equal(positions, keys)])
            if encoding.single and (self.rising or self.falling):
                here, there = values[0, :-1], values[0, 1:]
                self.rising &= bool((there >= here).all())
                self.falling &= bool((there <= here).all())
        if encoding.component != "angle":
            self.tally.add(share, positions[:count], keys[:, :count])

    def _equal(
        self, positions: Floats, keys: Int[np.ndarray, "features n"]
    ) -> Bool[np.ndarray, " n-1"]:
        """Return for each position but the last whether its whole encoding equals the next one."""
        equal = (keys[:, 1:] == keys[:, :-1]).all(0)
        rest = range(self.encoding.leading(self.fmt).stop, self.encoding.pairs.stop)
        if not rest or not equal.any():
            return equal
        # Where even the stored positions are equal (bits, for nan), everything after them is.
        stored = self.encoding.chain.positions(positions).view(np.int64)
        doubtful = equal & (stored[1:] != stored[:-1])
        while rest and doubtful.any():
            places = np.flatnonzero(doubtful)
            # Where many are doubtful, computing each position once is less than here and there.
            crowded = 4 * places.size > positions.size
            size = max(BLOCK // (positions.size if crowded else 2 * places.size), 1)
            pairs, rest = rest[:size], rest[size:]
            if crowded:
                everywhere = self._keys(positions, pairs)
                parted = (everywhere[:, 1:] != everywhere[:, :-1]).any(0)
            else:
                parted = np.zeros(positions.size - 1, dtype=bool)
                here, there = (self._keys(positions[at], pairs) for at in (places, places + 1))
                parted[places] = (here != there).any(0)
            equal &= ~(parted & doubtful)
            doubtful &= ~parted
        return equal

    def _keys(self, positions: Floats, pairs: range) -> Int[np.ndarray, "features n"]:
        return keys_of(self.encoding.values(positions, pairs), self.fmt)

    def _note(self, colliding: Floats) -> None:
        if not colliding.size:
            return
        if self.first_collision is None:
            self.first_collision = int(colliding[0])
        edges = [start for start, _ in self.edges] + [self.edges[-1][1]]
        self.collisions += np.diff(np.searchsorted(colliding, edges))


def _counted(
    encoding: PositionEncoding,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Advance,
    held: int,
    neighbours: bool,
) -> list[_Counter]:
    """Stream the range through a counter per format, and once more for positions in doubt."""
    shares = -(-length // held)
    edges = list(octaves(offset, offset + length))
    counters = [
        _Counter(
            encoding,
            fmt,
            length,
            edges,
            Tally(encoding, fmt, shares),
            proves_distinct(encoding, fmt, offset, length),
        )
        for fmt in formats
    ]
    open_ = [counter for counter in counters if not counter.proved]
    lead = max((encoding.leading(counter.fmt) for counter in open_), key=len, default=range(0))
    if encoding.component == "angle":  # nothing is held
        shares = 1
    for share in range(shares if open_ else 0):
        for positions, values, count in _blocks(encoding, offset, offset + length, lead):
            for counter in open_:
                counter.add(share, positions, values, count, neighbours)
            advance(count / length / shares)
        for counter in open_:
            counter.tally.close_share()
    advance(0 if open_ else 1)
    _compare_doubtful([counter.tally for counter in open_], offset, offset + length)
    return counters


def _compare_doubtful(tallies: Sequence[Tally], start: int, stop: int) -> None:
    """Compare the positions whose hashes are equal, as many of them at once as may be held."""
    doubtful = [tally for tally in tallies if tally.doubtful]
    rounds = max((tally.rounds for tally in doubtful), default=0)
    for number in range(rounds):
        for low, high in blocks(start, stop):
            for tally in doubtful:
                tally.gather(number, rounds, span(low, high))
        for tally in doubtful:
            tally.compare()


def _blocks(
    encoding: PositionEncoding, start: int, stop: int, lead: range
) -> Iterator[tuple[Floats, Features, int]]:
    """Yield positions, the values of some pairs there, and the number of the block's own ones."""
    for low, high in blocks(start, stop, BLOCK // max(len(lead) * encoding.per_pair, 2)):
        # One position more than the block, to compare its last one with its neighbour.
        positions = span(low, min(high + 1, stop))
        yield positions, encoding.values(positions, lead), high - low
