"""What a run of the base experiment costs."""

from math import isqrt

from ropelab.estimate import Estimate
from ropelab.experiments.base.config import BaseConfig
from ropelab.rope.bounds.survey import BLOCK

LIBRARIES = 0.3e9
"""Bytes of Python with NumPy, SciPy, pandas and matplotlib, and of sums held at once."""
PAIRS = 64
"""Pairs of the head for which the rates were measured."""
SECONDS_PER_SQUARE = 2e-9
"""All windows of a context of n tokens, over n^2; with n = 32k they took 2 s."""
SECONDS_PER_TOKEN = 1e-5
"""The first window of a context alone, over n; with n = 512k and its halves it took 12 s, on a
machine with other work."""
BYTES_PER_TOKEN = 4.0
"""Positions that could fail at some base, as far as they are looked at together."""


def estimate(config: BaseConfig) -> Estimate:
    """All windows of the shorter contexts, the first one of the others and of halves on the way."""
    share = config.head_dim / 2 / PAIRS
    longest = max(config.context)
    asked = sum(seconds_of(n, n <= config.windows_up_to) for n in config.context)
    seconds = 1.0 + share * (asked + seconds_of(longest, complete=False))
    grids = 2 * isqrt(min(longest, BLOCK)) * config.head_dim * 8
    return Estimate(seconds, LIBRARIES + 3.0 * grids + longest * BYTES_PER_TOKEN)


def seconds_of(context: int, complete: bool) -> float:
    """How long a context of a head of PAIRS pairs is searched, for all windows or the first one."""
    return context * SECONDS_PER_TOKEN + complete * float(context) ** 2 * SECONDS_PER_SQUARE
