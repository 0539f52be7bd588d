"""From values per document or sequence to means with intervals."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from ropelab.models.tasks.tables import (
    average_losses,
    average_shares,
    average_with_intervals,
    join_by_label,
    write_mean,
)
from ropelab.runs.stats import average_crossed_shares


def test_accuracy_counts_all_sequences():
    counts = pd.DataFrame(
        {
            "method": "yarn",
            "distance_tokens": [8, 8, 16, 16],
            "trials": [10, 10, 20, 20],
            "correct": [10, 5, 0, 0],
        }
    )
    table = average_shares(counts, ["method", "distance_tokens"])
    assert table["accuracy"].tolist() == [0.75, 0.0]
    assert table[["sequences", "trials"]].to_numpy().tolist() == [[2, 20], [2, 40]]


def test_losses_are_means_over_documents():
    values = pd.DataFrame(
        {"seed": [0, 0, 1, 1], "nll_nats_per_byte": [1.0, 3.0, 2.0, 2.0]}
    )
    table = average_losses(values, ["seed"])
    assert table["nll_nats_per_byte"].tolist() == [2.0, 2.0]
    assert table["ci_low"][0] < 2 < table["ci_high"][0]


def test_an_interval_of_sequences_is_wider_when_they_differ():
    even = average_crossed_shares(np.full((1, 8), 0.5), 100)
    uneven = average_crossed_shares(np.array([[0.0, 1.0] * 4]), 100)
    assert even.value == uneven.value == 0.5
    assert uneven.high - uneven.low > 5 * (even.high - even.low)
    independent = math.sqrt(0.25 / 800)
    assert even.high - even.low == pytest.approx(2 * 1.96 * independent, rel=0.02)


def test_certain_proportions_keep_an_interval():
    none = average_crossed_shares(np.zeros((1, 4)), 100)
    assert (none.value, none.low) == (0, 0)
    assert 0.005 < none.high < 0.02


def make_losses(seeds: int) -> pd.DataFrame:
    """Losses of a method, and of one seed of another, as tables of tasks have them."""
    values = [1.0, 1.5, 1.1, 1.2, 1.3][:seeds]
    rows = [
        ("yarn", 4.0, seed, "zero_shot", value) for seed, value in enumerate(values)
    ]
    rows.append(("unscaled", 1.0, 0, "zero_shot", 2.0))
    columns = ["method", "factor", "seed", "arm", "loss"]
    table = pd.DataFrame(rows, columns=columns)
    loss = table["loss"]
    return table.assign(ci_low=loss - 0.25, ci_high=loss + 0.75)


def test_the_interval_of_a_mean_is_over_models_and_that_of_one_model_its_own():
    means = average_with_intervals(make_losses(5), "loss", "nll @8")
    assert means.index.tolist() == ["yarn ×4", "unscaled"]
    assert means.columns.tolist() == ["nll @8", "nll @8 ci_low", "nll @8 ci_high"]
    values = np.array([1.0, 1.5, 1.1, 1.2, 1.3])
    low, high = student.interval(
        0.95, 4, loc=values.mean(), scale=values.std(ddof=1) / math.sqrt(5)
    )
    assert means.loc[["yarn ×4"]].to_numpy()[0].tolist() == pytest.approx(
        [1.22, low, high]
    )
    assert means.loc[["unscaled"]].to_numpy()[0].tolist() == [2.0, 1.75, 2.75]


def test_two_models_have_the_interval_over_their_texts():
    means = average_with_intervals(make_losses(2), "loss", "nll @8")
    value, low, high = means.loc[["yarn ×4"]].to_numpy()[0]
    assert [value, low, high] == [1.25, 1.0, 2.0]
    assert write_mean(means, "yarn ×4") == "1.25 [1.00, 2.00]"
    assert write_mean(means, "unscaled") == "2.00 [1.75, 2.75]"


def test_a_mean_over_depths_has_an_interval_that_holds_if_their_errors_are_equal():
    depths = pd.concat([make_losses(1), make_losses(1).assign(loss=3.0)])
    means = average_with_intervals(depths, "loss", "passkey @8")
    low, high = depths[depths["method"] == "yarn"][["ci_low", "ci_high"]].mean()
    assert means.loc[["yarn ×4"]].to_numpy()[0].tolist() == [2.0, low, high]


def test_one_model_with_one_text_has_no_interval():
    table = make_losses(1).assign(ci_low=math.nan, ci_high=math.nan)
    means = average_with_intervals(table, "loss", "nll @8")
    assert write_mean(means, "yarn ×4") == "1 [no interval]"


def test_equal_shares_of_all_models_keep_an_interval_inside_0_and_1():
    rows = [("pi", 4.0, seed, "zero_shot", 10, 1.0, 0.7, 1.0) for seed in range(5)]
    columns = [
        "method",
        "factor",
        "seed",
        "arm",
        "trials",
        "accuracy",
        "ci_low",
        "ci_high",
    ]
    table = pd.DataFrame(rows, columns=columns)
    means = average_with_intervals(table, "accuracy", "copy @8")
    value, low, high = means.loc[["pi ×4"]].to_numpy()[0]
    assert (value, high) == (1.0, 1.0)
    assert 0.9 < low < 1


def test_results_of_different_rows_are_joined_in_their_first_order():
    losses = average_with_intervals(make_losses(3), "loss", "nll @8")
    copies = average_with_intervals(
        make_losses(3).query("method == 'unscaled'"), "loss", "copy @8"
    )
    table = join_by_label([copies, losses])
    assert table["method"].tolist() == ["unscaled", "yarn ×4"]
    assert table["copy @8"].isna().tolist() == [False, True]
