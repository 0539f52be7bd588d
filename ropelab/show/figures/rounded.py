"""The cost of casts and of formats of stored keys, against the predicted error of
scores.
"""

import pandas as pd
from matplotlib.figure import Figure

from ropelab.runs.labels import method_label
from ropelab.runs.tables import in_longest_context
from ropelab.show.figures import shapes
from ropelab.show.looks import FIGURES, labelled

LOOKS = labelled(FIGURES["rounded"])
# Errors of scores below this are drawn at it.
LEAST = 1e-4
COSTS = "costs"


def draw(casts: pd.DataFrame) -> dict[str, Figure]:
    """Draw loss and retrieval against the error of a score, in the longest context and
    place.
    """
    figures = {}
    for metric, rows in shapes.each(casts, "metric"):
        longest, task = in_longest_context(rows), metric.removesuffix("_accuracy")
        farthest = longest["at_tokens"].max()
        shown = longest[longest["at_tokens"] == farthest]
        if metric == "nll_last_window":
            figures["cost_of_casts"] = _cost(shown, "nats per byte")
        elif task != metric:
            unit = f"share of {task} lost, {farthest:.0f} tokens back"
            figures[f"{task}_cost_of_casts"] = _cost(shown, unit)
    return figures


def _cost(rows: pd.DataFrame, unit: str) -> Figure:
    figure, ax = shapes.new_axes((8.5, 5))
    rows = rows[rows["score_error"].notna()]
    shown = rows.assign(x=rows["score_error"].clip(lower=LEAST))
    for kind, group in shapes.each(shown, "rounds"):
        look, named = LOOKS[kind]
        ax.vlines(
            group["x"], group["ci_low"], group["ci_high"], color=look.color, alpha=0.35
        )
        worse = group["verdict"] == COSTS
        for chosen, hollow in ((worse, False), (~worse, True)):
            if chosen.any():
                x, y = group.loc[chosen, "x"], group.loc[chosen, "cost"]
                shapes.dots(ax, x, y, look, named, hollow=hollow, linestyle="none")
                named = ""
    ax.set_xscale("log")
    # Small costs and large ones: linear up to a thousandth.
    ax.set_yscale("symlog", linthresh=1e-3)
    low, high = rows["ci_low"].min(), rows["ci_high"].max()
    ax.set(xlim=(LEAST / 2, 2), ylim=(min(3 * low, -1e-3), max(3 * high, 1e-3)))
    single = shown.groupby(["method", "factor"]).ngroups == 1
    names = [
        (
            row.rounding
            if single
            else f"{method_label(row.method, row.factor)}, {row.rounding}"
        )
        for row in shapes.records(shown)
    ]
    shapes.mark(ax, 0, "")
    ax.set(
        xlabel=f"predicted error of a score (deviation 1; below {LEAST:g}: drawn there)"
    )
    ax.set(ylabel=f"cost, {unit}")
    costly, free = shown[shown["verdict"] == COSTS], shown[shown["verdict"] != COSTS]
    context = shapes.tokens_label(rows["context_tokens"].max())
    title = f"At {context} tokens no rounding has a cost that can be distinguished"
    # LEAST beside nan
    if len(costly) and costly["x"].min() <= max(LEAST, free["x"].max()):
        most = f"up to {costly['cost'].max():.2g} {unit.partition(',')[0]}"
        title = (
            f"At {context} tokens {len(costly)} of {len(shown)} roundings cost {most}"
        )
    elif len(costly):
        title = (
            f"At {context} tokens a model notices score errors from"
            f" {costly['x'].min():.2g} on"
        )
        shapes.mark(ax, costly["x"].min(), "costs from here", which="x")
    ax.set_title(title)
    shapes.legend_below(figure, [ax], 2)
    near = [
        p
        for p in zip(shown["x"], shown["cost"], names, strict=True)
        if " from " not in p[2]
    ]
    shapes.label_points(ax, near)
    return figure
