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
FEW, MANY = 12, 60
# Points below which a table says more than a plot of it.
FEWEST = 4
# Characters of a word that can name a line.
SHORT = 48
# The name of a method with its factor and arm, which a table gets if it has those
# columns.
LABEL = "label"


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with labels of its rows, if they are methods with a factor and
    an arm.
    """
    if {"method", "factor", "arm"} <= set(table.columns) and LABEL not in table.columns:
        return table.assign(**{LABEL: row_labels(table)})
    return table


def kinds_of(table: pd.DataFrame) -> dict[str, str]:
    """Return the kind of each column: key, measure, count, interval, repeat, setting or
    words.
    """
    kinds = {str(name): _kind(column) for name, column in table.items()}
    bounds = [name for pair in intervals(list(kinds)).values() for name in pair]
    return kinds | dict.fromkeys(bounds, "interval")


def _kind(column: pd.Series) -> str:
    name, distinct = str(column.name), column.dropna().drop_duplicates()
    if name in FIXED:
        return FIXED[name]
    if not is_number(column):
        few = 0 < len(distinct) <= MANY
        return (
            "key"
            if few and all(len(str(word)) <= SHORT for word in distinct)
            else "words"
        )
    if (
        unit_of(name) == "tokens"
        or name in ("pair", "position")
        or name.startswith("position_")
    ):
        return "key"
    repeated = len(distinct) <= FEW and len(column) >= 3 * len(distinct)
    return "key" if repeated and (distinct % 1 == 0).all() else "measure"


def is_number(column: pd.Series) -> bool:
    """Return True if a column holds numbers; truth values are words."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(
        column
    )


def intervals(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the bounds of each measured column: they follow it, `..ci_low..` and
    `..ci_high..`.

    >>> intervals(["accuracy", "ci_low", "ci_high", "n"])
    {'accuracy': ('ci_low', 'ci_high')}
    """
    triples = zip(names, names[1:], names[2:], strict=False)
    return {name: (a, b) for name, a, b in triples if "ci_low" in a and "ci_high" in b}


def view_of(name: str, table: pd.DataFrame, kinds: Mapping[str, str]) -> View | None:
    """Return how the table of that name is first drawn; None if nothing in it can
    be.
    """
    fitting = (view for view in HINTS.get(name, ()) if view.columns() <= set(kinds))
    view = next(fitting, None) or _derived(table, kinds)
    if view is None or len(table) < 2 or name in UNDRAWN:
        return None
    if table[view.x].nunique() == 1 and view.series:
        view = View(view.series[0], view.y, (), view.where)
    keys = [key for key, kind in kinds.items() if kind == "key" and key not in OUTCOMES]
    if not view.series and len(view.y) == 1:
        # The label makes the lines if there is one, else the first key with a few
        # values.
        few = [key for key in keys if 2 <= table[key].nunique() <= 2 * FEW]
        by = (
            [LABEL]
            if LABEL in kinds
            else [key for key in few if key not in view.columns()]
        )
        view = replace(view, series=tuple(by[:1]))
    # Narrowed to so few rows that no point is of two different things.
    where, rows = dict[str, Any](), table
    for key, value in view.where.items():
        if (rows[key].astype(str) == str(value)).any():
            where[key], rows = value, rows[rows[key].astype(str) == str(value)]
    identity = [
        view.x,
        *view.series,
        *(key for key, kind in kinds.items() if kind == "repeat"),
    ]
    for key in keys:
        if rows.groupby(identity, dropna=False)[key].nunique().gt(1).any():
            values = rows[key].dropna()
            where[key] = values.max() if unit_of(key) == "tokens" else values.iloc[0]
            rows = rows[rows[key].astype(str) == str(where[key])]
    drawn = rows.dropna(subset=[view.x, view.y[0]]).drop_duplicates(
        [view.x, *view.series]
    )
    return replace(view, where=where) if len(drawn) * len(view.y) >= FEWEST else None


def _derived(table: pd.DataFrame, kinds: Mapping[str, str]) -> View | None:
    """Draw the first measure, one with an interval if there is any, along the most
    varied key.
    """
    measures = [name for name, kind in kinds.items() if kind == "measure"]
    known = [name for name in intervals(list(kinds)) if name in measures]
    keys = [
        name
        for name, kind in kinds.items()
        if kind == "key" and table[name].nunique() > 1
    ]
    numbers = [
        name for name in keys if is_number(table[name]) and table[name].nunique() > 2
    ]
    if not measures or not keys:
        return None
    along = max(numbers or keys[:1], key=lambda name: table[name].nunique())
    return View(along, ((known or measures)[0],))


def for_script(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return one table as the script reads it: columns, their bounds, how it is first
    drawn.
    """
    table = labelled(table)
    kinds = kinds_of(table)
    view = view_of(name, table, kinds)
    choices = (
        {column: _choice(value) for column, value in view.where.items()} if view else {}
    )
    return {
        "name": name,
        "title": " ".join(WORDS.get(word, word) for word in name.split("_")),
        "rows": len(table),
        "columns": [_column(table[column], kinds[column]) for column in kinds],
        "bounds": intervals(list(kinds)),
        "view": asdict(replace(view, where=choices)) if view else None,
    }


def _column(column: pd.Series, kind: str) -> dict[str, Any]:
    name = str(column.name)
    about = {"name": name, "title": title_of(name), "unit": unit_of(name), "kind": kind}
    if is_number(column):
        return about | {"values": [_number(value) for value in column.tolist()]}
    codes, distinct = pd.factorize(column)
    return about | {
        "codes": codes.tolist(),
        "words": [_word(value) for value in distinct],
    }


def _choice(value: Any) -> str:
    is_word = isinstance(value, str) or pd.api.types.is_bool(value)
    return _word(value) if is_word else str(_number(float(value)))


def _number(value: float) -> float | str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    # 1e15 and more are written with exponents; fewer digits are shorter without a
    # point.
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else value


def _word(value: object) -> str:
    return ("yes" if value else "no") if pd.api.types.is_bool(value) else str(value)


def title_of(column: str) -> str:
    """Return a column's name as words, its unit in brackets.

    >>> title_of("nll_nats_per_byte"), title_of("distance_tokens"), title_of("accuracy")
    ('loss (nats per byte)', 'distance (tokens)', 'accuracy')
    """
    unit = unit_of(column)
    plain = column.removesuffix(unit).rstrip("_") if unit else column
    words = WORDS.get(plain) or " ".join(
        WORDS.get(word, word) for word in plain.split("_")
    )
    spelled = (unit or "").replace("_", " ")
    return f"{words} ({spelled})" if words and unit else words or spelled
