"""Which neighbours share their whole code, counted block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from ropelab.math.numerics.code import Code
from ropelab.math.numerics.distinct import keys_of
from ropelab.math.numerics.formats import FloatFormat
from ropelab.math.numerics.ranges import BLOCK

Floats = Float[np.ndarray, "n"]
Features = Float[np.ndarray, "features n"]


@dataclass(eq=False)
class Neighbours:
    """The colliding neighbours of one code in one format, by octaves of the first of the two.

    edges: (start, stop) of the octaves that the range touches.
    """

    code: Code
    fmt: FloatFormat
    edges: Sequence[tuple[int, int]]
    first_collision: int | None = None
    rising: bool = True
    falling: bool = True
    collisions: Int[np.ndarray, " octaves"] = field(init=False)

    def __post_init__(self) -> None:
        self.collisions = np.zeros(len(self.edges), dtype=np.int64)

    @property
    def monotone(self) -> bool:
        """Whether equal codes can only be neighbours: rounding keeps the order of numbers.

        Stored angles only ever grow with the position.
        """
        return self.code.channel == "angle" or (self.code.single and (self.rising or self.falling))

    def add(self, positions: Floats, values: Features, keys: Int[np.ndarray, "features n"]) -> None:
        """A block of positions, with the values of the leading pairs and these as stored."""
        self._note(positions[:-1][self._equal(positions, keys)])
        if self.code.single and (self.rising or self.falling):
            here, there = values[0, :-1], values[0, 1:]
            self.rising &= bool((there >= here).all())
            self.falling &= bool((there <= here).all())

    def _equal(
        self, positions: Floats, keys: Int[np.ndarray, "features n"]
    ) -> Bool[np.ndarray, " n-1"]:
        """For each position but the last: is its whole code that of the next one?"""
        equal = (keys[:, 1:] == keys[:, :-1]).all(0)
        rest = range(self.code.leading(self.fmt).stop, self.code.pairs.stop)
        if not rest or not equal.any():
            return equal
        # Where even the stored positions are equal (bits, for nan), everything after them is.
        stored = self.code.chain.positions(positions).view(np.int64)
        doubtful = equal & (stored[1:] != stored[:-1])
        while rest and doubtful.any():
            places = np.flatnonzero(doubtful)
            crowded = 4 * places.size > positions.size
            width = positions.size if crowded else 2 * places.size
            size = max(BLOCK // width, 1)
            pairs, rest = rest[:size], rest[size:]
            parted = self._parted(positions, places, pairs, crowded)
            equal &= ~(parted & doubtful)
            doubtful &= ~parted
        return equal

    def _parted(
        self, positions: Floats, places: Int[np.ndarray, " k"], pairs: range, crowded: bool
    ) -> Bool[np.ndarray, " n-1"]:
        """Whether some pairs tell a position from the next one: everywhere, or at some places."""
        if crowded:
            everywhere = keys_of(self.code.values(positions, pairs), self.fmt)
            return (everywhere[:, 1:] != everywhere[:, :-1]).any(0)
        parted = np.zeros(positions.size - 1, dtype=bool)
        here = keys_of(self.code.values(positions[places], pairs), self.fmt)
        there = keys_of(self.code.values(positions[places + 1], pairs), self.fmt)
        parted[places] = (here != there).any(0)
        return parted

    def _note(self, colliding: Floats) -> None:
        if not colliding.size:
            return
        if self.first_collision is None:
            self.first_collision = int(colliding[0])
        edges = [start for start, _ in self.edges] + [self.edges[-1][1]]
        self.collisions += np.diff(np.searchsorted(colliding, edges))
