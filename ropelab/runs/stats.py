"""The mathematics of intervals and false discovery rates, which `comparisons.py` uses.

A measurement on trained models varies for two reasons: another training seed would give
another model, and other documents (sequences) would give another text. Both count. With
values x[seed, document], K seeds crossed with N documents, the variance of the grand
mean is

    Vs = var(means of seeds) / K,  Vd = var(means of documents) / N,  Vr = residual / (K N)
    V  = max(Vs + Vd - Vr, Vs, Vd),
    df = max(1, V^2 / (Vs^2 / (K - 1) + Vd^2 / (N - 1)))              (Satterthwaite 1946)

Vs is the part of the variance from seeds, Vd that from documents, and Vr that of the
residuals, which neither explains. Vr is subtracted because Vs and Vd both contain it
(two-way random effects; Cameron, Gelbach and Miller 2011). V is never below Vs or Vd,
since Vr is only an estimate. docs/methods.md has the coverage. With one seed only
documents vary, and the interval is about that one model; with one document it is about
that document.

If all values are the same share of successes, V is 1 / (trials + 1)^2, the variance if
one more trial had another outcome: equal counts do not prove that the next count will
be equal. Quantiles and tails of Student's t are computed here, because SciPy takes 110
MB.
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
# The share of false ones among the differences that are called significant.
FALSE_DISCOVERIES = 0.05
# A smaller p-value is replaced by this one. It would hold only if three or five numbers
# had a normal distribution even in its far tail. No family of comparisons is so large that
# the replacement changes a verdict.
SMALLEST_P = 1e-4
# Fewer seeds, or fewer documents, tell nothing about their variance: two numbers that
# happen to be equal would make any difference significant.
FEWEST_UNITS = 3
# Relative error at which the iterations for Student's t stop.
EPSILON = 1e-15


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    # The ends of the interval; NaN if the number of values is too small for one.
    low: float
    high: float
    # The number of values or trials.
    n: int


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and documents (or sequences) with what is known of its
    error.
    """

    value: float
    # The variance of the mean; NaN if there is a single value.
    variance: float
    # The degrees of freedom of the variance.
    freedom: float
    # The number of seeds.
    seeds: int
    # The number of documents, or sequences.
    units: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        quantile = student_quantile((1 + confidence) / 2, self.freedom)
        half = quantile * math.sqrt(self.variance)
        low = self.value - half
        high = self.value + half
        return Interval(self.value, low, high, self.seeds * self.units)

    def p_value(self) -> float:
        """Return the probability of a mean at least so far from 0 by chance.

        NaN if the variance is unknown: there are too few values, or they do not vary.
        """
        if max(self.seeds, self.units) < FEWEST_UNITS:
            return math.nan
        if self.variance == 0:
            return 1.0 if self.value == 0 else math.nan

        t = abs(self.value) / math.sqrt(self.variance)
        p = 2 * student_tail(t, self.freedom)
        return max(SMALLEST_P, p)


def crossed_mean(
    values: Float[NDArray[np.float64], "seeds units"], trials: int = 0
) -> Mean:
    """Average values crossed by seed and document, by the formulas at the head of this
    file.

    Args:
        values: a row per seed, a column per document.
        trials: the number of trials, if each value is a share of so many or a
            difference of two such shares; 0 for other values.
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
        if parts:
            freedom = max(1.0, variance**2 / parts)
        else:
            # Nothing varies, and the formula would divide 0 by 0. The smaller of the
            # two numbers is the careful choice.
            freedom = min(seeds, units) - 1.0

    if trials and variance == 0:
        variance = 1 / (trials * x.size + 1) ** 2
    return Mean(float(x.mean()), variance, freedom, seeds, units)


def _variance_of_mean(samples: NDArray[np.float64]) -> float:
    """Return the variance of the mean of independent samples; NaN below two samples."""
    if samples.size < 2:
        return math.nan
    return float(samples.var(ddof=1)) / samples.size


def crossed_proportion(
    shares: Float[NDArray[np.float64], "seeds units"], trials: int
) -> Interval:
    """Return a proportion over seeds and sequences, each a share of the same number of
    trials.
    """
    # This is Wilson's interval (1927) with the quantile of Student's t, for m (1 - m) / V
    # effective trials, where m is the mean and V its variance (Korn and Graubard 1998).
    # If nothing varies, or V is NaN because there is a single value, all trials count, and
    # the quantile is the normal one.
    mean = crossed_mean(shares)
    n = float(trials * mean.seeds * mean.units)
    quantile = None
    # NaN fails this comparison.
    if mean.variance > 0:
        effective = mean.value * (1 - mean.value) / mean.variance
        n = max(min(n, effective), 1.0)
        quantile = student_quantile((1 + CONFIDENCE) / 2, mean.freedom)

    low, high = _wilson(mean.value, n, quantile)
    return Interval(mean.value, low, high, mean.seeds * mean.units)


def _wilson(
    share: float, n: float, quantile: float | None = None
) -> tuple[float, float]:
    """Return the ends of Wilson's score interval for a share of n trials.

    Args:
        share: of successes.
        n: any positive number, which need not be whole.
        quantile: in standard errors; the normal quantile of CONFIDENCE if None.
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
    """Average independent samples, with Student's t interval; NaN below two samples."""
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
    # The rate of a p-value is the least of p n / rank over it and all larger ones
    # (Benjamini and Hochberg 1995). A missing p-value (NaN) is no test, and its rate is
    # missing, too.
    p = np.asarray(p_values, dtype=np.float64)
    tests = np.count_nonzero(~np.isnan(p))
    # argsort puts NaN to the end, where it is cut off.
    rising = np.argsort(p, kind="stable")[:tests]
    ranks = np.arange(1, tests + 1)
    products = p[rising] * (tests / ranks)
    least_above = np.minimum.accumulate(products[::-1])[::-1]

    rates = np.full(p.shape, math.nan)
    rates[rising] = np.minimum(least_above, 1.0)
    return rates.tolist()


def student_tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds `t`, which is at least 0.

    NaN if one of the arguments is, or if there are no degrees of freedom.
    """
    # NaN fails every comparison, so it fails these two.
    is_valid = freedom > 0 and t >= 0
    if not is_valid:
        return math.nan
    whole = freedom + t * t
    return _incomplete_beta(freedom / whole, t * t / whole, freedom / 2, 0.5) / 2


# A run needs few different quantiles, each of them thousands of times.
@lru_cache(maxsize=1 << 12)
def student_quantile(share: float, freedom: float) -> float:
    """Return the value that Student's t exceeds with probability 1 - share.

    `share` is above a half. NaN if there are no degrees of freedom.
    """
    # NaN fails the comparison, so it counts as no degrees of freedom.
    has_freedom = freedom > 0
    if not has_freedom:
        return math.nan

    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)

    # The tail is convex, and the normal quantile is smaller than the result. Newton's
    # steps from it therefore only rise.
    t = NormalDist().inv_cdf(share)
    step = math.inf
    while step > EPSILON * t:
        density = scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (student_tail(t, freedom) - (1 - share)) / density
        t += step
    return t


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function of x.

    `rest` is 1 - x to full precision, which a subtraction would lose near 1.
    """
    # The continued fraction converges quickly for x below this value. Above it the
    # symmetry I(x; a, b) = 1 - I(1 - x; b, a) is used.
    if x > (a + 1) / (a + b + 2):
        if not rest:
            return 1.0
        return 1.0 - _incomplete_beta(rest, x, b, a)

    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / a

    # The fraction is 26.5.8 of Abramowitz and Stegun, evaluated from its front by
    # Lentz's method.
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
