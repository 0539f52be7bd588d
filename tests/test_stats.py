"""Intervals against scipy's own, coverage by simulation, and verdicts."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from ropelab.stats import (
    Interval,
    mean_interval,
    paired_difference,
    proportion_interval,
    verdict,
)


def test_mean_interval_equals_scipys_t_interval():
    samples = np.random.default_rng(0).normal(3, 2, size=20)
    interval = mean_interval(samples)
    low, high = scipy_stats.t.interval(0.95, 19, samples.mean(), scipy_stats.sem(samples))
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.value == samples.mean()


def test_mean_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(size=(2000, 5))
    hits = [i.low <= 0 <= i.high for i in map(mean_interval, draws)]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("samples", [[], [1.0]])
def test_no_interval_below_two_samples(samples):
    interval = mean_interval(samples)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert interval.n == len(samples)


def test_wilson_by_hand():
    n, k, z = 50, 47, scipy_stats.norm.ppf(0.975)
    p = k / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    interval = proportion_interval(k, n)
    assert (interval.low, interval.high) == pytest.approx((centre - half, centre + half))


def test_a_proportion_stays_inside_its_range():
    assert proportion_interval(0, 10).low == 0
    assert proportion_interval(10, 10).high == pytest.approx(1)
    assert math.isnan(proportion_interval(0, 0).value)


def test_pairing_removes_what_the_documents_share():
    rng = np.random.default_rng(2)
    documents = rng.normal(0, 10, size=50)
    a, b = documents + rng.normal(0, 0.1, 50), documents + 0.2 + rng.normal(0, 0.1, 50)
    difference = paired_difference(a, b)
    assert verdict(difference) == "a"
    assert difference.high - difference.low < 0.1


def test_pairs_need_equal_lengths():
    with pytest.raises(ValueError, match="equal lengths"):
        paired_difference([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-2, -1, "yarn"), (1, 2, "ntk"), (-1, 1, "~"), (math.nan, math.nan, "~")],
)
def test_verdict_needs_an_interval_without_zero(low, high, expected):
    assert verdict(Interval((low + high) / 2, low, high, 9), ("yarn", "ntk")) == expected
