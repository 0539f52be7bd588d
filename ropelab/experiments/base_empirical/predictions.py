"""The bound's prediction for every base, beside what was measured."""

import math

import pandas as pd

from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.tables import reach
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.stats import Interval
from ropelab.trials.comparisons import difference

COLUMNS = [
    "task",
    "base",
    "is_reference",
    "first_failing_position_tokens",
    "quarter_turn_tokens",
    "reach_tokens",
    "accuracy",
    "reference_accuracy",
    "accuracy_difference",
    "accuracy_ci_low",
    "accuracy_ci_high",
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
    works (accuracy at least 0.5). ``accuracy``, ``reference_accuracy`` (of the largest base) and
    ``accuracy_difference``: at the distances predicted to fail, all of them if none is.
    ``text_difference_nats_per_byte``: in the second half of the window, against the largest base.
    """
    rows = [
        _row(config, task, base, fails[base], table, accuracies[task], buckets)
        for task, table in trials.items()
        for base in config.bases
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(
    config: BaseEmpiricalConfig,
    task: str,
    base: float,
    fails: float,
    trials: pd.DataFrame,
    accuracies: pd.DataFrame,
    buckets: pd.DataFrame | None,
) -> dict[str, object]:
    slowest = float(inverse_frequencies(config.head_dim, base)[-1])
    judged = trials[trials["distance_tokens"] >= fails] if math.isfinite(fails) else trials
    lost = _difference(judged.assign(value=judged["correct"] / judged["trials"]), base)
    text = _difference(_second_half(buckets), base)
    own, best = (_share(judged[judged["base"] == b]) for b in (base, max(config.bases)))
    return {
        "task": task,
        "base": base,
        "is_reference": base == max(config.bases),
        "first_failing_position_tokens": fails if math.isfinite(fails) else math.nan,
        "quarter_turn_tokens": math.pi / 2 / slowest,
        "reach_tokens": reach(accuracies[accuracies["base"] == base]),
        "accuracy": own,
        "reference_accuracy": best,
        "accuracy_difference": lost.value,
        "accuracy_ci_low": lost.low,
        "accuracy_ci_high": lost.high,
        "text_difference_nats_per_byte": text.value,
        "text_ci_low_nats_per_byte": text.low,
        "text_ci_high_nats_per_byte": text.high,
        "n": lost.n,
    }


def _share(trials: pd.DataFrame) -> float:
    return float(trials["correct"].sum() / trials["trials"].sum())


def _second_half(buckets: pd.DataFrame | None) -> pd.DataFrame | None:
    if buckets is None:
        return None
    last = buckets["bucket_end_tokens"] == buckets["bucket_end_tokens"].max()
    return buckets[last].rename(columns={"nll_nats_per_byte": "value", "document": "sequence"})


def _difference(values: pd.DataFrame | None, base: float) -> Interval:
    """value under ``base`` minus value under the largest base, over seeds and units."""
    if values is None or values.empty:
        return Interval(math.nan, math.nan, math.nan, 0)
    units = values.groupby(["base", "seed", "sequence"])["value"].mean()
    return difference(units[base], units[values["base"].max()]).interval()
