"""Tables for the page's script: by column, words written once, and every column with its title."""

import math
from typing import Any

import pandas as pd

from ropelab.runs.labels import row_labels
from ropelab.runs.tables import unit_of
from ropelab.show.page.views import LABEL, View, intervals, is_number, kinds_of, views_of

WORDS = {
    "nll": "loss",
    "label": "method, factor and arm",
    "ci_low": "95 % interval, low",
    "ci_high": "95 % interval, high",
    "n": "n",
    "rms": "root mean square",
    "len": "length",
    "freq": "frequency",
    "inv_freq": "frequency",
}


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the label of its rows, where they are methods with a factor and an arm."""
    if {"method", "factor", "arm"} <= set(table.columns) and LABEL not in table.columns:
        return table.assign(**{LABEL: row_labels(table)})
    return table


def for_script(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """One table as the script reads it: columns, how it is first drawn, whose bounds are where."""
    table = labelled(table)
    kinds, view = kinds_of(table), views_of(name, table)
    return {
        "name": name,
        "title": " ".join(WORDS.get(word, word) for word in name.split("_")),
        "rows": len(table),
        "columns": [_column(table[column], kinds[column]) for column in kinds],
        "bounds": intervals(list(kinds)),
        "view": None if view is None else _plain(view),
    }


def _plain(view: View) -> dict[str, Any]:
    where = {name: _choice(value) for name, value in view.where.items()}
    return {"x": view.x, "y": view.y, "series": view.series, "where": where}


def _choice(value: Any) -> str:
    """A value as the script writes it among the choices of its column."""
    is_word = isinstance(value, str) or pd.api.types.is_bool(value)
    return _word(value) if is_word else str(_number(float(value)))


def _column(column: pd.Series, kind: str) -> dict[str, Any]:
    name = str(column.name)
    about = {"name": name, "title": title_of(name), "unit": unit_of(name), "kind": kind}
    if is_number(column):
        return about | {"values": [_number(value) for value in column.tolist()]}
    codes, distinct = pd.factorize(column)
    return about | {"codes": codes.tolist(), "words": [_word(value) for value in distinct]}


def _number(value: float) -> float | str | None:
    """A number as JSON has it: missing is null, infinite a word."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        if value.is_integer() and abs(value) < 1e15:
            return int(value)
    return value


def _word(value: object) -> str:
    return ("yes" if value else "no") if pd.api.types.is_bool(value) else str(value)


def title_of(column: str) -> str:
    """A column's name as words, its unit in brackets.

    >>> title_of("nll_nats_per_byte"), title_of("distance_tokens"), title_of("accuracy")
    ('loss (nats per byte)', 'distance (tokens)', 'accuracy')
    """
    unit = unit_of(column)
    plain = column.removesuffix(unit).rstrip("_") if unit else column
    words = WORDS.get(plain) or " ".join(WORDS.get(word, word) for word in plain.split("_"))
    if not unit:
        return words
    spelled = unit.replace("_", " ")
    return f"{words} ({spelled})" if words else spelled
