"""The sums S of all positions for one base, and the positions where S may be negative.

S(m, b) is the sum of cos(m theta_i) over the pairs i of a head, theta_i = b^(-a_i).

Positions are written as p + q, with p and q on two grids. Since cos((p + q) theta) =
cos(p theta) cos(q theta) - sin(p theta) sin(q theta), all sums are one matrix product,
and there are 2 sqrt(length) cosines per pair to compute.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.intervals import Tangents
from ropelab.math.bounds.similarity import Floats, Similarity, Singles, reduce_angle
from ropelab.math.numerics.chain import cut_into_blocks

# The number of positions whose sums are in memory together.
BLOCK = 1 << 22
# The search for low sums (`find_low_positions`) has three steps.
# 1. The positions are cut into runs of RUN tokens, and one position of each run is looked
#    at.
# 2. The MOST_RUNS runs with the lowest sums are cut into strides of STRIDE tokens, and
#    one position of each stride is looked at.
# 3. All positions of the MOST_STRIDES strides with the lowest sums are looked at.
RUN = 1024
MOST_RUNS = 32
STRIDE = 32
MOST_STRIDES = 24
# The highest sum of a position that is returned. The sums of other positions do not
# become negative at any base near the base of the search.
HIGHEST_SUM = 3.0


def scan(similarity: Similarity, u: float, start: int, stop: int) -> Singles:
    """Return S at every position in [start, stop), in float32."""
    count = stop - start
    # A square grid needs the fewest cosines.
    columns = max(1, math.isqrt(count))
    rows = -(-count // columns)
    starts = start + columns * np.arange(rows, dtype=np.float64)
    sums = compute_block_sums(similarity, u, starts, columns)
    return sums.ravel()[:count]


def compute_block_sums(
    similarity: Similarity,
    u: float,
    starts: Floats,
    columns: int,
    step: int = 1,
    first_pair: int = 0,
) -> Singles:
    """Return S at start + step * column: [starts, columns].

    S is computed in float32, and right within ``similarity.single_error``. The pairs
    before ``first_pair``, which are faster, are left out.
    """
    inv_freq = similarity.inv_freq(u)[first_pair:]
    steps = step * np.arange(columns, dtype=np.float64)
    cos, sin, waves_of_steps = _compute_grids(starts, steps, inv_freq)

    # The product over the 2 * pairs columns and rows adds cos p cos q - sin p sin q.
    waves_of_starts = np.concatenate((cos, -sin), axis=1)
    sums: Singles = waves_of_starts @ waves_of_steps
    sums += np.float32(similarity.unrotated)
    return sums


def compute_block_tangents(
    similarity: Similarity,
    u: float,
    starts: Floats,
    columns: int,
) -> tuple[Singles, Singles]:
    """Return S and (dS/du) / position at start + column, each [starts, columns].

    Both are computed in float32. S is right within ``single_error``, and (dS/du) /
    position within ``single_error`` times ``similarity.slope_bound(u)``.
    """
    inv_freq = similarity.inv_freq(u)
    steps = np.arange(columns, dtype=np.float64)
    cos, sin, waves_of_steps = _compute_grids(starts, steps, inv_freq)

    waves_of_starts = np.concatenate((cos, -sin), axis=1)
    sums: Singles = waves_of_starts @ waves_of_steps
    sums = sums + np.float32(similarity.unrotated)

    # dS/du is m sum a_i b^(-a_i) sin(m b^(-a_i)), and sin(p + q) is sin p cos q +
    # cos p sin q.
    weight = (similarity.a * inv_freq).astype(np.float32)
    waves_of_starts = np.concatenate((sin * weight, cos * weight), axis=1)
    slopes: Singles = waves_of_starts @ waves_of_steps
    return sums, slopes


def _compute_grids(
    starts: Floats,
    steps: Floats,
    inv_freq: Floats,
) -> tuple[Singles, Singles, Singles]:
    """Return cos and sin at the starts, each [starts, pairs], and at the steps.

    Cos and sin at the steps are in one array, [2 * pairs, steps].
    """
    angles_of_starts = reduce_angle(np.multiply.outer(starts, inv_freq))
    angles_of_steps = reduce_angle(np.multiply.outer(steps, inv_freq))
    cos = np.cos(angles_of_steps)
    sin = np.sin(angles_of_steps)
    waves_of_steps = np.concatenate((cos, sin), axis=1).T
    return np.cos(angles_of_starts), np.sin(angles_of_starts), waves_of_steps


def find_first_negative(similarity: Similarity, base: float, length: int) -> int | None:
    """Return the smallest position where S is below 0 by more than float64's error.

    None: there is no such position below ``length``.
    """
    u = math.log(base)
    rounding = similarity.rounding_error(length)
    # Below this number a float32 sum shows that S is negative.
    largest_certain = -(2 * similarity.single_error + rounding)

    for low, high in cut_into_blocks(0, length, BLOCK):
        sums = scan(similarity, u, low, high)
        # The float32 sums show at which positions S may be negative. No position after
        # the first where S certainly is negative is needed. Sums in float64 decide.
        certain_places = np.flatnonzero(sums < largest_certain)
        if len(certain_places):
            sums = sums[: certain_places[0] + 1]
        possible_places = np.flatnonzero(sums < similarity.single_error)
        positions = (possible_places + low).astype(np.float64)

        exact_sums = similarity.evaluate(positions, u)
        negative_positions = positions[exact_sums < -rounding]
        if len(negative_positions):
            return int(negative_positions[0])
    return None


def find_lowest(similarity: Similarity, base: float, length: int) -> tuple[int, float]:
    """Return the position below ``length`` with the smallest S, and S in float32."""
    u = math.log(base)
    position = 0
    smallest = math.inf
    for low, high in cut_into_blocks(0, length, BLOCK):
        sums = scan(similarity, u, low, high)
        place = int(sums.argmin())
        if sums[place] < smallest:
            position = low + place
            smallest = float(sums[place])
    return position, smallest


def find_low_positions(similarity: Similarity, u: float, stop: int) -> Tangents:
    """Return positions below ``stop`` where S is low at u, in no order."""
    # The list need not be complete: ``intervals.find_excluded_end`` proves with these
    # positions that bases are excluded, and takes longer if some are missing. Position 0
    # is left out, since S is the number of pairs at this position.
    starts = np.arange(1, stop, RUN, dtype=np.float64)
    if len(starts) > MOST_RUNS:
        middles = starts + RUN // 2
        sums_of_runs = _sum_slow_pairs(similarity, u, middles, count=1, step=RUN)
        chosen_runs = _select_lowest(sums_of_runs[:, 0], MOST_RUNS)
        starts = starts[chosen_runs]
    last_start = max(1, stop - RUN)
    starts = np.minimum(starts, last_start)

    # The second step looks at the strides of the runs that were chosen.
    strides = RUN // STRIDE
    middles = starts + STRIDE // 2
    sums_of_strides = _sum_slow_pairs(similarity, u, middles, strides, STRIDE)
    chosen_strides = _select_lowest(sums_of_strides.ravel(), MOST_STRIDES)
    runs, strides_in_run = np.divmod(chosen_strides, strides)
    places = starts[runs] + STRIDE * strides_in_run

    # The third step computes every position of the strides with the lowest sums.
    positions = places[:, None] + np.arange(STRIDE)
    positions = positions.ravel()
    sums, slopes = compute_block_tangents(similarity, u, places, STRIDE)
    sums = sums.ravel()
    slopes = slopes.ravel()

    is_low = (sums < HIGHEST_SUM) & (positions < stop)
    positions = positions[is_low]
    return Tangents(positions, sums[is_low], slopes[is_low] * positions)


def _sum_slow_pairs(
    similarity: Similarity,
    u: float,
    starts: Floats,
    count: int,
    step: int,
) -> Singles:
    """Return sums over slow pairs: [starts, count].

    A slow pair rotates by at most a radian in ``step`` tokens, so that its cosine is
    about the same at ``step`` neighbouring positions. If the sum over all pairs is
    negative, the sum over slow pairs must be low.
    """
    is_fast = similarity.inv_freq(u) > 1 / step
    first_slow = int(is_fast.sum())
    return compute_block_sums(similarity, u, starts, count, step, first_slow)


def _select_lowest(sums: Singles, count: int) -> NDArray[np.intp]:
    """Return the indices of the ``count`` lowest sums, in no order."""
    if len(sums) <= count:
        return np.arange(len(sums))
    return np.argpartition(sums, count)[:count]
