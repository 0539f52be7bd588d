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
from itertools import pairwise

import numpy as np

from ropelab.rope.bounds.cells import Cells, excluded, ranges
from ropelab.rope.bounds.hunt import survivors
from ropelab.rope.bounds.similarity import Floats, Similarity, Singles
from ropelab.rope.bounds.survey import blocks, scan

EDGE = 1e-11
"""Width in ln b at which a change of sign is taken as located."""

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
        u, pace = start, _Pace()
        while u < top:
            end = min(top, u + pace.turns * self._turn(u, pace.share))
            left = self._hunted(u, end, pace.share, pace) if pace.hunting else [(u, end)]
            pieces = [piece for low, high in left for piece in self._resolved(low, high, pace)]
            pace.learn(_length(left) / (end - u), _length(pieces) / (end - u))
            yield end, pieces
            u = end

    def _turn(self, u: float, share: float) -> float:
        """The step in u in which the longest position's sum typically moves by about one."""
        return 1 / (share * self.context * self.similarity.slope_typical(u) + 1e-9)

    def _hunted(self, low: float, high: float, share: float, pace: "_Pace") -> list[Interval]:
        """What remains of [low, high] when promising positions have excluded what they can.

        First positions in a ``share`` of the context; what they leave goes to longer ones, in
        slabs as narrow as those need.
        """
        reach = max(2, round(share * self.context))
        runs = _runs(survivors(self.similarity, low, high, reach))
        pace.escaped(share, _length(runs) / (high - low))
        if share == 1:
            return runs
        longer = min(1.0, 2 * share)
        return [
            piece
            for run in runs
            for slab in _split(run, pace.turns * self._turn(low, longer))
            for piece in self._hunted(*slab, longer, pace)
        ]

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
        stack = [(low, high, positions)]
        while stack:
            low, high, positions = stack.pop()
            if not len(positions):
                yield low, high
                continue
            cell = Cells(np.array([low]), np.array([high]))
            exact = high - low < 1e-3 * self._turn(low, 1)
            lowest, highest = ranges(self.similarity, positions, cell, exact)
            if (highest < 0).any() or high - low < EDGE:
                continue
            still = positions[lowest[0] < 0]
            if len(still):
                middle = (low + high) / 2
                stack += [(middle, high, still), (low, middle, still)]
            else:
                yield low, high


class _Pace:
    """How wide the next slab should be, and where to hunt for excluding positions, if at all.

    ``share``: the part of the context in which they are looked for first. It shrinks while nothing
    escapes, because shorter positions exclude wider slabs, and grows when something does.
    """

    def __init__(self) -> None:
        self.hunting = True
        self.share = 1.0
        self.turns = 3.0
        self._busy = 0.0

    def escaped(self, share: float, part: float) -> None:
        """After a hunt in the first ``share``: ``part`` of the slab is left."""
        if share == self.share:
            self.share = min(1.0, share * 1.15) if part > 0.01 else max(1 / 64, share * 0.97)

    def saw(self, threats: int, context: int) -> None:
        """Remember how long the list of threats was, relative to what is convenient."""
        self._busy = max(self._busy, threats / _too_many(context))

    def learn(self, left: float, found: float) -> None:
        """After a slab: ``left`` of it survived the hunt, ``found`` of it is admissible."""
        if self.hunting:
            self.hunting = left < 0.9
        else:
            self.turns *= 0.7 if self._busy > 1 else 1.3 if self._busy < 0.3 else 1
            self.share = 1.0
            if found < 0.5:
                self.hunting, self.turns = True, 3.0
        self._busy = 0.0


def _too_many(context: int) -> int:
    """Above this many threats, splitting the cell and scanning again is cheaper."""
    return 200 + context // 100


def _runs(cells: Cells) -> list[Interval]:
    """Neighbouring cells joined."""
    runs: list[Interval] = []
    for piece in zip(cells.low.tolist(), cells.high.tolist(), strict=True):
        if runs and _touch(runs[-1], piece):
            runs[-1] = (runs[-1][0], piece[1])
        else:
            runs.append(piece)
    return runs


def _split(interval: Interval, width: float) -> list[Interval]:
    """Equal parts of an interval, none wider than ``width``."""
    edges = np.linspace(*interval, math.ceil((interval[1] - interval[0]) / width) + 1).tolist()
    return list(pairwise(edges))


def _touch(first: Interval, second: Interval) -> bool:
    """Whether the second begins where the first ends, up to a few edges."""
    return second[0] - first[1] <= 4 * EDGE


def _length(intervals: list[Interval]) -> float:
    return sum(high - low for low, high in intervals)
