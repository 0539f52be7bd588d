"""The empirical arm: verdicts follow from the numbers, and a tiny run has every
table.
"""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.retrieval import (
    Outcome,
    answer,
    find_first_failing_positions,
    find_maximum_distance,
    judge,
    make_accuracy_table,
    make_predictions,
    summary,
    tables,
)
from ropelab.lab import run as run_by_name
from ropelab.runs.cell import Values
from ropelab.runs.config import build, read_toml
from ropelab.runs.errors import InputError
from ropelab.show.figures.base_empirical import draw
from ropelab.show.intervals import join_intervals
from tests.texts import mentions

WORSE, SAME = -0.4, 0.1
LOW, HIGH, NOTHING = 0.02, 0.4, math.nan
NOWHERE = math.nan
SIDES = ("before", "beyond")


def row(
    failing: int = 2,
    fails: float = 50.0,
    lost: float = WORSE,
    rate: float = 0.01,
    text: float = LOW,
    reference: float = 0.99,
    is_reference: bool = False,
) -> pd.Series:
    """Of two distances where failure is predicted, retrieval fails at `failing`."""
    return pd.Series(
        {
            "is_reference": is_reference,
            "reference_accuracy": reference,
            "distances_beyond": 2,
            "failing_beyond": failing,
            "first_failing_position_tokens": fails,
            "accuracy_difference": lost,
            "accuracy_false_discovery_rate": rate,
            "text_ci_high_nats_per_byte": text,
        }
    )


@pytest.mark.parametrize(
    ("given", "outcome", "agrees"),
    [
        ({}, Outcome.SUPERFICIAL, True),
        ({"text": HIGH}, Outcome.FAILS_TOGETHER, True),
        ({"text": NOTHING}, Outcome.FAILS, True),
        ({"failing": 0, "lost": SAME}, Outcome.RETRIEVES, False),
        ({"failing": 0}, Outcome.RETRIEVES_WORSE, False),
        ({"failing": 1}, Outcome.PARTLY, False),
        ({"fails": NOWHERE, "lost": SAME}, Outcome.HOLDS, True),
        ({"fails": NOWHERE}, Outcome.WORSE_ANYWAY, False),
        ({"fails": NOWHERE, "rate": 0.06}, Outcome.HOLDS, True),
        ({"rate": NOTHING}, Outcome.UNTESTED, None),
        ({"reference": 0.3}, Outcome.UNLEARNED, None),
        ({"is_reference": True}, Outcome.REFERENCE, None),
    ],
)
def test_outcomes_follow_from_the_numbers(
    given: dict[str, Any], outcome: Outcome, agrees: bool | None
) -> None:
    judged = judge(pd.DataFrame([row(**given)])).iloc[0]
    assert (judged["outcome"], judged["agrees"]) == (outcome, agrees)


def test_predictions_are_those_of_the_bound() -> None:
    config = build(
        BaseEmpiricalConfig,
        {"bases": (100.0, 10.0, 1e4), "tasks": ("copy",), "train_len": 512},
    )
    assert config.bases == (10.0, 100.0, 1e4)
    assert find_first_failing_positions(config) == {10.0: 5, 100.0: 46, 1e4: math.inf}


def trials(**hits: tuple[int, int]) -> pd.DataFrame:
    """Three sequences of ten trials at distances 16 and 64; hits by name of base, as
    b100=(10, 2).
    """
    return pd.DataFrame(
        [
            {
                "base": float(name[1:]),
                "seed": 0,
                "sequence": sequence,
                "distance_tokens": distance,
                "context_tokens": 2 * distance,
                "trials": 10,
                "correct": count,
            }
            for name, counts in hits.items()
            for distance, count in zip((16, 64), counts, strict=True)
            for sequence in range(3)
        ]
    )


