"""Which bases are admissible for a context: S(m, b) >= 0 for every position m below it.

The set is not an interval, but it has a last one: from the stable base on every base is admissible.
That one is sought from above (``boxes.threatened``). Below it the search walks upwards in u = ln b
through slabs and sorts every point into one of three kinds, by proof and not by sampling:

* excluded: positions are named whose S is negative in stretches that leave no gap
  (``cells.excluded_upto``). Where bases are far from admissible many positions do that, so a cheap
  look at the most promising ones is enough; how they were found does not matter to the proof.
* admissible: one scan of *all* positions at the cell's centre leaves a complete list of those that
  could turn negative inside it (|dS/du| <= m sum a_i b^(-a_i)); bisection clears the list.
* edge: a cell no wider than ``EDGE`` in which a position's sign changes.

So no admissible window wider than ``EDGE`` (relative to the base) can be missed. Above
``certified_from`` one bound shows all remaining bases to be admissible.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ropelab.math.bounds.bisection import EDGE, Interval, Open, finished
from ropelab.math.bounds.boxes import Boxes, cells, threatened
from ropelab.math.bounds.cells import excluded, excluded_upto
from ropelab.math.bounds.hunt import promising
from ropelab.math.bounds.similarity import Floats, Similarity, Singles
from ropelab.math.bounds.survey import blocks, scan

AHEAD = 1.2
"""Where in a hunt sums are expanded: so many turns of the longest position from its beginning."""
LEAST = 0.01
"""A hunt that gets no further than that share of the way to where sums are expanded has missed."""
NARROWEST = 0.02
"""The least width of a slab that is resolved position by position, in those turns."""
DESCENT = 2.0
"""Width in ln b of the first slab of the search from above."""
WIDE = 8.0
"""Slabs of more turns than that take a bisection the longer the wider they are."""
MOST = 1 << 14
"""Boxes that the search from above looks at together; a slab that has more is cut in two."""
HELD = 1 << 14
"""Cells are bisected together once so many positions threaten them."""


def certified_from(similarity: Similarity, context: int) -> float:
    """The smallest u above which one bound shows every base to be admissible (inf: there is none).

    For u' >= u the angle of pair i stays in [0, context b^(-a_i)], so its cosine is at least
    cos(min(that, pi)); a pair with a_i = 0 may be -1 anywhere.
    """

    def surely_positive(u: float) -> bool:
        reach = np.minimum((context - 1) * similarity.inv_freq(u), math.pi)
        worst = np.where(similarity.a == 0, -1.0, np.cos(reach))
        return bool(worst.sum() + similarity.unrotated > similarity.rounding_error(context))

    if not surely_positive(1e4):
        return math.inf
    low, high = 0.0, 1e4
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if surely_positive(middle) else (middle, high)
    return high


@dataclass
class Walk:
    """One walk over the bases for one context.

    ``settled`` = (u, m): from u on, positions below m are known not to fail (from a shorter
    context), so only longer ones are looked at.
    """

    similarity: Similarity
    context: int
    settled: tuple[float, int] = (math.inf, 1)

    def windows(self, start: float) -> Iterator[Interval]:
        """All admissible intervals of u from ``start`` on, ascending; the last one ends at inf.

        A window that contains ``start`` begins there. Where no base is certified from above
        (fewer than three turning pairs), the walk ends at b = 1e26.
        """
        return self._joined(start, self.stable(), HELD)

    def first(self, start: float) -> Interval | None:
        """The first of them; None where there is none. Its end is inf where it is the last one."""
        end = 0.0 if self.similarity.never_negative else certified_from(*self._asked)
        return next(self._joined(start, end, 0), None)

    def stable(self) -> float:
        """The u from which on every base is admissible, sought from above; inf: none is certified.

        Many times quicker than all windows: where few bases fail, boxes are wide.
        """
        if self.similarity.never_negative:
            return 0.0
        high, width = certified_from(*self._asked), DESCENT
        while 0 < high < math.inf:
            low = max(0.0, high - width)
            boxes = threatened(self.similarity, self._unsettled(low), self.context, low, high, MOST)
            if boxes is None:
                width /= 2
                continue
            for piece in reversed(self._admissible(boxes, low, high)):
                if not _touch(piece, (high, high)):
                    return high
                high = piece[0]
            if high > low:
                return high
            width *= 1.3
        return high

    @property
    def _asked(self) -> tuple[Similarity, int]:
        return self.similarity, self.context

    def _unsettled(self, u: float) -> int:
        """The first position that could fail from u on."""
        return self.settled[1] if u >= self.settled[0] else 1

    def _admissible(self, boxes: Boxes, low: float, high: float) -> list[Interval]:
        """What of [low, high] is admissible if only ``boxes`` could hold negative sums."""
        if not len(boxes):
            return [(low, high)]
        open_ = cells(self.similarity, boxes, 1e-3 * self._turn(low, 1))
        lows, highs = open_.cells[:2].tolist()
        between = zip([low, *highs], [*lows, high], strict=True)
        clear = [(start, end) for start, end in between if end - start > EDGE]
        return sorted([*clear, *finished(self.similarity, open_)])

    def _joined(self, start: float, end: float, held: int) -> Iterator[Interval]:
        """Admissible intervals from ``start`` on; all bases from ``end`` on are (inf: unknown).

        With ``held`` = 0 they come as early as they can; all of them take longer so.
        """
        window: Interval | None = None
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
        self, start: float, top: float, held: int
    ) -> Iterator[tuple[float, list[Interval]]]:
        """(how far the walk has come, admissible pieces since the last time), ascending."""
        clear: list[Interval] = []
        left: list[Open] = []
        threats = 0
        for end, slab in self._slabs(start, top):
            clear += slab.clear
            left += slab.open
            threats += sum(len(part.positions) for part in slab.open)
            if threats >= held or end >= top:
                clear += finished(self.similarity, Open.joined(left)) if left else []
                yield end, sorted(clear)
                clear, left, threats = [], [], 0

    def _slabs(self, start: float, top: float) -> Iterator[tuple[float, "_Slab"]]:
        """(end of the slab, what is known of it), slab after slab from ``start`` to ``top``."""
        u, pace = start, _Pace()
        while u < top:
            end = min(top, self._hunted(u, pace)) if pace.hunting else u
            slab = _Slab()
            if end == u:
                end = min(top, u + max(EDGE, pace.turns * self._turn(u, 1)))
                admissible = self._resolve(slab, u, end, pace)
                pace.learn(mostly_admissible=admissible > (end - u) / 2)
            yield end, slab
            u = end

    def _turn(self, u: float, share: float) -> float:
        """The step in u in which the longest position's sum typically moves by about one."""
        return 1 / (share * self.context * self.similarity.slope_typical(u) + 1e-9)

    def _hunted(self, u: float, pace: "_Pace") -> float:
        """How far from u on promising positions exclude every base; u if they do not.

        First positions in a share of the context; what they leave goes to longer ones.
        """
        while True:
            centre = u + AHEAD * self._turn(u, pace.share)
            reach = max(2, round(pace.share * self.context))
            tangents = promising(self.similarity, centre, reach)
            end = excluded_upto(self.similarity, tangents, u, centre)
            if end > u + LEAST * (centre - u):
                pace.caught()
                return end
            if pace.share == 1:
                return u
            pace.missed()

    def _resolve(self, slab: "_Slab", low: float, high: float, pace: "_Pace") -> float:
        """Put [low, high] into the slab: in few cells, each with all positions that threaten it.

        Gives the width of the cells whose middle is admissible.
        """
        positions, lowest = self._threats(low, high)
        pace.saw(len(positions), self.context)
        if not len(positions):
            slab.clear.append((low, high))
        elif len(positions) <= _too_many(self.context) or high - low <= EDGE:
            fine = 1e-3 * self._turn(low, 1)
            slab.open.append(Open.one(self.similarity, positions, low, high, fine))
        elif excluded(self.similarity, positions[:24], low, high):
            return 0.0
        else:
            middle = (low + high) / 2
            below = self._resolve(slab, low, middle, pace)
            return below + self._resolve(slab, middle, high, pace)
        return high - low if lowest >= 0 else 0.0

    def _threats(self, low: float, high: float) -> tuple[Floats, float]:
        """Every position that could have S < 0 somewhere in [low, high], lowest S first.

        And the lowest S in the middle, where it is negative.
        """
        similarity = self.similarity
        reach = similarity.slope_bound(low) * (high - low) / 2 * (1 + 1e-9)
        margin = similarity.single_error
        found: list[tuple[Floats, Singles]] = []
        for start, stop in blocks(self._unsettled(low), self.context):
            sums = scan(similarity, (low + high) / 2, start, stop)
            near = np.flatnonzero(sums < reach * stop + margin)
            near = near[sums[near] < reach * (near + float(start)) + margin]
            found.append((near.astype(np.float64) + start, sums[near]))
        positions, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return positions[np.argsort(values)], float(values.min(initial=0.0))


