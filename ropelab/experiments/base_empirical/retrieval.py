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
from ropelab.models.tasks.plans import task_inside_training, training_of
from ropelab.models.tasks.tables import (
    BUCKET,
    NLL,
    PLACE,
    average_losses,
    average_shares,
)
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
# The columns of the table `predictions`, and the short names of some of them.
COLUMNS, SHORT = (table_beside(__file__)[part] for part in ("columns", "short"))


def cells(config: BaseEmpiricalConfig) -> list[Evaluation]:
    """Return every task under every base, for every training seed."""
    tasks = [task_inside_training(config, task) for task in config.tasks]
    cells = []
    for task, seed, base in product(tasks, config.seeds, config.bases):
        model = training_of(
            config,
            seed,
            partial(rope, config.head_dim, base),
            {"name": "rope", "pairing": "half", "base": base},
            called=f"base {base:g}",
        )
        cell = Evaluation(
            subject=model,
            task=task,
            mode=AsTrained(),
            labels=(("base", base), ("seed", seed)),
        )
        cells.append(cell)
    return cells


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
    text = measured.pop("text", None)
    buckets = text["buckets"] if text is not None else None
    trials = {task: tables["trials"] for task, tables in measured.items()}
    by_task = {task: accuracy(table, config) for task, table in trials.items()}

    tables = {f"{task}_accuracy": table for task, table in by_task.items()}
    if buckets is not None:
        tables["text_nll"] = average_losses(buckets, ["base", "seed", *BUCKET])
    tables["predictions"] = predictions(config, trials, by_task, buckets)
    return tables


def accuracy(trials: pd.DataFrame, config: BaseEmpiricalConfig) -> pd.DataFrame:
    """Return accuracy by base, seed, distance and context, with the bound's
    prediction.
    """
    table = average_shares(trials, ["base", "seed", *PLACE])
    similarity = Similarity.of_head(config.head_dim)
    # Failure is predicted from the first position on at which the sum of cosines is
    # negative for the base of the row.
    beyond = table["distance_tokens"] >= table["base"].map(first_fails(config))
    distances = table["distance_tokens"].to_numpy(dtype=float)

    return table.assign(
        predicted=beyond.map({True: "fails", False: "holds"}),
        cosine_sum=similarity.evaluate(distances, np.log(table["base"].to_numpy())),
    )


def first_fails(config: BaseEmpiricalConfig) -> dict[float, float]:
    """Return each base's first position with a negative sum of cosines, inf if none is
    inside L.
    """
    similarity = Similarity.of_head(config.head_dim)
    positions = {}
    for base in config.bases:
        position = first_negative(similarity, base, config.train_len)
        positions[base] = math.inf if position is None else float(position)
    return positions


def predictions(
    config: BaseEmpiricalConfig,
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return COLUMNS, `outcome` and `agrees` for each base and retrieval task."""
    fails = first_fails(config)
    reference = max(config.bases)
    late = None
    if buckets is not None:
        ends = buckets["bucket_end_tokens"]
        late = buckets[ends == ends.max()]
        late = late.rename(columns={NLL: "value", "document": "sequence"})

    rows = []
    for task, table in trials.items():
        for base in config.bases:
            beyond = table[table["distance_tokens"] >= fails[base]]
            if beyond.empty:
                beyond = table
            shares = beyond.assign(value=beyond["correct"] / beyond["trials"])
            mean = shares.groupby("base")["value"].mean()
            change = _change(shares, base)
            lost = change.interval()
            text = _change(late, base).interval()

            of_base = accuracies[task].query("base == @base")
            row = (
                task,
                base,
                base == reference,
                *_positions(config.head_dim, base, fails[base], of_base),
                *_count_failures(of_base),
                mean[base],
                mean[reference],
                lost.value,
                lost.low,
                lost.high,
                change.p_value(),
                text.value,
                text.low,
                text.high,
                lost.n,
            )
            rows.append(row)

    # The reference differs from itself by nothing, which is no test.
    table = pd.DataFrame(rows, columns=COLUMNS)
    is_reference = table["is_reference"].astype(bool)
    p_values = table["accuracy_false_discovery_rate"].mask(is_reference)
    rates = discovery_rates(p_values.tolist())
    return judge(table.assign(accuracy_false_discovery_rate=rates))


def _positions(
    head_dim: int, base: float, first_fail: float, accuracies: pd.DataFrame
) -> list[float]:
    """Return the two predicted distances, the two measured ones, and each predicted one
    over the geometric mean of the measured.
    """
    bound = first_fail if math.isfinite(first_fail) else math.nan
    slowest = float(inverse_frequencies(head_dim, base)[-1])
    quarter_rotation = math.pi / 2 / slowest
    low, high = maximum_distance(accuracies)
    measured = math.sqrt(low * high)

    return [
        bound,
        quarter_rotation,
        low,
        high,
        bound / measured,
        quarter_rotation / measured,
    ]


def _count_failures(accuracies: pd.DataFrame) -> list[int]:
    """Count the distances, and those at which retrieval fails: first where success was
    predicted, then where failure was.
    """
    counts = []
    for predicted in ("holds", "fails"):
        rows = accuracies[accuracies["predicted"] == predicted]
        mean = rows.groupby("distance_tokens")["accuracy"].mean()
        counts += [len(mean), int((mean < FAILS).sum())]
    return counts


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
    agrees: list[bool | None] = []
    for each in outcomes:
        if each in OPEN:
            agrees.append(None)
        else:
            agrees.append(each in AGREEING)

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

    sentences = _describe_reaches(judged)
    right = judged["agrees"].astype(bool).sum()
    failing, nearer = judged[["failing_before", "distances_before"]].sum()
    judgements = "bases" if judged["task"].nunique() == 1 else "pairs of base and task"
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


def _describe_reaches(judged: pd.DataFrame) -> list[str]:
    """Say for each base how far retrieval works, beside both predictions."""
    first = COLUMNS.index("first_failing_position_tokens")
    columns = ["base", *COLUMNS[first : first + 6]]
    with_bound = judged[judged["bound_times_measured"].notna()]
    sentences = []
    for values, tasks in with_bound.groupby(columns, sort=False)["task"]:
        base, bound, quarter, low, high, bound_ratio, quarter_ratio = values
        verb = "work" if len(tasks) > 1 else "works"
        sentence = (
            f"With base {base:g} {' and '.join(tasks)} {verb} up to a distance between"
            f" {low:.0f} and {high:.0f} tokens; the bound says {bound:.0f}"
            f" ({bound_ratio:.2f} times that), a quarter rotation of the slowest pair"
            f" {quarter:.0f} ({quarter_ratio:.2f} times)"
        )
        sentences.append(sentence)
    return sentences


def summary(tables: Tables) -> pd.DataFrame:
    """Return the predictions: a row per base and task."""
    table = tables["predictions"]
    if table.empty:
        return tables["text_nll"].head(12)
    columns = ["task", "base", *SHORT.values()]
    columns.insert(-1, "accuracy")
    return table.rename(columns=SHORT)[columns].head(12)
