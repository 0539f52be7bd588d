"""Intervals against scipy's own, coverage by simulation, and verdicts."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from ropelab.runs.stats import (
    SMALLEST_P,
    average_crossed,
    average_samples,
    compute_discovery_rates,
    estimate_proportion,
)


def test_mean_interval_equals_scipys_t_interval():
    samples = np.random.default_rng(0).normal(3, 2, size=20)
    interval = average_samples(samples)
    low, high = scipy_stats.t.interval(
        0.95, 19, samples.mean(), scipy_stats.sem(samples)
    )
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.value == samples.mean()


def test_mean_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(size=(2000, 5))
    hits = [i.low <= 0 <= i.high for i in map(average_samples, draws)]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("samples", [[], [1.0]])
def test_no_interval_below_two_samples(samples):
    interval = average_samples(samples)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert interval.n == len(samples)


def test_wilson_by_hand():
    n, k, z = 50, 47, scipy_stats.norm.ppf(0.975)
    p = k / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    interval = estimate_proportion(k, n)
    assert (interval.low, interval.high) == pytest.approx(
        (centre - half, centre + half)
    )


def test_a_proportion_stays_inside_its_range():
    assert estimate_proportion(0, 10).low == 0
    assert estimate_proportion(10, 10).high == pytest.approx(1)
    assert math.isnan(estimate_proportion(0, 0).value)


def by_hand(x: np.ndarray) -> tuple[float, float]:
    """Variance of the mean and degrees of freedom, term by term."""
    k, n = x.shape
    seeds, documents, mean = x.mean(axis=1), x.mean(axis=0), x.mean()
    vs = sum((m - mean) ** 2 for m in seeds) / (k - 1) / k
    vd = sum((m - mean) ** 2 for m in documents) / (n - 1) / n
    rest = [
        x[i, j] - seeds[i] - documents[j] + mean for i in range(k) for j in range(n)
    ]
    vr = sum(r**2 for r in rest) / ((k - 1) * (n - 1)) / (k * n)
    v = max(vs + vd - vr, vs, vd)
    return v, max(1.0, v**2 / (vs**2 / (k - 1) + vd**2 / (n - 1)))


@pytest.mark.parametrize("shape", [(3, 6), (5, 50), (2, 2)])
def test_the_variance_over_seeds_and_documents_by_hand(shape):
    rng = np.random.default_rng(2)
    x = (
        rng.normal(size=shape)
        + rng.normal(size=(shape[0], 1))
        + rng.normal(size=(1, shape[1]))
    )
    mean = average_crossed(x)
    assert (mean.variance, mean.freedom) == pytest.approx(by_hand(x))
    half = scipy_stats.t.ppf(0.975, mean.freedom) * math.sqrt(mean.variance)
    interval = mean.compute_interval()
    assert (interval.low, interval.high) == pytest.approx(
        (x.mean() - half, x.mean() + half)
    )


def test_without_seeds_it_is_students_interval_and_test():
    x = np.random.default_rng(3).normal(0.3, 1, size=20)
    mean = average_crossed(x[None, :])
    assert mean.compute_interval() == average_samples(x)
    assert mean.compute_p_value() == pytest.approx(scipy_stats.ttest_1samp(x, 0).pvalue)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_two_seeds_or_documents_are_no_test(shape):
    values = np.random.default_rng(4).normal(9, 1e-6, shape)
    assert math.isnan(average_crossed(values).compute_p_value())
    assert math.isnan(average_crossed(np.ones(shape), trials=100).compute_p_value())


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (3, 2), (3, 6)])
def test_a_difference_of_counts_that_never_varies_has_the_error_of_one_trial_more(
    shape,
):
    trials = 20 * shape[0] * shape[1]
    mean = average_crossed(np.full(shape, 0.25), trials=20)
    # All trials have one outcome, and one more has another one.
    outcomes = [0.0] * trials + [1.0]
    assert math.sqrt(mean.variance) == pytest.approx(scipy_stats.sem(outcomes))
    assert mean.freedom == max(1, min(n for n in shape if n > 1) - 1)
    interval = mean.compute_interval()
    assert interval.low < 0.25 < interval.high
    expected = 2 * scipy_stats.t.sf(0.25 * (trials + 1), mean.freedom)
    assert mean.compute_p_value() == pytest.approx(max(expected, SMALLEST_P))


def test_a_single_trial_with_another_outcome_varies_more_than_that():
    shares = np.zeros((1, 6))
    shares[0, 0] = 1 / 20
    by_count = average_crossed(shares, trials=20)
    assert by_count == average_crossed(shares)
    assert by_count.variance > average_crossed(np.zeros((1, 6)), trials=20).variance > 0


def test_nothing_is_known_of_a_mean_that_never_varies():
    assert average_crossed(np.zeros((1, 5))).compute_p_value() == 1
    assert math.isnan(average_crossed(np.full((1, 5), 2.0)).compute_p_value())


def test_false_discovery_rates_are_those_of_benjamini_and_hochberg():
    p = [0.01, 0.04, 0.03, 0.005, math.nan, 0.5]
    # By hand: sorted p * 5 / rank = 0.025, 0.025, 0.05, 0.05, 0.5, each the least from
    # there on.
    assert compute_discovery_rates(p) == pytest.approx(
        [0.025, 0.05, 0.05, 0.025, math.nan, 0.5], nan_ok=True
    )
    assert compute_discovery_rates([]) == []
