"""How a table is first drawn: which column lies along the axis, which goes up, which make lines.

Everything follows from the columns: their names, units and values. Where that guesses badly, a
table has hints in HINTS; the first whose columns the table has is taken.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from ropelab.runs.tables import unit_of

COUNTS = ("n", "documents", "sequences", "trials", "draws", "seeds", "neighbours", "positions")
FEW, MANY = 12, 60
SHORT = 48
OUTCOMES = ("verdict", "status", "agrees", "differs", "result")
SETTING = "train_len_tokens"
LABEL = "label"
"""The name of a method with its factor and arm, which a table gets where it has those columns."""


@dataclass(frozen=True)
class View:
    """One way to draw a table.

    Attributes:
        x: the column along the axis.
        y: the columns drawn; more than one if they are compared with each other.
        series: the columns whose values make the lines.
        where: column to the value whose rows are drawn.
    """

    x: str
    y: tuple[str, ...]
    series: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> set[str]:
        """Every column that the view needs."""
        return {self.x, *self.y, *self.series, *self.where}


HINTS: Mapping[str, tuple[View, ...]] = {
    "text_nll": (View("bucket_end_tokens", ("nll_nats_per_byte",)),),
    "last_window": (View("context_tokens", ("nll_nats_per_byte",)),),
    "copy_accuracy": (View("distance_tokens", ("accuracy",)),),
    "passkey_accuracy": (View("depth_percent", ("accuracy",)),),
    "multiquery_accuracy": (View("depth_percent", ("accuracy",)),),
    "recall_accuracy": (View("distance_tokens", ("accuracy",)),),
    "quality": (View("times_trained_len", ("value",), ("encoding",)),),
    "extrapolation": (View("encoding", ("difference",), (), {"metric": "text"}),),
    "cost": (View("encoding", ("parameters",)),),
    "memory": (View("length_tokens", ("kept_bytes",), ("encoding",)),),
    "growth": (
        View(
            "position_end",
            ("max_angle_error_rad",),
            ("name",),
            {"kind": "stage", "format": "bfloat16"},
        ),
    ),
    "pairs": (
        View("pair", ("wavelength_tokens", "scaled_wavelength_tokens")),
        View("pair", ("wavelength_tokens",)),
    ),
    "comparisons": (
        View("at_tokens", ("difference",), ("method_b",)),
        View("times_trained_len", ("difference",), ("encoding_b",)),
        View("distance_tokens", ("difference",), ("scheme_a",)),
    ),
    "learned": (
        View(
            "distance_tokens",
            ("value",),
            ("scheme",),
            {"metric": "copy accuracy", "removed": "none"},
        ),
    ),
    "removed": (View("distance_tokens", ("difference",), ("removed_a",)),),
    "collisions": (View("position_end", ("fraction",), ("format",)),),
    "scores": (View("delta_tokens", ("median_step_ulp",), ("format",)),),
    "drift": (View("shift_tokens", ("rms_score_change",), ("name",)),),
    "casts": (View("name", ("max_angle_error_rad",), (), {"kind": "preset"}),),
    "resolution": (View("format", ("adjacent_collisions",), ("channel",)),),
    "bound": (View("context_tokens", ("first_admissible_base", "stable_base")),),
    "published": (View("context_tokens", ("exact_base", "paper_base", "su_base")),),
    "theories": (View("context_tokens", ("base",), ("theory",)),),
    "decay": (View("distance_tokens", ("relative",), ("curve",)),),
    "sinusoid_sum": (View("position_tokens", ("value",), ("start",), {"spacing": "exponential"}),),
    "sinusoid_distance": (View("distance_tokens", ("value",), ("spacing",)),),
}


UNDRAWN = {"windows"}
"""Tables of ranges, which no point stands for."""


def kinds_of(table: pd.DataFrame) -> dict[str, str]:
    """What each column is for: key, measure, count, interval, repeat, setting or words."""
    names = [str(name) for name in table.columns]
    kinds = {name: _kind(table, name) for name in names}
    for low, high in intervals(names).values():
        kinds[low] = kinds[high] = "interval"
    return kinds


def _kind(table: pd.DataFrame, name: str) -> str:
    column = table[name]
    if name in COUNTS:
        return "count"
    if name == "seed":
        return "repeat"
    if name == SETTING:
        return "setting"
    distinct = column.nunique()
    if not is_number(column):
        longest = int(column.dropna().astype(str).str.len().max() or 0) if distinct else 0
        return "key" if 0 < distinct <= MANY and longest <= SHORT else "words"
    ahead = (
        unit_of(name) == "tokens" or name in ("pair", "position") or name.startswith("position_")
    )
    repeated = distinct <= FEW and len(table) >= 3 * distinct
    return "key" if ahead or (repeated and (column.dropna() % 1 == 0).all()) else "measure"


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers; truth values are words."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def intervals(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The bounds of each measured column: they follow it, named `..ci_low..` and `..ci_high..`.

    >>> intervals(["accuracy", "ci_low", "ci_high", "n"])
    {'accuracy': ('ci_low', 'ci_high')}
    """
    triples = zip(names, names[1:], names[2:], strict=False)
    return {
        value: (low, high) for value, low, high in triples if "ci_low" in low and "ci_high" in high
    }


