"""Neighbouring positions that are stored alike: is there a wall at a base of 1/eps?

Liu 2026 (arXiv:2602.10959, read in summaries) bounds the base by 1/eps of the number
format, 8.4e6 in float32: above it the slowest pair of a head would no longer
distinguish a position from the next one. Here the first position is computed whose
stored cos and sin equal the stored cos and sin of the next position
(`find_first_equal`). A proof gives a position below which this happens at no base
(`find_proved_limit`).

A cast plan has the number format to which each stage of the rotation is rounded. The
encoding of a position is what a plan stores for it: the cosines and sines of all pairs.
The columns of tables call an encoding `code`.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum, cut_into_blocks, list_positions
from ropelab.math.numerics.formats import round_to, spacing

# The end of the search, 16M tokens. Not every larger position is a float32 number.
SEARCHED_POSITIONS = 1 << 24
# The number of positions that are computed together.
BLOCK = 1 << 16
# The columns of `make_walls_table` that have positions. They may be missing in a row.
POSITIONS = (
    "first_equal_pair_position",
    "proved_below_position",
    "first_equal_code_position",
)


def find_proved_limit(plan: CastPlan) -> int:
    """Return a position below which neighbours are proved to differ in every pair, at
    any base; 0 if nothing is proved.
    """
    # Let t be the smaller precision of angle and table in bits, x = m theta the angle
    # of a position and y = x + theta the angle of the next position. For m + 1 <=
    # 2^(t-3) the spacing s at y is at most 2^(1-t) y <= theta / 4, so that the stored
    # angles a of x and b of y are at least theta - s >= 3 s apart. For angles up to 1
    # rad, sin b - sin a >= cos(1) 3 s > s. Two numbers that round to the same number
    # are at most a spacing apart, so that sin a and sin b round to different numbers.
    # For larger angles the chord between the two points on the unit circle is at least
    # 2.7 s >= 5.4 2^-t. Two points that are stored alike are in one square, whose
    # diagonal is 1.5 2^-t. The proof needs positions that are stored exactly,
    # frequencies far from underflow, and rounded cos and sin.
    if plan.angles != "product" or plan.inv_freq.exponent_bits < 8:
        return 0

    precision = min(plan.angle.precision, plan.table.precision)
    bits = max(precision - 3, 0)
    bits = min(bits, plan.position.precision)
    return 2**bits


# The result is cached, since plans that differ only after the table have the same one.
@cache
@np.errstate(invalid="ignore", over="ignore")
def find_first_equal(
    plan: CastPlan,
    base: float,
    rotary_dim: int,
    stop: int,
) -> int | None:
    """Return the first position at which the stored cosine and sine of the slowest pair
    equal their values at the next position; None if no position below ``stop`` is like
    this.
    """
    chain = make_chain(plan, base, rotary_dim)
    slowest = slice(-1, None)
    start = max(find_proved_limit(plan) - 1, 0)
    start = min(start, stop)

    for low, high in cut_into_blocks(start, stop, BLOCK):
        positions = list_positions(low, high + 1)
        angles = chain.angles(positions, slowest)[0]
        angles_here = angles[:-1]
        angles_there = angles[1:]
        # Most angles are more than two spacings apart. The proof above shows that their
        # cosines or sines are stored differently, so that these are not computed.
        two_spacings = 2 * spacing(angles_there, plan.table)
        near = np.flatnonzero(angles_there <= angles_here + two_spacings)

        equal = np.ones(near.size, dtype=bool)
        for wave in (np.cos, np.sin):
            stored_here = round_to(wave(angles_here[near]), plan.table)
            stored_there = round_to(wave(angles_there[near]), plan.table)
            equal &= stored_here == stored_there

        if equal.any():
            first = equal.argmax()  # of the first True
            return low + int(near[first])
    return None


def make_chain(plan: CastPlan, base: float, rotary_dim: int) -> Chain:
    """Return the chain that computes the stored angles, cos and sin of a head under a
    plan.
    """
    inv_freq = inverse_frequencies(rotary_dim, base)
    return Chain(plan, Spectrum(inv_freq, base, rotary_dim))


def make_walls_table(
    plans: Mapping[str, CastPlan],
    bases: Sequence[float],
    rotary_dim: int,
) -> pd.DataFrame:
    """Return the first positions at which the slowest pair, and the whole encoding, are
    stored like at the next position: a row per plan and base.

    A position is missing if it is not below 16M tokens. ``proved_below_position`` holds
    for every base and every pair.
    """
    rows = []
    for name, plan in plans.items():
        # The angle of pair 0 is the position m. The whole encoding is therefore the same
        # for two positions only if the positions are stored as the same number.
        first_rounded: int = 2**plan.position.precision
        first_equal_encoding = None
        if first_rounded < SEARCHED_POSITIONS:
            first_equal_encoding = first_rounded

        for base in bases:
            row = {
                "code": name,
                "base": base,
                "first_equal_pair_position": find_first_equal(
                    plan.storage, base, rotary_dim, SEARCHED_POSITIONS
                ),
                "proved_below_position": find_proved_limit(plan),
                "first_equal_code_position": first_equal_encoding,
            }
            rows.append(row)

    columns = ["code", "base", *POSITIONS]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(POSITIONS, "Int64"))


def find_first_wrong_step(
    base: float,
    rotary_dim: int,
    tolerance_rad: float,
    stop: int,
) -> int | None:
    """Return the first position whose angle is wrong by more than the tolerance, in code
    that adds theta for each token, in float32; None if there is none.
    """
    theta = inverse_frequencies(rotary_dim, base)[:, None]
    exact = theta * np.arange(1, stop + 1)

    steps = np.broadcast_to(theta.astype(np.float32), exact.shape)
    # `accumulate` adds one number after another and rounds each sum, as code does that
    # adds theta for each token. `sum` would add in pairs.
    angles = np.add.accumulate(steps, axis=1)

    errors = np.abs(angles - exact)
    beyond = np.flatnonzero((errors > tolerance_rad).any(0))
    if not beyond.size:
        return None
    return int(beyond[0]) + 1
