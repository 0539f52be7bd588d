"""The bound's prediction for every base beside the measurement, and whether the two agree."""

import math
from enum import StrEnum

import pandas as pd

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.math.bounds import Similarity, first_negative
from ropelab.math.frequencies import inverse_frequencies
from ropelab.models.tasks.tables import NLL
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
# Of the table `predictions`.
COLUMNS = [
    "task",
    "base",
    "is_reference",
    # The bound's prediction, missing where it predicts no failure inside the trained length.
    "first_failing_position_tokens",
    # Where the slowest pair alone would change its sign, the simplest rival prediction.
    "quarter_rotation_tokens",
    # The longest distance up to which retrieval works (accuracy at least 0.5).
    "maximum_distance_tokens",
    # How many measured distances are before the predicted position, and at how many of them
    # retrieval fails (accuracy below 0.5); the same from that position on.
    "distances_before",
    "failing_before",
    "distances_beyond",
    "failing_beyond",
    # At the distances predicted to fail, all of them if none is, each with the same weight.
    "accuracy",
    "reference_accuracy",
    "accuracy_difference",
    "accuracy_ci_low",
    "accuracy_ci_high",
    # Among all rows of the table.
    "accuracy_false_discovery_rate",
    # In the second half of the window, against the largest base.
    "text_difference_nats_per_byte",
    "text_ci_low_nats_per_byte",
    "text_ci_high_nats_per_byte",
    "n",
]


def first_fails(config: BaseEmpiricalConfig) -> dict[float, float]:
    """Return for each base the first position whose sum is negative, inf if none inside L is."""
    similarity = Similarity.of_head(config.head_dim)
    found = {b: first_negative(similarity, b, config.train_len) for b in config.bases}
    return {base: math.inf if m is None else float(m) for base, m in found.items()}


def predictions(
    config: BaseEmpiricalConfig,
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return COLUMNS, ``outcome`` and ``agrees`` for each base and retrieval task."""
    fails, late = first_fails(config), None
    if buckets is not None:
        late = buckets[buckets["bucket_end_tokens"] == buckets["bucket_end_tokens"].max()]
        late = late.rename(columns={NLL: "value", "document": "sequence"})
    rows = []
    for task, table in trials.items():
        for base in config.bases:
            judged = table[table["distance_tokens"] >= fails[base]]
            judged = table if judged.empty else judged
            judged = judged.assign(value=judged["correct"] / judged["trials"])
            mean = judged.groupby("base")["value"].mean()
            difference, text = _difference(judged, base), _difference(late, base).interval()
            mine, lost = accuracies[task].query("base == @base"), difference.interval()
            slowest = float(inverse_frequencies(config.head_dim, base)[-1])
            first = fails[base] if math.isfinite(fails[base]) else math.nan
            about = (task, base, base == max(config.bases))
            positions = (first, math.pi / 2 / slowest, reach(mine))
            found = (mean[base], mean[max(config.bases)], lost.value, lost.low, lost.high)
            read = (text.value, text.low, text.high)
            p_value = difference.p_value()
            rows.append((*about, *positions, *_failures(mine), *found, p_value, *read, lost.n))
    table = pd.DataFrame(rows, columns=COLUMNS)
    # The reference differs from itself by nothing, which is no test.
    p_values = table["accuracy_false_discovery_rate"].mask(table["is_reference"].astype(bool))
    return judge(table.assign(accuracy_false_discovery_rate=discovery_rates(p_values.tolist())))


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


def _failures(table: pd.DataFrame) -> list[int]:
    """Count distances, and failures of retrieval, before the predicted position and beyond."""
    mean = table.groupby(["predicted", "distance_tokens"], as_index=False)["accuracy"].mean()
    sides = [mean.loc[mean["predicted"] == side, "accuracy"] for side in ("holds", "fails")]
    return [count for there in sides for count in (len(there), int((there < FAILS).sum()))]


def judge(measured: pd.DataFrame) -> pd.DataFrame:
    """Add ``outcome``, and ``agrees``: missing where the outcome is for neither side."""
    if measured.empty:
        return measured.assign(outcome="", agrees=None)
    outcomes = measured.apply(outcome, axis=1)
    # An object column: agreement, disagreement, or None.
    said = [None if each in OPEN else each in AGREEING for each in outcomes]
    agrees = pd.Series(said, index=measured.index, dtype=object)
    return measured.assign(outcome=outcomes.map(str), agrees=agrees)


def outcome(row: pd.Series) -> Outcome:
    """Judge one base; a predicted failure is one only if retrieval fails at every distance."""
    if row["is_reference"]:
        return Outcome.REFERENCE
    if not row["reference_accuracy"] >= LEARNED:
        return Outcome.UNLEARNED
    significant = row["accuracy_false_discovery_rate"] <= FALSE_DISCOVERIES
    worse = significant and row["accuracy_difference"] < 0
    # A position beyond the farthest distance measured predicts no failure that could be seen.
    if math.isnan(row["first_failing_position_tokens"]) or not row["distances_beyond"]:
        return Outcome.WORSE_ANYWAY if worse else Outcome.HOLDS
    if not worse:
        return Outcome.RETRIEVES
    if row["failing_beyond"] < row["distances_beyond"]:
        return Outcome.PARTLY if row["failing_beyond"] else Outcome.RETRIEVES_WORSE
    if math.isnan(row["text_ci_high_nats_per_byte"]):
        return Outcome.FAILS
    low = row["text_ci_high_nats_per_byte"] < LOW_LOSS
    return Outcome.SUPERFICIAL if low else Outcome.FAILS_TOGETHER