def test_a_base_is_judged_at_the_distances_where_it_should_fail() -> None:
    config = build(BaseEmpiricalConfig, {"bases": (100.0, 1e4), "tasks": ("copy",)})
    table = trials(b100=(10, 2), b10000=(10, 10))
    accuracies = make_accuracy_table(table, config)
    assert accuracies["predicted"].tolist() == ["holds", "fails", "holds", "holds"]
    turned = np.cos(16 * 100 ** (-np.arange(0, 64, 2) / 64)).sum()
    assert accuracies["cosine_sum"].iloc[0] == pytest.approx(turned)
    found = make_predictions(config, {"copy": table}, {"copy": accuracies}, None)
    row = found.iloc[0]
    assert row["accuracy"] == pytest.approx(0.2)
    # Three sequences of ten trials, of which two are right in each: the sequences do not
    # vary, so that the interval is that of 6 of 30 independent trials.
    wilson = stats.binomtest(6, 30).proportion_ci(method="wilson")
    assert row["accuracy_ci_low"] == pytest.approx(wilson.low)
    assert row["accuracy_ci_high"] == pytest.approx(wilson.high)
    assert row["accuracy_difference"] == pytest.approx(-0.8)
    assert (row["maximum_distance_tokens"], row["fails_from_tokens"]) == (16, 64)
    assert row["bound_times_measured"] == row["first_failing_position_tokens"] / 32
    assert row["quarter_rotation_times_measured"] == row["quarter_rotation_tokens"] / 32
    assert [row[f"{what}_{side}"] for side in SIDES for what in ("distances", "failing")] == [
        1, 0, 1, 1,
    ]  # fmt: skip
    assert row["n"] == 3
    # Differences that are all equal count with the error of one trial more than there are.
    rate = 2 * stats.t.sf(0.8 * (3 * 10 + 1), df=2)
    assert row["accuracy_false_discovery_rate"] == pytest.approx(rate)
    assert math.isnan(found.iloc[1]["accuracy_false_discovery_rate"])
    assert row["outcome"] == Outcome.FAILS
    said = answer({"predictions": found})
    assert mentions(said, "the bound says 46", 1.44)
    assert mentions(said, "base 100", "copy", "farthest at 16", "no longer at 64")
    assert mentions(said, "distances measured", "half of the symbols right in the mean")
    assert mentions(said, "The bound predicts for 1 of 1")
    assert mentions(said, "0 of 1", "success", "fails")
    short = join_intervals(summary({"predictions": found}))
    assert short["accuracy"].tolist() == ["0.20 [0.10, 0.37]", "1.00 [0.94, 1.00]"]


def test_two_sequences_judge_no_base() -> None:
    config = build(BaseEmpiricalConfig, {"bases": (100.0, 1e4), "tasks": ("copy",)})
    table = trials(b100=(10, 2), b10000=(10, 10)).query("sequence < 2")
    found = make_predictions(
        config, {"copy": table}, {"copy": make_accuracy_table(table, config)}, None
    )
    assert found["outcome"].tolist() == [Outcome.UNTESTED, Outcome.REFERENCE]
    assert found["agrees"].tolist() == [None, None]
    assert "3 sequences" in answer({"predictions": found})


def test_every_distance_has_the_same_weight() -> None:
    config = build(BaseEmpiricalConfig, {"bases": (10.0, 1e4), "tasks": ("copy",)})
    table = trials(b10=(10, 2), b10000=(10, 10))
    near = table["distance_tokens"] == 16
    table.loc[near, ["trials", "correct"]] *= 100
    accuracies = make_accuracy_table(table, config)
    row = make_predictions(config, {"copy": table}, {"copy": accuracies}, None).iloc[0]
    assert row["accuracy"] == pytest.approx(0.6)
    assert row["accuracy"] - row["reference_accuracy"] == pytest.approx(
        row["accuracy_difference"]
    )
    assert row["outcome"] == Outcome.PARTLY


