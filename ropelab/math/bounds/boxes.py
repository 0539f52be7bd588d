"""A proof for many positions and bases at once that no sum of cosines is negative.

S(m, b) is the sum of cos(m b^(-a_i)) over the pairs i of a head. A base b fails if S is
negative at some position m. A box is a run of positions times an interval of u = ln b.
In a box the angle of a pair stays within r of its value phi at the centre, so that its
cosine is at least cos(min(|phi| + r, pi)), with phi brought to [-pi, pi]. If these lowest
cosines add up to 0 or more, no base in the box fails. All other boxes are halved. In a
wide box the lowest cosine of a fast pair is -1, which the sum of the slow pairs mostly
outweighs.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.intervals import UndecidedIntervals
from ropelab.math.bounds.similarity import TWO_PI, Floats, Similarity, Singles

# The number of boxes that are computed together, which fit into the processor's cache.
BLOCK = 1 << 9
# The least number of runs into which the positions are cut at first.
LEAST_RUNS = 16
# The largest difference of the angles of one position in an interval that is narrow
# enough for bisection, in radians added over all pairs.
NARROW_ANGLES = 1.0
# The factor on r that covers the rounding of float32, in which r is computed.
ROUNDING_FACTOR = 1 + 1e-6


@dataclass(frozen=True)
class Boxes:
    """Boxes of one size."""

    # The first position of each box.
    first: Floats
    # The lowest u of each box.
    low: Floats
    # The number of positions in a box, a power of two, so that halving ends at single
    # positions.
    run: int
    # The width of a box in u.
    width: float

    def __len__(self) -> int:
        return len(self.first)

    def select(self, which: NDArray[np.bool_]) -> "Boxes":
        first = self.first[which]
        low = self.low[which]
        return Boxes(first, low, self.run, self.width)

    def halve(self, by_positions: bool, stop: int) -> "Boxes":
        """Cut each box in two.

        The halves are shorter runs of positions if `by_positions`, else narrower
        intervals of u.
        """
        first = np.repeat(self.first, 2)
        low = np.repeat(self.low, 2)
        if not by_positions:
            width = self.width / 2
            low[1::2] += width
            return Boxes(first, low, self.run, width)

        run = self.run // 2
        first[1::2] += run
        boxes = Boxes(first, low, run, self.width)
        # The upper half of the last run may begin at or beyond ``stop``.
        return boxes.select(first < stop)


def find_threatened(
    similarity: Similarity,
    first: int,
    stop: int,
    low: float,
    high: float,
    most_boxes: float = math.inf,
) -> Boxes | None:
    """Return boxes outside of which no base fails at any position.

    The bases are the interval [low, high] of u, and the positions [first, stop). A box
    has a single position and a part of the interval. None if more than ``most_boxes``
    boxes would have to be examined together.
    """
    # The largest power of two that cuts the positions into at least LEAST_RUNS runs.
    longest_run = (stop - first) // LEAST_RUNS
    run = 1 << max(0, longest_run.bit_length() - 1)
    starts = np.arange(first, stop, run, dtype=np.float64)
    lows = np.full_like(starts, low)
    boxes = Boxes(starts, lows, run, high - low)

    def measure_angles(run: float, width: float) -> float:
        return _measure_angles(similarity, low, stop, run, width)

    while 0 < len(boxes) <= most_boxes:
        sums = lowest_sums(similarity, boxes, stop)
        boxes = boxes.select(sums < 0)
        if boxes.run == 1:
            if measure_angles(1, boxes.width) < NARROW_ANGLES:
                return boxes
            by_positions = False
        else:
            # The cut that leaves the smaller range of angles is the better one.
            range_if_shorter = measure_angles(boxes.run / 2, boxes.width)
            range_if_narrower = measure_angles(boxes.run, boxes.width / 2)
            by_positions = range_if_shorter <= range_if_narrower
        boxes = boxes.halve(by_positions, stop)

    if len(boxes):
        return None
    return boxes


def lowest_sums(similarity: Similarity, boxes: Boxes, stop: int) -> Floats:
    """Return a lower bound of S in each box."""
    # Let h be half a width and n half a run. From the centre of a box an angle grows from
    # phi to at most phi e^(a h) + n b^(-a) e^(a h), and it shrinks by less. Hence
    # r = phi * growth + run_range, where growth = e^(a h) - 1, and run_range is the
    # second term, which follows from the run of positions. Angles are in turns here,
    # where a turn is 2 pi.
    #
    # Many boxes share an interval of u, whose frequencies are computed once.
    lows, interval_of_box = np.unique(boxes.low, return_inverse=True)
    rounding = np.spacing(lows[-1])
    half_width = boxes.width * (0.5 + 1e-9) + rounding
    half_run = (boxes.run - 1) / 2
    growth = np.expm1(similarity.a * half_width)  # [pairs]
    # The frequencies in turns per token: [intervals, pairs].
    turns = similarity.inv_freq(lows + boxes.width / 2) / TWO_PI
    run_range = half_run * turns.max(axis=0) * (1 + growth)

    # A pair whose angle may differ by half a turn in every box has -1 as its lowest
    # cosine, so that no cosine is computed for it. All other pairs are kept.
    least_turns = boxes.first.min() * turns.min(axis=0)
    least_range = run_range + least_turns * growth
    is_kept = least_range < 0.5
    turns = turns[:, is_kept]
    growth = growth[is_kept]
    run_range = run_range[is_kept]

    sums = np.empty(len(boxes))
    for start in range(0, len(boxes), BLOCK):
        block = slice(start, start + BLOCK)
        centres = boxes.first[block] + half_run
        phi = turns[interval_of_box[block]] * centres[:, None]  # [boxes, pairs]
        sums[block] = _sum_lowest_cosines(phi, growth, run_range)

    pairs_at_minus_one = len(is_kept) - int(is_kept.sum())
    error = 2 * similarity.single_error + similarity.rounding_error(stop)
    return sums + (similarity.unrotated - pairs_at_minus_one - error)


def _sum_lowest_cosines(phi: Floats, growth: Floats, run_range: Floats) -> Singles:
    """Return the sum over pairs of the lowest cosines in a box.

    The angle of a pair is within r = phi * growth + run_range of phi, in turns. ``phi``
    is overwritten.
    """
    # Each cosine is right within 2e-6: |phi| + r is rounded to float32 three times
    # (1e-7 turns) and once more in radians (3e-7). SINGLE_ERROR states the errors of
    # the cosine itself and of the sum.
    farthest = phi.astype(np.float32)
    farthest *= growth.astype(np.float32)
    farthest += run_range.astype(np.float32)
    farthest *= np.float32(ROUNDING_FACTOR)

    phi -= np.rint(phi)
    farthest += np.abs(phi.astype(np.float32))
    np.minimum(farthest, np.float32(0.5), out=farthest)
    farthest *= np.float32(TWO_PI)
    sums: Singles = np.cos(farthest).sum(axis=1)
    return sums


def gather_intervals(
    similarity: Similarity, boxes: Boxes, float64_width: float
) -> UndecidedIntervals:
    """Return the intervals of boxes with a single position each, for bisection.

    Bisection computes in float64 where an interval is narrower than ``float64_width``.
    """
    # ``UndecidedIntervals`` needs its positions grouped by interval.
    order = np.argsort(boxes.low, kind="stable")
    lows, owner = np.unique(boxes.low[order], return_inverse=True)
    highs = lows + boxes.width
    widths = np.full_like(lows, boxes.width)
    float64_widths = np.full_like(lows, float64_width)
    c1, c2 = similarity.curvature_bounds(lows)
    rows = np.stack((lows, highs, widths, float64_widths, c1, c2))
    return UndecidedIntervals(rows, boxes.first[order], owner)


def _measure_angles(
    similarity: Similarity,
    u: float,
    stop: int,
    run: float,
    width: float,
) -> float:
    """Return by how much angles in a box differ from the angles at its centre.

    The box is near the position ``stop``. The difference is in radians, added over all
    pairs.
    """
    half_run = (run - 1) / 2
    # Half the width in u has the same effect as a change of the position by this
    # number.
    equal_change = stop * similarity.a * width / 2
    differences = similarity.inv_freq(u) * (half_run + equal_change)
    differences = np.minimum(math.pi, differences)
    return float(differences.sum())
