"""Describe tables for the JavaScript of the page of runs: the kind of each column, and
the first view.

A view is a way to draw a table. It says which column is along the axis, which column is
drawn, and which column makes the lines: one line for each of its values. The view follows
from the names, units and values of the columns. If that view is a poor one for a table,
joins.toml has a hint.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from ropelab.runs.labels import label_rows
from ropelab.runs.tables import find_unit
from ropelab.show.intervals import find_intervals
from ropelab.show.page.joins import HINTS, UNDRAWN, WORDS, View

# The columns that count how much was measured. They are not findings, and are never drawn
# first.
COUNTS = (
    "n",
    "documents",
    "sequences",
    "trials",
    "draws",
    "seeds",
    "neighbours",
    "positions",
)
# The kinds of columns that are known by their names.
FIXED = {
    **dict.fromkeys(COUNTS, "count"),
    "seed": "repeat",
    "train_len_tokens": "setting",
}
# Columns of words that judge a row. They do not make the lines of the first view.
OUTCOMES = ("verdict", "status", "agrees", "measured")
# A key is a column whose values are choices, such as methods or lengths. A column of whole
# numbers is a key if it has at most MOST_NUMBERS different values, and on average at
# least FEWEST_ROWS rows for each value. A column of words is a key if it has at most
# MOST_WORDS different values.
MOST_NUMBERS = 12
FEWEST_ROWS = 3
MOST_WORDS = 60
# The fewest points of a plot. With fewer points a table says more than a plot.
FEWEST_POINTS = 4
# The most characters of a word that names a line.
LONGEST_WORD = 48
# The column with the name of a method, its factor and its arm, which is added to tables
# that have these three.
LABEL = "label"
# Whole numbers from this one on are sent as floats, which are shorter with an exponent than
# with all their digits.
LEAST_SENT_AS_FLOAT = 1e15


def add_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with labels of its rows, if its rows are methods."""
    has_methods = {"method", "factor", "arm"} <= set(table.columns)
    if has_methods and LABEL not in table.columns:
        return table.assign(**{LABEL: label_rows(table)})
    return table


def find_kinds(table: pd.DataFrame) -> dict[str, str]:
    """Return the kind of each column.

    key: its values are choices. measure: a measured number. count: how much was measured.
    interval: one end of the interval of the measure before it. repeat: the seed. setting:
    a value that is the same for all rows. words: all other texts.
    """
    kinds = {str(name): _find_kind(column) for name, column in table.items()}
    for low, high in find_intervals(list(kinds)).values():
        kinds[low] = "interval"
        kinds[high] = "interval"
    return kinds


def _find_kind(column: pd.Series) -> str:
    name = str(column.name)
    if name in FIXED:
        return FIXED[name]

    distinct_values = column.dropna().drop_duplicates()
    count = len(distinct_values)
    if not is_number(column):
        is_choice = 0 < count <= MOST_WORDS
        is_short = all(len(str(word)) <= LONGEST_WORD for word in distinct_values)
        return "key" if is_choice and is_short else "words"

    is_index = name in ("pair", "position") or name.startswith("position_")
    if is_index or find_unit(name) == "tokens":
        return "key"
    is_repeated = count <= MOST_NUMBERS and len(column) >= FEWEST_ROWS * count
    is_whole = (distinct_values % 1 == 0).all()
    return "key" if is_repeated and is_whole else "measure"


def is_number(column: pd.Series) -> bool:
    """Return True if a column holds numbers; truth values are words."""
    if pd.api.types.is_bool_dtype(column):
        return False
    return pd.api.types.is_numeric_dtype(column)


def choose_view(
    name: str, table: pd.DataFrame, kinds: Mapping[str, str]
) -> View | None:
    """Return how a table is first drawn; None if it is not drawn."""
    view = _find_hint(name, kinds) or _derive_view(table, kinds)
    if view is None or len(table) < 2 or name in UNDRAWN:
        return None

    # If the column along the axis has a single value, the column that would make the
    # lines is put along the axis instead.
    if table[view.x].nunique() == 1 and view.series:
        view = View(view.series[0], view.y, (), view.where)
    keys = []
    for column, kind in kinds.items():
        if kind == "key" and column not in OUTCOMES:
            keys.append(column)
    if not view.series and len(view.y) == 1:
        view = replace(view, series=_choose_series(table, view, keys, kinds))

    repeats = [column for column, kind in kinds.items() if kind == "repeat"]
    where, rows = _select_rows(table, view, keys, repeats)
    rows_with_values = rows.dropna(subset=[view.x, view.y[0]])
    points = rows_with_values.drop_duplicates([view.x, *view.series])
    if len(points) * len(view.y) < FEWEST_POINTS:
        return None
    return replace(view, where=where)


def _find_hint(name: str, kinds: Mapping[str, str]) -> View | None:
    """Return the first view of HINTS whose columns the table has."""
    for view in HINTS.get(name, ()):
        if view.columns() <= set(kinds):
            return view
    return None


