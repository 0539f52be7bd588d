"""Figure of a sweep: the results of its runs over the field in which they differ
most.
"""

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from pandas.api.types import is_numeric_dtype

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import LOOKS, numbered

# How many results are drawn at most, and how many lines of each.
PANELS, MOST_LINES = 4, 10
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
WIDE = 8.0
LENGTHS = (
    "context",
    "length",
    "train_len",
    "test_len",
    "finetune_len",
    "windows_up_to",
)


@dataclass(frozen=True)
class Parts:
    """The columns along the axis, those whose values make the lines, and those that
    were found.
    """

    along: str
    lines: tuple[str, ...]
    results: tuple[str, ...]


def parts_of(tables: Tables) -> Parts:
    """Choose the axis, lines and results from the columns of the tables `sweep` and
    `runs`.
    """
    table, runs = tables["sweep"], tables["runs"]
    keys = [
        str(name) for name in runs.columns if name not in ("case", "answer", "folder")
    ]
    found = [str(name) for name in table.columns if name not in keys]
    # Words before the first number name a row, and as many more columns as make the
    # names unique.
    numeric = [is_numeric_dtype(table[name]) for name in found]
    count = numeric.index(True) if True in numeric else len(found)
    while count < len(found) and table.duplicated([*keys, *found[:count]]).any():
        count += 1
    numbers = [name for name in keys if is_numeric_dtype(table[name])]
    along = max(numbers or keys, key=lambda name: table[name].nunique())
    # what goes with the axis makes no lines
    several = table.groupby(along).nunique().max() > 1
    lines = [
        name for name in (*keys, *found[:count]) if name != along and several[name]
    ]
    results = [name for name in found[count:] if is_numeric_dtype(table[name])]
    # What most runs have comes first; lengths that only some of them have make gaps.
    results.sort(key=lambda name: -table[name].count())
    return Parts(along, tuple(lines), tuple(results))


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw one figure, a panel per result; none if no result is a number."""
    parts, table = parts_of(tables), tables["sweep"]
    shown = [name for name in parts.results if table[name].notna().any()][:PANELS]
    if not shown:
        return {}
    along = table[parts.along]
    numeric, places = is_numeric_dtype(along), list(dict.fromkeys(along.astype(str)))
    x = along if numeric else along.astype(str).map(places.index)
    lines = _lines(table, parts.lines)
    figure, axes = shapes.panels(1, len(shown), (4.2 * len(shown) + 1.5, 4.2))
    for ax, result in zip(axes[0], shown, strict=True):
        for number, (name, rows) in enumerate(lines.items()):
            points = (
                pd.DataFrame({"x": x[rows.index], "y": rows[result]})
                .dropna()
                .sort_values("x")
            )
            shapes.line(
                ax, points["x"], points["y"], LOOKS.get(name) or numbered(number), name
            )
        if not numeric:
            ax.set_xticks(range(len(places)), places, rotation=20, ha="right")
        elif parts.along in LENGTHS:
            shapes.token_axis(ax)
        elif _is_wide(along):
            ax.set_xscale("log")
        if _is_wide(table[result]):
            ax.set_yscale("log")
        ax.set(xlabel=parts.along.replace("_", " "), ylabel=result.replace("_", " "))
    if parts.lines:
        handles, labels = axes[0][0].get_legend_handles_labels()
        title = ", ".join(parts.lines).replace("_", " ")
        figure.legend(
            handles, labels, loc="outside right upper", fontsize=8, title=title
        )
    shapes.headline(
        figure, f"{len(tables['runs'])} runs over {parts.along.replace('_', ' ')}"
    )
    return {"sweep": figure}


def _lines(table: pd.DataFrame, columns: tuple[str, ...]) -> dict[str, pd.DataFrame]:
    """Return the rows of each line by its name, at most MOST_LINES of them, evenly
    taken.
    """
    if not columns:
        return {"all": table}
    words = table[list(columns)].map(
        lambda x: f"{x:g}" if isinstance(x, float) else str(x)
    )
    names = words.agg(", ".join, axis=1)
    every = list(dict.fromkeys(names))
    return {
        name: table[names == name]
        for name in every[:: max(1, -(-len(every) // MOST_LINES))]
    }


def _is_wide(values: pd.Series) -> bool:
    low, high = values.min(), values.max()
    return bool(low > 0 and high / low >= WIDE)
