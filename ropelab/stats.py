"""Means, proportions and differences with 95 % intervals; a difference inside the noise is `~`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; `low` and `high` are nan where n is too small."""

    value: float
    low: float
    high: float
    n: int


def mean_interval(samples: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The mean of independent samples with Student's t interval; no interval below two samples."""
    values = np.asarray(samples, dtype=np.float64)
    n = values.size
    mean = float(values.mean()) if n else math.nan
    if n < 2:
        return Interval(mean, math.nan, math.nan, n)
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half, n)


def proportion_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """A proportion with Wilson's score interval (Wilson 1927), which stays inside [0, 1]."""
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    result = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(result.low), float(result.high), trials)


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The mean of a - b over the same documents or seeds, with its interval.

    Raises:
        ValueError: `a` and `b` do not have the same length.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"pairs need equal lengths, got {first.shape} and {second.shape}")
    return mean_interval(first - second, confidence)


def verdict(difference: Interval, names: Sequence[str] = ("a", "b")) -> str:
    """Which of two is smaller, or `~` where the interval holds 0 or does not exist.

    >>> verdict(Interval(-0.2, -0.3, -0.1, 50)), verdict(Interval(0.1, -0.1, 0.3, 50))
    ('a', '~')
    """
    if difference.high < 0:
        return names[0]
    if difference.low > 0:
        return names[1]
    return "~"
