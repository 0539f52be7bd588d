"""The bound's prediction for every base beside the measurement, and whether the two agree."""

import math
from enum import StrEnum
from typing import Any

import pandas as pd

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.math.bounds import first_negative
from ropelab.math.frequencies import inverse_frequencies
from ropelab.runs import comparisons
from ropelab.runs.stats import FALSE_DISCOVERIES, Mean, discovery_rates
from ropelab.runs.thresholds import FAILS, LEARNED, LOW_LOSS


class Outcome(StrEnum):
    """The result of one base on one task, for the bound."""

    REFERENCE = "reference"
    UNLEARNED = "open: the reference has not learned"
    HOLDS = "holds, as predicted"
    WORSE_ANYWAY = "worse although admissible"
    SUPERFICIAL = "superficial, as predicted"
    FAILS = "fails, as predicted"
    FAILS_TOGETHER = "fails in text and retrieval"
    PARTLY = "fails at some of the distances where failure was predicted"
    RETRIEVES = "retrieves where failure was predicted"
    RETRIEVES_WORSE = "retrieves, though worse, where failure was predicted"


OPEN = {Outcome.REFERENCE, Outcome.UNLEARNED}
AGREEING = {Outcome.HOLDS, Outcome.SUPERFICIAL, Outcome.FAILS, Outcome.FAILS_TOGETHER}
# Of the table `predictions`, which has no rows if no retrieval was measured.
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


def first_fails(config: BaseEmpiricalConfig) -> dict[float, float]:
    """Return for each base the first position whose sum is negative, inf if none inside L is."""
    found = {b: first_negative(config.similarity(), b, config.train_len) for b in config.bases}
    return {base: math.inf if m is None else float(m) for base, m in found.items()}


def predictions(
    config: BaseEmpiricalConfig,
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return a row per base and retrieval task.

    ``first_failing_position_tokens``: the bound's prediction, missing where it predicts no failure
    inside the trained length. ``quarter_turn_tokens``: where the slowest pair alone would change
    its sign, the simplest rival prediction. ``reach_tokens``: longest distance up to which
    retrieval works (accuracy at least 0.5). ``distances_before`` and ``distances_beyond``: how many
    measured distances are before that position and from it on; ``failing_before`` and
    ``failing_beyond``: at how many of them retrieval fails (accuracy below 0.5). ``accuracy``,
    ``reference_accuracy`` (of the largest base) and ``accuracy_difference``: at the distances
    predicted to fail, all of them if none is, every distance with the same weight; the difference's
    ``accuracy_false_discovery_rate`` is among all rows of the table.
    ``text_difference_nats_per_byte``: in the second half of the window, against the largest base.
    ``outcome`` and ``agrees`` (missing where the outcome is for neither side).
    """
    fails = first_fails(config)
    rows = [
        _row(config, task, base, fails[base], table, accuracies[task], buckets)
        for task, table in trials.items()
        for base in config.bases
    ]
    tested = [math.nan if row["is_reference"] else row["p_value"] for row in rows]
    for row, rate in zip(rows, discovery_rates(tested), strict=True):
        row["accuracy_false_discovery_rate"] = rate
    return judge(pd.DataFrame(rows, columns=COLUMNS))


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
    difference, late = _difference(judged, base), None
    if buckets is not None:
        late = buckets[buckets["bucket_end_tokens"] == buckets["bucket_end_tokens"].max()]
        late = late.rename(columns={"nll_nats_per_byte": "value", "document": "sequence"})
    lost, text = difference.interval(), _difference(late, base).interval()
    mean = judged.groupby("base")["value"].mean()
    mine = accuracies[accuracies["base"] == base]
    return {
        "task": task,
        "base": base,
        "is_reference": base == max(config.bases),
        "first_failing_position_tokens": fails if math.isfinite(fails) else math.nan,
        "quarter_turn_tokens": math.pi / 2 / slowest,
        "reach_tokens": reach(mine),
        **_failures(mine),
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


def _difference(values: pd.DataFrame | None, base: float) -> Mean:
    """``value`` under a base minus ``value`` under the largest one, over seeds and units."""
    if values is None or values.empty:
        return Mean(math.nan, math.nan, math.nan, 0, 0)
    units = values.groupby(["base", "seed", "sequence"])["value"].mean()
    return comparisons.difference(units[base], units[values["base"].max()])


def reach(table: pd.DataFrame) -> float:
    """Return the longest distance up to which every accuracy (mean over seeds) is at least 0.5."""
    mean = table.groupby("distance_tokens")["accuracy"].mean().sort_index()
    held = mean[(mean >= FAILS).cummin()]
    return float(held.index[-1]) if len(held) else math.nan


def _failures(table: pd.DataFrame) -> dict[str, int]:
    """Count distances, and failures of retrieval, before the predicted position and beyond."""
    mean = table.groupby(["predicted", "distance_tokens"], as_index=False)["accuracy"].mean()
    counts: dict[str, int] = {}
    for predicted, side in (("holds", "before"), ("fails", "beyond")):
        there = mean.loc[mean["predicted"] == predicted, "accuracy"]
        counts |= {f"distances_{side}": len(there), f"failing_{side}": int((there < FAILS).sum())}
    return counts


def judge(measured: pd.DataFrame) -> pd.DataFrame:
    """Add ``outcome`` and ``agrees`` to the columns of `predictions`."""
    if measured.empty:
        return measured.assign(outcome="", agrees=None)
    outcomes = [outcome(row) for _, row in measured.iterrows()]
    # An object column: agreement, disagreement, or None.
    said = [None if each in OPEN else each in AGREEING for each in outcomes]
    agrees = pd.Series(said, index=measured.index, dtype=object)
    return measured.assign(outcome=[str(each) for each in outcomes], agrees=agrees)


def outcome(row: pd.Series) -> Outcome:
    """Judge one base; a predicted failure is one only if retrieval fails at every distance."""
    if row["is_reference"]:
        return Outcome.REFERENCE
    if not row["reference_accuracy"] >= LEARNED:
        return Outcome.UNLEARNED
    significant = row["accuracy_false_discovery_rate"] <= FALSE_DISCOVERIES
    worse = significant and row["accuracy_difference"] < 0
    if math.isnan(row["first_failing_position_tokens"]):
        return Outcome.WORSE_ANYWAY if worse else Outcome.HOLDS
    if not worse:
        return Outcome.RETRIEVES
    if row["failing_beyond"] < row["distances_beyond"]:
        return Outcome.PARTLY if row["failing_beyond"] else Outcome.RETRIEVES_WORSE
    if math.isnan(row["text_ci_high_nats_per_byte"]):
        return Outcome.FAILS
    low = row["text_ci_high_nats_per_byte"] < LOW_LOSS
    return Outcome.SUPERFICIAL if low else Outcome.FAILS_TOGETHER
