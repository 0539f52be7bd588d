"""From a config to tables: train what is not trained yet, measure every row, make intervals.

text_nll       loss by bucket of positions, mean over documents: one causal pass over each
last_window    loss of the same final tokens after growing contexts, mean over documents
copy_accuracy, recall_accuracy   share of tokens copied, or values recalled, by distance and context
comparisons    every pair of rows under every metric
orderings      the orderings that were published, beside those measured
"""

from collections.abc import Iterator
from itertools import combinations

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.orderings import orderings
from ropelab.experiments.extrapolate.plan import questions
from ropelab.labels import row_labels
from ropelab.trials.cells import ask_all, train_all
from ropelab.trials.comparisons import Pair, compared, difference
from ropelab.trials.tables import BUCKET, NLL, PLACE, accuracies, losses

ROW = ["method", "factor", "seed", "arm"]


def run(config: ExtrapolateConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; the head of this file says what each table holds."""
    asked = questions(config)
    train_all(asked, context)
    tables: dict[str, pd.DataFrame] = {}
    pairs: list[Pair] = []
    for task in config.tasks:
        measured = ask_all([each for each in asked if each.trial.name == task], context)
        if task == "text":
            tables["text_nll"] = losses(measured["buckets"], [*ROW, *BUCKET])
            tables["last_window"] = losses(measured["last_window"], [*ROW, "context_tokens"])
            pairs += text_pairs(**measured, train_len=config.train_len, test_len=config.test_len)
        else:
            tables[f"{task}_accuracy"] = accuracies(measured["trials"], [*ROW, *PLACE])
            pairs += retrieval_pairs(f"{task}_accuracy", measured["trials"])
    for name, table in tables.items():
        tables[name] = table.assign(trained_len_tokens=config.train_len)
    both = compared(pairs, ["metric", "at_tokens", "context_tokens", "method_a", "method_b"])
    ordered = orderings(both, config.train_len, config.test_len, config.tuned_len)
    return {**tables, "comparisons": both, "orderings": ordered}


def text_pairs(
    buckets: pd.DataFrame, last_window: pd.DataFrame, train_len: int, test_len: int
) -> Iterator[Pair]:
    """Loss in every bucket, loss of the last window, and loss at the trained length.

    The last one is the tax: what a method costs where none was needed.
    """
    for end, group in buckets.groupby("bucket_end_tokens"):
        yield from _pairs(("nll_bucket", end, end), group, "document", NLL)
    for name, length in (("nll_last_window", test_len), ("nll_short_context", train_len)):
        group = last_window[last_window["context_tokens"] == length]
        yield from _pairs((name, length, length), group, "document", NLL)


def retrieval_pairs(name: str, counts: pd.DataFrame) -> Iterator[Pair]:
    """Accuracy at every distance and context."""
    shares = counts.assign(accuracy=counts["correct"] / counts["trials"])
    for place, group in shares.groupby(PLACE):
        yield from _pairs((name, *place), group, "sequence", "accuracy")


def _pairs(about: tuple, values: pd.DataFrame, unit: str, column: str) -> Iterator[Pair]:
    """Every pair of rows, each row once, in their order."""
    labels = row_labels(values)
    by_row = {
        label: rows.set_index(["seed", unit])[column]
        for label, rows in values.groupby(pd.Series(labels, values.index), sort=False)
    }
    for a, b in combinations(map(str, by_row), 2):
        gap = difference(by_row[a], by_row[b])
        yield Pair((*about, a, b), gap, (a, b), smaller_is_better=column == NLL)