def test_the_maximum_distance_is_the_farthest_that_works_whatever_fails_nearer() -> (
    None
):
    table = pd.DataFrame(
        {"distance_tokens": [8, 16, 32, 64], "accuracy": [0.1, 0.9, 0.8, 0.3]}
    )
    assert find_maximum_distance(table) == (32, 64)
    farthest, fails_from = find_maximum_distance(table.assign(accuracy=0.9))
    assert farthest == 64
    assert math.isnan(fails_from)
    assert np.isnan(find_maximum_distance(table.assign(accuracy=0.1))).all()


def test_a_tiny_run_has_every_table(
    request: pytest.FixtureRequest, corpora: tuple[str, str]
) -> None:
    path = request.config.rootpath / "configs" / "smoke" / "base-empirical.toml"
    name, values = read_toml(path)
    assert name == "base-empirical"
    found = tables(BaseEmpiricalConfig(**values, corpus=corpora[0]), Values())
    assert set(found) == {
        "text_nll",
        "copy_accuracy",
        "associative_recall_accuracy",
        "predictions",
    }
    assert len(found["predictions"]) == 4
    assert len(found["text_nll"]) == 2 * 5
    assert found["text_nll"]["nll_nats_per_byte"].between(3, 7).all()
    assert answer(found)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bases": "1000"}, "at least two different bases"),
        ({"bases": "1,10"}, "greater than 1"),
        ({"train_len": 128}, "at least 256"),
        ({"tasks": "copying"}, "copy"),
        ({"head_dim": 7}, "even"),
        ({"corpus": "/nowhere/at/all"}, "nowhere"),
    ],
)
def test_bad_input_gets_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run_by_name("base-empirical", **values)
    assert "\n" not in str(caught.value)


def test_text_alone_is_a_run_that_reads_back(
    tmp_path: Path, corpora: tuple[str, str]
) -> None:
    tiny: dict[str, Any] = {
        "layers": 1,
        "width": 16,
        "head_dim": 8,
        "steps": 2,
        "documents": 2,
    }
    tiny |= {
        "bases": "100,1e4",
        "tasks": "text",
        "corpus": corpora[0],
        "device": "cpu",
    }
    for reused in (False, True):
        found = run_by_name("base-empirical", results=tmp_path, **tiny)
        assert found.reused == reused
        assert "predictions" in found.tables
        assert len(found.tables["predictions"].columns) > 5


@pytest.mark.parametrize(("shift", "is_worse"), [(0.1, True), (-0.1, False)])
def test_text_loss_is_drawn_against_that_of_the_largest_base(
    shift: float, is_worse: bool
) -> None:
    rows = []
    for base, above in ((30.0, shift), (1e4, 0.0)):
        for seed, end in product((0, 1), (16, 32)):
            loss = 2.0 + seed + end / 32 + above
            rows.append((base, seed, end // 2, end, loss, loss - 1, loss + 1))
    columns = ["base", "seed", "bucket_start_tokens", "bucket_end_tokens"]
    columns.append("nll_nats_per_byte")
    text = pd.DataFrame(rows, columns=[*columns, "ci_low", "ci_high"])
    accuracy = pd.DataFrame(
        {
            "base": [30.0, 1e4],
            "seed": 0,
            "distance_tokens": 16,
            "context_tokens": 32,
            "accuracy": 0.5,
            "ci_low": 0.4,
            "ci_high": 0.6,
        }
    )
    tables = {
        "text_nll": text,
        "copy_accuracy": accuracy,
        "predictions": pd.DataFrame(),
    }
    recall, panel = draw(tables)["retrieval_and_text"].axes
    assert "trained at 32" in recall.get_xlabel()
    assert "at 32: tokens 16 to 32" in panel.get_xlabel()

    small, largest = panel.get_lines()
    np.testing.assert_allclose(np.asarray(small.get_ydata(), float), shift)
    np.testing.assert_allclose(np.asarray(largest.get_ydata(), float), 0)
    assert ("worse" in panel.get_title()) == is_worse