def _derive_view(table: pd.DataFrame, kinds: Mapping[str, str]) -> View | None:
    """Return a view that draws the first measure along the key with most values.

    Measures with an interval, and keys of numbers, are preferred. None: the table has no
    measure, or no key.
    """
    measures = []
    keys = []
    for name, kind in kinds.items():
        if kind == "measure":
            measures.append(name)
        elif kind == "key" and table[name].nunique() > 1:
            keys.append(name)
    if not measures or not keys:
        return None

    intervals = find_intervals(list(kinds))
    with_intervals = [name for name in intervals if name in measures]
    drawn_measure = (with_intervals or measures)[0]
    keys_of_numbers = []
    for name in keys:
        # Two numbers make a poor axis.
        if is_number(table[name]) and table[name].nunique() > 2:
            keys_of_numbers.append(name)
    if keys_of_numbers:
        axis_key = max(keys_of_numbers, key=lambda name: table[name].nunique())
    else:
        axis_key = keys[0]
    return View(axis_key, (drawn_measure,))


def _choose_series(
    table: pd.DataFrame,
    view: View,
    keys: Sequence[str],
    kinds: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the column that makes the lines: the label, or the first key with a few
    values. If the result is empty, the plot has one line.
    """
    if LABEL in kinds:
        return (LABEL,)
    for key in keys:
        has_few_values = 2 <= table[key].nunique() <= 2 * MOST_NUMBERS
        if has_few_values and key not in view.columns():
            return (key,)
    return ()


def _select_rows(
    table: pd.DataFrame,
    view: View,
    keys: Sequence[str],
    repeats: Sequence[str],
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Choose values of keys such that the rows at one point of the view have the same
    values of all keys.

    Returns the values by key, and the rows that have these values.
    """
    where: dict[str, Any] = {}
    rows = table
    for key, value in view.where.items():
        has_value = rows[key].astype(str) == str(value)
        if has_value.any():
            where[key] = value
            rows = rows[has_value]

    columns_of_point = [view.x, *view.series, *repeats]
    for key in keys:
        values_at_point = rows.groupby(columns_of_point, dropna=False)[key].nunique()
        if values_at_point.gt(1).any():
            values = rows[key].dropna()
            # Of lengths the longest one is chosen, of other keys the first value.
            if find_unit(key) == "tokens":
                where[key] = values.max()
            else:
                where[key] = values.iloc[0]
            rows = rows[rows[key].astype(str) == str(where[key])]
    return where, rows


def describe_table(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return one table as the script reads it: its columns, bounds and first view."""
    table = add_labels(table)
    kinds = find_kinds(table)
    view = choose_view(name, table, kinds)

    description = None
    if view:
        choices = {column: _write_choice(value) for column, value in view.where.items()}
        description = asdict(replace(view, where=choices))

    return {
        "name": name,
        "title": _spell_name(name),
        "rows": len(table),
        "columns": [
            _describe_column(table[name], kind) for name, kind in kinds.items()
        ],
        "bounds": find_intervals(list(kinds)),
        "view": description,
    }


def _describe_column(column: pd.Series, kind: str) -> dict[str, Any]:
    name = str(column.name)
    about = {
        "name": name,
        "title": write_title(name),
        "unit": find_unit(name),
        "kind": kind,
    }
    if is_number(column):
        return about | {"values": [_shorten_number(value) for value in column.tolist()]}
    # Each word is sent once, and the rows have the number of their word.
    codes, distinct_values = pd.factorize(column)
    words = [_write_word(value) for value in distinct_values]
    return about | {"codes": codes.tolist(), "words": words}


def _write_choice(value: Any) -> str:
    if isinstance(value, str) or pd.api.types.is_bool(value):
        return _write_word(value)
    return str(_shorten_number(float(value)))


def _shorten_number(value: float) -> float | str | None:
    """Return a number as JSON can hold it, such that it has few characters there."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return str(value)
    # 3 is shorter than 3.0.
    if float(value).is_integer() and abs(value) < LEAST_SENT_AS_FLOAT:
        return int(value)
    return value


def _write_word(value: object) -> str:
    """Return a value of a column of words as the page shows it."""
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    return str(value)


def write_title(column: str) -> str:
    """Return the name of a column as words, with its unit in brackets.

    >>> [write_title(name) for name in ("nll_nats_per_byte", "distance_tokens", "n")]
    ['loss (nats per byte)', 'distance (tokens)', 'n']
    """
    unit = find_unit(column)
    if not unit:
        return WORDS.get(column) or _spell_name(column)

    unit_words = unit.replace("_", " ")
    name = column.removesuffix(unit).rstrip("_")
    words = WORDS.get(name) or _spell_name(name)
    if not words:
        return unit_words
    return f"{words} ({unit_words})"


def _spell_name(name: str) -> str:
    """Return the name of a table or a column as words."""
    return " ".join(WORDS.get(word, word) for word in name.split("_"))
