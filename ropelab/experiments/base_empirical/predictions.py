"""The bound's prediction for every base, beside what was measured, with a verdict for each."""

import math

import pandas as pd

from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.tables import reach
from ropelab.rope.bounds import first_negative
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.stats import Interval
from ropelab.trials.comparisons import difference

WORKS = 0.5
"""Retrieval with at least this accuracy works; below it, it fails."""
LIKE_TEXT = 0.05
"""A text loss within so many nats per byte of the reference counts as low: about a tenth of what
separates a trained small model from one that only knows which bytes are frequent."""


AGREES = {
    "holds, as predicted": True,
    "superficial, as predicted": True,
    "retrieves worse, as predicted": True,
    "worse in text and retrieval": True,
    "worse although admissible": False,
    "retrieves where failure was predicted": False,
    "retrieves, though worse, where failure was predicted": False,
}
"""Whether a verdict agrees with the bound; the others say neither."""
COLUMNS = [
    "task",
    "base",
    "first_failing_position_tokens",
    "quarter_turn_tokens",
    "reach_tokens",
    "accuracy",
    "accuracy_difference",
    "accuracy_ci_low",
    "accuracy_ci_high",
    "text_difference_nats_per_byte",
    "text_ci_low_nats_per_byte",
    "text_ci_high_nats_per_byte",
    "n",
    "verdict",
    "agrees",
]
"""There are no rows if no retrieval was measured."""


def first_fails(config: BaseEmpiricalConfig) -> dict[float, float]:
    """For each base the first position whose sum is negative; infinite if none inside L is."""
    similarity = config.similarity()
    found = {base: first_negative(similarity, base, config.train_len) for base in config.bases}
    return {base: math.inf if m is None else float(m) for base, m in found.items()}


def predictions(
    config: BaseEmpiricalConfig,
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """A row per base and retrieval task.

    ``first_failing_position_tokens``: the bound's prediction, missing where it predicts no failure
    inside the trained length. ``quarter_turn_tokens``: where the slowest pair alone would turn its
    sign, the simplest rival prediction. ``reach_tokens``: longest distance up to which retrieval
    works (accuracy at least 0.5). ``accuracy_difference``: at the distances predicted to fail (all
    of them if none is), against the largest base. ``text_difference_nats_per_byte``: in the
    second half of the window, against the largest base.
    """
    fails = first_fails(config)
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
    if base == max(config.bases):
        verdict = "reference"
    else:
        verdict = judge(own >= WORKS, best >= WORKS, fails, lost, text)
    return {
        "task": task,
        "base": base,
        "first_failing_position_tokens": fails if math.isfinite(fails) else math.nan,
        "quarter_turn_tokens": math.pi / 2 / slowest,
        "reach_tokens": reach(accuracies[accuracies["base"] == base]),
        "accuracy": own,
        "accuracy_difference": lost.value,
        "accuracy_ci_low": lost.low,
        "accuracy_ci_high": lost.high,
        "text_difference_nats_per_byte": text.value,
        "text_ci_low_nats_per_byte": text.low,
        "text_ci_high_nats_per_byte": text.high,
        "n": lost.n,
        "verdict": verdict,
        "agrees": AGREES.get(verdict),
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


def judge(works: bool, learned: bool, fails: float, lost: Interval, text: Interval) -> str:
    """What one base shows about the bound.

    A bound that predicts failure is right only if retrieval fails, and not if it is merely worse.

    Args:
        works: the base retrieves at least half of what is asked at the judged distances.
        learned: so does the largest base, which the others are compared to.
        fails: the first position predicted to fail, infinite for none.
        lost: accuracy minus that of the largest base.
        text: text loss minus that of the largest base, nan if it was not measured.
    """
    if not learned:
        return "open: the reference fails too"
    worse = lost.high < 0
    if math.isinf(fails):
        return "worse although admissible" if worse else "holds, as predicted"
    if works or not worse:
        how = "retrieves, though worse," if worse else "retrieves"
        return f"{how} where failure was predicted"
    if math.isnan(text.value):
        return "retrieves worse, as predicted"
    low = text.high < LIKE_TEXT
    return "superficial, as predicted" if low else "worse in text and retrieval"
