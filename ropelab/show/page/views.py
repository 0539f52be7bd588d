"""Tables for the page's script: kinds of columns, the first view, columns with their
titles.

Everything follows from the columns: their names, units and values. Where that guesses
badly, a table has a row in `joins.HINTS`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from ropelab.runs.labels import row_labels
from ropelab.runs.tables import unit_of
from ropelab.show.page.joins import HINTS, UNDRAWN, WORDS, View

# Counts say how much was measured: not a finding, so never drawn first.
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
FIXED = {
    **dict.fromkeys(COUNTS, "count"),
    "seed": "repeat",
    "train_len_tokens": "setting",
}
# Columns of words that judge a row: not first chosen to make lines.
OUTCOMES = ("verdict", "status", "agrees", "measured")
# Numbers with so few values are choices; words with so many are not.
FEW = 12
MANY = 60
# Rows for each value of a number that is a choice, at least.
REPEATS = 3
# Points below which a table says more than a plot of it.
FEWEST = 4
# Characters of a word that can name a line.
SHORT = 48
# The name of a method with its factor and arm, which a table gets if it has those
# columns.
LABEL = "label"
# Whole numbers from here on are written with exponents by Python.
LARGE = 1e15


def add_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with labels of its rows, if they are methods with a factor and
    an arm.
    """
    has_methods = {"method", "factor", "arm"} <= set(table.columns)
    if has_methods and LABEL not in table.columns:
        return table.assign(**{LABEL: row_labels(table)})
    return table


def find_kinds(table: pd.DataFrame) -> dict[str, str]:
    """Return the kind of each column: key, measure, count, interval, repeat, setting or
    words.
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

    distinct = column.dropna().drop_duplicates()
    if not is_number(column):
        is_choice = 0 < len(distinct) <= MANY
        is_short = all(len(str(word)) <= SHORT for word in distinct)
        return "key" if is_choice and is_short else "words"

    is_place = name in ("pair", "position") or name.startswith("position_")
    if is_place or unit_of(name) == "tokens":
        return "key"
    is_repeated = len(distinct) <= FEW and len(column) >= REPEATS * len(distinct)
    is_whole = (distinct % 1 == 0).all()
    return "key" if is_repeated and is_whole else "measure"


def is_number(column: pd.Series) -> bool:
    """Return True if a column holds numbers; truth values are words."""
    if pd.api.types.is_bool_dtype(column):
        return False
    return pd.api.types.is_numeric_dtype(column)


def find_intervals(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the bounds of each measured column: they follow it, `..ci_low..` and
    `..ci_high..`.

    >>> find_intervals(["accuracy", "ci_low", "ci_high", "n"])
    {'accuracy': ('ci_low', 'ci_high')}
    """
    intervals = {}
    for name, low, high in zip(names, names[1:], names[2:], strict=False):
        if "ci_low" in low and "ci_high" in high:
            intervals[name] = (low, high)
    return intervals


def choose_view(
    name: str, table: pd.DataFrame, kinds: Mapping[str, str]
) -> View | None:
    """Return how the table of that name is first drawn; None if nothing in it can
    be.
    """
    view = _find_hint(name, kinds) or _derive_view(table, kinds)
    if view is None or len(table) < 2 or name in UNDRAWN:
        return None

    if table[view.x].nunique() == 1 and view.series:
        view = View(view.series[0], view.y, (), view.where)
    keys = []
    for column, kind in kinds.items():
        if kind == "key" and column not in OUTCOMES:
            keys.append(column)
    if not view.series and len(view.y) == 1:
        view = replace(view, series=_choose_series(table, view, keys, kinds))

    repeats = [column for column, kind in kinds.items() if kind == "repeat"]
    where, rows = _narrow(table, view, keys, repeats)
    known = rows.dropna(subset=[view.x, view.y[0]])
    points = known.drop_duplicates([view.x, *view.series])
    if len(points) * len(view.y) < FEWEST:
        return None
    return replace(view, where=where)


