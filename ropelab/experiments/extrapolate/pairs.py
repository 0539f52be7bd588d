"""Which pairs of rows are compared, and by what."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

import pandas as pd

from ropelab.models.tasks.tables import NLL, PLACE
from ropelab.runs.comparisons import Pair, difference
from ropelab.runs.labels import row_labels

ROW = ["method", "factor", "seed", "arm"]
"""The columns that tell rows apart."""
ABOUT = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
"""The columns that tell comparisons apart."""


def text_pairs(
    buckets: pd.DataFrame, last_window: pd.DataFrame, short: Sequence[int], test_len: int
) -> Iterator[Pair]:
    """Loss in every bucket, loss of the last window, and loss after short contexts.

    Args:
        short: lengths inside the trained one; what a method costs there is its tax: none was
            needed.
    """
    for end, group in buckets.groupby("bucket_end_tokens"):
        yield from pairs_of(("nll_bucket", end, end), group, "document", NLL)
    tax = [("nll_short_context", length) for length in short]
    for name, length in (("nll_last_window", test_len), *tax):
        group = last_window[last_window["context_tokens"] == length]
        yield from pairs_of((name, length, length), group, "document", NLL)


def retrieval_pairs(name: str, counts: pd.DataFrame) -> Iterator[Pair]:
    """Accuracy at every distance and context."""
    shares = counts.assign(accuracy=counts["correct"] / counts["trials"])
    for place, group in shares.groupby(PLACE):
        yield from pairs_of((name, *place), group, "sequence", "accuracy")


def pairs_of(
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
