"""The cost of roundings in a trained model, against the predicted error of scores; and how
far two roundings take the predictions of a model apart.

A rounding is a number format for stages of the rotation, or a format of stored keys. Its
cost is the text loss that it adds, or the share of a retrieval task that it loses.
"""

import math
from collections.abc import Hashable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import label_method
from ropelab.runs.tables import select_longest_context
from ropelab.show.figures import shapes
from ropelab.show.looks import FIGURES, Look, pick_look, read_looks

LOOKS = read_looks(FIGURES["rounded"])
# The least error on the axis. Smaller errors are drawn there.
LEAST = 1e-4
# Costs up to this are drawn on a linear scale, and larger costs on a logarithmic scale.
LINEAR = 1e-3
# The verdict on a rounding with a cost that is shown.
COSTS = "costs"
# The column of the divergence of two predictions.
KL = "kl_nats_per_token"
# At most this many casts have a line, the casts with the largest values.
MOST_LINES = 8
# The colour behind a range of errors that no rounding has.
GAP = "#eeeeee"


def draw(casts: pd.DataFrame) -> dict[str, Figure]:
    """Draw the cost in loss and in each task, in the longest context and at the farthest
    place.
    """
    figures = {}
    for metric, rows in shapes.split_by(casts, "metric"):
        longest = select_longest_context(rows)
        farthest = longest["at_tokens"].max()
        shown = longest[longest["at_tokens"] == farthest]
        if metric == "nll_last_window":
            figures["cost_of_casts"] = _draw_cost(shown, "nats per byte")
        elif metric.endswith("_accuracy"):
            task = metric.removesuffix("_accuracy")
            unit = f"share of {task} lost, {farthest:.0f} tokens back"
            figures[f"{task}_cost_of_casts"] = _draw_cost(shown, unit)
    return figures


def draw_divergence(by_place: pd.DataFrame) -> dict[str, Figure]:
    """Draw, by place, the mean KL of each cast and the cast that it is compared with.

    Nothing is drawn if all predictions are the same, or are not numbers.
    """
    rows = by_place[by_place[KL] > 0]
    if rows.empty:
        return {}
    rows = rows.assign(name=_name_lines(rows))
    largest = rows.groupby("name")[KL].max().sort_values(ascending=False)
    # An interval may reach 0, which has no place on a logarithmic axis.
    bottom = rows[KL].min() / 3
    figure, ax = shapes.make_axes((9, 4.5))
    for number, name in enumerate(largest.index[:MOST_LINES]):
        line = rows[rows["name"] == name].sort_values("bucket_end_tokens")
        shapes.draw_line(
            ax,
            line["bucket_end_tokens"],
            line[KL],
            pick_look(number),
            str(name),
            band=(line["kl_ci_low"].clip(lower=bottom), line["kl_ci_high"]),
        )

    ax.set_yscale("log")
    ax.set_ylim(bottom=bottom)
    shapes.set_token_axis(ax)
    ax.set(
        xlabel="position in the text (tokens, end of bucket)",
        ylabel="mean KL, nats per token",
    )
    against = rows["against"].iloc[0]
    ax.set_title(
        f"Against {against}, {largest.index[0]} moves predictions most: by up to"
        f" {largest.iloc[0]:.2g} nats"
    )
    shapes.put_legend_outside(ax)
    return {"divergence_by_place": figure}


def _name_lines(rows: pd.DataFrame) -> list[str]:
    """Return the cast of each row, after its method if there are several."""
    methods = rows.groupby(["method", "factor"]).ngroups
    names = []
    for row in shapes.iterate_rows(rows):
        name = row.cast
        if methods > 1:
            name = f"{label_method(row.method, row.factor)}, {row.cast}"
        names.append(name)
    return names


