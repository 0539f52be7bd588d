"""The mathematics of intervals and false discovery rates, which `comparisons.py` uses.

A measurement on trained models varies for two reasons: another training seed would give
another model, and other documents (sequences) would give another text. Both count as
variance. With values x[seed, document], where each of K seeds is measured on each of N
documents, the variance of the grand mean is

    Vs = var(means of seeds) / K,  Vd = var(means of documents) / N,  Vr = residual / (K N)
    V  = max(Vs + Vd - Vr, Vs, Vd),
    df = max(1, V^2 / (Vs^2 / (K - 1) + Vd^2 / (N - 1)))              (Satterthwaite 1946)

Vs is the part of the variance that comes from seeds, Vd the part that comes from
documents, and Vr the part of the residuals, which neither explains. Vr is subtracted
because Vs and Vd both contain it (two-way random effects; Cameron, Gelbach and Miller
2011). V is never below Vs or Vd, since Vr is only an estimate. docs/methods.md says how
often such intervals contain the true value. With one seed only documents vary, and the
interval is about that one model; with one document it is about that document.

If all values are the same share of successes, V is 1 / (trials + 1)^2, the variance if
one more trial had another outcome: equal counts do not prove that the next count will
be equal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropelab.runs.arrays import Float
from ropelab.runs.student import student_quantile, student_tail

# The probability with which an interval contains the true value.
CONFIDENCE = 0.95
# The expected share of chance findings among the differences called significant.
FALSE_DISCOVERIES = 0.05
# The smallest p-value that is stated. A smaller one would be right only if the three or
# five numbers had a normal distribution even in its far tail. No family of comparisons is
# so large that the replacement changes a verdict.
SMALLEST_P = 1e-4
# The fewest seeds, or the fewest documents, from which a variance is estimated. With two,
# numbers that happen to be equal would make any difference significant.
FEWEST_UNITS = 3
# The half-width of an interval with a normal distribution, in standard errors.
NORMAL_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    # The ends of the interval; NaN if the number of values is too small for one.
    low: float
    high: float
    # The number of values, or of trials, that the value is computed from.
    n: int


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and documents (or sequences), with the variance of its error."""

    value: float
    # The variance of the mean; NaN if there is a single value.
    variance: float
    # The degrees of freedom of the variance.
    freedom: float
    # The number of seeds.
    seeds: int
    # The number of documents, or of sequences.
    units: int

    def compute_interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the mean with Student's t interval; NaN ends if the variance is NaN."""
        quantile = student_quantile((1 + confidence) / 2, self.freedom)
        half_width = quantile * math.sqrt(self.variance)
        low = self.value - half_width
        high = self.value + half_width
        return Interval(self.value, low, high, self.seeds * self.units)

    def compute_p_value(self) -> float:
        """Return the probability of a mean at least this far from 0 if the true mean
        is 0.

        NaN if the variance is unknown, because there are too few values or they do not
        vary. If all values are 0 there is no difference for certain, and the result is 1.
        """
        if max(self.seeds, self.units) < FEWEST_UNITS:
            return math.nan
        if self.variance == 0:
            return 1.0 if self.value == 0 else math.nan

        t = abs(self.value) / math.sqrt(self.variance)
        # The probability counts both tails.
        p = 2 * student_tail(t, self.freedom)
        return max(SMALLEST_P, p)


def average_crossed(
    values: Float[NDArray[np.float64], "seeds units"], trials: int = 0
) -> Mean:
    """Average the values of every pair of a seed and a document, with the variance of
    the mean by the formulas in this file's head.

    Args:
        values: a row per seed, a column per document.
        trials: the number of trials, if each value is the share of trials that
            succeeded, or a difference of two such shares; 0 for other values.
    """
    x = np.asarray(values, dtype=np.float64)
    seeds, units = x.shape
    mean = x.mean()
    mean_of_seed = x.mean(axis=1)
    mean_of_unit = x.mean(axis=0)
    from_seeds = _find_variance_of_mean(mean_of_seed)  # Vs
    from_units = _find_variance_of_mean(mean_of_unit)  # Vd

    if seeds == 1:
        variance = from_units
        freedom = units - 1.0
    elif units == 1:
        variance = from_seeds
        freedom = seeds - 1.0
    else:
        residuals = x - mean_of_seed[:, None] - mean_of_unit[None, :] + mean
        squares = float((residuals**2).sum())
        from_residuals = squares / ((seeds - 1) * (units - 1)) / x.size  # Vr
        # Vs and Vd both contain Vr, so that Vr is subtracted once. V is never below Vs
        # or Vd.
        total = from_seeds + from_units - from_residuals
        variance = max(total, from_seeds, from_units)
        freedom = _find_freedom(variance, from_seeds, from_units, seeds, units)

    # Equal shares do not prove that the next trial has the same outcome.
    if trials and variance == 0:
        variance = 1 / (trials * x.size + 1) ** 2
    return Mean(float(mean), variance, freedom, seeds, units)


