"""The cost of roundings in a trained model, by the predicted error of scores; and how much
the predictions of a model with two roundings differ.

A rounding is a number format for stages of the rotation, or a format of stored keys. Its
cost is the text loss that it adds, or the share of a retrieval task that it loses.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import label_method
from ropelab.runs.tables import select_longest_context
from ropelab.runs.thresholds import LEAST_SCORE_ERROR
from ropelab.show.figures import shapes
from ropelab.show.looks import FIGURES, GREY, Look, pick_look, read_looks

NOT_PREDICTED = FIGURES["rounded"]["not_predicted"]
LOOKS = read_looks(FIGURES["rounded"]["kinds"])
# Costs up to this are drawn on a linear scale, and larger costs on a logarithmic scale.
LINEAR_UP_TO = 1e-3
# The verdict on a rounding whose cost is shown by comparisons.
COSTS = "costs"
# The column of the divergence of two predictions.
KL = "kl_nats_per_token"
# The most casts that have a line. The casts with the largest values are drawn.
MOST_LINES = 8


def draw(casts: pd.DataFrame) -> dict[str, Figure]:
    """Draw the cost in loss and in each task, in the longest context and at the largest
    distance.
    """
    figures = {}
    for metric, rows in shapes.split_by(casts, "metric"):
        longest = select_longest_context(rows)
        farthest = longest["at_tokens"].max()
        drawn = longest[longest["at_tokens"] == farthest]
        if metric == "nll_last_window":
            label = "added loss (nats per byte)"
            figures["cost_of_casts"] = _draw_cost(drawn, label, "nats per byte")
        elif metric.endswith("_accuracy"):
            task = metric.removesuffix("_accuracy")
            words = task.replace("_", " ")
            label = f"recall lost ({words}, {farthest:.0f} tokens back)"
            figures[f"{task}_cost_of_casts"] = _draw_cost(drawn, label, "of recall")
    return figures


def draw_divergence(by_place: pd.DataFrame) -> dict[str, Figure]:
    """Draw, by position, the mean KL divergence of each cast from the cast that it is
    compared with.

    Nothing is drawn if no divergence is above 0.
    """
    rows = by_place[by_place[KL] > 0]
    if rows.empty:
        return {}
    rows = rows.assign(name=_name_lines(rows))
    largest = rows.groupby("name")[KL].max().sort_values(ascending=False)
    # An interval may reach 0, which a logarithmic axis cannot show. It is cut here.
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
        xlabel=f"position in the text (tokens)\n{_write_bands(rows)}",
        ylabel="mean KL (nats per token)",
    )
    against = rows["against"].iloc[0]
    ax.set_title(
        f"Against {against}, {largest.index[0]} moves predictions most: by up to"
        f" {largest.iloc[0]:.2g} nats"
    )
    shapes.put_legend_outside(ax)
    return {"divergence_by_place": figure}


def _write_bands(rows: pd.DataFrame) -> str:
    seeds = int(rows["seeds"].max()) if "seeds" in rows else 1
    return shapes.write_intervals(seeds, marks="bands")


def _name_lines(rows: pd.DataFrame) -> list[str]:
    """Return the cast of each row, with its method before it if there are several
    methods.
    """
    methods = rows.groupby(["method", "factor"]).ngroups
    names = []
    for row in shapes.iterate_rows(rows):
        name = row.cast
        if methods > 1:
            name = f"{label_method(row.method, row.factor)}, {row.cast}"
        names.append(name)
    return names


def _draw_cost(rows: pd.DataFrame, label: str, unit: str) -> Figure:
    """Draw the cost of every rounding in a row of its own. The rounding with the least
    predicted error comes first.

    ``label`` is the label of the axis of costs, and ``unit`` follows a cost in the title.
    """
    is_predicted = rows["score_error"].notna()
    shown = rows[is_predicted].sort_values("score_error", kind="stable")
    shown = shown.assign(row=range(len(shown)))
    figure, ax = shapes.make_axes((8.5, 2.8 + 0.26 * len(shown)))
    for kind, rows_of_kind in shapes.split_by(shown, "rounds"):
        look, name_of_kind = LOOKS[kind]
        is_costly = rows_of_kind["verdict"] == COSTS
        _draw_dots(ax, rows_of_kind[is_costly], look, name_of_kind)
        label_of_free = f"{name_of_kind}, cost not told from 0"
        _draw_dots(ax, rows_of_kind[~is_costly], look, label_of_free, hollow=True)

    shapes.name_rows(ax, _name_rows(shown))
    ax.set_xscale("symlog", linthresh=LINEAR_UP_TO)
    low = min(3 * shown["ci_low"].min(), -LINEAR_UP_TO)
    high = max(3 * shown["ci_high"].max(), LINEAR_UP_TO)
    bars = shapes.write_intervals(int(shown["seeds"].max()))
    scale = f"scale linear from −{LINEAR_UP_TO:g} to {LINEAR_UP_TO:g}"
    context = shown["context_tokens"].max()
    lines = [
        label,
        f"{bars}; {scale}",
        f"score spread at {context} tokens; 1 is that of scores of random vectors",
    ]
    if shown["rounding"].str.contains("inv_freq").any():
        lines.append(NOT_PREDICTED)
    ax.set(xlim=(low, high), xlabel="\n".join(lines))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.axvline(0, color=GREY, linestyle=shapes.DASHED, linewidth=1)
    ax.set_ylabel("what is rounded (predicted score spread)")
    ax.grid(axis="y", visible=False)

    _set_title(figure, ax, shown, unit)
    shapes.put_legend_below(figure, [ax], 2)
    return figure


def _draw_dots(
    ax: Axes, rows: pd.DataFrame, look: Look, label: str, hollow: bool = False
) -> None:
    """Draw roundings with their intervals."""
    if len(rows):
        intervals = (rows["ci_low"], rows["ci_high"])
        cost = rows["cost"]
        # Dots are small, so that the intervals of large costs are seen beside them.
        style = {"linestyle": "none", "markersize": 4}
        shapes.draw_dots(ax, cost, rows["row"], look, label, intervals, hollow, **style)


def _set_title(figure: Figure, ax: Axes, shown: pd.DataFrame, unit: str) -> None:
    """Say which roundings cost something.

    If all roundings with a score spread above some value have a cost, a line is drawn
    below which each of them costs.
    """
    context = shown["context_tokens"].max()
    costly = shown[shown["verdict"] == COSTS]
    free = shown[shown["verdict"] != COSTS]
    if costly.empty:
        shapes.set_headline(
            figure,
            f"At {context} tokens no rounding has a cost that can be distinguished",
        )
        return

    # Between the roundings of which none is shown to cost and those of which each one is
    # there may be others, where the cost of some is shown.
    least_costly = costly["score_error"].min()
    all_free = free[free["score_error"] < least_costly]
    all_costly = costly[costly["score_error"] > free["score_error"].max()]
    is_unpredicted = least_costly <= LEAST_SCORE_ERROR
    if is_unpredicted or all_free.empty or all_costly.empty:
        shapes.set_headline(figure, _write_title_of_costs(costly, len(shown), unit))
        return

    shapes.set_headline(
        figure,
        f"At {context} tokens no cost is shown up to a score spread of"
        f" {all_free['score_error'].max():.2g};\nevery rounding from"
        f" {all_costly['score_error'].min():.2g} on costs",
    )
    edge = len(shown) - len(all_costly) - 0.5
    ax.axhline(edge, color=GREY, linewidth=1)
    style = {"xycoords": ("axes fraction", "data"), "color": shapes.NOTE_COLOR}
    shapes.write_note(ax, "below: each costs", (0.01, edge), (0, -10), **style)


def _write_title_of_costs(costly: pd.DataFrame, total: int, unit: str) -> str:
    """Say how many roundings cost much, and how much the others cost at most.

    Much is more than half of the highest cost.
    """
    costs = costly["cost"]
    highest = costs.max()
    is_high = costs > highest / 2
    high_count = int(is_high.sum())
    cost = "costs" if high_count == 1 else "cost"
    sentence = f"{high_count} of {total} roundings {cost} up to {highest:.1g} {unit}"
    if is_high.all():
        return sentence
    return f"{sentence}, {(~is_high).sum()} up to {costs[~is_high].max():.1g}"


def _name_rows(shown: pd.DataFrame) -> list[str]:
    """Return the roundings, each with the predicted error of a score."""
    methods = shown.groupby(["method", "factor"]).ngroups
    names = []
    for row in shapes.iterate_rows(shown):
        name = row.rounding
        if methods > 1:
            name = f"{label_method(row.method, row.factor)}, {row.rounding}"
        names.append(f"{name} ({_write_error(row.score_error)})")
    return names


def _write_error(error: float) -> str:
    """Write a predicted error with two digits, or 0 if it is below LEAST_SCORE_ERROR."""
    return "0" if error < LEAST_SCORE_ERROR else f"{error:.2g}"