def _find_hint(name: str, kinds: Mapping[str, str]) -> View | None:
    """Return the first view of HINTS whose columns the table has."""
    for view in HINTS.get(name, ()):
        if view.columns() <= set(kinds):
            return view
    return None


def _derive_view(table: pd.DataFrame, kinds: Mapping[str, str]) -> View | None:
    """Draw the first measure, one with an interval if there is any, along the most
    varied key.
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
    drawn = (with_intervals or measures)[0]
    numbers = []
    for name in keys:
        if is_number(table[name]) and table[name].nunique() > 2:
            numbers.append(name)
    along = max(numbers or keys[:1], key=lambda name: table[name].nunique())
    return View(along, (drawn,))


def _choose_series(
    table: pd.DataFrame,
    view: View,
    keys: Sequence[str],
    kinds: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the column that makes the lines: the label if there is one, else the first
    key with a few values.
    """
    if LABEL in kinds:
        return (LABEL,)
    for key in keys:
        has_few_values = 2 <= table[key].nunique() <= 2 * FEW
        if has_few_values and key not in view.columns():
            return (key,)
    return ()


def _narrow(
    table: pd.DataFrame,
    view: View,
    keys: Sequence[str],
    repeats: Sequence[str],
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Choose values of keys so that no point stands for two different things.

    Returns the values, and the rows that have them.
    """
    where: dict[str, Any] = {}
    rows = table
    for key, value in view.where.items():
        has_value = rows[key].astype(str) == str(value)
        if has_value.any():
            where[key] = value
            rows = rows[has_value]

    identity = [view.x, *view.series, *repeats]
    for key in keys:
        values_at_point = rows.groupby(identity, dropna=False)[key].nunique()
        if values_at_point.gt(1).any():
            values = rows[key].dropna()
            where[key] = values.max() if unit_of(key) == "tokens" else values.iloc[0]
            rows = rows[rows[key].astype(str) == str(where[key])]
    return where, rows


def describe_table(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return one table as the script reads it: columns, their bounds, how it is first
    drawn.
    """
    table = add_labels(table)
    kinds = find_kinds(table)
    view = choose_view(name, table, kinds)
    description = None
    if view:
        choices = {column: _write_choice(value) for column, value in view.where.items()}
        description = asdict(replace(view, where=choices))
    return {
        "name": name,
        "title": _write_words(name),
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
        "unit": unit_of(name),
        "kind": kind,
    }
    if is_number(column):
        return about | {"values": [_shorten_number(value) for value in column.tolist()]}
    codes, distinct = pd.factorize(column)
    words = [_write_word(value) for value in distinct]
    return about | {"codes": codes.tolist(), "words": words}


def _write_choice(value: Any) -> str:
    if isinstance(value, str) or pd.api.types.is_bool(value):
        return _write_word(value)
    return str(_shorten_number(float(value)))


def _shorten_number(value: float) -> float | str | None:
    """Return a number as JSON can hold it, in as few characters as there are."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return str(value)
    # Fewer digits are shorter without a point.
    if float(value).is_integer() and abs(value) < LARGE:
        return int(value)
    return value


def _write_word(value: object) -> str:
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    return str(value)


def write_title(column: str) -> str:
    """Return a column's name as words, its unit in brackets.

    >>> [write_title(name) for name in ("nll_nats_per_byte", "distance_tokens", "n")]
    ['loss (nats per byte)', 'distance (tokens)', 'n']
    """
    unit = unit_of(column)
    if not unit:
        return WORDS.get(column) or _write_words(column)

    spelled = unit.replace("_", " ")
    plain = column.removesuffix(unit).rstrip("_")
    words = WORDS.get(plain) or _write_words(plain)
    if not words:
        return spelled
    return f"{words} ({spelled})"


def _write_words(name: str) -> str:
    return " ".join(WORDS.get(word, word) for word in name.split("_"))