def views_of(name: str, table: pd.DataFrame) -> View | None:
    """How the table of that name is first drawn; None if nothing in it can be."""
    kinds = kinds_of(table)
    fitting = (view for view in HINTS.get(name, ()) if view.columns() <= set(kinds))
    hint = next(fitting, None) or _derived(table, kinds)
    if hint is None or len(table) < 2 or name in UNDRAWN:
        return None
    if table[hint.x].nunique() == 1 and hint.series:
        hint = View(hint.series[0], hint.y, (), hint.where)
    if not hint.series and len(hint.y) == 1:
        hint = replace(hint, series=tuple(_lines(table, kinds, hint)))
    return _single(table, kinds, hint)


def _derived(table: pd.DataFrame, kinds: Mapping[str, str]) -> View | None:
    measures = [name for name, kind in kinds.items() if kind == "measure"]
    known = intervals(list(kinds))
    up = next((name for name in known if name in measures), None) or next(iter(measures), None)
    keys = [name for name, kind in kinds.items() if kind == "key" and table[name].nunique() > 1]
    numbers = [name for name in keys if is_number(table[name]) and table[name].nunique() > 2]
    along = max(numbers, key=lambda name: table[name].nunique(), default=next(iter(keys), None))
    if up is None or along is None:
        return None
    return View(along, (up,))


def _lines(table: pd.DataFrame, kinds: Mapping[str, str], view: View) -> Iterator[str]:
    """The column that makes lines: the label if there is one, else the first fitting key."""
    if LABEL in kinds:
        yield LABEL
        return
    taken = view.columns()
    for name, kind in kinds.items():
        if (
            kind == "key"
            and name not in (*taken, *OUTCOMES)
            and 2 <= table[name].nunique() <= FEW + FEW
        ):
            yield name
            return


def _single(table: pd.DataFrame, kinds: Mapping[str, str], view: View) -> View:
    """The view of as few rows as needed so that no point stands for two different things."""
    where = {k: v for k, v in view.where.items() if (table[k].astype(str) == str(v)).any()}
    rows = _rows(table, where)
    identity = [view.x, *view.series, *(name for name in kinds if kinds[name] == "repeat")]
    open_keys = (n for n, kind in kinds.items() if kind == "key" and n not in OUTCOMES)
    for name in open_keys:
        if rows.groupby(identity, dropna=False)[name].nunique().gt(1).any():
            values = rows[name].dropna()
            where[name] = values.max() if unit_of(name) == "tokens" else values.iloc[0]
            rows = _rows(table, where)
    return replace(view, where=where)


def _rows(table: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    for name, value in where.items():
        table = table[table[name].astype(str) == str(value)]
    return table
