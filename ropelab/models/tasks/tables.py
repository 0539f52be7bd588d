"""From the values of tasks to tables with 95 % intervals, the same in all experiments.

text_nll
    loss by bucket of positions, mean over documents: one causal pass over each
last_window
    loss of the same final tokens (512, or a quarter of the trained length if that is
    less), which are part of context_tokens, as it grows; mean over documents
text_by_kind
    loss after the longest context, a row per kind of document
text_by_document
    the same for every document, mean over the seeds
context_by_kind
    loss of the same final tokens inside the trained length, by kind, unmodified model
<task>_accuracy
    share of tokens found by distance and length of context; or of keys found and
    log-probability of the answer, by depth and context
comparisons
    every pair of rows under every metric

`losses` and `accuracies` are of one training seed: documents (sequences) are drawn
anew, the model is given; `over_seeds` is of all. The unit of retrieval is the context
(`sequence`), shared by all distances and keys that are asked for in it and by all rows:
its tokens succeed or fail together.
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

NLL = "nll_nats_per_byte"
LOG_PROBABILITY = "log_probability_nats"
MEASURES: dict[str, Measure] = {NLL: "loss", LOG_PROBABILITY: "log_probability"}
INTERVAL = ["ci_low", "ci_high"]
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]
PLACE = ["distance_tokens", "context_tokens"]
# The columns that identify rows, and those that identify comparisons.
ROW = ["method", "factor", "seed", "arm"]
ABOUT = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
KEYS = ("passkey", "multiquery", "indexing", "keyed")
OK = "ok"
Measured = Mapping[str, pd.DataFrame]
OF_TASK = "_accuracy"


def does_of(task: str) -> str:
    """Return the words for what a model does in a task."""
    return DOES.get(task, f"solves {task}")


def retrieval_of(tables: Tables) -> list[str]:
    """Return the retrieval tasks that tables are about, one's own last."""
    tasks = []
    for name in tables:
        if name.endswith(OF_TASK):
            tasks.append(name.removesuffix(OF_TASK))
    return sorted(tasks, key=lambda task: [*DOES, task].index(task))


