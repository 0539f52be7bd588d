"""Neighbouring positions with equal codes: is there a wall at a base of 1/eps?

Liu 2026 (arXiv:2602.10959, from summaries) bounds the base by 1/eps of the number
format, 8.4e6 in float32: beyond it the slowest pair would no longer tell a position
from the next. Here the first position where that happens is computed, above one below
which it happens at no base, by proof.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum, blocks, span
from ropelab.math.numerics.formats import round_to, spacing

# The end of the search, 16M tokens. Float32 does not hold every larger position.
UP_TO = 1 << 24
# The number of positions that are computed together.
BLOCK = 1 << 16
# The columns of `walls` that have positions, or are missing.
POSITIONS = (
    "first_equal_pair_position",
    "proved_below_position",
    "first_equal_code_position",
)


def proved_below(plan: CastPlan) -> int:
    """Return a position below which neighbours are proved to differ in every pair, at
    any base; 0 if nothing is proved.
    """
    # Let t be the smaller precision of angle and table, x = m theta and y = x + theta.
    # For m + 1 <= 2^(t-3) the spacing s at y is at most 2^(1-t) y <= theta / 4, so that
    # the stored angles a and b are at least theta - s >= 3 s apart.
    # For angles up to 1 rad, sin b - sin a >= cos(1) 3 s > s. Two numbers that round to
    # the same one are at most a spacing apart, so these two do not.
    # For larger angles the chord between the two points on the circle is at least 2.7 s
    # >= 5.4 2^-t. Two points that round to the same one are in one cell, which has a
    # diagonal of 1.5 2^-t.
    # The proof needs positions that are stored exactly, frequencies far from underflow,
    # and rounded cos and sin.
    if plan.angles != "product" or plan.inv_freq.exponent_bits < 8:
        return 0
    precision = min(plan.angle.precision, plan.table.precision)
    bits = max(precision - 3, 0)
    bits = min(bits, plan.position.precision)
    return 2**bits


# The result is cached, since codes that differ only after the table share it.
@cache
@np.errstate(invalid="ignore", over="ignore")
def first_equal(
    plan: CastPlan,
    base: float,
    rotary_dim: int,
    stop: int,
) -> int | None:
    """Return the first position that has the same code in the slowest pair as the next
    position; None if there is none below ``stop``.

    The code is the stored cosine and sine.
    """
    chain = chain_of(plan, base, rotary_dim)
    slowest = slice(-1, None)
    start = max(proved_below(plan) - 1, 0)
    start = min(start, stop)

    for low, high in blocks(start, stop, BLOCK):
        positions = span(low, high + 1)
        angles = chain.angles(positions, slowest)[0]
        here = angles[:-1]
        there = angles[1:]
        # Most angles are further apart than two spacings. Their cosines and sines round to
        # different numbers, by the proof above, and are not computed.
        widest = 2 * spacing(there, plan.table)
        near = np.flatnonzero(there <= here + widest)

        equal = np.ones(near.size, dtype=bool)
        for wave in (np.cos, np.sin):
            stored_here = round_to(wave(here[near]), plan.table)
            stored_there = round_to(wave(there[near]), plan.table)
            equal &= stored_here == stored_there

        if equal.any():
            first = equal.argmax()
            return low + int(near[first])
    return None


def chain_of(plan: CastPlan, base: float, rotary_dim: int) -> Chain:
    inv_freq = inverse_frequencies(rotary_dim, base)
    return Chain(plan, Spectrum(inv_freq, base, rotary_dim))


def walls(
    plans: Mapping[str, CastPlan],
    bases: Sequence[float],
    rotary_dim: int,
) -> pd.DataFrame:
    """Return the first positions at which the slowest pair, and the whole code, are the
    same as at the next position: a row per code and base.

    A position is missing if it is not below 16M tokens. ``proved_below_position`` holds
    for every base and every pair.
    """
    rows = []
    for name, plan in plans.items():
        # The angle of pair 0 is the position m. The whole code is therefore the same for
        # two positions only if the positions themselves are stored as the same number.
        whole: int = 2**plan.position.precision

        for base in bases:
            row = {
                "code": name,
                "base": base,
                "first_equal_pair_position": first_equal(
                    plan.storage, base, rotary_dim, UP_TO
                ),
                "proved_below_position": proved_below(plan),
                "first_equal_code_position": whole if whole < UP_TO else None,
            }
            rows.append(row)

    columns = ["code", "base", *POSITIONS]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(POSITIONS, "Int64"))


def first_wrong_step(
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
    # `accumulate` adds one number after the other and rounds each sum, as the code does.
    # `sum` would add in pairs.
    angles = np.add.accumulate(steps, axis=1)

    errors = np.abs(angles - exact)
    beyond = np.flatnonzero((errors > tolerance_rad).any(0))
    if not beyond.size:
        return None
    return int(beyond[0]) + 1
