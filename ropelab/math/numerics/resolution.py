"""The positions that stay distinct: colliding neighbours and distinct encodings, exactly.

Two positions collide when all the stored numbers of their encodings are equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ropelab.math.numerics.casts import EXACT
from ropelab.math.numerics.chain import BLOCK, Chain, Positions, blocks, octaves, span
from ropelab.math.numerics.distinct import (
    count_angles,
    count_equal_hashes,
    keys_of,
    mixed,
    proves_distinct,
)
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FloatFormat

# Hashes held at once, 8 bytes each; a longer range is streamed several times, a share each.
HELD = 1 << 24

Advance = Callable[[float], object]
Keys = Int[np.ndarray, "features n"]


@dataclass(frozen=True)
class Census:
    """The counts of an encoding in a format over a range of positions.

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
    neighbours: bool = True,
) -> list[Census]:
    """Count collisions and distinct encodings for every format.

    advance: called with the share of the work done since the last call; they add up to 1.
    held: at most about this many hashes are held at once, per format.
    neighbours: if False, collisions are not counted (0), only distinct encodings: quicker.
    """
    stop = offset + length
    edges = [*(start for start, _ in octaves(offset, stop)), stop]
    counters = [
        _Counter(encoding, fmt, edges, proves_distinct(encoding, fmt, offset, length))
        for fmt in formats
    ]
    doubtful = [counter for counter in counters if not counter.proved]
    leading = max((encoding.leading(each.fmt) for each in doubtful), key=len, default=range(0))
    # Distinct angles follow from their collisions, as those of a single number mostly do.
    hashed = encoding.component != "angle"
    neighbours = neighbours or encoding.single or not hashed
    shares = -(-length // held) if hashed else 1
    size = BLOCK // max(len(leading) * encoding.per_pair, 2)
    for share in range(shares if doubtful else 0):
        for low, high in blocks(offset, stop, size):
            # One position more than the block, to compare its last one with its neighbour.
            positions = span(low, min(high + 1, stop))
            values = encoding.values(positions, leading)
            for counter in doubtful:
                keys = counter.keys_of(values)
                if share == 0 and neighbours:
                    counter.compare(positions, keys, values[0])
                if hashed:
                    own = high - low
                    counter.hold(positions[:own], keys[:, :own], share, shares)
            advance((high - low) / length / shares)
        for counter in doubtful:
            counter.close_share()
    advance(0 if doubtful else 1)
    return [counter.census() for counter in counters]


def count_distinct(
    chain: Chain, tables: Sequence[FloatFormat], offset: int, length: int
) -> dict[FloatFormat, int]:
    """Count the positions with distinct stored cos and sin, for each format of the table."""
    found, pairs = {}, range(chain.spectrum.pairs)
    if EXACT in tables:
        # An exact table distinguishes what the angles do: no two of these are the same direction.
        angles = PositionEncoding(chain, "angle", pairs)
        steps = count_angles(chain, offset, length)
        found[EXACT] = steps or take_census(angles, [EXACT], offset, length)[0].distinct
    rounded = [table for table in tables if table != EXACT]
    vector = PositionEncoding(chain, "vector", pairs)
    counted = take_census(vector, rounded, offset, length, neighbours=False)
    return found | {fmt: each.distinct for fmt, each in zip(rounded, counted, strict=True)}


@dataclass(eq=False)
class _Counter:
    """The running counts of one format.

    edges: the bounds of the octaves that the range touches.
    proved: no two positions collide, so nothing need be counted.
    hashed: distinct encodings in the shares that are finished.
    rising, falling: so far, each number was at least, or at most, the one before it.
    """

    encoding: PositionEncoding
    fmt: FloatFormat
    edges: Sequence[int]
    proved: bool
    first_collision: int | None = None
    hashed: int = 0
    rising: bool = True
    falling: bool = True
    hashes: list[Int[np.ndarray, " n"]] = field(default_factory=list)
    positions: list[Positions] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.collisions = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def census(self) -> Census:
        length, collisions = self.edges[-1] - self.edges[0], self.collisions.tolist()
        # Rounding keeps order, so of a monotone number only neighbours can be equal; stored angles
        # only ever grow with the position.
        monotone = self.encoding.single and (self.rising or self.falling)
        distinct = self.hashed
        if self.proved:
            distinct = length
        elif monotone or self.encoding.component == "angle":
            distinct = length - sum(collisions)
        octaves = tuple(zip(self.edges[:-1], self.edges[1:], collisions, strict=True))
        return Census(length, distinct, sum(collisions), self.first_collision, octaves)

    def keys_of(self, values: Float[np.ndarray, "features n"]) -> Keys:
        """Return the stored numbers of the leading pairs."""
        # A score is one number for all pairs.
        count = max(len(self.encoding.leading(self.fmt)) * self.encoding.per_pair, 1)
        return keys_of(values[:count], self.fmt)

    def compare(self, positions: Positions, keys: Keys, number: Positions) -> None:
        """Count the positions that collide with the next; `number`: before rounding."""
        encoding = self.encoding
        if encoding.single and (self.rising or self.falling):
            self.rising &= bool((number[1:] >= number[:-1]).all())
            self.falling &= bool((number[1:] <= number[:-1]).all())
        equal = (keys[:, 1:] == keys[:, :-1]).all(0)
        if not equal.any():
            return
        # Where even the stored positions are equal (bits, for nan), everything after them is.
        stored = encoding.chain.positions(positions).view(np.int64)
        doubtful = np.flatnonzero(equal & (stored[1:] != stored[:-1]))
        rest = encoding.pairs[len(encoding.leading(self.fmt)) :]
        while rest and doubtful.size:
            # Each position is computed once, also where it is both a neighbour and has one.
            # Marking them is five times as quick as np.union1d.
            marked = np.zeros(positions.size, dtype=bool)
            marked[doubtful] = marked[doubtful + 1] = True
            needed = np.flatnonzero(marked)
            size = max(BLOCK // needed.size, 1)
            pairs, rest = rest[:size], rest[size:]
            found = keys_of(encoding.values(positions[needed], pairs), self.fmt)
            at = marked.cumsum()[doubtful] - 1
            same = (found[:, 1:] == found[:, :-1]).all(0)[at]
            equal[doubtful[~same]] = False
            doubtful = doubtful[same]
        colliding = positions[:-1][equal]
        if colliding.size and self.first_collision is None:
            self.first_collision = int(colliding[0])
        self.collisions += np.diff(np.searchsorted(colliding, self.edges))

    def hold(self, positions: Positions, keys: Keys, share: int, shares: int) -> None:
        packs = self.encoding.packs(self.fmt)
        if packs and len(keys) == 2:
            halves = keys.view(np.float64).astype(np.float32).view(np.uint32).astype(np.int64)
            keys = ((halves[0] << 32) | halves[1])[None]
        hashes = mixed(keys)
        # Leave out those that certainly equal the one before: by hashes that lose nothing, else by
        # stored positions.
        decides = hashes if packs else self.encoding.chain.positions(positions).view(np.int64)
        wanted = np.append(True, decides[1:] != decides[:-1])
        if shares > 1:
            wanted &= (hashes >> 17) % shares == share
        self.hashes.append(hashes[wanted])
        if not packs:
            self.positions.append(positions[wanted])

    def close_share(self) -> None:
        if not self.hashes:
            return
        hashes = np.concatenate(self.hashes)
        self.hashes.clear()
        if self.encoding.packs(self.fmt):
            hashes.sort()
            self.hashed += int((hashes[1:] != hashes[:-1]).sum()) + bool(hashes.size)
        else:
            positions = np.concatenate(self.positions)
            self.positions.clear()
            self.hashed += count_equal_hashes(self.encoding, self.fmt, hashes, positions)
