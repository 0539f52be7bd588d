"""The admissible bases for a context: S(m, b) >= 0 for every position m below it.

S(m, b) is the sum of cos(m b^(-a_i)) over the pairs i of a head, with a_i = 2 i / d for
a head of d rotated features (similarity.py). The admissible bases are not one interval,
but every base from the stable base on is admissible. The stable base is sought from above,
in boxes: a box is an interval of bases times a range of positions
(``boxes.find_threatened``). Below the stable base a walk goes upwards in u = ln b, and
sorts every u into one of three kinds, by proof and not by sampling:

* excluded: for each u of an interval some position has S < 0.
* admissible: no position has S < 0. To prove this for a slab, an interval of u, the sums
  of *all* positions at the middle of the slab are computed. Inside the slab a sum changes
  by no more than the slope bound |dS/du| <= m sum a_i b^(-a_i) allows. Only a short list
  of positions could therefore have a negative sum somewhere in the slab. These positions
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
    UndecidedIntervals,
    Window,
    find_admissible,
    find_excluded_end,
    is_excluded,
)
from ropelab.math.bounds.similarity import Floats, Similarity, Singles
from ropelab.math.bounds.survey import BLOCK, find_low_positions, scan
from ropelab.math.numerics.chain import cut_into_blocks

# Steps in u are measured in turns: in one turn the sum of the largest position changes by
# about one.
#
# The number of turns that a hunt looks ahead for positions with a negative sum.
TURNS_AHEAD = 1.2
# The least share of the TURNS_AHEAD that a hunt has to exclude. If it excludes less,
# the hunt has failed.
LEAST_EXCLUDED = 0.01
# The least width of a slab that is resolved position by position, in turns.
LEAST_TURNS = 0.02
# The width of a slab, in turns, up to which bisecting it takes about the same time. A
# wider slab takes longer.
WIDE_TURNS = 8.0
# The width in ln b of the first slab of the search from above.
FIRST_WIDTH = 2.0
# The most boxes that the search from above examines together. A slab that needs more is
# made half as wide.
MOST_BOXES = 1 << 14
# Intervals that are undecided are collected, and then bisected together, which is
# faster. A walk collects them until this many positions threaten them.
THREATS_TOGETHER = 1 << 14


def find_certified_u(similarity: Similarity, context: int) -> float:
    """Return the smallest u above which one bound shows all bases to be admissible.

    The result is infinite if the bound shows this for no base.
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
        # ``high`` is certified at every step. Since the bisection ends at a width of
        # 1e-3, ``high`` is only a little larger than needed.
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
    # The length of the context in tokens. All positions are below it.
    context: int
    # (u, m): from u on, no position below m fails. A walk for a smaller context may have
    # shown this.
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
        """Return the u from which on all bases are admissible; inf without such a u."""
        if self.similarity.never_negative:
            return 0.0

        # The search goes down in slabs [low, high]. The search is much faster than a
        # walk: where few bases fail, most boxes are dropped while they are wide.
        high = find_certified_u(self.similarity, self.context)
        width = FIRST_WIDTH

        while 0 < high < math.inf:
            low = max(0.0, high - width)
            first = self._first_open_position(low)
            boxes = find_threatened(
                self.similarity, first, self.context, low, high, MOST_BOXES
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
            # The whole slab is admissible, and the next slab may be wider.
            width *= 1.3
        return high

    def _find_clear_pieces(self, boxes: Boxes, low: float, high: float) -> list[Window]:
        """Return the admissible pieces of [low, high], ascending.

        Outside of the boxes no base fails.
        """
        if not len(boxes):
            return [(low, high)]

        float64_width = 1e-3 * self._turn(low, 1)
        undecided = gather_intervals(self.similarity, boxes, float64_width)
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
        """Return a turn, the step in u in which the sum of a position changes by 1.

        The position is the ``share`` of the context.
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
        """Yield the u that the walk has reached, with the admissible pieces on the way.

        Pieces ascend. They are yielded as soon as ``threats_together`` positions threaten
        the slabs that are not decided yet.
        """
        u = start
        pace = _Pace()
        slabs = _Slabs()

        while u < top:
            end = u
            if pace.is_hunting:
                end = min(top, self._hunt(u, pace))

            # No base was excluded, so that a slab is resolved position by position.
            if end == u:
                # A slab narrower than EDGE could not be bisected.
                step = max(EDGE, pace.slab_turns * self._turn(u, 1))
                end = min(top, u + step)
                width_without_negatives = self._resolve(slabs, u, end, pace)
                # A hunt is worth while if most of the slab has negative sums.
                pace.is_hunting = width_without_negatives <= (end - u) / 2
                pace.adjust()

            u = end
            if slabs.threat_count >= threats_together or u >= top:
                pieces = slabs.clear_pieces
                if slabs.undecided:
                    undecided = UndecidedIntervals.join(slabs.undecided)
                    pieces = [*pieces, *find_admissible(self.similarity, undecided)]
                yield u, sorted(pieces)
                slabs = _Slabs()

    def _hunt(self, u: float, pace: "_Pace") -> float:
        """Return the end of the interval from u on that low positions exclude.

        Low positions have low sums. The end is u itself if they exclude no base.
        """
        while True:
            # Small positions exclude wider intervals. The share of the context in which
            # positions are sought therefore shrinks slowly, and grows after a failure.
            centre = u + TURNS_AHEAD * self._turn(u, pace.share)
            stop = max(2, round(pace.share * self.context))
            tangents = find_low_positions(self.similarity, centre, stop)
            end = find_excluded_end(self.similarity, tangents, u, centre)
            if end > u + LEAST_EXCLUDED * (centre - u):
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

        # With more threats, halving the interval and scanning again is cheaper.
        most_threats = 200 + self.context // 100
        # Wide slabs take more halvings for the same list.
        effort = count * max(1.0, pace.slab_turns / WIDE_TURNS) / most_threats
        pace.effort = max(pace.effort, effort)

        if count > most_threats and high - low > EDGE:
            # The positions with the lowest sums come first. If the first 24 positions
            # do not exclude an interval, the remaining positions hardly will.
            if is_excluded(self.similarity, positions[:24], low, high):
                return 0.0
            middle = (low + high) / 2
            width_below = self._resolve(slabs, low, middle, pace)
            width_above = self._resolve(slabs, middle, high, pace)
            return width_below + width_above

        if count:
            float64_width = 1e-3 * self._turn(low, 1)
            interval = UndecidedIntervals.one(
                self.similarity, positions, low, high, float64_width
            )
            slabs.undecided.append(interval)
            slabs.threat_count += count
        else:
            slabs.clear_pieces.append((low, high))
        if lowest < 0:
            return 0.0
        return high - low

    def _find_threats(self, low: float, high: float) -> tuple[Floats, float]:
        """Return the positions that threaten [low, high], and the least S or 0.

        The least S, at the middle of the interval, is returned if it is below 0. The
        positions with the lowest S come first.
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
            # The bound of the last position holds for the whole block, and leaves few
            # places of the block. The bounds of these places themselves are smaller.
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
    """The slabs of an interval of bases."""

    # Pieces that are admissible, as no position threatens them.
    clear_pieces: list[Window] = field(default_factory=list)
    # Intervals that are to be bisected, with the positions that threaten them.
    undecided: list[UndecidedIntervals] = field(default_factory=list)
    # The number of positions in `undecided`.
    threat_count: int = 0


@dataclass
class _Pace:
    """The state of a walk: what it does next, and in which steps."""

    # True while it hunts for positions that exclude bases.
    is_hunting: bool = True
    # The share of the context in which a hunt seeks positions.
    share: float = 1.0
    # The width of the next slab, in turns.
    slab_turns: float = 0.5
    # The work for the longest list of threatening positions since the last adjustment;
    # 1 is as much as a slab should take.
    effort: float = 0.0

    def adjust(self) -> None:
        """Make the next slab narrower or wider, by the effort for the last slab."""
        if self.effort > 1:
            self.slab_turns *= 0.7
        elif self.effort < 0.3:
            self.slab_turns *= 1.3
        self.slab_turns = max(self.slab_turns, LEAST_TURNS)
        self.effort = 0.0


def _are_touching(first: Window, second: Window) -> bool:
    """Return True if at most a few edges lie between two windows.

    The lower window comes first.
    """
    _, end = first
    start, _ = second
    return start - end <= 4 * EDGE
