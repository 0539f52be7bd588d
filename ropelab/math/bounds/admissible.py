"""The admissible bases for a context: S(m, b) >= 0 for every position m below it.

The set is not an interval, but from the stable base on every base is in it. The stable
base is sought from above (``boxes.find_threatened``). Below it the search walks upwards in u
= ln b and sorts every point into one of three kinds, by proof and not by sampling:

* excluded: positions are named whose S is negative in stretches that leave no gap.
* admissible: one scan of *all* positions at a slab's centre leaves a complete list of those that
  could turn negative inside it (|dS/du| <= m sum a_i b^(-a_i)); bisection clears the list.
* edge: an interval no wider than ``EDGE`` in which a position's sign changes.

So no admissible window wider than ``EDGE`` (relative to the base) can be missed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ropelab.math.bounds import intervals as bounds
from ropelab.math.bounds.boxes import Boxes, find_threatened, intervals
from ropelab.math.bounds.intervals import (
    EDGE,
    Undecided,
    Window,
    admissible,
    is_excluded,
)
from ropelab.math.bounds.similarity import Floats, Similarity, Singles
from ropelab.math.bounds.survey import BLOCK, promising, scan
from ropelab.math.numerics.chain import blocks

# Steps in u are measured in turns: in one turn the longest position's sum moves by
# about one. Sums of a hunt are expanded at so many turns from its beginning.
AHEAD = 1.2
# A hunt that gets no further than this share of the way to that point has missed.
LEAST = 0.01
# The least width of a slab that is resolved position by position.
NARROWEST = 0.02
# Bisection of wider slabs takes the longer the wider they are.
WIDE = 8.0
# Width in ln b of the first slab of the search from above.
DESCENT = 2.0
# Boxes that the search from above examines together; a slab that has more is cut in
# two.
MOST = 1 << 14
# Intervals are bisected together once so many positions threaten them.
HELD = 1 << 14


def certified_from(similarity: Similarity, context: int) -> float:
    """Return the smallest u above which one bound shows all bases to be admissible.

    inf: there is none.
    """
    rounding = similarity.rounding_error(context)

    def is_surely_positive(u: float) -> bool:
        # For u' >= u the angle of pair i stays in [0, context b^(-a_i)], so its cosine
        # is at least cos(min(that, pi)); a pair with a_i = 0 may be -1 anywhere.
        farthest = (context - 1) * similarity.inv_freq(u)
        cosines = np.cos(np.minimum(farthest, math.pi))
        cosines[similarity.a == 0] = -1.0
        least = cosines.sum() + similarity.unrotated
        return bool(least > rounding)

    # At u = 1e4 the angles of ordinary heads are 0 in float64 but for the pair with a =
    # 0.
    low = 0.0
    high = 1e4
    if not is_surely_positive(high):
        return math.inf

    while high - low > 1e-3:
        middle = (low + high) / 2
        # ``high`` is certified at every step, so stopping early only makes it larger
        # than needed.
        if is_surely_positive(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass
class Walk:
    """A walk over the bases for one context."""

    similarity: Similarity
    context: int
    # (u, m): from u on, positions below m are known not to fail.
    settled: tuple[float, int] = (math.inf, 1)

    def windows(self, start: float) -> Iterator[Window]:
        """Yield the admissible intervals of u from ``start``; the last has no end."""
        return self._join_windows(start, self.stable(), HELD)

    def first(self, start: float) -> Window | None:
        """Return the first such interval; None if there is none."""
        end = 0.0
        if not self.similarity.never_negative:
            end = certified_from(self.similarity, self.context)
        return next(self._join_windows(start, end, 0), None)

    def stable(self) -> float:
        """Return the u from which on every base is admissible; inf: there is none."""
        if self.similarity.never_negative:
            return 0.0

        # Much faster than all windows: where few bases fail, most boxes are dropped
        # while wide.
        high = certified_from(self.similarity, self.context)
        width = DESCENT

        while 0 < high < math.inf:
            low = max(0.0, high - width)
            first = self._first_open_position(low)
            boxes = find_threatened(
                self.similarity, first, self.context, low, high, MOST
            )
            if boxes is None:
                width /= 2
                continue

            for piece in reversed(self._clear_pieces(boxes, low, high)):
                # Some base between this piece and ``high`` fails.
                if not _touch(piece, (high, high)):
                    return high
                high = piece[0]

            if high > low:
                return high
            width *= 1.3
        return high

    def _clear_pieces(self, boxes: Boxes, low: float, high: float) -> list[Window]:
        """Return the admissible pieces of [low, high], ascending."""
        if not len(boxes):
            return [(low, high)]

        fine = 1e-3 * self._turn(low, 1)
        undecided = intervals(self.similarity, boxes, fine)
        pieces = admissible(self.similarity, undecided)

        # Everything between the boxes is admissible.
        lows, highs = undecided.intervals[:2].tolist()
        starts = [low, *highs]
        ends = [*lows, high]
        for start, end in zip(starts, ends, strict=True):
            if end - start > EDGE:
                pieces.append((start, end))
        return sorted(pieces)

    def _first_open_position(self, u: float) -> int:
        """Return the first position that could fail from u on."""
        settled_from, position = self.settled
        if u >= settled_from:
            return position
        return 1

    def _turn(self, u: float, share: float) -> float:
        """Return the step in u in which the sum of a share of the context moves 1."""
        slope = share * self.context * self.similarity.slope_typical(u)
        # 1e-9: a head that rotates only its first pair does not change with the base.
        return 1 / (slope + 1e-9)

    def _join_windows(self, start: float, end: float, held: int) -> Iterator[Window]:
        """Yield admissible intervals; from ``end`` on all are.

        ``held``: see `_pieces`.
        """
        window: Window | None = None

        # Where no base is certified below b = e^60 = 1e26, the walk ends there.
        top = min(end, 60.0)
        for reached, pieces in self._pieces(start, top, held):
            for piece in pieces:
                if window is not None and _touch(window, piece):
                    window = (window[0], piece[1])
                    continue
                if window is not None:
                    yield window
                window = piece
            if window is not None and not _touch(window, (reached, reached)):
                yield window
                window = None

        if end < math.inf:
            begin = max(start, end)
            if window is not None:
                begin = window[0]
            yield begin, math.inf
        elif window is not None:
            yield window

    def _pieces(
        self,
        start: float,
        top: float,
        held: int,
    ) -> Iterator[tuple[float, list[Window]]]:
        """Yield how far the walk has come, and the admissible pieces on the way.

        Pieces ascend. They are yielded once ``held`` positions threaten what is open.
        """
        u = start
        pace = _Pace()
        slabs = _Slabs()

        while u < top:
            end = u
            if pace.hunting:
                end = min(top, self._hunt(u, pace))

            if end == u:
                # A slab narrower than EDGE could not be bisected.
                step = max(EDGE, pace.turns * self._turn(u, 1))
                end = min(top, u + step)
                width = self._resolve(slabs, u, end, pace)
                pace.hunting = width <= (end - u) / 2
                pace.adjust()

            u = end
            if slabs.threats >= held or u >= top:
                pieces = slabs.clear
                if slabs.undecided:
                    undecided = Undecided.join(slabs.undecided)
                    pieces = [*pieces, *admissible(self.similarity, undecided)]
                yield u, sorted(pieces)
                slabs = _Slabs()

    def _hunt(self, u: float, pace: "_Pace") -> float:
        """Return the end of the bases from u on that promising positions exclude.

        u: they exclude none.
        """
        while True:
            centre = u + AHEAD * self._turn(u, pace.share)
            stop = max(2, round(pace.share * self.context))
            tangents = promising(self.similarity, centre, stop)
            end = bounds.excluded_upto(self.similarity, tangents, u, centre)
            if end > u + LEAST * (centre - u):
                pace.share = max(1 / 64, pace.share * 0.98)
                return end
            if pace.share == 1:
                return u
            pace.share = min(1.0, pace.share * 1.2)

    def _resolve(
        self,
        slabs: "_Slabs",
        low: float,
        high: float,
        pace: "_Pace",
    ) -> float:
        """Add [low, high] to the slabs, in few intervals with all that threatens each.

        Returns the width of the intervals whose middle is admissible.
        """
        positions, lowest = self._threats(low, high)
        count = len(positions)

        # Above this many threats, splitting the interval and scanning again is cheaper.
        too_many = 200 + self.context // 100
        # Wide slabs take more halvings for the same list.
        busy = count * max(1.0, pace.turns / WIDE) / too_many
        pace.busy = max(pace.busy, busy)

        if not count:
            slabs.clear.append((low, high))
        elif count <= too_many or high - low <= EDGE:
            fine = 1e-3 * self._turn(low, 1)
            interval = Undecided.one(self.similarity, positions, low, high, fine)
            slabs.undecided.append(interval)
            slabs.threats += count
        # The lowest sums come first: where 24 do not exclude an interval, others hardly
        # will.
        elif is_excluded(self.similarity, positions[:24], low, high):
            return 0.0
        else:
            middle = (low + high) / 2
            below = self._resolve(slabs, low, middle, pace)
            return below + self._resolve(slabs, middle, high, pace)
        if lowest < 0:
            return 0.0
        return high - low

    def _threats(self, low: float, high: float) -> tuple[Floats, float]:
        """Return the positions that could fail in [low, high], lowest S first.

        S in the middle decides; its least value is returned too, or 0.
        """
        similarity = self.similarity
        middle = (low + high) / 2

        # Within the interval S differs from its value in the middle by at most m *
        # change.
        steepest = similarity.slope_bound(low)
        change = steepest * (high - low) / 2 * (1 + 1e-9)
        margin = similarity.single_error

        parts_of_positions: list[Floats] = []
        parts_of_values: list[Singles] = []
        first = self._first_open_position(low)
        for start, stop in blocks(first, self.context, BLOCK):
            sums = scan(similarity, middle, start, stop)
            # The bound of the last position holds for the whole block and leaves few to
            # compare.
            near = np.flatnonzero(sums < change * stop + margin)
            bounds_of_near = change * (near + float(start)) + margin
            near = near[sums[near] < bounds_of_near]
            parts_of_positions.append(near.astype(np.float64) + start)
            parts_of_values.append(sums[near])

        positions = np.concatenate(parts_of_positions)
        values = np.concatenate(parts_of_values)
        order = np.argsort(values)
        return positions[order], float(values.min(initial=0.0))


@dataclass
class _Slabs:
    """The admissible pieces of a stretch of bases, and the intervals to bisect."""

    clear: list[Window] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    threats: int = 0  # positions in these


@dataclass
class _Pace:
    """The state of a walk."""

    hunting: bool = True  # for positions that exclude bases
    share: float = 1.0  # the part of the context in which positions are sought
    turns: float = 0.5  # the width of the next slab
    busy: float = 0.0  # the longest list of threats, relative to a convenient one

    def adjust(self) -> None:
        """Make the next slab as wide as the last list of threats allows."""
        if self.busy > 1:
            self.turns *= 0.7
        elif self.busy < 0.3:
            self.turns *= 1.3
        self.turns = max(self.turns, NARROWEST)
        self.busy = 0.0


def _touch(first: Window, second: Window) -> bool:
    # Up to a few edges.
    return second[0] - first[1] <= 4 * EDGE
