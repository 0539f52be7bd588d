"""The cells, tables and answer of the experiment `base-empirical`.

A model is trained per base and seed. The retrieval of the models of a base is compared
with a prediction: the bound predicts that retrieval fails from the first position on at
which the sum of cosines of the base's frequencies is negative, while text loss stays
low. A model is tested inside its trained length, at several distances.
"""

import math
from enum import StrEnum
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.math.bounds import Similarity, find_first_negative
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.modes import AsTrained
from ropelab.models.tasks.plans import describe_training, make_task_inside_training
from ropelab.models.tasks.tables import (
    BUCKET,
    NLL,
    PLACE,
    average_losses,
    average_shares,
)
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import average_difference
from ropelab.runs.files import read_table_beside
from ropelab.runs.stats import (
    FALSE_DISCOVERIES,
    FEWEST_UNITS,
    Interval,
    Mean,
    average_crossed_shares,
    compute_discovery_rates,
)
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import FAILS, LEARNED, LOW_LOSS


class Outcome(StrEnum):
    """Outcomes of one base on one task, compared with the reference: the largest base."""

    # Nothing is decided.
    REFERENCE = "reference"
    UNLEARNED = "open: the reference has not learned"
    UNTESTED = f"open: fewer than {FEWEST_UNITS} sequences"
    # The bound predicts no failure inside the trained length.
    HOLDS = "holds, as predicted"
    WORSE_ANYWAY = "worse although admissible"
    # The bound predicts failure, and retrieval fails: with a low text loss, with an
    # unknown one, and with a high one.
    SUPERFICIAL = "superficial, as predicted"
    FAILS = "fails, as predicted"
    FAILS_TOGETHER = "fails in text and retrieval"
    # The bound predicts failure, and retrieval does not fail, or not everywhere.
    PARTLY = "fails at some of the distances where failure was predicted"
    RETRIEVES = "retrieves where failure was predicted"
    RETRIEVES_WORSE = "retrieves, though worse, where failure was predicted"


# The outcomes that decide nothing, and the outcomes that agree with the bound. All other
# outcomes contradict the bound.
OPEN = {Outcome.REFERENCE, Outcome.UNLEARNED, Outcome.UNTESTED}
AGREEING = {Outcome.HOLDS, Outcome.SUPERFICIAL, Outcome.FAILS, Outcome.FAILS_TOGETHER}
# The columns of the table `predictions`, which retrieval.toml explains, and the short
# names of some columns.
_WORDS = read_table_beside(__file__)
COLUMNS: list[str] = _WORDS["columns"]
SHORT: dict[str, str] = _WORDS["short"]


