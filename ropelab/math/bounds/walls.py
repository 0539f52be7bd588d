"""Neighbouring positions that are stored alike: is 1/eps a limit of the base (a wall)?

Liu 2026 (arXiv:2602.10959, read in summaries) bounds the base by 1/eps of the number
format, 8.4e6 in float32: above it the slowest pair of a head would no longer
distinguish a position from the next one. Here the first position is computed whose
stored cos and sin equal the stored cos and sin of the next position
(`find_first_equal`). A proof gives a position below which this happens at no base
(`find_proved_limit`).

A cast plan has the number format to which each stage of the rotation is rounded, and the
rule by which angles are computed: as products m * theta_i of the position m and the
frequency theta_i of pair i, or by a recurrence over the pairs. The encoding of a position
is what a plan stores for it: the cosines and sines of all pairs.
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

# The number of positions that are searched, 16M. Not every larger position is a float32
# number.
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
    # Let t be the precision in bits of the format of angles or of the table, whichever is
    # smaller. Let x = m theta be the angle of position m <= 2^(t-3) - 1, and y = x + theta
    # the angle of the next position, of any frequency theta <= 1.
    #
    # 1. Let s be the spacing at y of numbers of t bits. It is at most 2^(1-t) y, and
    #    y = (m + 1) theta <= 2^(t-3) theta. Therefore s <= theta / 4.
    # 2. Let a and b be the stored angles of x and y. Each is wrong by at most s / 2, so
    #    that b - a is at least theta - s >= 4 s - s = 3 s. It is at most
    #    theta + s <= 1.25.
    # 3. If y <= 1, the slope of the sine is at least cos(1) = 0.54 between a and b.
    #    Therefore sin b - sin a >= 0.54 * 3 s > s. Two numbers that round to the same
    #    number are at most a spacing apart, so that the two sines are stored differently.
    # 4. If y > 1, the spacing s is at least the spacing 2^(1-t) from 1 on. The chord
    #    between two points of the unit circle is 2 sin(arc / 2), for arcs up to 1.25 at
    #    least 0.9 times the arc. Between a and b it is therefore at least
    #    0.9 * 3 s = 2.7 s >= 5.4 * 2^-t. Numbers below 1 have a spacing of at most 2^-t.
    #    Points that are stored alike are therefore in a square of side 2^-t, whose
    #    diagonal of 1.42 * 2^-t is shorter than the chord.
    #
    # The proof needs angles that are products, positions that are stored exactly,
    # frequencies far from underflow, and rounded cos and sin.
    if plan.angles != "product" or plan.inv_freq.exponent_bits < 8:
        return 0

    precision = min(plan.angle.precision, plan.table.precision)
    proved_bits = max(precision - 3, 0)
    # A format of p significant bits holds all whole numbers up to 2^p.
    exact_bits = plan.position.precision
    return 2 ** min(proved_bits, exact_bits)


# Callers pass `plan.storage`, in which all stages after the table are exact. Plans that
# differ only in those stages then share one cached result.
@cache
@np.errstate(invalid="ignore", over="ignore")
def find_first_equal(
    plan: CastPlan,
    base: float,
    rotary_dim: int,
    stop: int,
) -> int | None:
    """Return the first position that the slowest pair stores like the next position.

    The stored cosine and sine of the pair are then equal at the two positions. None: no
    position below ``stop`` is stored like the next.
    """
    chain = make_chain(plan, base, rotary_dim)
    slowest = slice(-1, None)
    # The proof covers neighbours of which both are below the limit. The first
    # neighbours without a proof are the last position below the limit and the limit
    # itself.
    last_below_limit = max(find_proved_limit(plan) - 1, 0)
    start = min(last_below_limit, stop)

    for low, high in cut_into_blocks(start, stop, BLOCK):
        positions = list_positions(low, high + 1)
        angles = chain.angles(positions, slowest)[0]
        # The angles of positions, and the angles of the positions after them.
        own_angles = angles[:-1]
        next_angles = angles[1:]
        # Most angles are more than two spacings apart. Steps 3 and 4 of the proof in
        # `find_proved_limit` show that the cosines or sines of such angles are stored
        # differently, so that these waves are not computed.
        two_spacings = 2 * spacing(next_angles, plan.table)
        near_places = np.flatnonzero(next_angles <= own_angles + two_spacings)

        is_equal = np.ones(near_places.size, dtype=bool)
        for wave in (np.cos, np.sin):
            stored = round_to(wave(own_angles[near_places]), plan.table)
            stored_next = round_to(wave(next_angles[near_places]), plan.table)
            is_equal &= stored == stored_next

        if is_equal.any():
            # `argmax` returns the index of the first True.
            index_of_first = is_equal.argmax()
            return low + int(near_places[index_of_first])
    return None


def make_chain(plan: CastPlan, base: float, rotary_dim: int) -> Chain:
    """Return the chain of a plan and a head; it computes stored angles, cos and sin."""
    inv_freq = inverse_frequencies(rotary_dim, base)
    return Chain(plan, Spectrum(inv_freq, base, rotary_dim))


def make_walls_table(
    plans: Mapping[str, CastPlan],
    bases: Sequence[float],
    rotary_dim: int,
) -> pd.DataFrame:
    """Return the first positions that are stored like the next, by plan and base.

    There is such a position for the slowest pair, and another for the whole encoding. A
    position is missing if it is not below SEARCHED_POSITIONS. ``proved_below_position``
    holds for every base and every pair.
    """
    rows = []
    for name, plan in plans.items():
        # The frequency of pair 0 is 1 under every base, so that its angle is the stored
        # position. In this pair neighbours that are stored as different numbers are at
        # least one radian apart, if angles are stored as finely as positions (in all
        # presets they are). Whole encodings are therefore equal only if two positions
        # are stored as the same number. A format of p bits stores all whole numbers up
        # to 2^p, and 2^p + 1 as 2^p, so that 2^p is the first position that is stored
        # like the next.
        first_stored_alike: int = 2**plan.position.precision
        first_equal_encoding = None
        if first_stored_alike < SEARCHED_POSITIONS:
            first_equal_encoding = first_stored_alike

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
    """Return the first position whose angle is wrong by more than the tolerance.

    The code adds theta for each token, in float32. None: no position up to ``stop`` is
    wrong.
    """
    theta = inverse_frequencies(rotary_dim, base)[:, None]
    exact = theta * np.arange(1, stop + 1)

    steps = np.broadcast_to(theta.astype(np.float32), exact.shape)
    # `accumulate` adds one number after another and rounds each sum, as code does that
    # adds theta for each token. `sum` would add in pairs.
    angles = np.add.accumulate(steps, axis=1)

    errors = np.abs(angles - exact)
    wrong_places = np.flatnonzero((errors > tolerance_rad).any(0))
    if not wrong_places.size:
        return None
    # The first place has position 1.
    return int(wrong_places[0]) + 1
