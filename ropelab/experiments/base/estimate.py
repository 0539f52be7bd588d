"""What a run of the base experiment costs."""

from math import isqrt

from ropelab.experiments.base.config import BaseConfig
from ropelab.math.bounds.survey import BLOCK
from ropelab.runs.estimate import Estimate

LIBRARIES = 0.3e9
"""Bytes of Python with NumPy, SciPy, pandas and matplotlib, and of sums held at once."""
PAIRS = 64
"""Pairs of the head for which the rates were measured."""
SECONDS_PER_SQUARE = 4e-10
"""All windows of a context of n tokens, over n^2; with n = 64k they took 1.6 s."""
SECONDS_PER_TOKEN = 4e-6
"""The first window of a context alone, over n; with n = 512k and its halves it took 3.7 s."""
SECONDS_OF_STABLE = 0.3
"""The stable base of a context; from 32k to 1M tokens it took 0.15 to 0.5 s. With twice the pairs
it takes about twenty times as long, as neighbouring pairs turn at nearly the same speed."""
BYTES_PER_TOKEN = 4.0
"""Positions that could fail at some base, as far as they are looked at together."""


def estimate(config: BaseConfig) -> Estimate:
    """The first windows on the way up, halves included; stable bases and windows as asked for."""
    share = config.head_dim / 2 / PAIRS
    longest = max(config.context)
    first = 2 * seconds_of(longest, complete=False)
    windows = sum(n**2 for n in config.context if n <= config.windows_up_to) * SECONDS_PER_SQUARE
    stable = len(config.context) * SECONDS_OF_STABLE
    seconds = 1.0 + share * (first + windows) + share**4 * stable
    grids = 2 * isqrt(min(longest, BLOCK)) * config.head_dim * 8
    return Estimate(seconds, LIBRARIES + 3.0 * grids + longest * BYTES_PER_TOKEN)


def seconds_of(context: int, complete: bool) -> float:
    """How long a context of a head of PAIRS pairs is searched, for all windows or the first one."""
    return context * SECONDS_PER_TOKEN + complete * float(context) ** 2 * SECONDS_PER_SQUARE
