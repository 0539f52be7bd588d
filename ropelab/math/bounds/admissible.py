"""The admissible bases for a context: S(m, b) >= 0 for every position m below it.

S(m, b) is the sum of cos(m b^(-a_i)) over the pairs i of a head, with a_i = 2 i / d for
a head of d rotated features (similarity.py). The admissible bases are not one interval,
but every base from the stable base on is admissible. The stable base is sought from above,
in boxes: a box is an interval of bases times a range of positions
(``boxes.find_threatened``). Below the stable base a walk goes upwards in u = ln b, and
sorts every u into one of three kinds, by proof and not by sampling:

* excluded: for each u of a stretch some position has S < 0.
* admissible: no position has S < 0. To prove it for a slab, which is an interval of u,
  the sums of *all* positions in its middle are computed. Inside the slab a sum changes by
  no more than the slope bound |dS/du| <= m sum a_i b^(-a_i) allows. Only a short list of
  positions could therefore have a negative sum somewhere in the slab. These positions
  are said to threaten the slab. The slab is halved until each of them is decided.
* edge: the sign of the S of a position changes in an interval no wider than ``EDGE``.

Hence no admissible interval wider than ``EDGE``, relative to the base, can be missed.

`find_certified_u` and `Walk` are the entrances. A walk hunts for positions that exclude the
bases ahead (`_hunt`). Where there are none, it resolves the slab ahead (`_resolve`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ropelab.math.bounds.boxes import Boxes, find_threatened, gather_intervals
from ropelab.math.bounds.intervals import (
    EDGE,
    Undecided,
    Window,
    find_admissible,
    find_excluded_end,
    is_excluded,
)
from ropelab.math.bounds.similarity import Floats, Similarity, Singles
from ropelab.math.bounds.survey import BLOCK, find_promising, scan
from ropelab.math.numerics.chain import cut_into_blocks

# Steps in u are measured in turns: in one turn the sum of the largest position changes by
# about one. This is how many turns a hunt looks ahead for positions with a negative sum.
AHEAD = 1.2
# The share of the `AHEAD` turns that a hunt has to exclude; below it the hunt has failed.
LEAST = 0.01
# The least width of a slab that is resolved position by position, in turns.
NARROWEST = 0.02
# The width of a slab, in turns, up to which bisecting it takes about the same time. A
# wider slab takes longer.
WIDE = 8.0
# The width in ln b of the first slab of the search from above.
DESCENT = 2.0
# The most boxes that the search from above examines together. A slab that needs more is
# made half as wide.
MOST = 1 << 14
# Undecided intervals are collected, and then bisected together, which is faster. A walk
# collects them until this many positions threaten them.
THREATS_TOGETHER = 1 << 14


def find_certified_u(similarity: Similarity, context: int) -> float:
    """Return the smallest u above which one bound shows all bases to be admissible.

    It is infinite if the bound shows this for no base.
    """
    rounding = similarity.rounding_error(context)

    def is_surely_positive(u: float) -> bool:
        # For u' >= u the angle of pair i is at most (context - 1) b^(-a_i) at every
        # position, so that its cosine is at least the cosine of this angle, or -1 if
        # the angle is beyond pi. The angle of a pair with a_i = 0 does not depend on
        # the base, and its cosine may be -1 at some position.
        farthest = (context - 1) * similarity.inv_freq(u)
        cosines = np.cos(np.minimum(farthest, math.pi))
        cosines[similarity.a == 0] = -1.0
        least = cosines.sum() + similarity.unrotated
        return bool(least > rounding)

    # At u = 1e4 all angles of ordinary heads are 0 in float64, except for the pair with
    # a = 0.
    low = 0.0
    high = 1e4
    if not is_surely_positive(high):
        return math.inf

    while high - low > 1e-3:
        middle = (low + high) / 2
        # ``high`` is certified at every step. The end of the bisection at a width of
        # 1e-3 only makes it a little larger than needed.
        if is_surely_positive(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass
class Walk:
    """A walk over the bases for one context."""

    # The sums S of a head.
    similarity: Similarity
    # Positions are below this, in tokens.
    context: int
    # (u, m): from u on, no position below m fails. A walk for a smaller context may have
    # shown it.
    settled: tuple[float, int] = (math.inf, 1)

    def find_windows(self, start: float) -> Iterator[Window]:
        """Yield the admissible intervals of u from ``start``; the last has no end."""
        return self._join_windows(start, self.find_stable(), THREATS_TOGETHER)

    def find_first(self, start: float) -> Window | None:
        """Return the first admissible interval of u from ``start``; None without one."""
        # With 0 threats nothing is collected: the walk stops at the first interval.
        end = 0.0
        if not self.similarity.never_negative:
            end = find_certified_u(self.similarity, self.context)
        return next(self._join_windows(start, end, 0), None)

    def find_stable(self) -> float:
        """Return the u from which on every base is admissible; inf if there is none."""
        if self.similarity.never_negative:
            return 0.0

        # The search goes down in slabs [low, high]. It is much faster than a walk: where
        # few bases fail, most boxes are dropped while they are wide.
        high = find_certified_u(self.similarity, self.context)
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

            for piece in reversed(self._find_clear_pieces(boxes, low, high)):
                start_of_piece, _ = piece
                # If the piece ends below ``high``, some base between them fails.
                if not _are_touching(piece, (high, high)):
                    return high
                high = start_of_piece

            # The lowest piece ends above ``low``, and a base below it fails.
            if high > low:
                return high
            # The whole slab is admissible, and the next one may be wider.
            width *= 1.3
        return high

    def _find_clear_pieces(self, boxes: Boxes, low: float, high: float) -> list[Window]:
        """Return the admissible pieces of [low, high], ascending.

        Outside of the boxes no base fails.
        """
        if not len(boxes):
            return [(low, high)]

        fine = 1e-3 * self._turn(low, 1)
        undecided = gather_intervals(self.similarity, boxes, fine)
        pieces = find_admissible(self.similarity, undecided)

        # Everything between the intervals of the boxes is admissible.
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
        """Return a turn: the step in u in which the sum of a position changes by one.

        The position is this share of the context.
        """
        slope = share * self.context * self.similarity.slope_typical(u)
        # A head that rotates only its first pair does not change with the base. The small
        # number avoids the division by a slope of 0.
        return 1 / (slope + 1e-9)

    def _join_windows(
        self, start: float, end: float, threats_together: int
    ) -> Iterator[Window]:
        """Yield admissible intervals of u from ``start``.

        From ``end`` on all bases are admissible. ``threats_together`` is passed on to
        `_walk_pieces`.
        """
        window: Window | None = None

        # The walk ends at b = e^60 = 1e26 if no smaller base is certified.
        top = min(end, 60.0)
        for walked_to, pieces in self._walk_pieces(start, top, threats_together):
            for piece in pieces:
                if window is not None and _are_touching(window, piece):
                    window_start, _ = window
                    _, piece_end = piece
                    window = (window_start, piece_end)
                    continue
                if window is not None:
                    yield window
                window = piece
            if window is not None and not _are_touching(window, (walked_to, walked_to)):
                yield window
                window = None

        if end < math.inf:
            begin = max(start, end)
            # What is left of the window reaches the end of the walk.
            if window is not None:
                begin, _ = window
            yield begin, math.inf
        elif window is not None:
            yield window

    def _walk_pieces(
        self,
        start: float,
        top: float,
        threats_together: int,
    ) -> Iterator[tuple[float, list[Window]]]:
        """Yield how far the walk has come, and the admissible pieces on the way.

        Pieces ascend. They are yielded as soon as ``threats_together`` positions threaten
        the slabs that are not decided yet.
        """
        u = start
        pace = _Pace()
        slabs = _Slabs()

        while u < top:
            end = u
            if pace.hunting:
                end = min(top, self._hunt(u, pace))

            # No base was excluded, so that a slab is resolved position by position.
            if end == u:
                # A slab narrower than EDGE could not be bisected.
                step = max(EDGE, pace.turns * self._turn(u, 1))
                end = min(top, u + step)
                width_without_negatives = self._resolve(slabs, u, end, pace)
                pace.hunting = width_without_negatives <= (end - u) / 2
                pace.adjust()

            u = end
            if slabs.threats >= threats_together or u >= top:
                pieces = slabs.clear
                if slabs.undecided:
                    undecided = Undecided.join(slabs.undecided)
                    pieces = [*pieces, *find_admissible(self.similarity, undecided)]
                yield u, sorted(pieces)
                slabs = _Slabs()

    def _hunt(self, u: float, pace: "_Pace") -> float:
        """Return the end of the bases from u on that promising positions exclude.

        It is u itself if they exclude none.
        """
        while True:
            # Small positions exclude wider stretches. The share of the context in which
            # positions are sought therefore shrinks slowly, and grows after a failure.
            centre = u + AHEAD * self._turn(u, pace.share)
            stop = max(2, round(pace.share * self.context))
            tangents = find_promising(self.similarity, centre, stop)
            end = find_excluded_end(self.similarity, tangents, u, centre)
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
        """Add [low, high] to the slabs, with all positions that threaten it.

        An interval that too many positions threaten is halved. The result is the total
        width of the intervals in whose middle no sum is negative.
        """
        positions, lowest = self._find_threats(low, high)
        count = len(positions)

        # Above this many threats, splitting the interval and scanning again is cheaper.
        too_many = 200 + self.context // 100
        # Wide slabs take more halvings for the same list.
        busy = count * max(1.0, pace.turns / WIDE) / too_many
        pace.busy = max(pace.busy, busy)

        if count > too_many and high - low > EDGE:
            # The positions with the lowest sums come first. If the first 24 positions
            # do not exclude an interval, the remaining positions hardly will.
            if is_excluded(self.similarity, positions[:24], low, high):
                return 0.0
            middle = (low + high) / 2
            width_below = self._resolve(slabs, low, middle, pace)
            width_above = self._resolve(slabs, middle, high, pace)
            return width_below + width_above

        if count:
            fine = 1e-3 * self._turn(low, 1)
            interval = Undecided.one(self.similarity, positions, low, high, fine)
            slabs.undecided.append(interval)
            slabs.threats += count
        else:
            slabs.clear.append((low, high))
        if lowest < 0:
            return 0.0
        return high - low

    def _find_threats(self, low: float, high: float) -> tuple[Floats, float]:
        """Return the positions that threaten [low, high], and the least S, or 0 if it is
        positive.

        S is that in the middle of the interval. The positions with the lowest S come
        first.
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
        for start, stop in cut_into_blocks(first, self.context, BLOCK):
            sums = scan(similarity, middle, start, stop)
            # The bound of the last position holds for the whole block. It leaves few
            # places of the block, whose own bounds are smaller.
            places = np.flatnonzero(sums < change * stop + margin)
            bounds_of_places = change * (places + float(start)) + margin
            places = places[sums[places] < bounds_of_places]
            parts_of_positions.append(places.astype(np.float64) + start)
            parts_of_values.append(sums[places])

        positions = np.concatenate(parts_of_positions)
        values = np.concatenate(parts_of_values)
        order = np.argsort(values)
        return positions[order], float(values.min(initial=0.0))


@dataclass
class _Slabs:
    """The slabs of a stretch of bases."""

    # Pieces that are admissible, as no position threatens them.
    clear: list[Window] = field(default_factory=list)
    # Intervals that are to be bisected, with the positions that threaten them.
    undecided: list[Undecided] = field(default_factory=list)
    # The number of these positions.
    threats: int = 0


@dataclass
class _Pace:
    """The state of a walk: what it does next, and in which steps."""

    # True while it hunts for positions that exclude bases.
    hunting: bool = True
    # The share of the context in which a hunt seeks positions.
    share: float = 1.0
    # The width of the next slab, in turns.
    turns: float = 0.5
    # The longest list of threatening positions, relative to a convenient length.
    busy: float = 0.0

    def adjust(self) -> None:
        """Make the next slab as wide as the last list of threats allows."""
        if self.busy > 1:
            self.turns *= 0.7
        elif self.busy < 0.3:
            self.turns *= 1.3
        self.turns = max(self.turns, NARROWEST)
        self.busy = 0.0


def _are_touching(first: Window, second: Window) -> bool:
    """Return True if at most a few edges lie between two windows, the lower one first."""
    _, end = first
    start, _ = second
    return start - end <= 4 * EDGE
