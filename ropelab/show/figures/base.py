"""Figures of the base experiment: base against context, and the bases that theories
advise.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.math.bounds.rules import CI_ZERO
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, BLUE, FIGURES, read_looks

KINDS = read_looks(FIGURES["base"]["kinds"])
CURVES = read_looks(FIGURES["base"]["curves"])


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw bounds over contexts if there are several, theories, and windows where all
    are known.
    """
    bound = tables["bound"]
    figures = {}
    if len(bound) > 1:
        figures["bound"] = _draw_bound(tables)
    figures["theories"] = _draw_theories(tables)

    is_complete = bound["status"] == "all windows"
    with_windows = bound[is_complete & (bound["smallest_admissible_base"] > 1)]
    if len(with_windows):
        figures["windows"] = _draw_windows(with_windows, tables["windows"])
    return figures


def _draw_bound(tables: Tables) -> Figure:
    bound = tables["bound"]
    published = tables["published"]
    figure, ax = shapes.make_axes()

    usable = bound.dropna(subset="recommended_base")
    shapes.draw_line(
        ax,
        usable["context_tokens"],
        usable["recommended_base"],
        *CURVES["recommended"],
        linewidth=2,
    )
    context = bound["context_tokens"]
    shapes.draw_line(
        ax,
        context,
        bound["smallest_admissible_base"],
        *CURVES["smallest"],
        markersize=4,
        linewidth=1,
    )
    head = f"heads of {bound['head_dim'].iloc[0]}"
    title = f"Which bases keep the sum of cosines at or above 0? ({head})"
    if len(published):
        shapes.draw_line(
            ax,
            published["context_tokens"],
            published["paper_base"],
            *CURVES["paper"],
            markerfacecolor="none",
            markersize=8,
        )
        loose = (published["verdict"] == "loose").sum()
        title = f"{loose} of {len(published)} published lower bounds are loose ({head})"

    _draw_fits(ax, tables["fits"], context)
    shapes.draw_line(ax, context, context / CI_ZERO, *CURVES["asymptote"])
    shapes.set_token_axis(ax)
    ax.set(yscale="log", xlabel="context length, tokens", ylabel="base", title=title)
    shapes.set_base_axis(ax.yaxis, ax.get_ylim())
    shapes.put_legend_outside(ax)
    return figure


def _draw_fits(ax: Axes, fits: pd.DataFrame, context: pd.Series) -> None:
    """Draw the power laws that were fitted to the exact bases, and that of the paper."""
    grid = np.geomspace(context.min(), context.max(), 50)
    for values in ("exact values", "printed fit"):
        look, name = CURVES[values]
        first = fits[fits["values"] == values].head(1)
        for fit in shapes.iterate_rows(first):
            label = f"{name}: {fit.coefficient:.3g} L^{fit.exponent:.3f}"
            shapes.draw_line(
                ax, grid, fit.coefficient * grid**fit.exponent, look, label
            )


def _draw_theories(tables: Tables) -> Figure:
    bound = tables["bound"]
    context = bound["context_tokens"].max()
    table = _select_theories(tables["theories"], context)
    figure, ax = shapes.make_axes((8, 1.7 + 0.24 * len(table)))

    rows = np.arange(len(table))
    for kind, (look, label) in KINDS.items():
        chosen = (table["kind"] == kind).to_numpy()
        if chosen.any():
            bases = table["base"][chosen]
            shapes.draw_line(ax, bases, rows[chosen], look, label, markersize=7)

    # Numbers beside the points stand on paper, so that no line crosses them.
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    for row, theory in enumerate(shapes.iterate_rows(table)):
        text = f"{theory.base:.3g}"
        if not np.isnan(theory.fails_at_tokens):
            text += f", fails at {theory.fails_at_tokens:.0f}"
        shapes.write_note(ax, text, (theory.base, row), (8, 0), va="center", bbox=paper)

    recommended = bound["recommended_base"].iloc[-1]
    if recommended > 1:
        ax.axvline(recommended, color=BLACK, linestyle="--", linewidth=1, zorder=0)
    ax.set_yticks(rows, table["theory"])
    ax.set(xscale="log", xlabel="base")

    spread = float(f"{table['base'].max() / table['base'].min():.1g}")
    tokens = shapes.format_tokens(context)
    head = f"heads of {bound['head_dim'].iloc[-1]}"
    shapes.set_headline(
        figure,
        f"Bases for {tokens} tokens, {head}: theories differ {spread:,.0f}-fold\n"
        "(dashed: from here on the sum of cosines stays ≥ 0)",
    )
    # Room on the right for the numbers beside the points.
    ax.set_xlim(table["base"].min() / 3, table["base"].max() * 1000)
    shapes.set_base_axis(ax.xaxis, ax.get_xlim())
    ax.grid(axis="y", visible=False)
    shapes.put_legend_below(figure, [ax], len(KINDS))
    return figure


def _select_theories(table: pd.DataFrame, context: int) -> pd.DataFrame:
    """Return the theories that advise a base for a context, the largest base first."""
    advises = (table["base"] > 1) & np.isfinite(table["base"])
    chosen = table[advises & (table["context_tokens"] == context)]
    return chosen.sort_values("base", ascending=False)


def _draw_windows(bound: pd.DataFrame, windows: pd.DataFrame) -> Figure:
    figure, ax = shapes.make_axes((8, 1.2 + 0.4 * max(len(bound), 3)))
    smallest = bound["smallest_admissible_base"]
    # No base is certified from above where this is missing.
    stable = bound["stable_base"].dropna()
    first = smallest.min() / 1.5
    last = 1.3 * max(stable, default=8 * smallest.max())

    for row, context in enumerate(bound["context_tokens"]):
        own = windows[windows["context_tokens"] == context]
        low = own["low"].to_numpy()
        high = own["high"].fillna(last * 10).to_numpy()
        spans = list(zip(low.tolist(), (high - low).tolist(), strict=True))
        ax.broken_barh(spans, (row - 0.3, 0.6), color=BLUE, linewidth=0)
        # A window narrower than a pixel is still seen by its edge.
        ax.vlines(low, row - 0.3, row + 0.3, color=BLUE, linewidth=0.5)

    contexts = bound["context_tokens"]
    ax.set_yticks(range(len(bound)), [shapes.format_tokens(c) for c in contexts])
    windows_of = windows["context_tokens"]
    title = "Admissible bases (filled) by context"
    if windows_of[windows_of.isin(contexts)].duplicated().any():
        title = "Admissible bases (filled) are not one interval"
    ax.set(xscale="log", xlim=(first, last), title=title)
    ax.set(xlabel="base", ylabel="context, tokens")
    shapes.set_base_axis(ax.xaxis, (first, last))
    ax.grid(axis="y", visible=False)
    return figure
