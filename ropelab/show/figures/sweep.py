"""Figure of a sweep, a set of runs of one experiment with different configs.

The table `runs` has a row per run with the fields in which the configs differ. The table
`sweep` has these fields and the results. The figure draws results over the field with
most values. If no result of `sweep` depends on this field, another table whose results
depend on it is drawn instead.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas.api.types import is_numeric_dtype

from ropelab.runs.labels import extract_method
from ropelab.runs.leading import LOSS_PREFIXES, SHARE_PREFIXES
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.intervals import find_ends, find_intervals
from ropelab.show.looks import FIGURES, LOOKS, Look, pick_look

# The words for results, with their unit, by their columns.
RESULTS = FIGURES["sweep"]["results"]
# The most results that are drawn, each in a panel, and the most lines of a panel.
MOST_PANELS = 4
MOST_LINES = 10
# An axis is logarithmic if its largest value is at least this many times the smallest.
RATIO_FOR_LOGARITHM = 8.0
# The fields of configs that are lengths in tokens.
LENGTHS = (
    "context",
    "length",
    "train_len",
    "test_len",
    "finetune_len",
    "windows_up_to",
)
# Columns of the table `runs` that are not fields of a config.
ABOUT_RUNS = ("case", "answer", "folder")


@dataclass(frozen=True)
class SweepColumns:
    """What the columns of a table are in the figure."""

    # The field along the axis.
    axis: str
    # The columns whose values, together, name the lines.
    lines: tuple[str, ...]
    # The measured columns, each of which may be a panel.
    results: tuple[str, ...]


def choose_columns(tables: Tables) -> SweepColumns:
    """Choose the axis, lines and results from the columns of the tables `sweep` and
    `runs`.
    """
    table = tables["sweep"]
    fields = [str(name) for name in tables["runs"] if name not in ABOUT_RUNS]
    columns_of_runs = [str(name) for name in table if name not in fields]
    # The first of these columns name the rows, the others are measured.
    count = _count_names(table, fields, columns_of_runs)
    names_of_rows = columns_of_runs[:count]
    measured = columns_of_runs[count:]
    fields_of_numbers = [name for name in fields if is_numeric_dtype(table[name])]
    axis = max(fields_of_numbers or fields, key=lambda name: table[name].nunique())

    # A column makes lines if it has several values at the same value of the axis.
    has_several = table.groupby(axis).nunique().max() > 1
    lines = []
    for name in (*fields, *names_of_rows):
        if name != axis and has_several[name]:
            lines.append(name)

    ends = find_ends(measured)
    results = []
    for name in measured:
        if is_numeric_dtype(table[name]) and name not in ends:
            results.append(name)
    # Results that most runs have come first. A result that few runs have, such as one at
    # a length that few runs reach, would leave gaps.
    results.sort(key=lambda name: -table[name].count())
    return SweepColumns(axis, tuple(lines), tuple(results))


def choose_table(tables: Tables) -> Tables:
    """Return the tables, where the table to be drawn has the name `sweep`.

    It is the first table whose results depend on the field along the axis. For example,
    the field `against` is the cast with which all other casts are compared. It changes
    the table of differences, but not the table of the model's predictions.
    """
    other_names = [name for name in tables if name not in ("sweep", "runs")]
    for name in ("sweep", *other_names):
        drawn_tables = {**tables, "sweep": tables[name]}
        columns = choose_columns(drawn_tables)
        lines = _split_lines(tables[name], columns.lines).values()
        for rows in lines:
            means = rows.groupby(columns.axis)[list(columns.results)].mean()
            depends_on_axis = means.nunique() > 1
            if depends_on_axis.any():
                return drawn_tables
    return tables


def _count_names(
    table: pd.DataFrame, fields: Sequence[str], columns: Sequence[str]
) -> int:
    """Return how many of the first columns are names of rows.

    These are the columns of words before the first column of numbers. If two rows have
    the same names and fields, the next columns are names too, until all rows differ.
    """
    count = 0
    while count < len(columns) and not is_numeric_dtype(table[columns[count]]):
        count += 1
    while count < len(columns):
        identity = [*fields, *columns[:count]]
        if not table.duplicated(identity).any():
            break
        count += 1
    return count


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw one figure, a panel per result; none if no result is a number."""
    tables = choose_table(tables)
    columns = choose_columns(tables)
    table = tables["sweep"]
    results = [name for name in columns.results if table[name].notna().any()]
    # A result that is the same in all rows, such as a number of tokens, shows nothing.
    varying_results = [name for name in results if table[name].nunique() > 1]
    results = (varying_results or results)[:MOST_PANELS]
    if not results:
        return {}

    figure, axes = shapes.make_panels(1, len(results), (4.2 * len(results) + 1.5, 4.2))
    for ax, result in zip(axes[0], results, strict=True):
        _draw_result(ax, table, result, columns)
        _set_axis(ax, table[columns.axis])
        if _is_share(table[result]):
            ax.set_ylim(-0.03, 1.05)
        elif _is_wide(table[result]):
            ax.set_yscale("log")
        xlabel = columns.axis.replace("_", " ")
        if result in find_intervals([str(name) for name in table]):
            xlabel += "\nbands: intervals of 95 %"
        ax.set(xlabel=xlabel, ylabel=_name_result(result))

    if columns.lines:
        handles, labels = axes[0][0].get_legend_handles_labels()
        title = ", ".join(columns.lines).replace("_", " ")
        figure.legend(
            handles, labels, loc="outside right upper", fontsize=8, title=title
        )
    count = len(tables["runs"])
    shapes.set_headline(figure, f"{count} runs over {columns.axis.replace('_', ' ')}")
    return {"sweep": figure}


