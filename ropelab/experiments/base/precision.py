"""The other side: a base can be so large that a number format no longer sees the slowest pair turn.

The slowest pair turns by theta = b^(-(d-2)/d) per token. Its neighbours at position L are stored as
rounded cosines and sines; a channel has lost them when its change from one token to the next is
below half the spacing of the format at that value. The cosine of a small angle is near 1, where the
spacing is widest; the sine of a small angle is small itself, and floating point spaces small
numbers finely.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from ropelab.math.numerics.formats import FloatFormat, spacing

Grid = Float[np.ndarray, "bases"]
Lost = Bool[np.ndarray, "bases"]
GRID = np.logspace(0.1, 18, 20_000)


def blind_from(channel: str, fmt: FloatFormat, rotary_dim: int, length: int) -> float:
    """The base from which on ``channel`` cannot tell positions length-1 and length apart.

    Channel: "cosine", or "cosine and sine" (lost when both are). Searched on a grid of 20,000 bases
    up to 1e18, relative accuracy 0.2 %; nan where the neighbours are apart at every base on it.
    """
    if rotary_dim < 4:
        return math.nan
    theta = GRID ** (-(rotary_dim - 2) / rotary_dim)
    lost = _CHANNELS[channel](theta, theta * length, fmt)
    apart = np.flatnonzero(~lost)
    first = int(apart[-1]) + 1 if len(apart) else 0
    return float(GRID[first]) if first < len(GRID) else math.nan


def _cosine_lost(theta: Grid, angle: Grid, fmt: FloatFormat) -> Lost:
    return theta * np.abs(np.sin(angle)) < spacing(np.abs(np.cos(angle)), fmt) / 2


def _both_lost(theta: Grid, angle: Grid, fmt: FloatFormat) -> Lost:
    sine_lost = theta * np.abs(np.cos(angle)) < spacing(np.abs(np.sin(angle)), fmt) / 2
    return sine_lost & _cosine_lost(theta, angle, fmt)


_CHANNELS: dict[str, Callable[[Grid, Grid, FloatFormat], Lost]] = {
    "cosine": _cosine_lost,
    "cosine and sine": _both_lost,
}
