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
from ropelab.math.bounds.boxes import find_threatened, intervals
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
    """Return the smallest u above which one bound shows every base to be admissible
    (inf: none).
    """

    def surely_positive(u: float) -> bool:
        # For u' >= u the angle of pair i stays in [0, context b^(-a_i)], so its cosine
        # is at least cos(min(that, pi)); a pair with a_i = 0 may be -1 anywhere.
        farthest = np.minimum((context - 1) * similarity.inv_freq(u), math.pi)
        worst = np.where(similarity.a == 0, -1.0, np.cos(farthest))
        return bool(
            worst.sum() + similarity.unrotated > similarity.rounding_error(context)
        )

    # At u = 1e4 the angles of ordinary heads are 0 in float64 but for the pair with a =
    # 0.
    if not surely_positive(1e4):
        return math.inf
    low = 0.0
    high = 1e4
    while high - low > 1e-3:
        middle = (low + high) / 2
        # ``high`` is certified at every step, so stopping early only makes it larger
        # than needed.
        low, high = (low, middle) if surely_positive(middle) else (middle, high)
    return high


@dataclass
class Walk:
    """A walk over the bases for one context."""

    similarity: Similarity
    context: int
    # (u, m): from u on, positions below m are known not to fail
    settled: tuple[float, int] = (math.inf, 1)

    def windows(self, start: float) -> Iterator[Window]:
        """Yield all admissible intervals of u from ``start`` on; the last ends at
        inf.
        """
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
            boxes = find_threatened(
                self.similarity,
                self._first_open_position(low),
                self.context,
                low,
                high,
                MOST,
            )
            if boxes is None:
                width /= 2
                continue

            clear = [(low, high)]
            if len(boxes):
                # Everything between the boxes is admissible.
                undecided = intervals(self.similarity, boxes, 1e-3 * self._turn(low, 1))
                lows, highs = undecided.intervals[:2].tolist()
                between = zip([low, *highs], [*lows, high], strict=True)
                clear = [(start, end) for start, end in between if end - start > EDGE]
                clear = sorted([*clear, *admissible(self.similarity, undecided)])

            for piece in reversed(clear):
                # Some base between this piece and ``high`` fails.
                if not _touch(piece, (high, high)):
                    return high
                high = piece[0]

            if high > low:
                return high
            width *= 1.3
        return high

    def _first_open_position(self, u: float) -> int:
        """Return the first position that could fail from u on."""
        return self.settled[1] if u >= self.settled[0] else 1

    def _turn(self, u: float, share: float) -> float:
        """Return the step in u in which the sum of a share of the context moves by
        about one.
        """
        # 1e-9: a head that rotates only its first pair does not change with the base.
        return 1 / (share * self.context * self.similarity.slope_typical(u) + 1e-9)

    def _join_windows(self, start: float, end: float, held: int) -> Iterator[Window]:
        """Yield admissible intervals; from ``end`` on all are. ``held`` = 0:
        soonest.
        """
        window: Window | None = None

        # Where no base is certified below b = e^60 = 1e26, the walk ends there.
        for reached, pieces in self._pieces(start, min(end, 60.0), held):
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
            yield (window[0] if window else max(start, end), math.inf)
        elif window is not None:
            yield window

    def _pieces(
        self,
        start: float,
        top: float,
        held: int,
    ) -> Iterator[tuple[float, list[Window]]]:
        """Yield (how far the walk has come, admissible pieces since the last time),
        ascending.
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
                end = min(top, u + max(EDGE, pace.turns * self._turn(u, 1)))
                width = self._resolve(slabs, u, end, pace)
                pace.hunting = width <= (end - u) / 2
                if pace.busy > 1:
                    pace.turns *= 0.7
                elif pace.busy < 0.3:
                    pace.turns *= 1.3
                pace.turns = max(pace.turns, NARROWEST)
                pace.busy = 0.0

            u = end
            if slabs.threats >= held or u >= top:
                if slabs.undecided:
                    slabs.clear += admissible(
                        self.similarity, Undecided.join(slabs.undecided)
                    )
                yield u, sorted(slabs.clear)
                slabs = _Slabs()

    def _hunt(self, u: float, pace: "_Pace") -> float:
        """Return the end of the bases from u on that promising positions exclude; u:
        none are.
        """
        while True:
            centre = u + AHEAD * self._turn(u, pace.share)
            tangents = promising(
                self.similarity, centre, max(2, round(pace.share * self.context))
            )
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
        """Add [low, high] to the slabs, in few intervals, each with all that threatens
        it.
        """
        # Returns the width of the intervals whose middle is admissible.
        positions, lowest = self._threats(low, high)

        # Above this many threats, splitting the interval and scanning again is cheaper.
        too_many = 200 + self.context // 100
        # Wide slabs take more halvings for the same list.
        pace.busy = max(
            pace.busy, len(positions) * max(1.0, pace.turns / WIDE) / too_many
        )

        if not len(positions):
            slabs.clear.append((low, high))
        elif len(positions) <= too_many or high - low <= EDGE:
            fine = 1e-3 * self._turn(low, 1)
            slabs.undecided.append(
                Undecided.one(self.similarity, positions, low, high, fine)
            )
            slabs.threats += len(positions)
        # The lowest sums come first: where 24 do not exclude an interval, others hardly
        # will.
        elif is_excluded(self.similarity, positions[:24], low, high):
            return 0.0
        else:
            middle = (low + high) / 2
            below = self._resolve(slabs, low, middle, pace)
            return below + self._resolve(slabs, middle, high, pace)
        return high - low if lowest >= 0 else 0.0

    def _threats(self, low: float, high: float) -> tuple[Floats, float]:
        """Return what could fail in [low, high] by S in the middle, and the lowest S
        there or 0.
        """
        similarity = self.similarity

        # Within the interval S differs from its value in the middle by at most m *
        # change.
        change = similarity.slope_bound(low) * (high - low) / 2 * (1 + 1e-9)
        margin = similarity.single_error

        found: list[tuple[Floats, Singles]] = []
        for start, stop in blocks(self._first_open_position(low), self.context, BLOCK):
            sums = scan(similarity, (low + high) / 2, start, stop)
            # The bound of the last position holds for the whole block and leaves few to
            # compare.
            near = np.flatnonzero(sums < change * stop + margin)
            near = near[sums[near] < change * (near + float(start)) + margin]
            found.append((near.astype(np.float64) + start, sums[near]))

        positions, values = (
            np.concatenate(parts) for parts in zip(*found, strict=True)
        )
        return positions[np.argsort(values)], float(values.min(initial=0.0))


@dataclass
class _Slabs:
    """The admissible pieces of a stretch of bases, and the intervals still to be
    bisected.
    """

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


def _touch(first: Window, second: Window) -> bool:
    # Up to a few edges.
    return second[0] - first[1] <= 4 * EDGE
