"""The one rule: what is named, what is `~`, and how often an interval holds the truth."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from ropelab.runs.comparisons import Pair, compared, difference, significance
from ropelab.runs.stats import crossed_mean, crossed_proportion


def values(*seeds: list[float]) -> pd.Series:
    """A value per seed and document."""
    places = [range(len(seeds)), range(len(seeds[0]))]
    index = pd.MultiIndex.from_product(places, names=["seed", "document"])
    return pd.Series(np.ravel(seeds), index)


def one(a: pd.Series, b: pd.Series, smaller_is_better: bool = True) -> pd.Series:
    pair = Pair(("m",), difference(a, b), ("a", "b"), smaller_is_better)
    return compared([pair], ["metric"]).iloc[0]


def test_a_verdict_names_the_better_one_for_losses_and_for_accuracies():
    low, high = values([1.0, 1.1, 1.2]), values([2.0, 2.11, 2.2])
    assert one(low, high)["verdict"] == "a"
    assert one(low, high, smaller_is_better=False)["verdict"] == "b"
    assert one(low, low)["verdict"] == "~"
    assert one(low, high)["difference"] == pytest.approx(-1.0, abs=0.01)
    assert one(low, high)[["seeds", "n"]].tolist() == [1, 3]


def test_seeds_that_disagree_leave_it_open_however_many_documents_agree():
    documents = np.linspace(0, 1, 50)
    better, worse = list(documents - 0.5), list(documents + 0.5)
    agreeing = one(values(better, better, better), values(*[list(documents + 0.01)] * 3))
    split = one(values(better, better, worse), values(*[list(documents)] * 3))
    assert agreeing["verdict"] == "a"
    assert split["verdict"] == "~"
    assert split["ci_low"] < 0 < split["ci_high"]


def test_one_seed_speaks_of_that_model_alone_and_one_document_of_that_one():
    rng = np.random.default_rng(0)
    x = rng.normal(1, 1, (3, 20))
    assert crossed_mean(x[:1]).freedom == 19
    assert crossed_mean(x[:, :1]).freedom == 2
    assert math.isnan(crossed_mean(x[:1, :1]).interval().low)
    assert one(values([1.0]), values([2.0]))["verdict"] == "~"


def test_only_the_same_seeds_and_documents_can_be_compared():
    with pytest.raises(ValueError, match="same seeds and units"):
        difference(values([1.0, 2.0]), values([1.0, 2.0], [1.0, 2.0]))


def test_the_order_of_rows_does_not_matter():
    a, b = values([1.0, 5.0], [2.0, 7.0]), values([1.5, 5.0], [2.0, 9.0])
    assert difference(a, b) == difference(a.sample(frac=1, random_state=0), b[::-1])


def test_of_many_comparisons_without_a_difference_hardly_any_is_named():
    rng = np.random.default_rng(1)
    tables = [
        compared(
            [
                Pair((i,), crossed_mean(rng.normal(size=(3, 20))), ("a", "b"), True)
                for i in range(100)
            ],
            ["number"],
        )
        for _ in range(20)
    ]
    with_any = [(table["verdict"] != "~").any() for table in tables]
    naive = [((table["ci_low"] > 0) | (table["ci_high"] < 0)).any() for table in tables]
    assert np.mean(with_any) <= 0.2 < np.mean(naive)
    assert significance(tables[0]).startswith("0 of 100 comparisons are significant")


def effects(
    rng: np.random.Generator, draws: int, seeds: int, units: int, by_seed: float, by_unit: float
) -> np.ndarray:
    """[draws, seeds, units] values around 0, with effects of the seed and of the document."""
    return (
        rng.normal(0, by_seed, (draws, seeds, 1))
        + rng.normal(0, by_unit, (draws, 1, units))
        + rng.normal(0, 1, (draws, seeds, units))
    )


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("units", [6, 50])
@pytest.mark.parametrize(("by_seed", "by_unit"), [(0, 0), (0.3, 0.3), (3, 0.3), (0.3, 3)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, units, by_seed, by_unit):
    draws = effects(np.random.default_rng(2), 400, seeds, units, by_seed, by_unit)
    intervals = [crossed_mean(x).interval() for x in draws]
    assert np.mean([i.low <= 0 <= i.high for i in intervals]) >= 0.9
    # Without an effect of either kind the rule is careful, but not without bound.
    assert np.mean([i.high - i.low for i in intervals]) < 12 * draws.mean(axis=(1, 2)).std()


@pytest.mark.parametrize(("share", "least"), [(0.5, 0.9), (0.9, 0.9), (0.99, 0.85)])
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_of_proportions_hold_the_truth_too(share, least, seeds):
    rng = np.random.default_rng(3)
    shares = expit(logit(share) + effects(rng, 300, seeds, 6, 0.5, 0.5))
    truth = expit(logit(share) + effects(rng, 20000, seeds, 1, 0.5, 0.5)).mean()
    found = [crossed_proportion(rng.binomial(200, p) / 200, 200) for p in shares]
    assert np.mean([i.low <= truth <= i.high for i in found]) >= least
    assert all(0 <= i.low <= i.value <= i.high <= 1 for i in found)