def _draw_cost(rows: pd.DataFrame, unit: str) -> Figure:
    """Draw the cost of every rounding with its number, and a list of the numbers."""
    figure, ax = shapes.make_axes((10, 5))
    rows = rows[rows["score_error"].notna()]
    shown = rows.assign(x=rows["score_error"].clip(lower=LEAST)).sort_values("x")
    names = _name_points(shown)
    for kind in shown["rounds"].unique():
        look, label = LOOKS[kind]
        # A heading in the legend, which stands for no point.
        ax.plot([], [], linestyle="none", label=f"{label}:")
        of_kind = shown[shown["rounds"] == kind]
        for point in shapes.iterate_rows(of_kind):
            _draw_point(ax, point, look, names.get(point.Index, ""))

    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=LINEAR)
    low = min(3 * rows["ci_low"].min(), -LINEAR)
    high = max(3 * rows["ci_high"].max(), LINEAR)
    ax.set(xlim=(LEAST / 2, 1), ylim=(low, high))
    shapes.mark_value(ax, 0, "")
    ax.set(
        xlabel=f"predicted error of a score (deviation 1; below {LEAST:g}: drawn there)"
    )
    ax.set(ylabel=f"cost, {unit}\n(hollow: none is shown)")

    _set_title(ax, shown, unit.partition(",")[0])
    shapes.put_legend_outside(ax)
    points = []
    for row in shapes.iterate_rows(shown):
        number, _, _ = names.get(row.Index, "").partition(" ")
        if number:
            points.append((row.x, row.cost, number))
    shapes.label_points(ax, points)
    return figure


def _draw_point(ax: Axes, point: Any, look: Look, label: str) -> None:
    """Draw a rounding with its interval: filled where it costs, else hollow."""
    ax.vlines(point.x, point.ci_low, point.ci_high, color=look.color, alpha=0.35)
    is_hollow = point.verdict != COSTS
    shapes.draw_dots(
        ax, [point.x], [point.cost], look, label, hollow=is_hollow, linestyle="none"
    )


def _set_title(ax: Axes, shown: pd.DataFrame, unit: str) -> None:
    """Say which roundings cost something.

    If all roundings above some error of a score cost something, and none below, the range
    between the two is marked.
    """
    context = shapes.format_tokens(shown["context_tokens"].max())
    costly = shown[shown["verdict"] == COSTS]
    free = shown[shown["verdict"] != COSTS]
    if costly.empty:
        ax.set_title(
            f"At {context} tokens no rounding has a cost that can be distinguished"
        )
        return

    first = costly["x"].min()
    largest_free = free["x"].max()
    if free.empty or first <= max(LEAST, largest_free):
        count = f"{len(costly)} of {len(shown)}"
        most = f"{costly['cost'].max():.2g} {unit}"
        ax.set_title(f"At {context} tokens {count} roundings cost up to {most}")
        return

    ax.set_title(
        f"Score errors up to {largest_free:.2g} cost nothing shown, from {first:.2g} on"
        " they do"
    )
    ax.axvspan(largest_free, first, color=GAP, linewidth=0, zorder=0)
    middle = math.sqrt(largest_free * first)
    words = {"xycoords": shapes.DATA_AND_HEIGHT, "va": "top", "ha": "center"}
    shapes.write_note(
        ax,
        "nothing tried\nin between",
        (middle, 1),
        (0, -4),
        color=shapes.NOTE_COLOR,
        **words,
    )


def _name_points(shown: pd.DataFrame) -> dict[Hashable, str]:
    """Return the labels of the roundings, `3 angle=bfloat16`, by the index of their rows.

    Roundings whose text begins at a later position (`position=bfloat16 from 1024`) are
    many, and get no label.
    """
    methods = shown.groupby(["method", "factor"]).ngroups
    names: dict[Hashable, str] = {}
    for row in shapes.iterate_rows(shown):
        name = row.rounding
        if methods > 1:
            name = f"{label_method(row.method, row.factor)}, {row.rounding}"
        if " from " not in name:
            names[row.Index] = f"{len(names) + 1} {name}"
    return names
