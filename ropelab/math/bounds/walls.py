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

# 16M tokens: from here on float32 no longer holds every position.
UP_TO = 1 << 24
BLOCK = 1 << 16
# Columns of `walls` that hold positions or nothing.
POSITIONS = (
    "first_equal_pair_position",
    "proved_below_position",
    "first_equal_code_position",
)


def proved_below(plan: CastPlan) -> int:
    """Return a position below which neighbours differ in every pair, at any base.

    0: nothing is proved.
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
    bits = max(precision - 3, 0)
    bits = min(bits, plan.position.precision)
    return 2**bits


@cache  # some codes differ only in what comes after the table
@np.errstate(invalid="ignore", over="ignore")
def first_equal(
    plan: CastPlan,
    base: float,
    rotary_dim: int,
    stop: int,
) -> int | None:
    """Return the first position whose code the next one has too, in the slowest pair.

    The code is the stored cosine and sine. None: not below ``stop``.
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
        # Angles further apart than two spacings have two roundings, as above; most are.
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
    """Tabulate where the slowest pair and the whole code lose neighbours.

    A row per code and base. Missing: not in 16M tokens. ``proved_below_position`` holds
    for every base and every pair.
    """
    rows = []
    for name, plan in plans.items():
        # Pair 0 has the angle m, so the whole code is lost with the position itself,
        # not before.
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
    """Return the first position off by more than the tolerance, or None.

    In this code each token adds theta to its angle, in float32.
    """
    theta = inverse_frequencies(rotary_dim, base)[:, None]
    exact = theta * np.arange(1, stop + 1)

    steps = np.broadcast_to(theta.astype(np.float32), exact.shape)
    # Sums one after the other, each rounded; `sum` would add in pairs.
    angles = np.add.accumulate(steps, axis=1)

    errors = np.abs(angles - exact)
    beyond = np.flatnonzero((errors > tolerance_rad).any(0))
    if not beyond.size:
        return None
    return int(beyond[0]) + 1
