"""Neighbouring positions with equal codes, kernel by kernel: is there a wall at a base
of 1/eps?

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

# 16M tokens: from here on float32 no longer holds every position.
UP_TO = 1 << 24
BLOCK = 1 << 16


def proved_below(plan: CastPlan) -> int:
    """Return a position below which no base makes neighbours equal in any pair; 0: not
    proved.
    """
    # Let t be the smaller precision of angle and table, x = m theta and y = x + theta.
    # For m + 1 <= 2^(t-3) the spacing s at y is at most 2^(1-t) y <= theta / 4, so the
    # stored angles a, b are at least theta - s >= 3 s apart. Up to 1 rad sin b - sin a
    # >= cos(1) 3 s > s, and two numbers with one rounding are at most a spacing apart.
    # Beyond, their chord is at least 2.7 s >= 5.4 2^-t, and one rounding cell of the
    # circle has a diagonal of 1.5 2^-t. It needs positions that are stored exactly,
    # frequencies far from underflow, and rounded cos and sin.
    if plan.angles != "product" or plan.inv_freq.exponent_bits < 8:
        return 0
    precision = min(plan.angle.precision, plan.table.precision)
    return 2 ** min(max(precision - 3, 0), plan.position.precision)


@cache  # some codes differ only in what comes after the table
@np.errstate(invalid="ignore", over="ignore")
def first_equal(plan: CastPlan, base: float, rotary_dim: int, stop: int) -> int | None:
    """Return the first position that stores the cosine and sine of the slowest pair as
    the next.
    """
    chain = chain_of(plan, base, rotary_dim)
    for low, high in blocks(min(max(proved_below(plan) - 1, 0), stop), stop, BLOCK):
        angles = chain.angles(span(low, high + 1), slice(-1, None))[0]
        # Angles further apart than two spacings have two roundings, as above; most are.
        near = np.flatnonzero(
            angles[1:] <= angles[:-1] + 2 * spacing(angles[1:], plan.table)
        )

        equal = np.ones(near.size, dtype=bool)
        for wave in (np.cos, np.sin):
            here, there = (
                round_to(wave(angles[at]), plan.table) for at in (near, near + 1)
            )
            equal &= here == there

        if equal.any():
            return low + int(near[equal.argmax()])
    return None


def chain_of(plan: CastPlan, base: float, rotary_dim: int) -> Chain:
    return Chain(
        plan, Spectrum(inverse_frequencies(rotary_dim, base), base, rotary_dim)
    )


def walls(
    plans: Mapping[str, CastPlan],
    bases: Sequence[float],
    rotary_dim: int,
) -> pd.DataFrame:
    """Tabulate, per code and base, where the slowest pair and the whole code lose
    neighbours.

    Missing: not in 16M tokens. ``proved_below_position`` holds for every base and every
    pair.
    """
    rows = []
    for name, plan in plans.items():
        # Pair 0 has the angle m, so the whole code is lost with the position itself,
        # not before.
        whole = 2**plan.position.precision
        for base in bases:
            pair = first_equal(plan.storage, base, rotary_dim, UP_TO)
            rows.append(
                (name, base, pair, proved_below(plan), whole if whole < UP_TO else None)
            )
    columns = ["code", "base", "first_equal_pair_position", "proved_below_position"]
    table = pd.DataFrame(rows, columns=[*columns, "first_equal_code_position"])
    return table.astype(dict.fromkeys(table.columns[2:], "Int64"))


def first_wrong_step(
    base: float,
    rotary_dim: int,
    tolerance_rad: float,
    stop: int,
) -> int | None:
    """Return the first position off by more where each token adds theta to its angle in
    float32.
    """
    theta = inverse_frequencies(rotary_dim, base)[:, None]
    steps = np.broadcast_to(theta.astype(np.float32), (len(theta), stop))
    # Sums one after the other, each rounded; `sum` would add in pairs.
    off = np.abs(np.add.accumulate(steps, axis=1) - theta * np.arange(1, stop + 1))
    beyond = np.flatnonzero((off > tolerance_rad).any(0))
    return int(beyond[0]) + 1 if beyond.size else None