def cells(config: BaseEmpiricalConfig) -> list[Evaluation]:
    """Return every task under every base, for every training seed."""
    tasks = [make_task_inside_training(config, task) for task in config.tasks]
    cells = []
    for task, seed, base in product(tasks, config.seeds, config.bases):
        model = describe_training(
            config,
            seed,
            partial(make_rope, config.head_dim, base),
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


def make_rope(head_dim: int, base: float) -> Rope:
    """Return unscaled RoPE on whole heads."""
    # Cells are pickled, which a function of a module can be and a lambda cannot.
    return Rope(RopePlan(inverse_frequencies(head_dim, base)))


def tables(config: BaseEmpiricalConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the accuracy by distance of each retrieval task, the text loss by position,
    and the predictions.
    """
    measured = collect(cells(config), values)
    buckets = None
    text = measured.pop("text", None)
    if text is not None:
        buckets = text["buckets"]

    tables = {}
    trials = {}
    accuracies_by_task = {}
    for task, tables_of_task in measured.items():
        trials[task] = tables_of_task["trials"]
        accuracies_by_task[task] = make_accuracy_table(trials[task], config)
        tables[f"{task}_accuracy"] = accuracies_by_task[task]
    if buckets is not None:
        tables["text_nll"] = average_losses(buckets, ["base", "seed", *BUCKET])
    tables["predictions"] = make_predictions(
        config, trials, accuracies_by_task, buckets
    )
    return tables


def make_accuracy_table(
    trials: pd.DataFrame, config: BaseEmpiricalConfig
) -> pd.DataFrame:
    """Return accuracy by base, seed, distance and context, with the bound's
    prediction.
    """
    table = average_shares(trials, ["base", "seed", *PLACE])
    first_failing = table["base"].map(find_first_failing_positions(config))
    predicts_failure = table["distance_tokens"] >= first_failing
    distances = table["distance_tokens"].to_numpy(dtype=float)
    log_bases = np.log(table["base"].to_numpy())
    similarity = Similarity.of_head(config.head_dim)

    return table.assign(
        predicted=predicts_failure.map({True: "fails", False: "holds"}),
        cosine_sum=similarity.evaluate(distances, log_bases),
    )


def find_first_failing_positions(config: BaseEmpiricalConfig) -> dict[float, float]:
    """Return for each base the first position with a negative sum of cosines; inf if
    there is none inside the trained length.
    """
    similarity = Similarity.of_head(config.head_dim)
    positions = {}
    for base in config.bases:
        position = find_first_negative(similarity, base, config.train_len)
        positions[base] = math.inf if position is None else float(position)
    return positions


def make_predictions(
    config: BaseEmpiricalConfig,
    trials: dict[str, pd.DataFrame],
    accuracies: dict[str, pd.DataFrame],
    buckets: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return `predictions`: COLUMNS, `outcome` and `agrees` for each base and retrieval
    task.

    Args:
        config: the config.
        trials: the trials of each task: a row per base, seed, sequence and distance.
        accuracies: the result of `make_accuracy_table` for each task.
        buckets: text losses by bucket of positions; None if text was not measured.
    """
    first_failing = find_first_failing_positions(config)
    reference = max(config.bases)
    late_losses = _select_late_losses(buckets)

    rows = []
    for task, table in trials.items():
        for base in config.bases:
            # Trials at the distances at which failure is predicted; all trials if failure
            # is predicted at no distance.
            chosen = table[table["distance_tokens"] >= first_failing[base]]
            if chosen.empty:
                chosen = table
            chosen = chosen.assign(value=chosen["correct"] / chosen["trials"])
            accuracy = _average_accuracy(chosen, base)
            mean_by_base = chosen.groupby("base")["value"].mean()
            accuracy_change = _compare_with_reference(chosen, base)
            change_interval = accuracy_change.compute_interval()
            text_change = _compare_with_reference(late_losses, base)
            text_interval = text_change.compute_interval()

            accuracies_of_base = accuracies[task].query("base == @base")
            row = {
                "task": task,
                "base": base,
                "is_reference": base == reference,
                **_compare_limits(
                    config.head_dim, base, first_failing[base], accuracies_of_base
                ),
                **_count_failures(accuracies_of_base),
                "accuracy": accuracy.value,
                "accuracy_ci_low": accuracy.low,
                "accuracy_ci_high": accuracy.high,
                "reference_accuracy": mean_by_base[reference],
                "accuracy_difference": change_interval.value,
                "difference_ci_low": change_interval.low,
                "difference_ci_high": change_interval.high,
                # This is a p-value here. After the loop a false discovery rate replaces
                # it, for which the p-values of all rows are needed.
                "accuracy_false_discovery_rate": accuracy_change.compute_p_value(),
                "text_difference_nats_per_byte": text_interval.value,
                "text_ci_low_nats_per_byte": text_interval.low,
                "text_ci_high_nats_per_byte": text_interval.high,
                "n": change_interval.n,
            }
            rows.append(row)

    # The reference is not tested against itself.
    table = pd.DataFrame(rows, columns=COLUMNS)
    is_reference = table["is_reference"].astype(bool)
    p_values = table["accuracy_false_discovery_rate"].mask(is_reference)
    rates = compute_discovery_rates(p_values.tolist())
    return judge(table.assign(accuracy_false_discovery_rate=rates))


def _select_late_losses(buckets: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return the text losses in the last bucket of positions, as `value`.

    The last bucket is the second half of the window. Documents are listed in the column
    `sequence`, so that losses are averaged by document as accuracies are by sequence.
    """
    if buckets is None:
        return None
    ends = buckets["bucket_end_tokens"]
    late_losses = buckets[ends == ends.max()]
    return late_losses.rename(columns={NLL: "value", "document": "sequence"})


def _compare_limits(
    head_dim: int, base: float, first_failing: float, accuracies: pd.DataFrame
) -> dict[str, float]:
    """Return two predictions of the distance up to which retrieval works (the bound and a
    quarter rotation of the slowest pair), the measured distance, and both predictions
    divided by the measured distance.
    """
    bound = first_failing if math.isfinite(first_failing) else math.nan
    slowest = float(inverse_frequencies(head_dim, base)[-1])
    quarter_rotation = math.pi / 2 / slowest
    # Retrieval stops working between two measured distances. Their geometric mean stands
    # for the distance up to which it works.
    works_at, fails_at = find_maximum_distance(accuracies)
    measured_limit = math.sqrt(works_at * fails_at)

    return {
        "first_failing_position_tokens": bound,
        "quarter_rotation_tokens": quarter_rotation,
        "maximum_distance_tokens": works_at,
        "fails_from_tokens": fails_at,
        "bound_times_measured": bound / measured_limit,
        "quarter_rotation_times_measured": quarter_rotation / measured_limit,
    }


def _count_failures(accuracies: pd.DataFrame) -> dict[str, int]:
    """Count the distances before the predicted position and from this position on, and
    in each of the two ranges the distances at which retrieval fails.
    """
    counts = {}
    for predicted, suffix in (("holds", "before"), ("fails", "beyond")):
        rows = accuracies[accuracies["predicted"] == predicted]
        mean_by_distance = rows.groupby("distance_tokens")["accuracy"].mean()
        counts[f"distances_{suffix}"] = len(mean_by_distance)
        counts[f"failing_{suffix}"] = int((mean_by_distance < FAILS).sum())
    return counts


def _average_accuracy(trials: pd.DataFrame, base: float) -> Interval:
    """Return the share of right answers under a base, over seeds and sequences.

    Each sequence counts once: its trials are the trials at all its distances.
    """
    trials_of_base = trials[trials["base"] == base]
    groups = trials_of_base.groupby(["seed", "sequence"])
    # A row per seed, a column per sequence.
    shares = groups["value"].mean().unstack("sequence")
    trials_per_sequence = int(groups["trials"].sum().iloc[0])
    return average_crossed_shares(shares.to_numpy(), trials_per_sequence)


def _compare_with_reference(values: pd.DataFrame | None, base: float) -> Mean:
    """Return ``value`` under a base minus ``value`` under the largest one, over seeds and
    sequences; nan without values.
    """
    if values is None or values.empty:
        return Mean(math.nan, math.nan, math.nan, seeds=0, units=0)
    groups = values.groupby(["base", "seed", "sequence"])
    means = groups["value"].mean()
    # Accuracies are shares of trials, losses are not. All groups have the same number of
    # trials.
    trials = 0
    if "trials" in values:
        trials = int(groups["trials"].sum().iloc[0])
    reference = values["base"].max()
    return average_difference(means[base], means[reference], trials)


def find_maximum_distance(table: pd.DataFrame) -> tuple[float, float]:
    """Return the farthest distance at which retrieval works, and the next distance that
    was measured.

    Either is nan if there is none. Retrieval works if the mean over seeds is at least
    FAILS.
    """
    means = table.groupby("distance_tokens")["accuracy"].mean().sort_index()
    distances = means.index
    farthest = distances[means >= FAILS].max()
    next_distance = distances[distances > farthest].min()
    return float(farthest), float(next_distance)


def judge(measured: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `outcome` and `agrees`.

    `agrees` is True if the prediction was right, and None if nothing is decided.
    """
    if measured.empty:
        return measured.assign(outcome="", agrees=None)

    outcomes = measured.apply(judge_base, axis=1)
    agrees: list[bool | None] = []
    for outcome in outcomes:
        if outcome in OPEN:
            agrees.append(None)
        else:
            agrees.append(outcome in AGREEING)

    # A column of objects can hold None beside True and False.
    return measured.assign(
        outcome=outcomes.map(str),
        agrees=pd.Series(agrees, measured.index, dtype=object),
    )


def judge_base(row: pd.Series) -> Outcome:
    """Return the outcome for a row of `make_predictions`.

    A predicted failure has come true only if retrieval fails at every distance where
    failure is predicted.
    """
    if row["is_reference"]:
        return Outcome.REFERENCE
    # The accuracy is nan if nothing was measured. The comparison is then False.
    reference_learned = row["reference_accuracy"] >= LEARNED
    if not reference_learned:
        return Outcome.UNLEARNED
    if math.isnan(row["accuracy_false_discovery_rate"]):
        return Outcome.UNTESTED

    is_significant = row["accuracy_false_discovery_rate"] <= FALSE_DISCOVERIES
    is_worse = is_significant and row["accuracy_difference"] < 0
    # If no distance was measured beyond the predicted position, no failure could be seen.
    predicts_failure = (
        not math.isnan(row["first_failing_position_tokens"])
        and row["distances_beyond"] > 0
    )
    if not predicts_failure:
        if is_worse:
            return Outcome.WORSE_ANYWAY
        return Outcome.HOLDS

    if not is_worse:
        return Outcome.RETRIEVES
    if row["failing_beyond"] == 0:
        return Outcome.RETRIEVES_WORSE
    if row["failing_beyond"] < row["distances_beyond"]:
        return Outcome.PARTLY

    # Retrieval fails everywhere. The text loss says whether reading fails, too.
    if math.isnan(row["text_ci_high_nats_per_byte"]):
        return Outcome.FAILS
    if row["text_ci_high_nats_per_byte"] < LOW_LOSS:
        return Outcome.SUPERFICIAL
    return Outcome.FAILS_TOGETHER


def answer(tables: Tables) -> str:
    """Say up to which distance the models of each base retrieve, what both predictions
    say, and how often the bound was right.
    """
    table = tables["predictions"]
    if table.empty:
        return "Only text was measured, which the bound does not speak about."

    decided = table[table["agrees"].notna()]
    if decided.empty:
        if (table["outcome"] == Outcome.UNTESTED).any():
            return (
                f"Nothing can be said: fewer than {FEWEST_UNITS} sequences were"
                " measured."
            )
        return (
            "Nothing can be said: the model with the largest base has not learned to"
            " retrieve."
        )

    sentences = [_describe_verdict(decided), *_describe_limits(decided)]
    superficial = decided[decided["outcome"] == Outcome.SUPERFICIAL]
    if len(superficial):
        bases = ", ".join(f"{base:g}" for base in superficial["base"].unique())
        sentences.append(f"Text loss stays low while retrieval fails with base {bases}")
    return f"{'. '.join(sentences)}."


def _describe_verdict(decided: pd.DataFrame) -> str:
    """Say how often the bound is right, and how often retrieval fails where the bound
    says that it works.
    """
    right_rows = int(decided["agrees"].astype(bool).sum())
    failing_distances = decided["failing_before"].sum()
    distances_before = decided["distances_before"].sum()
    rows = "bases" if decided["task"].nunique() == 1 else "pairs of base and task"
    return (
        f"The bound predicts for {right_rows} of {len(decided)} {rows} where retrieval"
        f" fails (a recall below half), and at {failing_distances} of"
        f" {distances_before} distances at which it predicts success retrieval fails"
    )


def _describe_limits(decided: pd.DataFrame) -> list[str]:
    """Say for each base at which distances retrieval works, and what both predictions
    say.
    """
    columns = [
        "base",
        "maximum_distance_tokens",
        "fails_from_tokens",
        "first_failing_position_tokens",
        "bound_times_measured",
        "quarter_rotation_tokens",
        "quarter_rotation_times_measured",
        "distances_before",
        "failing_before",
    ]
    with_bound = decided[decided["bound_times_measured"].notna()]

    sentences = []
    # Tasks with the same limits share a sentence.
    for values, tasks in with_bound.groupby(columns, sort=False)["task"]:
        base, works_at, fails_at, bound, bound_ratio, *nearby_limits = values
        quarter, quarter_ratio, before, failing = nearby_limits
        verb = "work" if len(tasks) > 1 else "works"
        near_by = ""
        if failing:
            distances = f"{failing:.0f} of {before:.0f} tested distances"
            near_by = f", before which recall fails at {distances}"
        sentence = (
            f"With base {base:g} {' and '.join(tasks)} {verb} farthest at {works_at:.0f}"
            f" tokens back and no longer at {fails_at:.0f}, of the distances measured"
            " (work: at least half of the symbols right in the mean over models, whose"
            f" interval may reach below); the bound says {bound:.0f} ({bound_ratio:.2f}"
            f" times their geometric mean){near_by}; a quarter rotation of the slowest pair says"
            f" {quarter:.0f} ({quarter_ratio:.2f} times)"
        )
        sentences.append(sentence)
    return sentences


def explain_columns(tables: Tables) -> dict[str, str]:
    """Say what the columns of the short table are, by the beginnings of their names."""
    return {
        "bound": "first distance at which the sum of cosines is negative",
        "quarter_rotation": "distance at which the slowest pair has turned by 90 degrees",
        "maximum_distance": f"farthest distance with a recall of at least {FAILS:g}",
        "accuracy": (
            "recall, averaged over the distances at which the bound predicts failure, or"
            " over all distances if it predicts none"
        ),
        "text_difference": (
            "loss of text above that with the largest base, in the second half of the"
            " window, in nats per byte"
        ),
    }


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table of the predictions: a row per base and task. If only text
    was measured, return the table of text losses.
    """
    table = tables["predictions"]
    if table.empty:
        return tables["text_nll"].head(12)
    table = table.rename(columns=SHORT)
    columns = ["task", "base", *SHORT.values()]
    return table[columns].head(12)
