"""Tables and comparisons of a run that tries methods beyond a trained length, task by task.

text_nll       loss by bucket of positions, mean over documents: one causal pass over each
last_window    loss of the same final tokens after growing contexts, mean over documents
text_by_kind, text_by_document, context_by_kind
               the same told apart: see `ropelab.models.tasks.documents`
copy_accuracy, hidden_accuracy, recall_accuracy, nearer_accuracy
               share of what was found again, by distance and length of context
passkey_accuracy, multiquery_accuracy
               share of keys found and log-probability of the answer, by depth and context
comparisons    every pair of rows under every metric
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import combinations

import pandas as pd

from ropelab.models.tasks.config import Evaluated
from ropelab.models.tasks.documents import told_apart
from ropelab.models.tasks.tables import BUCKET, NLL, PLACE, accuracies, losses
from ropelab.runs.comparisons import Pair, difference
from ropelab.runs.labels import row_labels

# The columns that tell rows apart, and those that tell comparisons apart.
ROW = ["method", "factor", "seed", "arm"]
ABOUT = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
DEPTH = ["depth_percent", "context_tokens"]
LOG_PROBABILITY = "log_probability_nats"
KEYS = ("passkey", "multiquery")
Measured = Mapping[str, pd.DataFrame]


def tables_of(
    task: str, measured: Measured, config: Evaluated, plain: Collection[str]
) -> dict[str, pd.DataFrame]:
    """Make the tables of a task that the head of this file describes.

    Args:
        measured: the values of all rows.
        plain: the methods that leave the model as it was trained.
    """
    if task == "text":
        origins = config.corpus_at().origins(config.longest + 1, config.documents)
        last = measured["last_window"]
        return {
            "text_nll": losses(measured["buckets"], [*ROW, *BUCKET]),
            "last_window": losses(last, [*ROW, "context_tokens"]),
            **told_apart(last, origins, ROW, plain, config.train_len),
        }
    if task not in KEYS:
        return {f"{task}_accuracy": accuracies(measured["trials"], [*ROW, *PLACE])}
    by = [*ROW, *DEPTH]
    means = measured["answers"].groupby(by, sort=False)[["distance_tokens", LOG_PROBABILITY]].mean()
    shares = accuracies(measured["answers"], by)
    return {f"{task}_accuracy": shares.merge(means.reset_index(), on=by)}


def pairs_of(task: str, measured: Measured, short: Sequence[int], longest: int) -> Iterator[Pair]:
    """Compare all rows of a task under each of its metrics.

    Args:
        short: contexts inside the trained length; a method's loss there is its tax: none was
            needed.
        longest: the tested length.
    """
    if task == "text":
        for end, group in measured["buckets"].groupby("bucket_end_tokens"):
            yield from _all_pairs(("nll_bucket", end, end), group, "document", NLL)
        last = measured["last_window"]
        tax = [("nll_short_context", length) for length in short]
        for name, length in (("nll_last_window", longest), *tax):
            group = last[last["context_tokens"] == length]
            yield from _all_pairs((name, length, length), group, "document", NLL)
    elif task in KEYS:
        answers = measured["answers"]
        # Over all depths and sequences of a context; each is a unit of its own.
        unit = answers["depth_percent"].astype(str) + " " + answers["sequence"].astype(str)
        for context, group in answers.assign(unit=unit).groupby("context_tokens"):
            about = (f"{task}_accuracy", context, context)
            yield from _all_pairs(about, group, "unit", "correct")
            about = (f"{task}_log_probability", context, context)
            yield from _all_pairs(about, group, "unit", LOG_PROBABILITY)
    else:
        trials = measured["trials"]
        shares = trials.assign(accuracy=trials["correct"] / trials["trials"])
        for place, group in shares.groupby(PLACE):
            yield from _all_pairs((f"{task}_accuracy", *place), group, "sequence", "accuracy")


def _all_pairs(
    about: tuple[Hashable, ...], values: pd.DataFrame, unit: str, column: str
) -> Iterator[Pair]:
    """Every pair of rows, each row once, in their order."""
    labels = row_labels(values)
    by_row = {
        label: rows.set_index(["seed", unit])[column]
        for label, rows in values.groupby(pd.Series(labels, values.index), sort=False)
    }
    for a, b in combinations(map(str, by_row), 2):
        gap = difference(by_row[a], by_row[b])
        yield Pair((*about, a, b), gap, (a, b), smaller_is_better=column == NLL)


def by_label(table: pd.DataFrame, value: str) -> pd.Series:
    """The mean of a column for each label, in their order."""
    return table.groupby(row_labels(table), sort=False)[value].mean()
