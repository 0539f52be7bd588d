"""A model per base and seed, the bound's prediction for it beside its retrieval, and
the answer.
"""

import math
from enum import StrEnum
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.math.bounds import Similarity, first_negative
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.modes import AsTrained
from ropelab.models.tasks.plans import inside_training, training_of
from ropelab.models.tasks.tables import BUCKET, NLL, PLACE, accuracies, losses
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import difference
from ropelab.runs.files import table_beside
from ropelab.runs.stats import FALSE_DISCOVERIES, FEWEST_UNITS, Mean, discovery_rates
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import FAILS, LEARNED, LOW_LOSS


class Outcome(StrEnum):
    """Outcomes of one base on one task."""

    REFERENCE = "reference"
    UNLEARNED = "open: the reference has not learned"
    UNTESTED = f"open: fewer than {FEWEST_UNITS} sequences"
    HOLDS = "holds, as predicted"
    WORSE_ANYWAY = "worse although admissible"
    SUPERFICIAL = "superficial, as predicted"
    FAILS = "fails, as predicted"
    FAILS_TOGETHER = "fails in text and retrieval"
    PARTLY = "fails at some of the distances where failure was predicted"
    RETRIEVES = "retrieves where failure was predicted"
    RETRIEVES_WORSE = "retrieves, though worse, where failure was predicted"


OPEN = {Outcome.REFERENCE, Outcome.UNLEARNED, Outcome.UNTESTED}
AGREEING = {Outcome.HOLDS, Outcome.SUPERFICIAL, Outcome.FAILS, Outcome.FAILS_TOGETHER}
# Of the table `predictions`: its columns, and the short names of some.
COLUMNS, SHORT = (table_beside(__file__)[part] for part in ("columns", "short"))


def cells(config: BaseEmpiricalConfig) -> list[Evaluation]:
    """Return every task under every base, for every training seed."""
    tasks = [inside_training(config, task) for task in config.tasks]
    return [
        Evaluation(
            subject=training_of(
                config,
                seed,
                partial(rope, config.head_dim, base),
                {"name": "rope", "pairing": "half", "base": base},
                called=f"base {base:g}",
            ),
            task=task,
            mode=AsTrained(),
            labels=(("base", base), ("seed", seed)),
        )
        for task, seed, base in product(tasks, config.seeds, config.bases)
    ]


def rope(head_dim: int, base: float) -> Rope:
    """Return unscaled RoPE on whole heads; a function, so that a cell can be
    pickled.
    """
    return Rope(RopePlan(inverse_frequencies(head_dim, base)))