@dataclass
class _Slab:
    """What is known of a stretch of bases: admissible pieces, and cells still to be bisected."""

    clear: list[Interval] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)


class _Pace:
    """Where to hunt for excluding positions, if at all, and how wide the next slab should be.

    ``share``: the part of the context in which they are looked for. It shrinks while something is
    caught, because shorter positions exclude wider stretches, and grows when nothing is.
    """

    def __init__(self) -> None:
        self.hunting = True
        self.share = 1.0
        self.turns = 0.5
        self._busy = 0.0

    def caught(self) -> None:
        """After a hunt that got somewhere."""
        self.share = max(1 / 64, self.share * 0.98)

    def missed(self) -> None:
        """After a hunt that did not."""
        self.share = min(1.0, self.share * 1.2)

    def saw(self, threats: int, context: int) -> None:
        """Remember how long the list of threats was, relative to what is convenient."""
        work = threats * max(1.0, self.turns / WIDE)
        self._busy = max(self._busy, work / _too_many(context))

    def learn(self, mostly_admissible: bool) -> None:
        """After a slab was resolved."""
        self.hunting = not mostly_admissible
        self.turns *= 0.7 if self._busy > 1 else 1.3 if self._busy < 0.3 else 1
        self.turns = max(self.turns, NARROWEST)
        self._busy = 0.0


def _too_many(context: int) -> int:
    """Above this many threats, splitting the cell and scanning again is cheaper."""
    return 200 + context // 100


def _touch(first: Interval, second: Interval) -> bool:
    """Whether the second begins where the first ends, up to a few edges."""
    return second[0] - first[1] <= 4 * EDGE
