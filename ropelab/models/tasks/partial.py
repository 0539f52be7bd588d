"""The short table that is shown while a run goes on, from the cells that are finished.

A cell is a piece of a run. Only cells that evaluate one task under one method count
here.
"""

from collections.abc import Iterable

import pandas as pd

from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.tables import NLL, ROW
from ropelab.runs.cell import Cell
from ropelab.runs.labels import label_method
from ropelab.runs.tables import EarlyTable, Tables

# What the numbers of the table are.
NOTE = "means in the longest context, without intervals"


def summarize_finished(finished: Iterable[tuple[Cell, Tables]]) -> EarlyTable | None:
    """Return a row per method and a column per task, as far as cells are finished.

    The values are losses (nats per byte) and shares of symbols that were found, in the
    longest context. They are means over the documents and models that are finished,
    without intervals. None: no such cell is finished.
    """
    records = []
    for cell, tables in finished:
        if not isinstance(cell, Evaluation):
            continue
        labels = dict(cell.labels)
        has_labels_of_rows = set(ROW) <= set(labels)
        sums = _sum_longest(tables)
        # Comparisons of casts have other labels, and undecidable tasks no values.
        if sums is None or not has_labels_of_rows:
            continue
        context, total, count = sums
        method = str(labels["method"])
        factor = float(str(labels["factor"]))
        arm = str(labels["arm"])
        # The columns have other names than in the finished table, since that table has
        # losses by position and shares by distance.
        column = "loss" if cell.task.name == "text" else cell.task.name
        label = label_method(method, factor, arm)
        records.append((label, f"{column} in {context}", total, count))
    if not records:
        return None

    rows = pd.DataFrame(records, columns=["method", "column", "total", "count"])
    groups = rows.groupby(["method", "column"], sort=False)
    totals = groups[["total", "count"]].sum()
    means = (totals["total"] / totals["count"]).unstack()
    # Methods and columns come in the order in which their first cells were finished.
    methods = rows["method"].unique()
    columns = rows["column"].unique()
    table = means.loc[methods, columns].rename_axis(columns=None).reset_index()
    return EarlyTable(table, NOTE)


def _sum_longest(tables: Tables) -> tuple[int, float, int] | None:
    """Sum up what a finished task measured in its longest context.

    Return the length of that context, the sum of losses and their number, or else the
    number of successes and of trials. None: the task has neither.
    """
    for name in ("last_window", "trials", "answers"):
        if name not in tables:
            continue
        rows = tables[name]
        context = int(rows["context_tokens"].max())
        in_longest = rows[rows["context_tokens"] == context]
        if NLL in in_longest:
            return context, float(in_longest[NLL].sum()), len(in_longest)
        successes = float(in_longest["correct"].sum())
        trials = int(in_longest["trials"].sum())
        return context, successes, trials
    return None