def losses(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return means over documents, for each value of some columns.

    The other columns are documents, nll_nats_per_byte, ci_low and ci_high.
    """
    records = []
    for key, group in values.groupby(list(columns), sort=False):
        mean = mean_interval(group[NLL])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    return pd.DataFrame(records, columns=[*columns, "documents", NLL, *INTERVAL])


def accuracies(counts: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the shares found, for each value of some columns.

    The other columns are sequences, trials, accuracy, ci_low and ci_high.
    """
    records = []
    for key, group in counts.groupby(list(columns), sort=False):
        shares = (group["correct"] / group["trials"]).to_numpy()
        share = crossed_proportion(shares[None, :], int(group["trials"].iloc[0]))
        trials = int(group["trials"].sum())
        records.append((*key, len(group), trials, share.value, share.low, share.high))
    names = [*columns, "sequences", "trials", "accuracy", *INTERVAL]
    return pd.DataFrame(records, columns=names)


def per_unit(table: pd.DataFrame) -> pd.DataFrame:
    """Return losses of documents or shares of sequences, as `over_seeds` takes them."""
    if NLL in table:
        units = table.rename(columns={"document": "unit", NLL: "value"})
        return units.assign(trials=0)
    shares = table["correct"] / table["trials"]
    return table.rename(columns={"sequence": "unit"}).assign(value=shares)


def over_seeds(rows: pd.DataFrame) -> tuple[int, int, float, float, float]:
    """Return the numbers of seeds and units, the value, and its interval over both.

    `rows` has seed, unit, trials (of a share; 0 for a mean) and value, each seed with
    each unit.
    """
    values = rows.pivot(index="seed", columns="unit", values="value").to_numpy()
    seeds, units = values.shape
    trials = int(rows["trials"].iloc[0])
    if trials:
        result = crossed_proportion(values, trials)
    else:
        result = crossed_mean(values).interval()
    return seeds, units, result.value, result.low, result.high


def tables_of_tasks(
    measured: Mapping[str, Measured],
    config: Evaluated,
    plain: str,
    short: Sequence[int],
    status: Mapping[str, str],
) -> dict[str, pd.DataFrame]:
    """Return the tables that the head of this file describes.

    Only tasks that are OK are compared. `plain` leaves the model as it was trained. In
    the `short` contexts, inside the trained length, the loss of a method is its cost.
    `status` becomes a column of each task's tables.
    """
    tables: dict[str, pd.DataFrame] = {}
    decided: dict[str, Measured] = {}
    for task, values in measured.items():
        for name, table in _tables_of_task(task, values, config, plain).items():
            if task in status:
                table = table.assign(status=status[task])
            tables[name] = table.assign(train_len_tokens=config.train_len)
        if status.get(task, OK) == OK:
            decided[task] = values
    tables["comparisons"] = comparisons(decided, short, config.longest)
    return tables


def _tables_of_task(
    task: str, values: Measured, config: Evaluated, plain: str
) -> dict[str, pd.DataFrame]:
    if task == "text":
        return _tables_of_text(values, config, plain)
    if task in KEYS:
        return {f"{task}{OF_TASK}": _table_of_keys(values["answers"])}
    return {f"{task}{OF_TASK}": accuracies(values["trials"], [*ROW, *PLACE])}


def _table_of_keys(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of keys found, and the mean log-probability of the answers."""
    columns = [*ROW, "depth_percent", "context_tokens"]
    groups = answers.groupby(columns, sort=False)
    means = groups[["distance_tokens", LOG_PROBABILITY]].mean().reset_index()
    return accuracies(answers, columns).merge(means, on=columns)


def _tables_of_text(
    values: Measured, config: Evaluated, plain: str
) -> dict[str, pd.DataFrame]:
    last = values["last_window"]
    origins = config.text.origins(config.longest + 1, config.documents)
    documents = pd.DataFrame(origins, columns=["name", "kind"])
    documents = documents.rename_axis("document").reset_index()
    table = last.merge(documents, on="document")

    contexts = table["context_tokens"]
    longest = table[contexts == contexts.max()]
    is_inside = contexts <= config.train_len
    inside = table[is_inside & (table["method"] == plain)]

    single = ["document", "name", "kind", "method", "factor", "arm"]
    means = longest.groupby(single, sort=False)[NLL].agg(["size", "mean"]).reset_index()
    by_document = means.drop(columns="document")
    by_document = by_document.set_axis([*single[1:], "seeds", NLL], axis=1)

    tables = {
        "text_nll": losses(values["buckets"], [*ROW, *BUCKET]),
        "last_window": losses(last, [*ROW, "context_tokens"]),
        "text_by_kind": losses(longest, [*ROW, "kind"]),
        "text_by_document": by_document,
        "context_by_kind": losses(inside, [*ROW, "kind", "context_tokens"]),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def comparisons(
    measured: Mapping[str, Measured], short: Sequence[int], longest: int
) -> pd.DataFrame:
    """Compare all rows of each task under each of its metrics."""
    pairs: list[Pair] = []
    for task, values in measured.items():
        for metric in _metrics(task, values, short, longest):
            pairs += _pairs(metric)
    return compare(pairs, ABOUT)


class Metric(NamedTuple):
    """One measure of a task at one place, of all rows."""

    about: tuple[Hashable, ...]
    values: pd.DataFrame
    # The columns of units (documents, sequences) and of values.
    unit: str
    column: str


def _pairs(metric: Metric) -> Iterator[Pair]:
    """Yield the pairs of rows that are compared under a metric."""
    group = metric.values
    measure = MEASURES.get(metric.column, "share")
    trials = int(group["trials"].iloc[0]) if measure == "share" else 0

    labels = pd.Series(row_labels(group), group.index)
    by_row = {}
    for label, rows in group.groupby(labels, sort=False):
        by_row[str(label)] = rows.set_index(["seed", metric.unit])[metric.column]

    # A cache knows text that methods do not see, so that its easy discoveries are a
    # family apart from theirs. Those of a rounded row are apart, too: it is compared
    # with the same row without the rounding.
    apart = {*labels[group["arm"].isin((CACHE, ROUNDED))]}
    exact = _exact_rows(group)
    for a, b in combinations(by_row, 2):
        has_rounded = a in exact or b in exact
        if has_rounded and a != exact.get(b):
            continue
        family = (*metric.about, a in apart or b in apart)
        names = (*metric.about, a, b)
        yield Pair(names, by_row[a], by_row[b], (a, b), measure, family, trials)


def _exact_rows(group: pd.DataFrame) -> dict[str, str]:
    """Return for each rounded row the row without the rounding, by their labels."""
    rounded = group.loc[group["arm"] == ROUNDED, ["method", "factor"]]
    exact = {}
    for method, factor in rounded.drop_duplicates().itertuples(index=False):
        without, _, _ = method.partition(" + ")
        exact[method_label(method, factor)] = method_label(without, factor)
    return exact


def _metrics(
    task: str, measured: Measured, short: Sequence[int], longest: int
) -> Iterator[Metric]:
    """Yield the metrics of a task, each at each of its places."""
    if task == "text":
        for end, group in measured["buckets"].groupby("bucket_end_tokens"):
            yield Metric(("nll_bucket", end, end), group, "document", NLL)
        last = measured["last_window"]
        costs = [("nll_short_context", length) for length in short]
        for name, length in (("nll_last_window", longest), *costs):
            group = last[last["context_tokens"] == length]
            yield Metric((name, length, length), group, "document", NLL)
    elif task in KEYS:
        columns = {"accuracy": "accuracy", "log_probability": LOG_PROBABILITY}
        contexts = _average_over_keys(measured["answers"])
        for context, group in contexts.groupby("context_tokens"):
            for name, column in columns.items():
                about = (f"{task}_{name}", context, context)
                yield Metric(about, group, "sequence", column)
    else:
        trials = measured["trials"]
        shares = trials.assign(accuracy=trials["correct"] / trials["trials"])
        for place, group in shares.groupby(PLACE):
            name = f"{task}_accuracy"
            yield Metric((name, *place), group, "sequence", "accuracy")


def _average_over_keys(answers: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each context, which is the unit, however many keys it has."""
    groups = answers.groupby([*ROW, "context_tokens", "sequence"], sort=False)
    means = groups.agg(
        trials=("trials", "sum"),
        correct=("correct", "sum"),
        log_probability_nats=(LOG_PROBABILITY, "mean"),
    )
    return means.assign(accuracy=means["correct"] / means["trials"]).reset_index()


def by_label(table: pd.DataFrame, value: str) -> pd.Series:
    """Return the mean of a column for each label, in their order."""
    return table.groupby(row_labels(table), sort=False)[value].mean()


def sentences(
    findings: Sequence[str], comparisons: pd.DataFrame, more: Sequence[str] = ()
) -> str:
    """Return a sentence for each finding, then the counts of comparisons and more."""
    counts = significance(comparisons).removesuffix(".")
    return sentences_of([*findings, "; ".join([counts, *more])])
