"""The numbers of a run by name, as experiment trackers take them."""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any


def flatten_summary(summary: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Flatten the short table into numbers by name, as experiment trackers take them.

    A name such as `yarn ×4/copy @4096` has the name of the row and the name of the
    column. The name of a row consists of the texts before its first number. If the
    first column is a number, that number is the name. If two rows would have the same
    name, all names have more columns. Missing and infinite values are left out.

    >>> flatten_summary([{"method": "pi", "loss": 1.5}, {"method": "yarn", "loss": None}])
    {'pi/loss': 1.5}
    """
    # A row is a tuple of (column, value). Equal rows are kept once.
    rows = list(dict.fromkeys(tuple(row.items()) for row in summary))
    most_columns = max(map(len, rows), default=1)
    # The columns of each row that are not in its name, by the name.
    rest_by_name: dict[str, Any] = {}
    for fewest_columns in range(1, most_columns + 1):
        rest_by_name = {}
        for row in rows:
            texts = list(takewhile(_has_text, row))
            columns_of_name = max(fewest_columns, len(texts))
            head = row[:columns_of_name]
            name = "/".join(map(_write_item, head))
            rest_by_name[name] = row[columns_of_name:]
        names_differ = len(rest_by_name) == len(rows)
        if names_differ:
            break

    metrics = {}
    for name, other_columns in rest_by_name.items():
        for column, value in other_columns:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and math.isfinite(value):
                metrics[f"{name}/{column}"] = value
    return metrics


def _has_text(item: tuple[str, Any]) -> bool:
    """Return True for a column and its value if the value is a text."""
    _, value = item
    return isinstance(value, str)


def _write_item(item: tuple[str, Any]) -> str:
    """Write a column and its value as a part of a name; a text stands for itself."""
    column, value = item
    if isinstance(value, str):
        return value
    return f"{column}={value}"
