"""Which bases are admissible for a context: S(m, b) >= 0 for every position m below it.

The set is not an interval. The search walks upwards in u = ln b through slabs and sorts every
point into one of three kinds, by proof and not by sampling:

* excluded: positions are named whose S is negative in stretches that leave no gap
  (``cells.excluded_upto``). Where bases are far from admissible many positions do that, so a cheap
  look at the most promising ones is enough; how they were found does not matter to the proof.
* admissible: one scan of *all* positions at the cell's centre leaves a complete list of those that
  could turn negative inside it (|dS/du| <= m sum a_i b^(-a_i)); bisection clears the list.
* edge: a cell no wider than ``EDGE`` in which a position's sign changes.

So no admissible window wider than ``EDGE`` (relative to the base) can be missed. Above
``certified_from`` one bound over all remaining bases ends the walk.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ropelab.rope.bounds.cells import Cells, excluded, excluded_upto, ranges
from ropelab.rope.bounds.hunt import promising
from ropelab.rope.bounds.similarity import Floats, Similarity, Singles
from ropelab.rope.bounds.survey import blocks, scan

EDGE = 1e-11
"""Width in ln b at which a change of sign is taken as located."""
AHEAD = 1.0
"""Where in a hunt sums are expanded: so many turns of the longest position from its beginning."""
NARROWEST = 0.02
"""The least width of a slab that is resolved position by position, in those turns."""

Interval = tuple[float, float]


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
        (fewer than two turning pairs), the walk ends at b = 1e26.
        """
        if self.similarity.never_negative:
            yield (start, math.inf)
            return
        top = certified_from(self.similarity, self.context)
        held: Interval | None = None
        for end, pieces in self._slabs(start, min(top, 60.0)):
            for piece in pieces:
                if held is not None and _touch(held, piece):
                    held = (held[0], piece[1])
                    continue
                if held is not None:
                    yield held
                held = piece
            if held is not None and not _touch(held, (end, end)):
                yield held
                held = None
        if top < math.inf:
            yield (held[0] if held else top, math.inf)
        elif held is not None:
            yield held

    def _slabs(self, start: float, top: float) -> Iterator[tuple[float, list[Interval]]]:
        """(end of the slab, admissible pieces in it), slab after slab from ``start`` to ``top``."""
        u, pace = start, _Pace()
        while u < top:
            end = min(top, self._hunted(u, pace)) if pace.hunting else u
            pieces: list[Interval] = []
            if end == u:
                end = min(top, u + max(EDGE, pace.turns * self._turn(u, 1)))
                pieces = list(self._resolved(u, end, pace))
                pace.learn(_length(pieces) / (end - u))
            yield end, pieces
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
            positions = promising(self.similarity, centre, reach)
            if len(positions):
                end = excluded_upto(self.similarity, positions, u, centre)
                if end > u:
                    pace.caught()
                    return end
            if pace.share == 1:
                return u
            pace.missed()

    def _resolved(self, low: float, high: float, pace: "_Pace") -> Iterator[Interval]:
        """The admissible pieces of [low, high], complete up to EDGE."""
        positions = self._threats(low, high)
        pace.saw(len(positions), self.context)
        if len(positions) > _too_many(self.context) and high - low > EDGE:
            if excluded(self.similarity, positions[:24], Cells.parts(low, high, 1)).all():
                return
            middle = (low + high) / 2
            yield from self._resolved(low, middle, pace)
            yield from self._resolved(middle, high, pace)
        else:
            yield from self._bisected(positions, low, high)

    def _threats(self, low: float, high: float) -> Floats:
        """Every position that could have S < 0 somewhere in [low, high], lowest S first."""
        similarity = self.similarity
        reach = similarity.slope_bound(low) * (high - low) / 2 * (1 + 1e-9)
        found: list[tuple[Floats, Singles]] = []
        first = self.settled[1] if low >= self.settled[0] else 1
        for start, stop in blocks(first, self.context):
            sums = scan(similarity, (low + high) / 2, start, stop)
            near = np.flatnonzero(sums < reach * stop + similarity.single_error)
            near = near[sums[near] < reach * (near + float(start)) + similarity.single_error]
            found.append((near.astype(np.float64) + start, sums[near]))
        positions = np.concatenate([part for part, _ in found])
        return positions[np.argsort(np.concatenate([part for _, part in found]))]

    def _bisected(self, positions: Floats, low: float, high: float) -> Iterator[Interval]:
        """The pieces of [low, high] in which none of the positions fails, ascending."""
        if not len(positions):
            yield low, high
            return
        fine = 1e-3 * self._turn(low, 1)
        curvature = self.similarity.curvature_bounds(np.array([low]))
        yield from self._sorted(positions, np.array([low, high]), fine, curvature)

    def _sorted(
        self, positions: Floats, edges: Floats, fine: float, curvature: tuple[Floats, Floats]
    ) -> Iterator[Interval]:
        """The same for equal cells between edges; below the width ``fine`` in float64."""
        cells = Cells(edges[:-1], edges[1:])
        width = float(edges[1] - edges[0])
        lowest, highest = ranges(self.similarity, positions, cells, width < fine, curvature)
        failing = [bool((row < 0).any()) for row in highest]
        for place in range(len(cells)):
            if failing[place] or width < EDGE:
                continue
            low, high = float(edges[place]), float(edges[place + 1])
            still = positions[lowest[place] < 0]
            if len(still):
                halves = np.array([low, (low + high) / 2, high])
                yield from self._sorted(still, halves, fine, curvature)
            else:
                yield low, high


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
        self._busy = max(self._busy, threats / _too_many(context))

    def learn(self, found: float) -> None:
        """After a slab was resolved: ``found`` of it is admissible."""
        self.hunting = found < 0.5
        self.turns *= 0.7 if self._busy > 1 else 1.3 if self._busy < 0.3 else 1
        self.turns = max(self.turns, NARROWEST)
        self._busy = 0.0


def _too_many(context: int) -> int:
    """Above this many threats, splitting the cell and scanning again is cheaper."""
    return 200 + context // 100


def _touch(first: Interval, second: Interval) -> bool:
    """Whether the second begins where the first ends, up to a few edges."""
    return second[0] - first[1] <= 4 * EDGE


def _length(intervals: list[Interval]) -> float:
    return sum(high - low for low, high in intervals)