def _find_variance_of_mean(samples: NDArray[np.float64]) -> float:
    """Return the variance of the mean of independent samples; NaN below two samples."""
    if samples.size < 2:
        return math.nan
    # By rounding the computed mean of equal numbers can differ from them in the last
    # digit, and their computed variance would then not be 0.
    if (samples == samples[0]).all():
        return 0.0
    return float(samples.var(ddof=1)) / samples.size


def _find_freedom(
    variance: float, from_seeds: float, from_units: float, seeds: int, units: int
) -> float:
    """Return the degrees of freedom of a variance with two parts (Satterthwaite).

    Args:
        variance: V in the head of this file.
        from_seeds: Vs.
        from_units: Vd.
        seeds: the number of seeds, at least two.
        units: the number of documents or sequences, at least two.
    """
    denominator = from_seeds**2 / (seeds - 1) + from_units**2 / (units - 1)
    if denominator == 0:
        # Nothing varies, and the formula would divide 0 by 0. Fewer degrees of freedom
        # make wider intervals, so the smaller number is the careful choice.
        return min(seeds, units) - 1.0
    return max(1.0, variance**2 / denominator)


def average_crossed_shares(
    shares: Float[NDArray[np.float64], "seeds units"], trials: int
) -> Interval:
    """Average the shares of successes of every pair of a seed and a sequence; return the
    mean with its interval.

    Args:
        shares: a row per seed, a column per sequence.
        trials: the number of trials of each share.
    """
    # This is Wilson's interval (1927) with the quantile of Student's t, for m (1 - m) / V
    # effective trials, where m is the mean and V its variance (Korn and Graubard 1998).
    mean = average_crossed(shares)
    all_trials = float(trials * mean.seeds * mean.units)
    if math.isnan(mean.variance) or mean.variance == 0:
        # A single value has no variance. Equal shares have the variance 0, which is less
        # than the true variance. In both cases all trials count as independent.
        low, high = _compute_wilson(mean.value, all_trials, NORMAL_QUANTILE)
    else:
        effective_trials = mean.value * (1 - mean.value) / mean.variance
        effective_trials = max(min(all_trials, effective_trials), 1.0)
        quantile = student_quantile((1 + CONFIDENCE) / 2, mean.freedom)
        low, high = _compute_wilson(mean.value, effective_trials, quantile)
    return Interval(mean.value, low, high, mean.seeds * mean.units)


def _compute_wilson(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Return the ends of Wilson's score interval for a share of n trials.

    Args:
        share: the share of successes.
        n: the number of trials, any positive number.
        quantile: the half-width of the interval, in standard errors.
    """
    z = quantile
    centre = share + z * z / (2 * n)
    half_width = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = (centre - half_width) / scale
    high = (centre + half_width) / scale
    # By rounding an end could pass the share itself, or the bounds 0 and 1.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def average_samples(samples: ArrayLike) -> Interval:
    """Average independent samples, with Student's t interval.

    With fewer than two samples the ends are NaN. Without samples the mean is NaN, too.
    """
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    # The samples take the place of the values of one seed, one per document.
    return average_crossed(values[None, :]).compute_interval()


def estimate_proportion(successes: int, trials: int) -> Interval:
    """Return a proportion of independent trials with Wilson's score interval.

    The ends of the interval are inside [0, 1]. Without trials, value and ends are NaN.
    """
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    share = successes / trials
    low, high = _compute_wilson(share, trials, NORMAL_QUANTILE)
    return Interval(share, low, high, trials)


def compute_discovery_rates(p_values: Sequence[float]) -> list[float]:
    """Return for each p-value the lowest false discovery rate at which it is a discovery.

    A p-value of NaN stands for a comparison that was not tested; its rate is NaN.
    """
    # The rate of a p-value is the least of p n / rank over this p-value and all larger
    # p-values, where n is the number of tests (Benjamini and Hochberg 1995).
    p = np.asarray(p_values, dtype=np.float64)
    test_count = np.count_nonzero(~np.isnan(p))
    # argsort puts NaN to the end, where it is cut off.
    rising_order = np.argsort(p, kind="stable")[:test_count]
    ranks = np.arange(1, test_count + 1)
    products = p[rising_order] * (test_count / ranks)
    # The running minimum goes from the largest p-value to the smallest.
    least_products = np.minimum.accumulate(products[::-1])[::-1]

    rates = np.full(p.shape, math.nan)
    rates[rising_order] = np.minimum(least_products, 1.0)
    return rates.tolist()
