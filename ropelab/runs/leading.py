"""Which rows lead a question: comparisons decide it, not the better mean alone.

Answers, titles of figures, bold print in tables, pages and exports ask this file, so
that none of them names a winner where another says that there is none.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ropelab.runs.comparisons import rivals_of

# Nats per byte of a model that gives all 256 bytes the same probability. Models that
# read worse than this have not learned to read, so their order means nothing.
UNIFORM = math.log(256)

# Parts of the names of columns in which less is better, and in which more is.
LOSSES = ("nll", "text")
SHARES = (
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
    """The row with the best mean, and those that it is not shown to be better than."""

    first: str
    value: float
    tied: tuple[str, ...]
    beaten: int  # rows that it is shown to be better than
    uncompared: int  # rows that nothing compares it with

    @property
    def is_shown(self) -> bool:
        """Whether comparisons show it to be better than some other row."""
        return self.beaten > 0

    @property
    def names(self) -> tuple[str, ...]:
        """The rows that lead together; none where nothing is shown of all others."""
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
    """Return what leads, None where nothing is ranked.

    Args:
        means: by the name that comparisons use.
        comparisons: the table of a run, with two names and a verdict in each row.
        about: the question and the place, by the columns of comparisons.
        lower_is_better: for losses, in nats per byte. Losses that are no better than
            guessing are not ranked.
    """
    values = pd.Series(means, dtype=float).dropna()
    if values.empty:
        return None

    first = str(values.idxmin() if lower_is_better else values.idxmax())
    value = float(values[first])
    if lower_is_better and value >= UNIFORM:
        return None

    pairs = with_methods(comparisons)
    compared = pairs[(pairs[["method_a", "method_b"]] == first).any(axis=1)]
    for column, wanted in about.items():
        compared = compared[compared[column] == wanted]
    others = set(map(str, values.index)) - {first}
    met = (set(compared["method_a"]) | set(compared["method_b"])) & others
    tied = tuple(name for name in rivals_of(first, compared, {}) if name in others)
    lost = compared[compared["verdict"] == first]
    beaten = (set(lost["method_a"]) | set(lost["method_b"])) & others
    return Lead(first, value, tied, len(beaten), len(others - met))


def with_methods(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons of whatever is compared, its names as `method_a`, `method_b`."""
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


def leads_by_column(
    summary: pd.DataFrame, comparisons: pd.DataFrame
) -> dict[str, Lead]:
    """Return what leads each column of a summary whose rows are compared.

    Columns are named after their question and place (`copy @4096`, `nll @8192`, `text
    4x`); the first one has the names of the rows.
    """
    leads: dict[str, Lead] = {}
    if summary.empty or comparisons.empty or "metric" not in comparisons:
        return leads

    names = summary.iloc[:, 0].astype(str)
    for column in map(str, summary.columns[1:]):
        is_loss = column.startswith(LOSSES)
        place = _find_place(column, comparisons)
        if place is None or not (is_loss or column.startswith(SHARES)):
            continue
        means = pd.Series(summary[column].to_numpy(), index=names)
        lead = find_lead(means, comparisons, place, lower_is_better=is_loss)
        if lead is not None and lead.is_shown:
            leads[column] = lead
    return leads


def is_compared(column: str, comparisons: pd.DataFrame) -> bool:
    """Return True if comparisons decide who leads a column of a summary."""
    return _find_place(column, comparisons) is not None


def _find_place(column: str, comparisons: pd.DataFrame) -> dict[str, Any] | None:
    """Return the columns of comparisons that a column's name stands for."""
    task, _, place = column.partition(" ")
    if place.startswith("@") and place[1:].isdigit() and "at_tokens" in comparisons:
        metric = "nll_bucket" if task == "nll" else f"{task}_accuracy"
        tokens = int(place[1:])
        is_here = (comparisons["metric"] == metric) & (
            comparisons["at_tokens"] == tokens
        )
        if not is_here.any():
            return None
        context = int(comparisons.loc[is_here, "context_tokens"].max())
        return {"metric": metric, "at_tokens": tokens, "context_tokens": context}

    if place.endswith("x") and "times_trained_len" in comparisons:
        for metric in sorted(set(comparisons["metric"])):
            if str(metric).startswith(task):
                return {"metric": metric, "times_trained_len": int(place[:-1])}
    return None
