"""Lines of methods over tokens, as the figures of extrapolate draw them.

A method is a way to read beyond the trained length; its label is its name and factor,
such as `yarn x4`. The sliding window is what methods are compared with: the model reads
only the last tokens, as many as it was trained on.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import AS_SHIPPED, WINDOW, extract_method, label_rows
from ropelab.runs.rows import group_pairs
from ropelab.show.figures import shapes
from ropelab.show.figures.names import name_line_ends
from ropelab.show.looks import FIGURES, find_look

# The column of losses, in nats per byte.
NLL = "nll_nats_per_byte"
WORDS = FIGURES["extrapolate"]
# The arms of an experiment, with their words: methods without fine-tuning, with
# parameters searched on the model, and after fine-tuning.
ARMS = WORDS["arms"]
# A loss that exceeds the best loss by more than this, in nats per byte, is named instead
# of drawn. If it were drawn, all other losses would look like one line.
CEILING = 0.3
# The rows of tables to which no method was applied. Methods are compared with these
# rows.
BASELINES = ("unscaled", AS_SHIPPED, WINDOW)


@dataclass(frozen=True)
class Lines:
    """A figure with tokens along the axis: a line for each method, and a line for the
    sliding window.
    """

    # The rows of each method by its label.
    methods: Mapping[str, pd.DataFrame]
    # The columns along the axis and of the values.
    x: str
    y: str
    xlabel: str
    ylabel: str
    title: str
    # The trained length in tokens, which is marked.
    trained: int
    # The columns with the lower and the upper edge of a line's band; None for lines
    # without bands.
    bounds: tuple[str, str] | None = None
    # The losses of the sliding window, each drawn as a horizontal line.
    window: Iterable[float] = ()
    # The lower end of the values' axis; None leaves it to matplotlib.
    lowest: float | None = None
    # The upper end of the values' axis. A method whose values are all above it is named
    # below the axis.
    highest: float = math.inf
    # The values along the axis that have a number; empty for powers of two.
    ticks: Sequence[float] = ()
    # The share that a model finds by guessing; None if it is not known.
    guessing: float | None = None
    # What is written at the end of a line, if it is more than the line's label.
    names: Mapping[str, str] = field(default_factory=dict)


def draw_lines(lines: Lines) -> Figure:
    """Draw a line per method, with its band if the method has one.

    If a method has a second factor, this factor has a dotted line with hollow markers.
    Methods above the limits are named with their last values.
    """
    figure, ax = shapes.make_axes()
    ax.set(xlabel=lines.xlabel, ylabel=lines.ylabel, title=lines.title)
    drawn_names = set()
    # The points along the axis at which some method is drawn.
    drawn_x: list[float] = []
    # The last value of each method that is above the axis.
    values_above = {}
    for label, rows in join_equal_methods(lines.methods, lines.y).items():
        values = rows[lines.y]
        if values.min() > lines.highest:
            values_above[label] = values.iloc[-1]
            continue

        shown_name = lines.names.get(label, label)
        style: dict[str, Any] = {"markersize": 5}
        name = extract_method(label)
        if name in drawn_names:
            style |= {"markerfacecolor": "white", "linestyle": ":"}
        drawn_names.add(name)
        band = None
        if lines.bounds:
            low, high = lines.bounds
            band = (rows[low], rows[high])
        shapes.draw_line(
            ax, rows[lines.x], values, find_look(name), shown_name, band, **style
        )
        drawn_x += [rows[lines.x].min(), rows[lines.x].max()]

    # The lines of the sliding window are as long as the lines of the methods.
    window = find_look(WINDOW)
    style = {"color": window.color, "linestyle": window.line, "label": WINDOW}
    left_end = min(drawn_x, default=lines.trained)
    right_end = max(drawn_x, default=lines.trained)
    for loss in sorted(set(lines.window)):
        ax.plot([left_end, right_end], [loss, loss], **style)
    name_outside(ax, values_above)
    ax.set_ylim(lines.lowest, lines.highest)
    shapes.set_token_axis(ax)
    if len(lines.ticks):
        ax.set_xticks(lines.ticks)
    shapes.mark_value(ax, lines.trained, "trained length", "x")
    if lines.guessing is not None:
        # Lines lie on and above the line of guessing, so its name is below that line.
        words = f"guessing: {lines.guessing:.1%}"
        shapes.mark_value(ax, lines.guessing, words, up=-11)
    name_line_ends(ax)
    return figure


def join_equal_methods(
    methods: Mapping[str, pd.DataFrame], y: str
) -> dict[str, pd.DataFrame]:
    """Give methods with the same values one label with all their names, since only one
    of their lines would be seen.
    """
    # Values that differ only by rounding count as the same.
    pairs = ((tuple(rows[y].round(9)), label) for label, rows in methods.items())
    joined = {}
    for labels in group_pairs(pairs).values():
        joined[join_labels(labels)] = methods[labels[0]]
    return joined


def join_labels(labels: Sequence[str]) -> str:
    """Write the names of methods whose marks cover each other.

    >>> join_labels(["ntk ×4", "dynamic_ntk"])
    'ntk ×4 = dynamic_ntk'
    """
    return " = ".join(labels)


def name_outside(ax: Axes, values: Mapping[str, float]) -> None:
    """Write below an axis which methods are above the scale, with their values."""
    if values:
        text = ", ".join(
            f"{label} ({shapes.write_signed(value, '.2f')})"
            for label, value in values.items()
        )
        ax.set_xlabel(f"{ax.get_xlabel()}\nabove the scale: {text}")


def add_labels(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(label=label_rows(table))


def average_methods(table: pd.DataFrame, x: str, value: str) -> dict[str, pd.DataFrame]:
    """Average each method over seeds, with its band, in the order of the table."""
    methods = {}
    for label, rows in shapes.split_by(add_labels(table), "label"):
        methods[label] = shapes.average_over_seeds(rows, x, value)
    return methods


def average_by_length(table: pd.DataFrame, along: str, value: str) -> pd.DataFrame:
    """Average over seeds. The result has a row per method, in the order of the table, and
    a column per value of the column ``along``, which has tokens.
    """
    groups = add_labels(table).groupby(["label", along], sort=False)
    return groups[value].mean().unstack(sort=False).sort_index(axis=1)


def find_trained_and_longest(table: pd.DataFrame) -> tuple[int, int]:
    return table["train_len_tokens"].iloc[0], table["context_tokens"].max()


def is_ok(table: pd.DataFrame) -> bool:
    """Return False if the model fails a task even at its trained length."""
    return "status" not in table or bool((table["status"] == "ok").all())
