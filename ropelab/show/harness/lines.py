"""Any run as results: every line of a measured table at every place is a task of its own."""

from collections.abc import Iterator, Mapping

import pandas as pd
from scipy import stats

from ropelab.runs.stats import mean_interval
from ropelab.show.harness.document import Metric, Task
from ropelab.show.page.columns import labelled
from ropelab.show.page.views import intervals, kinds_of, views_of
from ropelab.show.terminal import format_value

Z95 = 1.959963984540054
"""Half-width of a 95 % interval in standard errors, for intervals of many samples."""


def tasks_of(experiment: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[Task]:
    """`<experiment>/<table>/<line>@<place>`, each with one metric.

    The standard error is over seeds where there are several, else from the 95 % interval. Tables
    without intervals or seeds measure nothing.
    """
    for name, table in tables.items():
        for place, metric, rows, bounds in _places(name, labelled(table)):
            value, error = _estimate(rows, metric, bounds)
            yield Task(
                name=f"{experiment}/{name}/{place}",
                metrics={metric: Metric(value=value, error=error)},
                samples=len(rows),
            )


def _places(
    name: str, table: pd.DataFrame
) -> Iterator[tuple[str, str, pd.DataFrame, tuple[str, str] | None]]:
    """Line and place, the measured column, its rows there, and the columns of its interval."""
    view = views_of(name, table)
    if view is None or len(view.y) != 1:
        return
    bounds = intervals([str(column) for column in table.columns]).get(view.y[0])
    if bounds is None and "repeat" not in kinds_of(table).values():
        return
    keys = [*view.where, *view.series, view.x]
    for values, rows in table.groupby(keys, sort=False):
        *line, at = (format_value(value) for value in values)
        yield f"{','.join(line)}@{at}", view.y[0], rows.dropna(subset=view.y[0]), bounds


def _estimate(
    rows: pd.DataFrame, metric: str, bounds: tuple[str, str] | None
) -> tuple[float | None, float | None]:
    """Mean and standard error; an empty group has neither."""
    if rows.empty:
        return None, None
    mean = mean_interval(rows[metric])
    if mean.n > 1:
        return mean.value, float(rows[metric].to_numpy(dtype=float).std(ddof=1)) / mean.n**0.5
    if bounds is None or rows[list(bounds)].isna().any(axis=None):
        return mean.value, None
    low, high = rows[list(bounds)].to_numpy(dtype=float)[0]
    return mean.value, float(high - low) / (2 * _errors_of_half(rows))


def _errors_of_half(rows: pd.DataFrame) -> float:
    """Half of the interval in standard errors: Student's for a mean over a few documents."""
    if "documents" not in rows:
        return Z95
    return float(stats.t.ppf(0.975, rows["documents"].iloc[0] - 1))