def tables(config: BaseEmpiricalConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make accuracy by distance for each retrieval task, text loss by position,
    predictions.
    """
    measured = collect(cells(config), values)
    buckets = measured.pop("text")["buckets"] if "text" in measured else None
    trials = {task: found["trials"] for task, found in measured.items()}
    by_task = {task: accuracy(table, config) for task, table in trials.items()}
    found = {f"{task}_accuracy": table for task, table in by_task.items()}
    if buckets is not None:
        found["text_nll"] = losses(buckets, ["base", "seed", *BUCKET])
    found["predictions"] = predictions(config, trials, by_task, buckets)
    return found


def accuracy(trials: pd.DataFrame, config: BaseEmpiricalConfig) -> pd.DataFrame:
    """Return accuracy by base, seed, distance and context, with the bound's
    prediction.
    """
    table = accuracies(trials, ["base", "seed", *PLACE])
    similarity = Similarity.of_head(config.head_dim)
    beyond = table["distance_tokens"] >= table["base"].map(first_fails(config))
    distances = table["distance_tokens"].to_numpy(dtype=float)
    return table.assign(
        # From the first position on at which the sum of cosines is negative for that
        # base.
        predicted=beyond.map({True: "fails", False: "holds"}),
        cosine_sum=similarity.at(distances, np.log(table["base"].to_numpy())),
    )


def first_fails(config: BaseEmpiricalConfig) -> dict[float, float]:
    """Return each base's first position with a negative sum of cosines, inf if none is
    inside L.
    """
    similarity = Similarity.of_head(config.head_dim)
    found = {b: first_negative(similarity, b, config.train_len) for b in config.bases}
    return {base: math.inf if m is None else float(m) for base, m in found.items()}


def predictions(
    config: BaseEmpiricalConfig,
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return COLUMNS, `outcome` and `agrees` for each base and retrieval task."""
    fails, late, reference = first_fails(config), None, max(config.bases)
    if buckets is not None:
        late = buckets[
            buckets["bucket_end_tokens"] == buckets["bucket_end_tokens"].max()
        ]
        late = late.rename(columns={NLL: "value", "document": "sequence"})
    rows = []
    for task, table in trials.items():
        for base in config.bases:
            judged = table[table["distance_tokens"] >= fails[base]]
            judged = table if judged.empty else judged
            judged = judged.assign(value=judged["correct"] / judged["trials"])
            mean = judged.groupby("base")["value"].mean()
            change, text = _change(judged, base), _change(late, base).interval()
            mine, lost = accuracies[task].query("base == @base"), change.interval()
            slowest = float(inverse_frequencies(config.head_dim, base)[-1])
            first = fails[base] if math.isfinite(fails[base]) else math.nan
            predicted, measured = (first, math.pi / 2 / slowest), maximum_distance(mine)
            ratios = [
                position / math.sqrt(math.prod(measured)) for position in predicted
            ]
            # The prediction depends on base and distance alone.
            mean_at = mine.groupby(["predicted", "distance_tokens"])["accuracy"].mean()
            sides = [
                mean_at[mean_at.index.get_level_values(0) == x]
                for x in ("holds", "fails")
            ]
            failures = [
                count for at in sides for count in (len(at), int((at < FAILS).sum()))
            ]
            positions = (*predicted, *measured, *ratios, *failures)
            found = (
                mean[base],
                mean[reference],
                lost.value,
                lost.low,
                lost.high,
                change.p_value(),
            )
            read = (text.value, text.low, text.high, lost.n)
            rows.append((task, base, base == reference, *positions, *found, *read))
    table = pd.DataFrame(rows, columns=COLUMNS)
    # The reference differs from itself by nothing, which is no test.
    p_values = table["accuracy_false_discovery_rate"].mask(
        table["is_reference"].astype(bool)
    )
    return judge(
        table.assign(accuracy_false_discovery_rate=discovery_rates(p_values.tolist()))
    )


def _change(values: pd.DataFrame | None, base: float) -> Mean:
    """``value`` under a base minus ``value`` under the largest one, over seeds and
    units.
    """
    if values is None or values.empty:
        return Mean(math.nan, math.nan, math.nan, 0, 0)
    groups = values.groupby(["base", "seed", "sequence"])
    units = groups["value"].mean()
    trials = int(groups["trials"].sum().iloc[0]) if "trials" in values else 0
    return difference(units[base], units[values["base"].max()], trials)


def maximum_distance(table: pd.DataFrame) -> tuple[float, float]:
    """Return the farthest distance at which retrieval works (mean over seeds), and the
    next one.
    """
    mean = table.groupby("distance_tokens")["accuracy"].mean().sort_index()
    farthest = mean.index[mean >= FAILS].max()
    return float(farthest), float(mean.index[mean.index > farthest].min())


def judge(measured: pd.DataFrame) -> pd.DataFrame:
    """Add `outcome`, and `agrees`: missing where the outcome is for neither side."""
    if measured.empty:
        return measured.assign(outcome="", agrees=None)
    outcomes = measured.apply(outcome, axis=1)
    agrees = [None if each in OPEN else each in AGREEING for each in outcomes]
    # An object column: agreement, disagreement, or None.
    return measured.assign(
        outcome=outcomes.map(str),
        agrees=pd.Series(agrees, measured.index, dtype=object),
    )


def outcome(row: pd.Series) -> Outcome:
    """Judge one base; a predicted failure is one only if retrieval fails at every
    distance.
    """
    if row["is_reference"]:
        return Outcome.REFERENCE
    if not row["reference_accuracy"] >= LEARNED:
        return Outcome.UNLEARNED
    if math.isnan(row["accuracy_false_discovery_rate"]):
        return Outcome.UNTESTED

    significant = row["accuracy_false_discovery_rate"] <= FALSE_DISCOVERIES
    worse = significant and row["accuracy_difference"] < 0
    # A position beyond the farthest distance measured predicts no failure that could be
    # seen.
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


def answer(tables: Tables) -> str:
    """Say how far each base reaches beside both predictions, and how often the bound
    was right.
    """
    table = tables["predictions"]
    if table.empty:
        return "Only text was measured, which the bound does not speak about."
    judged = table[table["agrees"].notna()]
    if judged.empty:
        if (table["outcome"] == Outcome.UNTESTED).any():
            return (
                f"Nothing can be said: fewer than {FEWEST_UNITS} sequences were"
                " measured."
            )
        return (
            "Nothing can be said: the model with the largest base has not learned to"
            " retrieve."
        )
    right = judged["agrees"].astype(bool).sum()
    failing, nearer = judged[["failing_before", "distances_before"]].sum()
    judgements = "bases" if judged["task"].nunique() == 1 else "pairs of base and task"
    columns = ["base", *COLUMNS[COLUMNS.index("first_failing_position_tokens") :][:6]]
    found = judged[judged["bound_times_measured"].notna()].groupby(columns, sort=False)[
        "task"
    ]
    sentences = [
        "With base"
        f" {base:g} {' and '.join(tasks)} {'work' if len(tasks) > 1 else 'works'} up to"
        f" a distance between {low:.0f} and {high:.0f} tokens; the bound says"
        f" {bound:.0f} ({bound_ratio:.2f} times that), a quarter rotation of the"
        f" slowest pair {quarter:.0f} ({quarter_ratio:.2f} times)"
        for (
            base,
            bound,
            quarter,
            low,
            high,
            bound_ratio,
            quarter_ratio,
        ), tasks in found
    ]
    sentences.append(
        f"Over all distances the bound is right for {right} of"
        f" {len(judged)} {judgements}: where it predicts success, retrieval fails at"
        f" {failing} of {nearer} distances"
    )
    superficial = judged[judged["outcome"] == Outcome.SUPERFICIAL]
    if len(superficial):
        bases = ", ".join(f"{base:g}" for base in superficial["base"].unique())
        sentences.append(f"Text loss stays low while retrieval fails with base {bases}")
    return f"{'. '.join(sentences)}."


def summary(tables: Tables) -> pd.DataFrame:
    """Return the predictions: a row per base and task."""
    table = tables["predictions"]
    if table.empty:
        return tables["text_nll"].head(12)
    columns = ["task", "base", *SHORT.values()]
    columns.insert(-1, "accuracy")
    return table.rename(columns=SHORT)[columns].head(12)
