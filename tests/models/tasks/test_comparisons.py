"""The one rule: what is named, what is `~`, and how often an interval holds the
truth.
"""

import math
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from ropelab.runs.comparisons import (
    CONSTANT,
    FAILING,
    MIXED,
    SAME,
    TESTED,
    TOO_FEW,
    Pair,
    average_difference,
    compare,
    describe_significance,
)
from ropelab.runs.stats import average_crossed, average_crossed_shares


def values(*seeds: list[float]) -> pd.Series:
    """A value per seed and document."""
    places = [range(len(seeds)), range(len(seeds[0]))]
    index = pd.MultiIndex.from_product(places, names=["seed", "document"])
    return pd.Series(np.ravel(seeds), index)


def one(
    a: pd.Series, b: pd.Series, measure: Literal["loss", "share"] = "loss"
) -> pd.Series:
    return compare([Pair(("m",), a, b, ("a", "b"), measure)], ["metric"]).iloc[0]


def every(
    rows: dict[str, pd.Series], measure: Literal["loss", "share"] = "loss"
) -> pd.DataFrame:
    """All pairs of rows under one metric, by the names of both."""
    pairs = [
        Pair((x, y), rows[x], rows[y], (x, y), measure)
        for x, y in combinations(rows, 2)
    ]
    return compare(pairs, ["first", "second"]).set_index(["first", "second"])


def test_a_verdict_names_the_better_one_for_losses_and_for_accuracies():
    low, high = values([0.1, 0.2, 0.3]), values([0.6, 0.71, 0.8])
    assert one(low, high)["verdict"] == "a"
    assert one(low, high, "share")["verdict"] == "b"
    assert one(low, low)["verdict"] == "~"
    assert one(low, high)["difference"] == pytest.approx(-0.5, abs=0.01)
    assert one(low, high)[["seeds", "n"]].tolist() == [1, 3]


def test_seeds_that_disagree_leave_it_open_however_many_documents_agree():
    documents = np.linspace(0, 1, 50)
    better, worse = list(documents - 0.5), list(documents + 0.5)
    agreeing = one(
        values(better, better, better), values(*[list(1.01 * documents)] * 3)
    )
    split = one(values(better, better, worse), values(*[list(documents)] * 3))
    assert agreeing["verdict"] == "a"
    assert split["verdict"] == "~"
    assert split["ci_low"] < 0 < split["ci_high"]


def test_one_seed_speaks_of_that_model_alone_and_one_document_of_that_one():
    rng = np.random.default_rng(0)
    x = rng.normal(1, 1, (3, 20))
    assert average_crossed(x[:1]).freedom == 19
    assert average_crossed(x[:, :1]).freedom == 2
    assert math.isnan(average_crossed(x[:1, :1]).compute_interval().low)
    assert one(values([1.0]), values([2.0]))["verdict"] == "~"
    assert (
        one(values([1.0], [1.1], [1.3]), values([2.0], [2.1], [2.0]))["verdict"] == "a"
    )


def test_two_sequences_are_no_evidence_however_equal_they_are():
    pair = Pair(
        ("m",), values([0.9, 0.9]), values([0.1, 0.1]), ("a", "b"), "share", trials=50
    )
    row = compare([pair], ["metric"]).iloc[0]
    assert (row["status"], row["verdict"]) == (TOO_FEW, "~")
    assert math.isnan(row["p_value"])
    assert row["ci_low"] < row["difference"] < row["ci_high"]


def test_equal_counts_are_as_sure_as_their_number_of_trials():
    rows = []
    for trials in (1, 1000):
        of_equal = values([0.9] * 3), values([0.8] * 3)
        pair = Pair(("m",), *of_equal, ("a", "b"), "share", trials=trials)
        rows.append(compare([pair], ["metric"]).iloc[0])
    few, many = rows
    assert (few["verdict"], many["verdict"]) == ("~", "a")
    assert many["ci_low"] > 0 > few["ci_low"]


def test_a_loss_that_differs_by_the_same_everywhere_is_not_tested():
    row = one(values([1.0, 2.0, 4.0]), values([1.5, 2.5, 4.5]))
    assert (row["status"], row["verdict"]) == (CONSTANT, "~")


def test_only_the_same_seeds_and_documents_can_be_compared():
    with pytest.raises(ValueError, match="same seeds and units"):
        average_difference(values([1.0, 2.0]), values([1.0, 2.0], [1.0, 2.0]))


def test_the_order_of_rows_does_not_matter():
    a, b = values([1.0, 5.0], [2.0, 7.0]), values([1.5, 5.0], [2.0, 9.0])
    assert average_difference(a, b) == average_difference(
        a.sample(frac=1, random_state=0), b[::-1]
    )


@pytest.mark.slow
def test_of_many_comparisons_without_a_difference_hardly_any_is_named():
    rng, nothing = np.random.default_rng(1), values(*np.zeros((3, 20)))
    tables = [
        compare(
            [
                Pair(
                    (i, "0"),
                    values(*rng.normal(0, 0.1, (3, 20))),
                    nothing,
                    ("a", "b"),
                    "loss",
                )
                for i in range(100)
            ],
            ["row_a", "row_b"],
        )
        for _ in range(20)
    ]
    with_any = [(table["verdict"] != "~").any() for table in tables]
    assert (
        np.mean(with_any)
        <= 0.2
        < np.mean([(table["p_value"] < 0.05).any() for table in tables])
    )
    assert describe_significance(tables[0]).startswith("0 of 100 comparisons")


