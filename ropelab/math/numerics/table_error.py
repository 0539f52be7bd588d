"""The worst error of a stored table over a range of positions, without visiting most of them.

A cos or sin of an angle that is off by e is off by at most the chord 2 sin(e / 2); rounding to the
format of the table adds at most half a last place below 1. So stretches of positions and pairs are
visited from the largest such bound down, until no bound left is above what was found.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.phase import LOST_RAD, STRETCH, Worst
from ropelab.math.numerics.ranges import blocks, span

WITHIN = 1e-3
"""The error returned is the largest there is, up to this share of it."""
NUMBERS = 1 << 13
"""Cosines computed at once: few, for the first ones often settle it."""


def worst_table_error(chain: Chain, found: Sequence[Worst]) -> float:
    """The largest |stored - exact| of any cos or sin, up to `WITHIN`; nan: an angle overflowed.

    Args:
        found: the worst angle errors of consecutive ranges, as worst_by_octave gives them.
    """
    if any(octave.overflowed for octave in found):
        return math.nan
    stretches = [piece for o in found for piece in blocks(o.start, o.stop, STRETCH)]
    bounds = _bounds(chain, found, stretches)
    exact = Chain(CastPlan(), chain.spectrum)
    best = 0.0
    for number in np.argsort(-bounds.max(0), kind="stable"):
        start, stop = stretches[number]
        pairs = bounds[:, number] > best * (1 + WITHIN)
        while pairs.any() and start < stop:
            end = min(stop, start + max(NUMBERS // int(pairs.sum()), 1))
            best = max(best, _largest(chain, exact, span(start, end), pairs))
            start, pairs = end, bounds[:, number] > best * (1 + WITHIN)
    return best


def _bounds(
    chain: Chain, found: Sequence[Worst], stretches: Sequence[tuple[int, int]]
) -> Float[np.ndarray, "pairs stretches"]:
    """No cos or sin of a pair is further off in a stretch."""
    known = [o.error_rad if o.error_rad < LOST_RAD else math.pi for o in found]
    counts = [-(-(o.stop - o.start) // STRETCH) for o in found]
    ends = np.array([stop - 1 for _, stop in stretches], dtype=np.float64)
    angle = np.minimum(chain.error_bounds(ends), np.repeat(known, counts) * (1 + 1e-9))
    table = chain.plan.table
    rounding = 0.0 if table.precision == 53 else table.epsilon / 4
    return 2 * np.sin(angle / 2) + rounding


@np.errstate(invalid="ignore", over="ignore")
def _largest(
    chain: Chain,
    exact: Chain,
    positions: Float[np.ndarray, " n"],
    pairs: Bool[np.ndarray, " pairs"],
) -> float:
    """The largest error of some pairs at some positions."""
    which = np.flatnonzero(pairs)
    both = zip(chain.table(positions, which), exact.table(positions, which), strict=True)
    return max(float(np.abs(ours - true).max()) for ours, true in both)
