"""Columns with the ends of intervals, and cells that show a value with its interval."""

import math
from collections.abc import Sequence

import pandas as pd

from ropelab.runs.sentences import write_with_interval

# The sentence below a table whose cells have intervals.
NOTE = (
    "[low, high]: interval of 95 % (docs/methods.md). Rows are compared by their"
    " differences, which may be certain although intervals overlap."
)


def find_intervals(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return, for each column whose values have intervals, the columns of the lower and
    the upper ends.

    These are the next two columns, with `ci_low` and `ci_high` in their names.

    >>> find_intervals(["accuracy", "ci_low", "ci_high", "n"])
    {'accuracy': ('ci_low', 'ci_high')}
    """
    intervals = {}
    for name, low, high in zip(names, names[1:], names[2:], strict=False):
        if "ci_low" in low and "ci_high" in high:
            intervals[name] = (low, high)
    return intervals


def find_ends(names: Sequence[str]) -> set[str]:
    """Return the columns that have the ends of intervals.

    >>> sorted(find_ends(["accuracy", "ci_low", "ci_high", "n"]))
    ['ci_high', 'ci_low']
    """
    ends: set[str] = set()
    for interval in find_intervals(names).values():
        ends.update(interval)
    return ends


def join_intervals(table: pd.DataFrame, says_missing: bool = False) -> pd.DataFrame:
    """Return the table with each interval in the cell of its value, as a text.

    A value without an interval stays as it is, since exact values need none. In a table
    without exact values `says_missing` puts words beside it.

    >>> table = pd.DataFrame({"loss": [1.5, 2.0], "ci_low": [1, None], "ci_high": [2, None]})
    >>> join_intervals(table, says_missing=True)["loss"].tolist()
    ['1.50 [1.00, 2.00]', '2 [no interval]']
    """
    names = [str(name) for name in table.columns]
    for value, (low_name, high_name) in find_intervals(names).items():
        cells: list[object] = []
        for row in table[[value, low_name, high_name]].itertuples(index=False):
            number, low, high = row
            has_interval = pd.notna(low) and pd.notna(high)
            if pd.isna(number):
                cells.append(number)
            elif has_interval:
                cells.append(write_with_interval(number, low, high))
            elif says_missing:
                cells.append(write_with_interval(number, math.nan, math.nan))
            else:
                cells.append(number)

        column = pd.Series(cells, index=table.index, dtype=object)
        table = table.assign(**{value: column}).drop(columns=[low_name, high_name])
    return table
