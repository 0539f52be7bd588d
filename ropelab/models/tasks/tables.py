"""The tables of the results of models in tasks. All experiments have the same tables.

Values have 95 % intervals, whose ends are the columns ci_low and ci_high. The tables are:

text_nll
    The loss by bucket of positions, a mean over documents. Each document is read in one
    causal pass.
last_window
    The loss of the final tokens of a document, a mean over documents, for contexts of
    growing length that end with these tokens. The number of final tokens is 512, or a
    quarter of the trained length if that is less.
text_by_kind
    The loss of the final tokens after the longest context, a row per kind of document.
text_by_document
    The loss of the final tokens after the longest context for each document, a mean over
    the seeds.
context_by_kind
    The loss of the final tokens in contexts inside the trained length, by kind of
    document, for the unmodified model.
<task>_accuracy
    The share of tokens that were recalled, by distance and length of context. For tasks
    that ask for a value by its key, the share of keys whose value was recalled, and the
    log-probability of the values, by depth and length of context.
comparisons
    Every pair of rows under every metric.

A value is a mean over units: documents for text, contexts (column `sequence`) for
retrieval. All distances and keys that a context asks for belong to one unit, since they
succeed or fail together. The intervals of `average_losses` and `average_shares` are
about one training seed: they say what other units would give with the same model. The
interval of `average_over_seeds` says what other seeds would give, too.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import pandas as pd

from ropelab.models.tasks.config import DOES, TASKS_WITH_KEYS, EvaluationConfig
from ropelab.runs.comparisons import Measure, Pair, compare, describe_significance
from ropelab.runs.labels import CACHE, ROUNDED, label_method, label_rows
from ropelab.runs.sentences import join_sentences, write_with_interval
from ropelab.runs.stats import (
    FEWEST_UNITS,
    Interval,
    average_crossed,
    average_crossed_shares,
    average_samples,
)
from ropelab.runs.tables import Tables

# The column of losses.
NLL = "nll_nats_per_byte"
# The column of the log-probabilities of the right answers.
LOG_PROBABILITY = "log_probability_nats"
# The measures of these two columns. All other columns that are compared are shares.
MEASURES: dict[str, Measure] = {NLL: "loss", LOG_PROBABILITY: "log_probability"}
# The columns with the ends of an interval.
INTERVAL = ["ci_low", "ci_high"]
# The columns of a bucket of positions: its first position, and the position after its
# last.
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]
# The columns of a place at which retrieval is measured: how far back the token stood that
# was asked for, and the length of the context.
PLACE = ["distance_tokens", "context_tokens"]
# The columns that identify a row: a method with its factor on a model of one seed. The
# arm says how the model was trained or evaluated, such as zero_shot or finetuned.
ROW = ["method", "factor", "seed", "arm"]
# The columns that identify a comparison.
COMPARISON = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
# The status of a task whose rows are compared.
OK = "ok"
# The results of a task, by the name of the table that its cells made. A table has a row
# for each unit.
TaskValues = Mapping[str, pd.DataFrame]
# A table of retrieval has the name of the task with this ending.
ACCURACY = "_accuracy"


def describe_success(task: str) -> str:
    """Say what a model does that solves a task, such as `copies`."""
    return DOES.get(task, f"solves {task}")


def list_retrieval_tasks(tables: Tables) -> list[str]:
    """Return the retrieval tasks of which there is a table, in the order of `DOES`.

    Tasks that the user has written are not in DOES, and come last.
    """
    tasks = []
    for name in tables:
        if name.endswith(ACCURACY):
            tasks.append(name.removesuffix(ACCURACY))

    known_tasks = list(DOES)

    def find_place(task: str) -> int:
        if task in known_tasks:
            return known_tasks.index(task)
        return len(known_tasks)

    return sorted(tasks, key=find_place)


def average_losses(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the mean loss over documents, for each combination of values of `columns`.

    Args:
        values: a loss for each document, in the column nll_nats_per_byte.
        columns: the columns that identify a row of the result. The result has them, the
            number of documents, and the mean with its interval.
    """
    records = []
    for key, group in values.groupby(list(columns), sort=False):
        mean = average_samples(group[NLL])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    return pd.DataFrame(records, columns=[*columns, "documents", NLL, *INTERVAL])


