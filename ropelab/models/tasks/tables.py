"""The tables of tasks with 95 % intervals, the same in all experiments.

text_nll
    The loss by bucket of positions, a mean over documents. Each document is read in one
    causal pass.
last_window
    The loss of the final tokens of a document, a mean over documents, for contexts of
    growing length that end with these tokens. There are 512 final tokens, or a quarter
    of the trained length if that is less.
text_by_kind
    The loss of the final tokens after the longest context, a row per kind of document.
text_by_document
    The same for each document, a mean over the seeds.
context_by_kind
    The loss of the final tokens in contexts inside the trained length, by kind of
    document, for the unmodified model.
<task>_accuracy
    The share of tokens that were recalled, by distance and length of context. For tasks
    with keys it is the share of keys, and the log-probability of the answer, by depth
    and length of context.
comparisons
    Every pair of rows under every metric.

Each value comes from units: documents for text, contexts (`sequence`) for retrieval.
All distances and keys that a context asks for belong to one unit, since its tokens
succeed or fail together. The intervals of `average_losses` and `average_shares` are
those of one training seed: they say what other units would give with the same model.
The interval of `average_over_seeds` is one over all seeds.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import pandas as pd

from ropelab.models.tasks.config import DOES, Evaluated
from ropelab.runs.comparisons import Measure, Pair, compare, significance
from ropelab.runs.labels import CACHE, ROUNDED, method_label, row_labels
from ropelab.runs.sentences import sentences_of
from ropelab.runs.stats import crossed_mean, crossed_proportion, mean_interval
from ropelab.runs.tables import Tables

# Columns of losses and of log-probabilities of answers.
NLL = "nll_nats_per_byte"
LOG_PROBABILITY = "log_probability_nats"
# What these columns measure. All other columns that are compared are shares.
MEASURES: dict[str, Measure] = {NLL: "loss", LOG_PROBABILITY: "log_probability"}
# The columns of an interval, of a bucket of positions, and of a place of retrieval.
INTERVAL = ["ci_low", "ci_high"]
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]
PLACE = ["distance_tokens", "context_tokens"]
# The columns that identify a row: a method with its factor on a model of one seed. The
# arm says how it was trained or evaluated, such as zero_shot or finetuned.
ROW = ["method", "factor", "seed", "arm"]
# The columns that identify a comparison.
ABOUT = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
# Tasks that ask for a value by its key.
KEYS = ("passkey", "multiquery", "indexing", "keyed")
# The status of a task whose rows are compared.
OK = "ok"
# The results of the cells of a task by the name of their table, with a row for each unit.
TaskValues = Mapping[str, pd.DataFrame]
# The name of a table of retrieval is the name of the task with this ending.
ACCURACY = "_accuracy"


def describe_success(task: str) -> str:
    """Return the words for what a model does that solves a task."""
    return DOES.get(task, f"solves {task}")


def retrieval_of(tables: Tables) -> list[str]:
    """Return the retrieval tasks that tables are about, in the order of `DOES`; tasks of
    the user come last.
    """
    tasks = []
    for name in tables:
        if name.endswith(ACCURACY):
            tasks.append(name.removesuffix(ACCURACY))
    # A task of the user is not in DOES, and gets the place after all of them.
    return sorted(tasks, key=lambda task: [*DOES, task].index(task))


def average_losses(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the mean loss over documents for each combination of values of `columns`.

    The other columns of the result are documents (their number), nll_nats_per_byte,
    ci_low and ci_high.
    """
    records = []
    for key, group in values.groupby(list(columns), sort=False):
        mean = mean_interval(group[NLL])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    return pd.DataFrame(records, columns=[*columns, "documents", NLL, *INTERVAL])


