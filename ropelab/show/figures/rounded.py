"""The cost of casts and of formats of stored keys, against the predicted error of
scores.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import method_label
from ropelab.runs.tables import in_longest_context
from ropelab.show.figures import shapes
from ropelab.show.looks import FIGURES, read_looks

LOOKS = read_looks(FIGURES["rounded"])
# Errors of scores below this are drawn at it.
LEAST = 1e-4
# Costs up to this are drawn on a linear scale, larger ones on a logarithmic one.
LINEAR = 1e-3
COSTS = "costs"


def draw(casts: pd.DataFrame) -> dict[str, Figure]:
    """Draw loss and retrieval against the error of a score, in the longest context and
    place.
    """
    figures = {}
    for metric, rows in shapes.split_by(casts, "metric"):
        longest = in_longest_context(rows)
        farthest = longest["at_tokens"].max()
        shown = longest[longest["at_tokens"] == farthest]
        if metric == "nll_last_window":
            figures["cost_of_casts"] = _draw_cost(shown, "nats per byte")
        elif metric.endswith("_accuracy"):
            task = metric.removesuffix("_accuracy")
            unit = f"share of {task} lost, {farthest:.0f} tokens back"
            figures[f"{task}_cost_of_casts"] = _draw_cost(shown, unit)
    return figures


def _draw_cost(rows: pd.DataFrame, unit: str) -> Figure:
    figure, ax = shapes.make_axes((8.5, 5))
    rows = rows[rows["score_error"].notna()]
    shown = rows.assign(x=rows["score_error"].clip(lower=LEAST))
    for kind, group in shapes.split_by(shown, "rounds"):
        _draw_kind(ax, kind, group)

    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=LINEAR)
    low = min(3 * rows["ci_low"].min(), -LINEAR)
    high = max(3 * rows["ci_high"].max(), LINEAR)
    ax.set(xlim=(LEAST / 2, 2), ylim=(low, high))
    shapes.mark_value(ax, 0, "")
    ax.set(
        xlabel=f"predicted error of a score (deviation 1; below {LEAST:g}: drawn there)"
    )
    ax.set(ylabel=f"cost, {unit}")

    _set_title(ax, shown, unit.partition(",")[0])
    shapes.put_legend_below(figure, [ax], 2)
    shapes.label_points(ax, _name_points(shown))
    return figure


def _draw_kind(ax: Axes, kind: str, group: pd.DataFrame) -> None:
    """Draw what is rounded in one way: filled where it costs, else hollow."""
    look, label = LOOKS[kind]
    ax.vlines(
        group["x"], group["ci_low"], group["ci_high"], color=look.color, alpha=0.35
    )
    costs = group["verdict"] == COSTS
    for chosen, hollow in ((costs, False), (~costs, True)):
        if not chosen.any():
            continue
        points = group[chosen]
        shapes.draw_dots(
            ax,
            points["x"],
            points["cost"],
            look,
            label,
            hollow=hollow,
            linestyle="none",
        )
        # The legend names the kind once.
        label = ""


def _set_title(ax: Axes, shown: pd.DataFrame, unit: str) -> None:
    """Say what costs, and mark the error from which on roundings do, if there is
    one.
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
    # Where nothing is free, its largest error is nan, and LEAST is compared.
    if first <= max(LEAST, free["x"].max()):
        count = f"{len(costly)} of {len(shown)}"
        most = f"{costly['cost'].max():.2g} {unit}"
        ax.set_title(f"At {context} tokens {count} roundings cost up to {most}")
        return

    ax.set_title(
        f"At {context} tokens a model notices score errors from {first:.2g} on"
    )
    shapes.mark_value(ax, first, "costs from here", which="x")


def _name_points(shown: pd.DataFrame) -> list[tuple[float, float, str]]:
    """Return the points with their names.

    Casts that begin at a later position (`position=bfloat16 from 1024`) are many, and
    stay without.
    """
    methods = shown.groupby(["method", "factor"]).ngroups
    points = []
    for row in shapes.iterate_rows(shown):
        name = row.rounding
        if methods > 1:
            name = f"{method_label(row.method, row.factor)}, {row.rounding}"
        if " from " not in name:
            points.append((row.x, row.cost, name))
    return points
