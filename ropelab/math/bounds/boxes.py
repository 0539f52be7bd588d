"""Clearing many positions and bases at once: boxes, halved until no sum in them can be
negative.

A box is a run of positions times an interval of u = ln b. In it the angle of a pair
stays within r of its value phi at the centre, so its cosine is at least cos(min(|phi| +
r, pi)), with phi brought to [-pi, pi]. A box in which these add up to 0 or more holds
no failing base. In a wide box the fast pairs count as -1, which the sum of the slow
ones mostly outweighs.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.intervals import Undecided
from ropelab.math.bounds.similarity import TWO_PI, Floats, Similarity, Singles

# Boxes computed at once, so that a block stays in the cache.
BLOCK = 1 << 9
# The positions are cut into at least so many runs at first.
RUNS = 16
# Radians, added over pairs, by which the angles of one position differ in an interval
# that is left to bisection.
NARROW = 1.0
# Factor on r, which is computed in float32.
ROUNDED_UP = 1 + 1e-6


@dataclass(frozen=True)
class Boxes:
    first: Floats  # the first position of each
    low: Floats  # the lowest u of each
    # positions in each, a power of two so that halving ends at single positions
    run: int
    width: float  # of each in u

    def __len__(self) -> int:
        return len(self.first)

    def select(self, which: NDArray[np.bool_]) -> "Boxes":
        return Boxes(self.first[which], self.low[which], self.run, self.width)

    def halves(self, shorter: bool, stop: int) -> "Boxes":
        """Cut each in two: into shorter runs of positions below ``stop``, or narrower
        intervals.
        """
        first = np.repeat(self.first, 2)
        low = np.repeat(self.low, 2)
        if not shorter:
            low[1::2] += self.width / 2
            return Boxes(first, low, self.run, self.width / 2)
        # The upper half of the last run may begin at or beyond ``stop``.
        first[1::2] += self.run // 2
        return Boxes(first, low, self.run // 2, self.width).select(first < stop)


def find_threatened(
    similarity: Similarity,
    first: int,
    stop: int,
    low: float,
    high: float,
    most: float = math.inf,
) -> Boxes | None:
    """Return the positions in [first, stop), in parts of [low, high], that could
    fail.
    """
    # None where more than ``most`` boxes would have to be examined together.
    length = 1 << max(0, ((stop - first) // RUNS).bit_length() - 1)
    starts = np.arange(first, stop, length, dtype=np.float64)
    boxes = Boxes(starts, np.full(len(starts), low), length, high - low)

    while 0 < len(boxes) <= most:
        boxes = boxes.select(lowest_sums(similarity, boxes, stop) < 0)
        run = boxes.run
        width = boxes.width
        if run == 1 and _spread(similarity, low, stop, 1, width) < NARROW:
            return boxes

        shorter = run > 1 and (
            _spread(similarity, low, stop, run / 2, width)
            <= _spread(similarity, low, stop, run, width / 2)
        )
        boxes = boxes.halves(shorter, stop)
    return None if len(boxes) else boxes


def lowest_sums(similarity: Similarity, boxes: Boxes, stop: int) -> Floats:
    """Bound S from below in each box."""
    # With half a width h and half a run n, an angle grows from phi to at most phi e^(a
    # h) + n b^(-a) e^(a h), and shrinks by less. Angles are in turns. Frequencies are
    # computed once per interval, which many boxes share.
    lows, place = np.unique(boxes.low, return_inverse=True)
    half = boxes.width * (0.5 + 1e-9) + np.spacing(lows[-1])
    grown = np.expm1(similarity.a * half)
    turns = similarity.inv_freq(lows + boxes.width / 2) / TWO_PI
    along = (boxes.run - 1) / 2 * turns.max(axis=0) * (1 + grown)
    still = along + boxes.first.min() * turns.min(axis=0) * grown < 0.5

    # A pair that may rotate by half a turn in every box counts as -1 (``aside``).
    turns = turns[:, still]
    grown = grown[still]
    along = along[still]

    sums = np.empty(len(boxes))
    for at in range(0, len(boxes), BLOCK):
        some = slice(at, at + BLOCK)
        centres = boxes.first[some] + (boxes.run - 1) / 2
        sums[some] = _lowest_cosines(
            turns[place[some]] * centres[:, None], grown, along
        )

    aside = len(still) - int(still.sum())
    error = 2 * similarity.single_error + similarity.rounding_error(stop)
    return sums + (similarity.unrotated - aside - error)


def _lowest_cosines(phi: Floats, grown: Floats, along: Floats) -> Singles:
    """Sum the lowest cosines within phi * grown + along of phi; angles in turns."""
    # Each within 2e-6: |phi| + r is rounded to float32 three times (1e-7 turns), then
    # in radians (3e-7), the cosine and its share in rounding the sum are those of
    # SINGLE_ERROR.
    farthest = phi.astype(np.float32)
    farthest *= grown.astype(np.float32)
    farthest += along.astype(np.float32)
    farthest *= np.float32(ROUNDED_UP)
    phi -= np.rint(phi)
    farthest += np.abs(phi.astype(np.float32))
    np.minimum(farthest, np.float32(0.5), out=farthest)
    farthest *= np.float32(TWO_PI)
    sums: Singles = np.cos(farthest).sum(axis=1)
    return sums


def intervals(similarity: Similarity, boxes: Boxes, fine: float) -> Undecided:
    """Return the intervals to be bisected, by float64 where narrower than ``fine``."""
    # ``Undecided`` needs its positions grouped by interval.
    order = np.argsort(boxes.low, kind="stable")
    lows, owner = np.unique(boxes.low[order], return_inverse=True)
    width = boxes.width
    same = np.ones_like(lows)
    rows = (
        lows,
        lows + width,
        width * same,
        fine * same,
        *similarity.curvature_bounds(lows),
    )
    return Undecided(np.stack(rows), boxes.first[order], owner)


def _spread(
    similarity: Similarity,
    u: float,
    stop: int,
    run: float,
    width: float,
) -> float:
    # Radians, added over pairs, by which angles near ``stop`` differ from a box's
    # centre.
    distance = (run - 1) / 2 + stop * similarity.a * width / 2
    return float(np.minimum(math.pi, similarity.inv_freq(u) * distance).sum())
