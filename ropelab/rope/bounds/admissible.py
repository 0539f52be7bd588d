"""Which bases are admissible for a context: S(m, b) >= 0 for every position m below it.

The set is not an interval. The search walks upwards in u = ln b through slabs and sorts every
point into one of three kinds, by proof and not by sampling:

* excluded: a position is named whose S is negative in a whole cell (``cells.excluded``). Where
  bases are far from admissible many positions do that, so a cheap look at the most promising ones
  is enough; how they were found does not matter to the proof.
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

from ropelab.rope.bounds.cells import Cells, excluded, ranges
from ropelab.rope.bounds.similarity import Floats, Similarity, Singles
from ropelab.rope.bounds.survey import blocks, scan, single

EDGE = 1e-11
"""Width in ln b at which a change of sign is taken as located."""

STRIDE = 8
"""Distance in tokens between the positions that the hunt for excluding positions looks at first."""

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
        u, width = start, _Width()
        while u < top:
            end = min(top, u + width.turns / self._turns_per_u(u))
            left = self._not_easily_excluded(u, end) if width.hunting else [(u, end)]
            pieces = [piece for low, high in left for piece in self._resolved(low, high, width)]
            width.learn(_length(left) / (end - u), _length(pieces) / (end - u))
            yield end, pieces
            u = end

    def _turns_per_u(self, u: float) -> float:
        """How fast the longest position's sum moves: the natural unit of slab widths."""
        return self.context * self.similarity.slope_typical(u) + 1e-9

    def _not_easily_excluded(self, low: float, high: float) -> list[Interval]:
        """What remains of [low, high] after the most promising positions have excluded cells."""
        cells = Cells.parts(low, high, 16)
        half = self.context // 2
        for first, last in ((half, self.context), (1, half)):
            positions = promising(self.similarity, (low + high) / 2, first, last)
            cells = self._left_by(positions, cells)
            if not len(cells):
                return []
        return _runs(cells)

    def _left_by(self, positions: Floats, cells: Cells) -> Cells:
        """The cells, at last halved three times, that none of the positions excludes."""
        for batch in range(0, len(positions), 24):
            if len(cells):
                chosen = positions[batch : batch + 24]
                cells = cells.where(~excluded(self.similarity, chosen, cells))
        for _ in range(3):
            if len(cells) and len(positions):
                cells = cells.halved()
                cells = cells.where(~excluded(self.similarity, positions, cells))
        return cells

    def _resolved(self, low: float, high: float, width: "_Width") -> Iterator[Interval]:
        """The admissible pieces of [low, high], complete up to EDGE."""
        positions = self._threats(low, high)
        width.saw(len(positions), self.context)
        if len(positions) > _too_many(self.context) and high - low > EDGE:
            if excluded(self.similarity, positions[:24], Cells.parts(low, high, 1)).all():
                return
            middle = (low + high) / 2
            yield from self._resolved(low, middle, width)
            yield from self._resolved(middle, high, width)
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
        stack = [(low, high, positions)]
        while stack:
            low, high, positions = stack.pop()
            if not len(positions):
                yield low, high
                continue
            cell = Cells(np.array([low]), np.array([high]))
            exact = high - low < 1e-3 / self._turns_per_u(low)
            lowest, highest = ranges(self.similarity, positions, cell, exact)
            if (highest < 0).any() or high - low < EDGE:
                continue
            still = positions[lowest[0] < 0]
            if len(still):
                middle = (low + high) / 2
                stack += [(middle, high, still), (low, middle, still)]
            else:
                yield low, high


class _Width:
    """How wide the next slab should be, and whether to hunt for excluding positions first."""

    def __init__(self) -> None:
        self.hunting = True
        self.turns = 3.0
        self._busy = 0.0

    def saw(self, threats: int, context: int) -> None:
        """Remember how long the list of threats was, relative to what is convenient."""
        self._busy = max(self._busy, threats / _too_many(context))

    def learn(self, left: float, found: float) -> None:
        """After a slab: ``left`` of it survived the hunt, ``found`` of it is admissible."""
        if self.hunting:
            self.hunting = left < 0.9
        else:
            self.turns *= 0.7 if self._busy > 1 else 1.3 if self._busy < 0.3 else 1
            if found < 0.5:
                self.hunting, self.turns = True, 3.0
        self._busy = 0.0


def _too_many(context: int) -> int:
    """Above this many threats, splitting the cell and scanning again is cheaper."""
    return 200 + context // 100


def promising(similarity: Similarity, u: float, start: int, stop: int) -> Floats:
    """Positions in [start, stop) where S is low, lowest first (at most 150).

    Nothing is proved here. Pairs slower than a radian in ``STRIDE`` tokens are the same for
    neighbours, and where S is negative they must already be low: they are summed on every
    STRIDE-th position, and only the neighbours of the lowest sums are looked at.
    """
    slow = int((similarity.inv_freq(u) > 1 / STRIDE).sum())
    coarse = scan(similarity, u, start, max(stop, start + 1), STRIDE, slow)
    places = np.flatnonzero(coarse <= coarse.mean() - 2.8 * coarse.std())
    places = (
        places[np.argsort(coarse[places])[:96]] if len(coarse) > 256 else np.arange(len(coarse))
    )
    near = start + STRIDE * places[:, None] + np.arange(STRIDE) - STRIDE // 2
    positions = np.unique(near[(near >= start) & (near < stop)]).astype(np.float64)
    sums = single(similarity, positions, u)
    order = np.argsort(sums)[:150]
    return positions[order][sums[order] < 3]


def _runs(cells: Cells) -> list[Interval]:
    """Neighbouring cells joined."""
    runs: list[Interval] = []
    for piece in zip(cells.low.tolist(), cells.high.tolist(), strict=True):
        if runs and _touch(runs[-1], piece):
            runs[-1] = (runs[-1][0], piece[1])
        else:
            runs.append(piece)
    return runs


def _touch(first: Interval, second: Interval) -> bool:
    """Whether the second begins where the first ends, up to a few edges."""
    return second[0] - first[1] <= 4 * EDGE


def _length(intervals: list[Interval]) -> float:
    return sum(high - low for low, high in intervals)