def average_shares(counts: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the share of successes for each combination of values of `columns`.

    The other columns of the result are sequences and trials (their numbers), accuracy,
    ci_low and ci_high.
    """
    records = []
    for key, group in counts.groupby(list(columns), sort=False):
        shares = (group["correct"] / group["trials"]).to_numpy()
        # All sequences have the same number of trials.
        trials_per_sequence = int(group["trials"].iloc[0])
        # The shares of a single seed are a matrix with one row, [seeds, sequences].
        share = crossed_proportion(shares[None, :], trials_per_sequence)
        trials = int(group["trials"].sum())
        records.append((*key, len(group), trials, share.value, share.low, share.high))
    names = [*columns, "sequences", "trials", "accuracy", *INTERVAL]
    return pd.DataFrame(records, columns=names)


def list_units(table: pd.DataFrame) -> pd.DataFrame:
    """Return losses of documents, or shares of sequences, as `average_over_seeds` takes
    them: with the columns `unit`, `value` and `trials`.
    """
    if NLL in table:
        units = table.rename(columns={"document": "unit", NLL: "value"})
        return units.assign(trials=0)
    shares = table["correct"] / table["trials"]
    return table.rename(columns={"sequence": "unit"}).assign(value=shares)


def average_over_seeds(rows: pd.DataFrame) -> tuple[int, int, float, float, float]:
    """Average values over seeds and units.

    `rows` has a row for each seed and unit, with the columns seed, unit, value and
    trials (the number that each value is a share of; 0 for losses).

    Returns:
        The number of seeds, the number of units, the mean, and the ends of its interval
        over seeds and units.
    """
    values = rows.pivot(index="seed", columns="unit", values="value").to_numpy()
    seeds, units = values.shape
    trials = int(rows["trials"].iloc[0])
    is_share = trials > 0
    if is_share:
        result = crossed_proportion(values, trials)
    else:
        result = crossed_mean(values).interval()
    return seeds, units, result.value, result.low, result.high


def tables_of_tasks(
    values_by_task: Mapping[str, TaskValues],
    config: Evaluated,
    plain: str,
    short: Sequence[int],
    status: Mapping[str, str],
) -> dict[str, pd.DataFrame]:
    """Return the tables that the head of this file describes.

    Args:
        values_by_task: the results of the cells of each task.
        config: that of the run.
        plain: the name of the method that leaves the model as it was trained.
        short: lengths of contexts inside the trained length. Methods are compared there,
            too, since a higher loss there is the cost of a method.
        status: a value for the column `status` of a task's tables. Rows of a task are
            compared if it is OK, or if the task has none.
    """
    tables: dict[str, pd.DataFrame] = {}
    compared: dict[str, TaskValues] = {}
    for task, values in values_by_task.items():
        for name, table in _tables_of_task(task, values, config, plain).items():
            if task in status:
                table = table.assign(status=status[task])
            tables[name] = table.assign(train_len_tokens=config.train_len)
        if status.get(task, OK) == OK:
            compared[task] = values
    tables["comparisons"] = comparisons(compared, short, config.longest)
    return tables


def _tables_of_task(
    task: str, values: TaskValues, config: Evaluated, plain: str
) -> dict[str, pd.DataFrame]:
    if task == "text":
        return _tables_of_text(values, config, plain)
    if task in KEYS:
        return {f"{task}{ACCURACY}": _table_of_keys(values["answers"])}
    return {f"{task}{ACCURACY}": average_shares(values["trials"], [*ROW, *PLACE])}


def _table_of_keys(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the share of keys that were recalled, and the mean log-probability of the
    answers.
    """
    columns = [*ROW, "depth_percent", "context_tokens"]
    groups = answers.groupby(columns, sort=False)
    means = groups[["distance_tokens", LOG_PROBABILITY]].mean().reset_index()
    return average_shares(answers, columns).merge(means, on=columns)


def _tables_of_text(
    values: TaskValues, config: Evaluated, plain: str
) -> dict[str, pd.DataFrame]:
    last = values["last_window"]
    origins = config.text.origins(config.longest + 1, config.documents)
    documents = pd.DataFrame(origins, columns=["name", "kind"])
    documents = documents.rename_axis("document").reset_index()
    table = last.merge(documents, on="document")

    contexts = table["context_tokens"]
    in_longest = table[contexts == contexts.max()]
    is_inside = contexts <= config.train_len
    inside_of_plain = table[is_inside & (table["method"] == plain)]

    # Two documents may have the same name, so the number of the document is a key, too.
    keys = ["document", "name", "kind", "method", "factor", "arm"]
    groups = in_longest.groupby(keys, sort=False)[NLL]
    by_document = groups.agg(["size", "mean"]).reset_index()
    by_document = by_document.drop(columns="document")
    by_document = by_document.rename(columns={"size": "seeds", "mean": NLL})

    tables = {
        "text_nll": average_losses(values["buckets"], [*ROW, *BUCKET]),
        "last_window": average_losses(last, [*ROW, "context_tokens"]),
        "text_by_kind": average_losses(in_longest, [*ROW, "kind"]),
        "text_by_document": by_document,
        "context_by_kind": average_losses(
            inside_of_plain, [*ROW, "kind", "context_tokens"]
        ),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def comparisons(
    values_by_task: Mapping[str, TaskValues], short: Sequence[int], longest: int
) -> pd.DataFrame:
    """Compare all rows of each task under each of its metrics.

    A metric is a measure of a task at one place, such as the loss in one bucket.
    """
    pairs: list[Pair] = []
    for task, values in values_by_task.items():
        for metric in _list_metrics(task, values, short, longest):
            pairs += _list_pairs(metric)
    return compare(pairs, ABOUT)


class Metric(NamedTuple):
    """One measure of a task at one place, with the values of all rows."""

    # The values of the first columns in ABOUT, which identify the metric.
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

    labels = pd.Series(row_labels(group), group.index)
    values_by_row = {}
    for label, rows in group.groupby(labels, sort=False):
        values_by_row[str(label)] = rows.set_index(["seed", metric.unit])[metric.column]

    # All comparisons of a family are tested together. Those with a cache are a family
    # apart. A cache knows text that methods do not see, and its easy discoveries would
    # make more methods count as different. Comparisons with a rounded row are in the
    # family of the caches.
    apart = set(labels[group["arm"].isin((CACHE, ROUNDED))])
    exact_of_rounded = _find_exact_rows(group)
    for a, b in combinations(values_by_row, 2):
        # A rounded row is compared only with the same row without the rounding, which
        # comes before it.
        has_rounded = a in exact_of_rounded or b in exact_of_rounded
        if has_rounded and a != exact_of_rounded.get(b):
            continue
        is_apart = a in apart or b in apart
        family = (*metric.about, is_apart)
        about = (*metric.about, a, b)
        values_a = values_by_row[a]
        values_b = values_by_row[b]
        yield Pair(about, values_a, values_b, (a, b), measure, family, trials)


def _find_exact_rows(group: pd.DataFrame) -> dict[str, str]:
    """Return for the label of each rounded row that of the row without the rounding."""
    rounded = group.loc[group["arm"] == ROUNDED, ["method", "factor"]]
    exact_of_rounded = {}
    for method, factor in rounded.drop_duplicates().itertuples(index=False):
        # The name of a rounded row is `<method> + <rounding>`.
        exact_method, _, _ = method.partition(" + ")
        exact = method_label(exact_method, factor)
        exact_of_rounded[method_label(method, factor)] = exact
    return exact_of_rounded


def _list_metrics(
    task: str, values: TaskValues, short: Sequence[int], longest: int
) -> Iterator[Metric]:
    """Yield the metrics of a task, each at each of its places."""
    if task == "text":
        yield from _list_metrics_of_text(values, short, longest)
    elif task in KEYS:
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
    values: TaskValues, short: Sequence[int], longest: int
) -> Iterator[Metric]:
    """Yield the loss in each bucket, and of the final tokens after some contexts."""
    for end, group in values["buckets"].groupby("bucket_end_tokens"):
        yield Metric(("nll_bucket", end, end), group, "document", NLL)

    last = values["last_window"]
    contexts = [("nll_last_window", longest)]
    contexts += [("nll_short_context", length) for length in short]
    for name, length in contexts:
        group = last[last["context_tokens"] == length]
        yield Metric((name, length, length), group, "document", NLL)


def _average_over_keys(answers: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each context, with the mean over the keys that it has."""
    groups = answers.groupby([*ROW, "context_tokens", "sequence"], sort=False)
    means = groups.agg(
        trials=("trials", "sum"),
        correct=("correct", "sum"),
        log_probability_nats=(LOG_PROBABILITY, "mean"),
    )
    return means.assign(accuracy=means["correct"] / means["trials"]).reset_index()


def average_by_label(table: pd.DataFrame, column: str) -> pd.Series:
    """Return the mean of a column for each label of rows, in the order of the table."""
    return table.groupby(row_labels(table), sort=False)[column].mean()


def write_sentences(
    findings: Sequence[str], comparisons: pd.DataFrame, more: Sequence[str] = ()
) -> str:
    """Write the sentences of an answer.

    They are one for each finding, and a last one with the number of significant
    comparisons, to which the texts `more` are added.
    """
    counts = significance(comparisons).removesuffix(".")
    return sentences_of([*findings, "; ".join([counts, *more])])
