"""The rows that lead a question: the row with the best mean, and all rows that are not
shown to be worse.

A question is about one measurement, such as the text loss at 8192 tokens, and a row is
what is measured, such as a method. Comparisons decide which rows differ; the means alone
do not. Answers, titles of figures, bold print in tables, pages and exports all use this
file. Otherwise one of them could name a winner where another says that no row has won.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ropelab.runs.comparisons import list_rivals

# The loss, in nats per byte, of a model that gives all 256 bytes the same probability.
# Models with a higher loss have not learned to read, so their order means nothing.
UNIFORM_LOSS = math.log(256)

# The loss of the last tokens of a text, read in contexts of several lengths. The column
# `nll @N` is another number, the loss of all tokens between two positions, up to N.
LAST_LOSS = "last_nll"
# The metrics of comparisons that are about such a loss: in the longest context, and in a
# shorter one.
LAST_LOSS_METRICS = ("nll_last_window", "nll_short_context")

# Prefixes of the names of columns with losses, where lower is better.
LOSS_PREFIXES = ("nll", LAST_LOSS, "text")
# Prefixes of the names of columns with shares, where higher is better.
SHARE_PREFIXES = (
    "accuracy",
    "copy",
    "associative",
    "most_recent",
    "passkey",
    "multiquery",
    "indexing",
    "keyed",
)


@dataclass(frozen=True)
class Lead:
    """The row with the best mean, and how the other rows compare with it."""

    # The row with the best mean, and that mean.
    first: str
    value: float
    # The rows that are not significantly different from the first.
    tied: tuple[str, ...]
    # The number of rows that are significantly worse than the first.
    beaten: int
    # The number of rows that are not compared with the first.
    uncompared: int

    @property
    def is_shown(self) -> bool:
        """True if the first row is significantly better than some other row."""
        return self.beaten > 0

    @property
    def names(self) -> tuple[str, ...]:
        """The rows that lead together: the first row and all rows tied with it. Empty
        if the first row is not compared with every other row, or is better than no
        other row.
        """
        if not self.is_shown or self.uncompared:
            return ()
        return (self.first, *self.tied)


def find_lead(
    means: Mapping[str, float] | pd.Series,
    comparisons: pd.DataFrame,
    about: Mapping[str, Hashable],
    *,
    lower_is_better: bool,
) -> Lead | None:
    """Return the row that leads, or None if the rows are not ranked.

    Rows are not ranked if the table is empty, or if the lowest loss is no better than
    guessing.

    Args:
        means: the mean of each row, by its name in the comparisons.
        comparisons: the table of a run, with two names and a verdict in each row.
        about: the question: the values that columns of a comparison must have.
        lower_is_better: True for losses, in nats per byte.
    """
    values = pd.Series(means, dtype=float).dropna()
    if values.empty:
        return None

    first = str(values.idxmin() if lower_is_better else values.idxmax())
    value = float(values[first])
    if lower_is_better and value >= UNIFORM_LOSS:
        return None

    # The comparisons of the first row with another row that answer the question.
    pairs = name_both_sides(comparisons)
    has_first = (pairs[["method_a", "method_b"]] == first).any(axis=1)
    pairs_of_first = pairs[has_first]
    for column, required_value in about.items():
        pairs_of_first = pairs_of_first[pairs_of_first[column] == required_value]

    other_rows = set(map(str, values.index)) - {first}
    compared_rows = _list_names(pairs_of_first) & other_rows
    uncompared_rows = other_rows - compared_rows
    rivals = list_rivals(first, pairs_of_first, {})
    tied_rows = tuple(name for name in rivals if name in other_rows)
    won_pairs = pairs_of_first[pairs_of_first["verdict"] == first]
    beaten_rows = _list_names(won_pairs) & other_rows
    return Lead(first, value, tied_rows, len(beaten_rows), len(uncompared_rows))


def _list_names(pairs: pd.DataFrame) -> set[str]:
    """Return the names of all rows that are compared in some pairs."""
    return set(pairs["method_a"]) | set(pairs["method_b"])


def name_both_sides(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons with the names of the two rows in `method_a` and `method_b`.

    In the tables of some experiments these columns have other names, such as `encoding_a`
    and `encoding_b`.
    """
    if comparisons.empty:
        return pd.DataFrame(columns=["method_a", "method_b", "verdict"])
    for side in ("a", "b"):
        if f"method_{side}" in comparisons:
            continue
        (name,) = [
            column for column in map(str, comparisons) if column.endswith(f"_{side}")
        ]
        comparisons = comparisons.rename(columns={name: f"method_{side}"})
    return comparisons


def find_leads(summary: pd.DataFrame, comparisons: pd.DataFrame) -> dict[str, Lead]:
    """Return the lead of each column of a summary, as far as comparisons show a lead.

    The first column has the names of the rows. Every other column is named after a task
    and a number of tokens or a multiple of the trained length: `copy @4096`, `nll @8192`,
    `last_nll @8192`, `text 4x`.
    """
    leads: dict[str, Lead] = {}
    if summary.empty or comparisons.empty or "metric" not in comparisons:
        return leads

    names = summary.iloc[:, 0].astype(str)
    for column in map(str, summary.columns[1:]):
        is_loss = column.startswith(LOSS_PREFIXES)
        is_share = column.startswith(SHARE_PREFIXES)
        question = _find_question(column, comparisons)
        if question is None or not (is_loss or is_share):
            continue
        means = pd.Series(summary[column].to_numpy(), index=names)
        lead = find_lead(means, comparisons, question, lower_is_better=is_loss)
        if lead is not None and lead.is_shown:
            leads[column] = lead
    return leads


def is_compared(column: str, comparisons: pd.DataFrame) -> bool:
    """Return True if comparisons decide who leads a column of a summary."""
    return _find_question(column, comparisons) is not None


def _list_metrics(task: str) -> tuple[str, ...]:
    """Return the metrics of comparisons that may be about a column `task @N`."""
    if task == "nll":
        return ("nll_bucket",)
    if task == LAST_LOSS:
        return LAST_LOSS_METRICS
    return (f"{task}_accuracy",)


def _find_question(column: str, comparisons: pd.DataFrame) -> dict[str, Any] | None:
    """Return the question of a summary's column: the values that the comparisons about
    it have, by the name of their column. None if no comparison is about it.
    """
    # The name of a column ends with `@4096` (tokens) or `4x` (the trained length).
    task, _, length = column.partition(" ")
    if length.startswith("@") and length[1:].isdigit() and "at_tokens" in comparisons:
        tokens = int(length[1:])
        for metric in _list_metrics(task):
            has_metric = comparisons["metric"] == metric
            is_about_column = has_metric & (comparisons["at_tokens"] == tokens)
            if is_about_column.any():
                context = int(comparisons.loc[is_about_column, "context_tokens"].max())
                return {
                    "metric": metric,
                    "at_tokens": tokens,
                    "context_tokens": context,
                }
        return None

    if length.endswith("x") and "times_trained_len" in comparisons:
        for metric in sorted(set(comparisons["metric"])):
            if str(metric).startswith(task):
                return {"metric": metric, "times_trained_len": int(length[:-1])}
    return None
