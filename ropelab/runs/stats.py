"""Intervals and false discovery rates: the mathematics; `comparisons.py` has the rule.

What is measured on trained models varies twice: another training seed would give
another model, and other documents (sequences) another text. Both count. With values
x[seed, document], K seeds crossed with N documents, the variance of the grand mean is

    Vs = var(means of seeds) / K,  Vd = var(means of documents) / N,  Vr = residual / (K N)
    V  = max(Vs + Vd - Vr, Vs, Vd),
    df = max(1, V^2 / (Vs^2 / (K - 1) + Vd^2 / (N - 1)))              (Satterthwaite 1946)

Vr is taken off because it is in Vs and in Vd (two-way random effects; Cameron, Gelbach
and Miller 2011); V stays above both, as Vr is estimated. docs/methods.md has the
coverage. With one seed only documents vary, and the interval speaks of that one model;
with one document, of that one. Where no share of successes varies, V is that of one
trial more with another outcome, 1 / (trials + 1)^2: equal counts are no proof that the
next one will be equal. Quantiles and tails of Student's t are computed here:
SciPy takes 110 MB.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropelab.runs.arrays import Float

CONFIDENCE = 0.95
# Of the differences that are named as such, the share that may be none.
FALSE_DISCOVERIES = 0.05
# Smaller p-values are written as this one: so far out they speak of the normality of
# three or five numbers. No family is so large that it would change a verdict.
SMALLEST_P = 1e-4
# Fewer seeds, or fewer documents, tell nothing about their variance: two that happen to
# be equal would prove any difference.
FEWEST_UNITS = 3
# Relative error at which the iterations for Student's t stop.
EPSILON = 1e-15


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval; `low` and `high` are nan where n is too
    small.
    """

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and documents (or sequences) with what is known of its
    error.
    """

    value: float
    variance: float  # of the mean; nan where there is a single value
    freedom: float  # degrees of freedom of the variance
    seeds: int
    units: int  # documents, or sequences

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        quantile = student_quantile((1 + confidence) / 2, self.freedom)
        half = quantile * math.sqrt(self.variance)
        low = self.value - half
        high = self.value + half
        return Interval(self.value, low, high, self.seeds * self.units)

    def p_value(self) -> float:
        """Return the probability of a mean at least so far from 0 by chance; nan if
        unknown.
        """
        if max(self.seeds, self.units) < FEWEST_UNITS:
            return math.nan
        if self.variance == 0:
            # Nothing is known of the error of what never varies.
            return 1.0 if self.value == 0 else math.nan

        t = abs(self.value) / math.sqrt(self.variance)
        p = 2 * student_tail(t, self.freedom)
        return max(SMALLEST_P, p)


def crossed_mean(
    values: Float[NDArray[np.float64], "seeds units"], trials: int = 0
) -> Mean:
    """Average values crossed by seed and document, by the formulas at the head of this
    file.

    `trials`: how many each value is a share of, or a difference of shares; 0: of none.
    """
    x = np.asarray(values, dtype=np.float64)
    seeds, units = x.shape
    by_seed = x.mean(axis=1)
    by_unit = x.mean(axis=0)
    vs = _variance_of_mean(by_seed)
    vd = _variance_of_mean(by_unit)

    if seeds == 1:
        variance = vd
        freedom = units - 1.0
    elif units == 1:
        variance = vs
        freedom = seeds - 1.0
    else:
        rest = x - by_seed[:, None] - by_unit[None, :] + x.mean()
        vr = float((rest**2).sum()) / ((seeds - 1) * (units - 1)) / x.size
        variance = max(vs + vd - vr, vs, vd)
        parts = vs**2 / (seeds - 1) + vd**2 / (units - 1)
        # Without variation the formula says nothing; the smaller number is careful.
        fewest = min(seeds, units) - 1.0
        freedom = max(1.0, variance**2 / parts) if parts else fewest

    if trials and variance == 0:
        variance = 1 / (trials * x.size + 1) ** 2
    return Mean(float(x.mean()), variance, freedom, seeds, units)


def _variance_of_mean(samples: NDArray[np.float64]) -> float:
    if samples.size < 2:
        return math.nan
    return float(samples.var(ddof=1)) / samples.size


def crossed_proportion(
    shares: Float[NDArray[np.float64], "seeds units"], trials: int
) -> Interval:
    """Return a proportion over seeds and sequences, each a share of the same number of
    trials.
    """
    # Wilson's interval (1927), by the t quantile, for the effective number of trials m
    # (1 - m) / V (Korn and Graubard 1998). Where nothing varies every trial counts.
    mean = crossed_mean(shares)
    n = float(trials * mean.seeds * mean.units)
    quantile = None
    if mean.variance > 0:
        effective = mean.value * (1 - mean.value) / mean.variance
        n = max(min(n, effective), 1.0)
        quantile = student_quantile((1 + CONFIDENCE) / 2, mean.freedom)

    low, high = _wilson(mean.value, n, quantile)
    return Interval(mean.value, low, high, mean.seeds * mean.units)


def _wilson(
    share: float, n: float, quantile: float | None = None
) -> tuple[float, float]:
    """Return the ends of Wilson's score interval for a share of n trials, n any
    positive number.
    """
    z = quantile
    if z is None:
        z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = (centre - half) / scale
    high = (centre + half) / scale
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def mean_interval(samples: ArrayLike) -> Interval:
    """Average independent samples, with Student's t interval; nan below two samples."""
    values = np.asarray(samples, dtype=np.float64)
    if not values.size:
        return Interval(math.nan, math.nan, math.nan, 0)
    return crossed_mean(values[None, :]).interval()


