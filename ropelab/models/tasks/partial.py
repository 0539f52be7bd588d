"""The short table of a run that is not finished: what its finished cells tell so far."""

from collections.abc import Iterable

import pandas as pd

from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.tables import NLL, ROW
from ropelab.runs.cell import Cell
from ropelab.runs.labels import method_label
from ropelab.runs.tables import Tables


def summarize_finished(finished: Iterable[tuple[Cell, Tables]]) -> pd.DataFrame:
    """Return a row per method and a column per task, both as far as they are known.

    Losses (nats per byte) and shares found are those of the longest context: means over
    the documents and models that are done, without intervals.
    """
    records = []
    for cell, tables in finished:
        if not isinstance(cell, Evaluation):
            continue
        labels = dict(cell.labels)
        measured = _measure_longest(tables)
        # Comparisons of casts have other labels, and undecidable tasks no values.
        if measured is None or not set(ROW) <= set(labels):
            continue
        context, total, count = measured
        method, factor, arm = labels["method"], labels["factor"], labels["arm"]
        label = method_label(str(method), float(str(factor)), str(arm))
        # The finished table has losses by position and shares by distance, which have
        # other names.
        column = "loss" if cell.task.name == "text" else cell.task.name
        records.append((label, f"{column} in {context}", total, count))
    if not records:
        return pd.DataFrame()

    rows = pd.DataFrame(records, columns=["method", "column", "total", "count"])
    sums = rows.groupby(["method", "column"], sort=False)[["total", "count"]].sum()
    means = (sums["total"] / sums["count"]).unstack()
    methods = rows["method"].unique()
    columns = rows["column"].unique()
    return means.loc[methods, columns].rename_axis(columns=None).reset_index()


def _measure_longest(tables: Tables) -> tuple[int, float, int] | None:
    """Return the longest context of a finished task, and what was measured there: the
    sum and the number of losses, or of trials; None if the task has neither.
    """
    for name in ("last_window", "trials", "answers"):
        if name not in tables:
            continue
        rows = tables[name]
        context = int(rows["context_tokens"].max())
        longest = rows[rows["context_tokens"] == context]
        if NLL in longest:
            return context, float(longest[NLL].sum()), len(longest)
        return context, float(longest["correct"].sum()), int(longest["trials"].sum())
    return None
