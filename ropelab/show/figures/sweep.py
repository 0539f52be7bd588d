"""Figure of a sweep: what its runs found, over the field in which they differ most."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures.style import LINES, MARKERS, PALETTE, token_axis
from ropelab.show.looks import LOOKS, Look

PANELS, MOST_LINES = 4, 10
"""How many results are drawn at most, and how many lines of each."""
WIDE = 8.0
"""From this ratio of the largest to the smallest value on, an axis is logarithmic."""
LENGTHS = ("context", "length", "train_len", "test_len", "finetune_len", "windows_up_to")


@dataclass(frozen=True)
class Parts:
    """What the columns of a sweep's table are for.

    Attributes:
        along: the field on the axis: of the numbers among the fields the one with most values.
        lines: columns whose values make the lines: the other fields, and what names a row.
        results: columns of numbers that were found.
    """

    along: str
    lines: tuple[str, ...]
    results: tuple[str, ...]


def parts_of(tables: Tables) -> Parts:
    """What is drawn, from the columns of the tables `sweep` and `runs`."""
    table, runs = tables["sweep"], tables["runs"]
    keys = [str(name) for name in runs.columns if name not in ("case", "answer", "folder")]
    found = [str(name) for name in table.columns if name not in keys]
    names = _names_of_rows(table, keys, found)
    numbers = [name for name in keys if pd.api.types.is_numeric_dtype(table[name])]
    along = max(numbers or keys, key=lambda name: table[name].nunique())
    lines = [name for name in (*keys, *names) if name != along]
    results = [n for n in found if n not in names and pd.api.types.is_numeric_dtype(table[n])]
    return Parts(along, tuple(lines), tuple(results))


def _names_of_rows(table: pd.DataFrame, keys: Sequence[str], found: Sequence[str]) -> list[str]:
    """The words before the first number, and what else it takes to tell the rows of a run apart."""
    number = (pd.api.types.is_numeric_dtype(table[name]) for name in found)
    count = next((place for place, is_number in enumerate(number) if is_number), len(found))
    while count < len(found) and table.duplicated([*keys, *found[:count]]).any():
        count += 1
    return list(found[:count])


def draw(tables: Tables) -> dict[str, Figure]:
    """One figure, a panel per result; none where nothing that was found is a number."""
    parts, table = parts_of(tables), tables["sweep"]
    shown = [name for name in parts.results if table[name].notna().any()][:PANELS]
    if not shown:
        return {}
    figure, axes = plt.subplots(1, len(shown), squeeze=False, figsize=(4.2 * len(shown) + 1.5, 4.2))
    for ax, name in zip(axes[0], shown, strict=True):
        _panel(ax, table, parts, name)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if parts.lines:
        called = ", ".join(map(_words, parts.lines))
        figure.legend(handles, labels, loc="outside right upper", fontsize=8, title=called)
    title = f"{len(tables['runs'])} runs over {_words(parts.along)}"
    figure.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return {"sweep": figure}


def _panel(ax: Axes, table: pd.DataFrame, parts: Parts, result: str) -> None:
    numeric = pd.api.types.is_numeric_dtype(table[parts.along])
    places = list(dict.fromkeys(table[parts.along].astype(str)))
    for number, (name, rows) in enumerate(_lines(table, parts.lines)):
        along = rows[parts.along] if numeric else rows[parts.along].astype(str).map(places.index)
        points = pd.DataFrame({"x": along, "y": rows[result]}).dropna().sort_values("x")
        style = LOOKS.get(name) or Look(PALETTE[number % 8], MARKERS[number % 8], LINES[number % 4])
        ax.plot(
            points["x"],
            points["y"],
            color=style.color,
            marker=style.marker,
            linestyle=style.line,
            label=name,
        )
    if not numeric:
        ax.set_xticks(range(len(places)), places, rotation=20, ha="right")
    elif parts.along in LENGTHS:
        token_axis(ax)
    elif _is_wide(table[parts.along]):
        ax.set_xscale("log")
    if _is_wide(table[result]):
        ax.set_yscale("log")
    ax.set(xlabel=_words(parts.along), ylabel=_words(result))


def _lines(table: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each line by its name, at most MOST_LINES of them, evenly taken."""
    if not columns:
        yield "all", table
        return
    names = table[list(columns)].map(_word).agg(", ".join, axis=1)
    every = list(dict.fromkeys(names))
    step = max(1, -(-len(every) // MOST_LINES))
    for name in every[::step]:
        yield name, table[names == name]


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _words(column: str) -> str:
    return column.replace("_", " ")


def _is_wide(values: pd.Series) -> bool:
    low, high = values.min(), values.max()
    return bool(low > 0 and high / low >= WIDE)