def proportion_interval(successes: int, trials: int) -> Interval:
    """Return a proportion of independent trials with Wilson's score interval, inside
    [0, 1].
    """
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    share = successes / trials
    return Interval(share, *_wilson(share, trials), trials)


def discovery_rates(p_values: Sequence[float]) -> list[float]:
    """Return for each p-value the false discovery rate from which on it is a
    discovery.
    """
    # Benjamini and Hochberg 1995: the least over all larger p of p n / rank. A missing
    # p-value is no test and stays missing.
    p = np.asarray(p_values, dtype=np.float64)
    tests = np.count_nonzero(~np.isnan(p))
    # Missing ones are sorted to the end.
    rising = np.argsort(p, kind="stable")[:tests]
    ranks = np.arange(1, tests + 1)
    products = p[rising] * (tests / ranks)
    least_above = np.minimum.accumulate(products[::-1])[::-1]

    rates = np.full(p.shape, math.nan)
    rates[rising] = np.minimum(least_above, 1.0)
    return rates.tolist()


def student_tail(t: float, freedom: float) -> float:
    """Return the probability of a value above `t` (at least 0); nan without degrees of
    freedom.
    """
    if not (freedom > 0 and t >= 0):
        return math.nan
    whole = freedom + t * t
    return _incomplete_beta(freedom / whole, t * t / whole, freedom / 2, 0.5) / 2


# The tables of one run ask for a few quantiles, thousands of times.
@lru_cache(maxsize=1 << 12)
def student_quantile(share: float, freedom: float) -> float:
    """Return the value below which a share (above a half) lies; nan without degrees of
    freedom.
    """
    if not freedom > 0:
        return math.nan

    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)

    # The tail is convex: Newton's steps from the normal quantile, which is smaller,
    # only rise.
    t = NormalDist().inv_cdf(share)
    step = math.inf
    while step > EPSILON * t:
        density = scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (student_tail(t, freedom) - (1 - share)) / density
        t += step
    return t


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function of x, given 1 - x to full
    precision too.
    """
    # The continued fraction converges quickly on one side of the mean of the
    # distribution.
    if x > (a + 1) / (a + b + 2):
        if not rest:
            return 1.0
        return 1.0 - _incomplete_beta(rest, x, b, a)

    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / a

    # Abramowitz and Stegun 26.5.8, evaluated from its front as Lentz does.
    c = 1.0
    d = 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in count(1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= d * c

        if abs(fraction - before) <= EPSILON * abs(fraction):
            break
    return front * fraction