def _draw_result(
    ax: Axes, table: pd.DataFrame, result: str, columns: SweepColumns
) -> None:
    """Draw the lines of a result, each with a band if the result has intervals."""
    interval = find_intervals([str(name) for name in table]).get(result)
    rows_of_line = _split_lines(table, columns.lines)
    looks = choose_looks(list(rows_of_line))
    x = table[columns.axis]
    if not is_numeric_dtype(x):
        # A word is drawn at its number among the words.
        x = x.astype(str).map(_list_words(x).index)
    for name, rows in rows_of_line.items():
        points = pd.DataFrame({"x": x[rows.index], "y": rows[result]})
        if interval:
            low, high = interval
            points = points.assign(low=rows[low], high=rows[high])
        points = points.dropna(subset=["x", "y"]).sort_values("x")

        band = (points["low"], points["high"]) if interval else None
        shapes.draw_line(ax, points["x"], points["y"], looks[name], name, band)


def choose_looks(names: Sequence[str]) -> dict[str, Look]:
    """Return a look for each line: the look that its method has in every figure.

    By this rule `ntk ×4` and `ntk ×8` would have the same look. The second of them, and a
    name that is not a method, gets a look that no line has, if possible in a colour that
    no line has.
    """
    looks: dict[str, Look] = {}
    for name in names:
        look = LOOKS.get(extract_method(name))
        if look and look not in looks.values():
            looks[name] = look
    for name in names:
        if name not in looks:
            looks[name] = _find_free_look(looks.values())
    return looks


def _find_free_look(used_looks: Collection[Look]) -> Look:
    """Return a look that is not used, if possible in a colour that is not used."""
    candidates = [pick_look(number) for number in range(2 * MOST_LINES)]
    unused_looks = [look for look in candidates if look not in used_looks]
    used_colors = {look.color for look in used_looks}
    in_new_color = [look for look in unused_looks if look.color not in used_colors]
    return (in_new_color or unused_looks)[0]


def _name_result(result: str) -> str:
    """Return the words of a result, with its unit."""
    if result in RESULTS:
        return str(RESULTS[result])
    words = result.replace("_", " ")
    if result.startswith(LOSS_PREFIXES):
        return f"{words}, nats per byte"
    if result.startswith(SHARE_PREFIXES):
        return f"{words}, share"
    return words


def _set_axis(ax: Axes, values: pd.Series) -> None:
    """Make the axis of a field with these values."""
    if not is_numeric_dtype(values):
        words = _list_words(values)
        ax.set_xticks(range(len(words)), words, rotation=20, ha="right")
    elif values.name in LENGTHS:
        shapes.set_token_axis(ax)
    elif _is_wide(values):
        ax.set_xscale("log")


def _is_share(results: pd.Series) -> bool:
    """Return True for numbers that range from near 0 to at most 1, such as shares.

    A logarithmic axis would give most of its height to differences between shares near
    0, although all shares near 0 are failures.
    """
    low = results.min()
    high = results.max()
    return bool(0 <= low < 0.2 and 0.5 < high <= 1)


def _list_words(column: pd.Series) -> list[str]:
    return list(dict.fromkeys(column.astype(str)))


def _split_lines(
    table: pd.DataFrame, columns: tuple[str, ...]
) -> dict[str, pd.DataFrame]:
    """Return the rows of each line by its name.

    If there are more than MOST_LINES lines, only every second line is returned, or every
    third, and so on.
    """
    if not columns:
        return {"all": table}
    words = table[list(columns)].map(_write_value)
    names = words.agg(", ".join, axis=1)
    all_names = list(dict.fromkeys(names))
    # The quotient is rounded up, so that there are never more than MOST_LINES lines.
    step = max(1, math.ceil(len(all_names) / MOST_LINES))
    return {name: table[names == name] for name in all_names[::step]}


def _write_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _is_wide(values: pd.Series) -> bool:
    low = values.min()
    high = values.max()
    return bool(low > 0 and high / low >= RATIO_FOR_LOGARITHM)