def average_shares(counts: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the share of successes, for each combination of values of `columns`.

    Args:
        counts: the numbers `correct` of `trials` for each sequence.
        columns: the columns that identify a row of the result. The result has them, the
            numbers of sequences and trials, and the share (accuracy) with its interval.
    """
    records = []
    for key, group in counts.groupby(list(columns), sort=False):
        shares = (group["correct"] / group["trials"]).to_numpy()
        # All sequences have the same number of trials.
        trials_per_sequence = int(group["trials"].iloc[0])
        # The shares of a single seed are a matrix with one row, [seeds, sequences].
        share = average_crossed_shares(shares[None, :], trials_per_sequence)
        trials = int(group["trials"].sum())
        records.append((*key, len(group), trials, share.value, share.low, share.high))
    names = [*columns, "sequences", "trials", "accuracy", *INTERVAL]
    return pd.DataFrame(records, columns=names)


def list_units(table: pd.DataFrame) -> pd.DataFrame:
    """Return losses of documents, or shares of sequences, for `average_over_seeds`.

    The columns `unit`, `value` and `trials` are added to the columns of the table.
    """
    if NLL in table:
        units = table.rename(columns={"document": "unit", NLL: "value"})
        return units.assign(trials=0)
    shares = table["correct"] / table["trials"]
    return table.rename(columns={"sequence": "unit"}).assign(value=shares)


def average_over_seeds(rows: pd.DataFrame) -> tuple[int, int, float, float, float]:
    """Average values over seeds and units.

    Args:
        rows: a row for each seed and unit, with the columns seed, unit, value and trials
            (the number that each value is a share of; 0 for losses).

    Returns:
        The number of seeds, the number of units, the mean, and the ends of its interval
        over seeds and units.
    """
    values = rows.pivot(index="seed", columns="unit", values="value").to_numpy()
    seeds, units = values.shape
    trials = int(rows["trials"].iloc[0])
    is_share = trials > 0
    if is_share:
        result = average_crossed_shares(values, trials)
    else:
        result = average_crossed(values).compute_interval()
    return seeds, units, result.value, result.low, result.high


def make_tables(
    values_by_task: Mapping[str, TaskValues],
    config: EvaluationConfig,
    baseline: str,
    short_contexts: Sequence[int],
    status: Mapping[str, str],
) -> dict[str, pd.DataFrame]:
    """Return the tables that the head of this file describes.

    Args:
        values_by_task: the results of each task.
        config: the configuration of the run.
        baseline: the name of the method that leaves the model as it was trained.
        short_contexts: lengths of contexts inside the trained length, in tokens. Methods
            are compared there, too, since a higher loss there is the cost of a method.
        status: for some tasks the value of the column `status` in their tables. The rows
            of a task are compared if its status is OK, or if it has none.
    """
    tables: dict[str, pd.DataFrame] = {}
    compared_values: dict[str, TaskValues] = {}
    for task, values in values_by_task.items():
        for name, table in _make_tables_of_task(task, values, config, baseline).items():
            if task in status:
                table = table.assign(status=status[task])
            tables[name] = table.assign(train_len_tokens=config.train_len)
        if status.get(task, OK) == OK:
            compared_values[task] = values
    tables["comparisons"] = compare_rows(
        compared_values, short_contexts, config.longest
    )
    return tables


def _make_tables_of_task(
    task: str, values: TaskValues, config: EvaluationConfig, baseline: str
) -> dict[str, pd.DataFrame]:
    """Return the tables of one task, by name."""
    if task == "text":
        return _make_tables_of_text(values, config, baseline)
    if task in TASKS_WITH_KEYS:
        table = _average_answers(values["answers"])
    else:
        table = average_shares(values["trials"], [*ROW, *PLACE])
    return {f"{task}{ACCURACY}": table}


def _average_answers(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the share of keys whose value was recalled, by depth and context.

    The mean log-probability of the values is in a separate column.
    """
    columns = [*ROW, "depth_percent", "context_tokens"]
    groups = answers.groupby(columns, sort=False)
    means = groups[["distance_tokens", LOG_PROBABILITY]].mean().reset_index()
    return average_shares(answers, columns).merge(means, on=columns)


def _make_tables_of_text(
    values: TaskValues, config: EvaluationConfig, baseline: str
) -> dict[str, pd.DataFrame]:
    """Return the tables of losses that have rows, by name."""
    last_windows = values["last_window"]
    # The longest context has one more token, because the token after the context is
    # predicted, too.
    origins = config.text.origins(config.longest + 1, config.documents)
    documents = pd.DataFrame(origins, columns=["name", "kind"])
    documents = documents.rename_axis("document").reset_index()
    table = last_windows.merge(documents, on="document")

    contexts = table["context_tokens"]
    in_longest = table[contexts == contexts.max()]
    is_inside = contexts <= config.train_len
    inside_of_plain = table[is_inside & (table["method"] == baseline)]

    # Two documents may have the same name, so the number of the document is a key, too.
    keys = ["document", "name", "kind", "method", "factor", "arm"]
    groups = in_longest.groupby(keys, sort=False)[NLL]
    by_document = groups.agg(["size", "mean"]).reset_index()
    by_document = by_document.drop(columns="document")
    by_document = by_document.rename(columns={"size": "seeds", "mean": NLL})

    tables = {
        "text_nll": average_losses(values["buckets"], [*ROW, *BUCKET]),
        "last_window": average_losses(last_windows, [*ROW, "context_tokens"]),
        "text_by_kind": average_losses(in_longest, [*ROW, "kind"]),
        "text_by_document": by_document,
        "context_by_kind": average_losses(
            inside_of_plain, [*ROW, "kind", "context_tokens"]
        ),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def compare_rows(
    values_by_task: Mapping[str, TaskValues],
    short_contexts: Sequence[int],
    longest: int,
) -> pd.DataFrame:
    """Compare all rows of each task under each of its metrics.

    A metric is a measure of a task at one place, such as the loss in one bucket.

    Args:
        values_by_task: the results of each task.
        short_contexts: lengths of contexts inside the trained length, in tokens.
        longest: the length of the longest context, in tokens.
    """
    pairs: list[Pair] = []
    for task, values in values_by_task.items():
        for metric in _list_metrics(task, values, short_contexts, longest):
            pairs += _list_pairs(metric)
    return compare(pairs, COMPARISON)


class Metric(NamedTuple):
    """One measure of a task at one place, with the values of all rows."""

    # The values of metric, at_tokens and context_tokens, which identify it.
    about: tuple[Hashable, ...]
    values: pd.DataFrame
    # The name of the column of units: document or sequence.
    unit: str
    # The name of the column of values.
    column: str


def _list_pairs(metric: Metric) -> Iterator[Pair]:
    """Yield the pairs of rows that are compared under a metric."""
    group = metric.values
    measure = MEASURES.get(metric.column, "share")
    trials = 0
    if measure == "share":
        trials = int(group["trials"].iloc[0])

    labels = _label_rows(group)
    values_by_row = {}
    for label, rows in group.groupby(labels, sort=False):
        values_by_row[str(label)] = rows.set_index(["seed", metric.unit])[metric.column]

    # All comparisons of a family are tested together, and easily decided comparisons
    # let more of the remaining comparisons count as different. A row with a cache knows
    # text that methods do not see, so that its comparisons are easily decided: they are
    # a separate family. Comparisons with a rounded row compare no methods either, and
    # belong to the same separate family.
    separate_labels = set(labels[group["arm"].isin((CACHE, ROUNDED))])
    exact_of_rounded = _find_exact_rows(group)
    for a, b in combinations(values_by_row, 2):
        # A rounded row is compared only with the same row without the rounding, which
        # comes before it.
        has_rounded = a in exact_of_rounded or b in exact_of_rounded
        if has_rounded and a != exact_of_rounded.get(b):
            continue
        is_separate = a in separate_labels or b in separate_labels
        family = (*metric.about, is_separate)
        about = (*metric.about, a, b)
        values_a = values_by_row[a]
        values_b = values_by_row[b]
        yield Pair(about, values_a, values_b, (a, b), measure, family, trials)


def _find_exact_rows(group: pd.DataFrame) -> dict[str, str]:
    """Return, by the label of a rounded row, the label of the row without rounding."""
    rounded = group.loc[group["arm"] == ROUNDED, ["method", "factor"]]
    exact_of_rounded = {}
    for method, factor in rounded.drop_duplicates().itertuples(index=False):
        # The name of a rounded row is `<method> + <rounding>`.
        exact_method, _, _ = method.partition(" + ")
        exact_label = label_method(exact_method, factor)
        exact_of_rounded[label_method(method, factor)] = exact_label
    return exact_of_rounded


def _list_metrics(
    task: str, values: TaskValues, short_contexts: Sequence[int], longest: int
) -> Iterator[Metric]:
    """Yield each metric of a task at each of its places."""
    if task == "text":
        yield from _list_metrics_of_text(values, short_contexts, longest)
    elif task in TASKS_WITH_KEYS:
        columns = {"accuracy": "accuracy", "log_probability": LOG_PROBABILITY}
        contexts = _average_over_keys(values["answers"])

        for context, group in contexts.groupby("context_tokens"):
            for name, column in columns.items():
                about = (f"{task}_{name}", context, context)
                yield Metric(about, group, "sequence", column)
    else:
        trials = values["trials"]
        shares = trials.assign(accuracy=trials["correct"] / trials["trials"])

        for place, group in shares.groupby(PLACE):
            name = f"{task}{ACCURACY}"
            yield Metric((name, *place), group, "sequence", "accuracy")


def _list_metrics_of_text(
    values: TaskValues, short_contexts: Sequence[int], longest: int
) -> Iterator[Metric]:
    """Yield the loss in each bucket, and of the final tokens after some contexts."""
    for end, group in values["buckets"].groupby("bucket_end_tokens"):
        yield Metric(("nll_bucket", end, end), group, "document", NLL)

    last_windows = values["last_window"]
    contexts = [("nll_last_window", longest)]
    contexts += [("nll_short_context", length) for length in short_contexts]
    for name, length in contexts:
        group = last_windows[last_windows["context_tokens"] == length]
        yield Metric((name, length, length), group, "document", NLL)


def _average_over_keys(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over the keys of each context: a row per model and context."""
    groups = answers.groupby([*ROW, "context_tokens", "sequence"], sort=False)
    means = groups.agg(
        trials=("trials", "sum"),
        correct=("correct", "sum"),
        log_probability_nats=(LOG_PROBABILITY, "mean"),
    )
    return means.assign(accuracy=means["correct"] / means["trials"]).reset_index()


def _label_rows(table: pd.DataFrame) -> pd.Series:
    """Return the label of each row, by which the rows can be grouped.

    The labels are a Series: pandas would read a list as several keys to group by.
    """
    return pd.Series(label_rows(table), table.index)


def average_with_intervals(table: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """Return the mean of a column for each label of rows, with its interval.

    With three or more seeds, the interval is over models, which all read the same texts
    and contexts. With one or two models, the interval is over texts and contexts, as the
    table has it.

    Args:
        table: a row per seed and label, or several rows, whose mean is taken.
        column: the column with the values.
        name: the name of the values in the result, and of the ends of their intervals.

    Returns:
        A row per label with the columns `name`, `name ci_low` and `name ci_high`.
    """
    rows_by_label = table.groupby(_label_rows(table), sort=False)
    intervals = {}
    for label, rows in rows_by_label:
        intervals[label] = _find_interval(rows, column)

    values = pd.DataFrame.from_dict(intervals, orient="index")
    values = values[["value", "low", "high"]]
    return values.set_axis([name, f"{name} ci_low", f"{name} ci_high"], axis=1)


def join_by_label(columns: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the short table of results that `average_with_intervals` made.

    Its rows are in the order in which labels first occur, and are named in the column
    `method`. A label that some results lack has no value there.
    """
    # `concat` may sort the labels, so their order is kept here.
    labels: dict[object, None] = {}
    for results in columns:
        labels |= dict.fromkeys(results.index)
    table = pd.concat(columns, axis=1).loc[list(labels)]
    return table.rename_axis("method").reset_index()


def write_mean(means: pd.DataFrame, label: str) -> str:
    """Write the mean of a label with its interval, if it has one.

    `means` is a result of `average_with_intervals`.
    """
    value, low, high = means.loc[[label]].to_numpy()[0]
    return write_with_interval(value, low, high)


def _find_interval(rows: pd.DataFrame, column: str) -> Interval:
    """Return the mean of the rows of one label with its interval, which may be nan."""
    value_of_seed = rows.groupby("seed", sort=False)[column].mean().to_numpy()
    mean = float(value_of_seed.mean())
    seeds = len(value_of_seed)
    if seeds < FEWEST_UNITS:
        # The rows are measured on the same texts and contexts, so that their errors may
        # go together. The standard error of their mean is then the mean of their standard
        # errors, and otherwise it is less. The mean ends are wide enough for both cases.
        low, high = rows[INTERVAL].to_numpy(dtype=float).mean(axis=0).tolist()
        return Interval(mean, low, high, len(rows))

    trials = 0
    is_share = "trials" in rows
    if is_share:
        trials = int(rows["trials"].iloc[0])
    over_models = average_crossed(value_of_seed[:, None], trials).compute_interval()
    low = over_models.low
    high = over_models.high
    if is_share:
        low = max(0.0, low)
        high = min(1.0, high)
    return Interval(mean, low, high, seeds)


def write_sentences(
    findings: Sequence[str], comparisons: pd.DataFrame, more: Sequence[str] = ()
) -> str:
    """Write the sentences of an answer.

    Args:
        findings: a text for each sentence but the last.
        comparisons: the comparisons; the last sentence counts the significant
            comparisons.
        more: texts that are added to the last sentence.
    """
    counts = describe_significance(comparisons).removesuffix(".")
    return join_sentences([*findings, "; ".join(filter(None, [counts, *more]))])
