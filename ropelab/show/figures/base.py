"""Figures of the base experiment: base against context, and the bases that theories
advise.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ropelab.math.bounds.rules import CI_ZERO
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, BLUE, FIGURES, labelled

KINDS, CURVES = (labelled(FIGURES["base"][part]) for part in ("kinds", "curves"))


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw bounds over contexts if there are several, theories, and windows where all
    are known.
    """
    bound = tables["bound"]
    figures = {"bound": _bound(tables)} if len(bound) > 1 else {}
    figures["theories"] = _theories(tables)
    shown = bound[
        (bound["status"] == "all windows") & (bound["smallest_admissible_base"] > 1)
    ]
    if len(shown):
        figures["windows"] = _windows(shown, tables["windows"])
    return figures


def _bound(tables: Tables) -> Figure:
    bound, published, fits = tables["bound"], tables["published"], tables["fits"]
    figure, ax = shapes.new_axes()
    context, usable = bound["context_tokens"], bound.dropna(subset="recommended_base")
    x, y = usable["context_tokens"], usable["recommended_base"]
    shapes.line(ax, x, y, *CURVES["recommended"], linewidth=2)
    smallest = bound["smallest_admissible_base"]
    shapes.line(ax, context, smallest, *CURVES["smallest"], markersize=4, linewidth=1)
    head = f"heads of {bound['head_dim'].iloc[0]}"
    title = f"Which bases keep the sum of cosines at or above 0? ({head})"
    if len(published):
        x, y = published["context_tokens"], published["paper_base"]
        shapes.line(ax, x, y, *CURVES["paper"], markerfacecolor="none", markersize=8)
        loose = (published["verdict"] == "loose").sum()
        title = f"{loose} of {len(published)} published lower bounds are loose ({head})"
    grid = np.geomspace(context.min(), context.max(), 50)
    for values in ("exact values", "printed fit"):
        style, whose = CURVES[values]
        for fit in shapes.records(fits[fits["values"] == values].head(1)):
            label = f"{whose}: {fit.coefficient:.3g} L^{fit.exponent:.3f}"
            shapes.line(ax, grid, fit.coefficient * grid**fit.exponent, style, label)
    shapes.line(ax, context, context / CI_ZERO, *CURVES["asymptote"])
    shapes.token_axis(ax)
    ax.set(yscale="log", xlabel="context length, tokens", ylabel="base", title=title)
    shapes.base_axis(ax.yaxis, ax.get_ylim())
    shapes.legend_outside(ax)
    return figure


def _theories(tables: Tables) -> Figure:
    context = tables["bound"]["context_tokens"].max()
    table = tables["theories"]
    table = table[(table["context_tokens"] == context) & (table["base"] > 1)]
    table = table[np.isfinite(table["base"])].sort_values("base", ascending=False)
    figure, ax = shapes.new_axes((8, 1.7 + 0.24 * len(table)))
    rows = np.arange(len(table))
    for kind, (style, label) in KINDS.items():
        chosen = (table["kind"] == kind).to_numpy()
        if chosen.any():
            shapes.line(
                ax, table["base"][chosen], rows[chosen], style, label, markersize=7
            )
    for row, (base, fails) in enumerate(
        zip(table["base"], table["fails_at_tokens"], strict=True)
    ):
        text = f"{base:.3g}" if np.isnan(fails) else f"{base:.3g}, fails at {fails:.0f}"
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        shapes.note(ax, text, (base, row), (8, 0), va="center", bbox=paper)
    usable = tables["bound"]["recommended_base"].iloc[-1]
    if usable > 1:
        ax.axvline(usable, color=BLACK, linestyle="--", linewidth=1, zorder=0)
    ax.set_yticks(rows, table["theory"])
    ax.set(xscale="log", xlabel="base")
    spread = float(f"{table['base'].max() / table['base'].min():.1g}")
    apart = f"theories differ {spread:,.0f}-fold"
    head = f"heads of {tables['bound']['head_dim'].iloc[-1]}"
    dashed = "dashed: from here on the sum of cosines stays ≥ 0"
    title = (
        f"Bases for {shapes.tokens_label(context)} tokens, {head}: {apart}\n({dashed})"
    )
    shapes.headline(figure, title)
    # Room on the right for the numbers beside the points.
    ax.set_xlim(table["base"].min() / 3, table["base"].max() * 1000)
    shapes.base_axis(ax.xaxis, ax.get_xlim())
    ax.grid(axis="y", visible=False)
    shapes.legend_below(figure, [ax], len(KINDS))
    return figure


def _windows(bound: pd.DataFrame, windows: pd.DataFrame) -> Figure:
    figure, ax = shapes.new_axes((8, 1.2 + 0.4 * max(len(bound), 3)))
    # missing where no base is certified from above
    stable = bound["stable_base"].dropna()
    smallest = bound["smallest_admissible_base"]
    first, last = smallest.min() / 1.5, 1.3 * max(stable, default=8 * smallest.max())
    for row, context in enumerate(bound["context_tokens"]):
        own = windows[windows["context_tokens"] == context]
        low, high = own["low"].to_numpy(), own["high"].fillna(last * 10).to_numpy()
        spans = list(zip(low.tolist(), (high - low).tolist(), strict=True))
        ax.broken_barh(spans, (row - 0.3, 0.6), color=BLUE, linewidth=0)
        # A window narrower than a pixel is still seen by its edge.
        ax.vlines(low, row - 0.3, row + 0.3, color=BLUE, linewidth=0.5)
    ax.set_yticks(
        range(len(bound)), [shapes.tokens_label(c) for c in bound["context_tokens"]]
    )
    several = windows["context_tokens"][
        windows["context_tokens"].isin(bound["context_tokens"])
    ]
    apart = several.duplicated().any()
    title = (
        f"Admissible bases (filled) {'are not one interval' if apart else 'by context'}"
    )
    ax.set(
        xscale="log",
        xlim=(first, last),
        xlabel="base",
        ylabel="context, tokens",
        title=title,
    )
    shapes.base_axis(ax.xaxis, (first, last))
    ax.grid(axis="y", visible=False)
    return figure
