"""The bound's prediction for every base, beside what was measured."""

import math
from typing import Any

import pandas as pd

from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.tables import failures, reach
from ropelab.math.frequencies import inverse_frequencies
from ropelab.runs import comparisons
from ropelab.runs.stats import Mean, discovery_rates

COLUMNS = [
    "task",
    "base",
    "is_reference",
    "first_failing_position_tokens",
    "quarter_turn_tokens",
    "reach_tokens",
    "distances_before",
    "failing_before",
    "distances_beyond",
    "failing_beyond",
    "accuracy",
    "reference_accuracy",
    "accuracy_difference",
    "accuracy_ci_low",
    "accuracy_ci_high",
    "accuracy_false_discovery_rate",
    "text_difference_nats_per_byte",
    "text_ci_low_nats_per_byte",
    "text_ci_high_nats_per_byte",
    "n",
]
"""There are no rows if no retrieval was measured."""


def predictions(
    config: BaseEmpiricalConfig,
    fails: dict[float, float],
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """A row per base and retrieval task.

    ``first_failing_position_tokens``: the bound's prediction, missing where it predicts no failure
    inside the trained length. ``quarter_turn_tokens``: where the slowest pair alone would turn its
    sign, the simplest rival prediction. ``reach_tokens``: longest distance up to which retrieval
    works (accuracy at least 0.5). ``distances_before`` and ``distances_beyond``: how many measured
    distances lie before that position and from it on; ``failing_before`` and ``failing_beyond``: at
    how many of them retrieval fails (accuracy below 0.5). ``accuracy``, ``reference_accuracy`` (of
    the largest base) and ``accuracy_difference``: at the distances predicted to fail, all of them
    if none is, every distance with the same weight; the difference's
    ``accuracy_false_discovery_rate`` is that among all rows of the table.
    ``text_difference_nats_per_byte``: in the second half of the window, against the largest base.
    """
    rows = [
        _row(config, task, base, fails[base], table, accuracies[task], buckets)
        for task, table in trials.items()
        for base in config.bases
    ]
    tested = [math.nan if row["is_reference"] else row["p_value"] for row in rows]
    rates = discovery_rates(tested)
    told = [row | {"accuracy_false_discovery_rate": r} for row, r in zip(rows, rates, strict=True)]
    return pd.DataFrame(told, columns=COLUMNS)


def _row(
    config: BaseEmpiricalConfig,
    task: str,
    base: float,
    fails: float,
    trials: pd.DataFrame,
    accuracies: pd.DataFrame,
    buckets: pd.DataFrame | None,
) -> dict[str, Any]:
    slowest = float(inverse_frequencies(config.head_dim, base)[-1])
    judged = trials[trials["distance_tokens"] >= fails] if math.isfinite(fails) else trials
    judged = judged.assign(value=judged["correct"] / judged["trials"])
    difference = _difference(judged, base)
    lost, text = difference.interval(), _difference(_second_half(buckets), base).interval()
    mean = judged.groupby("base")["value"].mean()
    mine = accuracies[accuracies["base"] == base]
    return {
        "task": task,
        "base": base,
        "is_reference": base == max(config.bases),
        "first_failing_position_tokens": fails if math.isfinite(fails) else math.nan,
        "quarter_turn_tokens": math.pi / 2 / slowest,
        "reach_tokens": reach(mine),
        **failures(mine),
        "accuracy": mean[base],
        "reference_accuracy": mean[max(config.bases)],
        "accuracy_difference": lost.value,
        "accuracy_ci_low": lost.low,
        "accuracy_ci_high": lost.high,
        "p_value": difference.p_value(),
        "text_difference_nats_per_byte": text.value,
        "text_ci_low_nats_per_byte": text.low,
        "text_ci_high_nats_per_byte": text.high,
        "n": lost.n,
    }


def _second_half(buckets: pd.DataFrame | None) -> pd.DataFrame | None:
    if buckets is None:
        return None
    last = buckets["bucket_end_tokens"] == buckets["bucket_end_tokens"].max()
    return buckets[last].rename(columns={"nll_nats_per_byte": "value", "document": "sequence"})


def _difference(values: pd.DataFrame | None, base: float) -> Mean:
    """value under ``base`` minus value under the largest base, over seeds and units."""
    if values is None or values.empty:
        return Mean(math.nan, math.nan, math.nan, 0, 0)
    units = values.groupby(["base", "seed", "sequence"])["value"].mean()
    return comparisons.difference(units[base], units[values["base"].max()])