def drawn(mean: float, seed: int, spread: float = 0.1) -> pd.Series:
    return values(*np.random.default_rng(seed).normal(mean, spread, (5, 20)))


def test_an_interval_is_without_zero_where_there_is_a_verdict_and_only_there():
    table = every({f"row {i}": drawn(0.012 * i, i) for i in range(8)})
    named = table["verdict"] != "~"
    assert 0 < named.sum() < len(table)
    assert (named == ((table["ci_low"] > 0) | (table["ci_high"] < 0))).all()
    assert (table["confidence"] > 0.95).all()


def test_rows_that_fail_do_not_lower_the_bar_for_close_ones():
    # Named alone at the rate of 5 % it would be, but not among these.
    close = {f"row {i}": drawn(0.012 * i, i) for i in range(8)}
    failing = {f"useless {i}": drawn(3 + 0.5 * i, 100 + i) for i in range(6)}
    alone, beside = every(close), every(close | failing)
    among = beside[beside["status"] == TESTED]
    assert among["verdict"].equals(alone["verdict"])
    assert (
        beside.loc[("row 0", "useless 0"), ["status", "verdict"]] == [FAILING, "row 0"]
    ).all()


def test_the_same_values_under_two_names_are_one_row():
    rows = {f"row {i}": drawn(0.012 * i, i) for i in range(8)}
    alone, doubled = every(rows), every(rows | {"again": rows["row 7"]})
    assert doubled.loc[alone.index, "false_discovery_rate"].equals(
        alone["false_discovery_rate"]
    )
    rate = "false_discovery_rate"
    assert doubled[rate]["row 0", "again"] == alone[rate]["row 0", "row 7"]
    assert doubled["status"]["row 7", "again"] == SAME
    assert doubled["verdict"]["row 7", "again"] == "~"
    named = {"first": "row_a", "second": "row_b"}
    counted = [
        describe_significance(t.reset_index().rename(columns=named))
        for t in (alone, doubled)
    ]
    assert counted[0] == counted[1]
    assert " of 28 comparisons" in counted[0]


def test_seeds_that_learned_and_seeds_that_did_not_are_not_averaged_into_a_verdict():
    learned, not_learned = [0.9] * 20, [0.02] * 20
    mixed = values(learned, learned, learned, learned, not_learned)
    found = one(values(*[[0.1] * 20] * 5), mixed, "share")
    assert (found["status"], found["verdict"]) == (MIXED, "~")
    assert math.isnan(found["p_value"])


def test_no_p_value_claims_more_than_a_few_seeds_can():
    assert one(drawn(0, 1, 1e-6), drawn(0.9, 2, 1e-6))["p_value"] == 1e-4


def effects(
    rng: np.random.Generator,
    draws: int,
    seeds: int,
    units: int,
    by_seed: float,
    by_unit: float,
) -> np.ndarray:
    """[draws, seeds, units] values around 0, with effects of the seed and of the
    document.
    """
    return (
        rng.normal(0, by_seed, (draws, seeds, 1))
        + rng.normal(0, by_unit, (draws, 1, units))
        + rng.normal(0, 1, (draws, seeds, units))
    )


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("units", [6, 50])
@pytest.mark.parametrize(
    ("by_seed", "by_unit"), [(0, 0), (0.3, 0.3), (3, 0.3), (0.3, 3)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, units, by_seed, by_unit):
    draws = effects(np.random.default_rng(2), 400, seeds, units, by_seed, by_unit)
    intervals = [average_crossed(x).compute_interval() for x in draws]
    assert np.mean([i.low <= 0 <= i.high for i in intervals]) >= 0.9
    # Without an effect of either kind the rule is careful, but not without bound.
    assert (
        np.mean([i.high - i.low for i in intervals])
        < 12 * draws.mean(axis=(1, 2)).std()
    )


@pytest.mark.parametrize(("share", "least"), [(0.5, 0.9), (0.9, 0.9), (0.99, 0.85)])
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_of_proportions_hold_the_truth_too(share, least, seeds):
    rng = np.random.default_rng(3)
    shares = expit(logit(share) + effects(rng, 300, seeds, 6, 0.5, 0.5))
    truth = expit(logit(share) + effects(rng, 20000, seeds, 1, 0.5, 0.5)).mean()
    found = [average_crossed_shares(rng.binomial(200, p) / 200, 200) for p in shares]
    assert np.mean([i.low <= truth <= i.high for i in found]) >= least
    assert all(0 <= i.low <= i.value <= i.high <= 1 for i in found)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.7])
def test_equal_numbers_do_not_vary_though_their_mean_is_rounded(share: float) -> None:
    mean = average_crossed(np.full((1, 3), share))
    assert mean.variance == 0
    equal_shares = average_crossed(np.full((1, 3), share), trials=10)
    assert equal_shares.variance == pytest.approx(1 / 31**2)
