"""Figures of the base experiment: which bases a context needs, and what theories advise.

A base is admissible for a context if the sum of cosines of a head is at least 0 at
every position. The recommended base is the base from which on all larger bases are
admissible. A window is an interval of admissible bases.
"""

from typing import Literal

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
    """Draw bounds over contexts if there are several contexts, then theories, then
    windows if the run knows all windows.
    """
    bound = tables["bound"]
    figures = {}
    if len(bound) > 1:
        figures["bound"] = _draw_bound(tables)
        if len(tables["fits"]):
            figures["growth"] = _draw_growth(bound, tables["fits"])
    figures["theories"] = _draw_theories(tables)

    is_complete = bound["status"] == "all windows"
    with_windows = bound[is_complete & (bound["smallest_admissible_base"] > 1)]
    if len(with_windows):
        figures["windows"] = _draw_windows(with_windows, tables["windows"])
    return figures


def _draw_bound(tables: Tables) -> Figure:
    """Draw the recommended and the smallest admissible bases, and the bases that a
    paper prints.

    The mark of a printed base is filled if the sum is negative inside its context.
    """
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
    _draw_smallest(ax, bound)
    head = f"heads of {bound['head_dim'].iloc[0]}"
    title = f"Which bases keep the sum of cosines at or above 0? ({head})"
    if len(published):
        fails = published["paper_fails_at_tokens"].notna()
        _draw_printed(ax, published[fails], "printed, fails", "full")
        _draw_printed(ax, published[~fails], "printed, holds", "none")
        count = f"{fails.sum()} of {len(published)}"
        title = f"{count} printed bases fail inside their context ({head})"

    shapes.set_token_axis(ax)
    ax.set(yscale="log", xlabel="context length, tokens", ylabel="base", title=title)
    shapes.set_base_axis(ax.yaxis, ax.get_ylim())
    shapes.put_legend_outside(ax)
    return figure


def _draw_smallest(ax: Axes, bound: pd.DataFrame) -> None:
    smallest = bound["smallest_admissible_base"]
    look, label = CURVES["smallest"]
    shapes.draw_line(
        ax, bound["context_tokens"], smallest, look, label, markersize=4, linewidth=1
    )


def _draw_printed(
    ax: Axes, rows: pd.DataFrame, curve: str, fill: Literal["full", "none"]
) -> None:
    if len(rows):
        look, label = CURVES[curve]
        shapes.draw_line(
            ax,
            rows["context_tokens"],
            rows["paper_base"],
            look,
            label,
            fillstyle=fill,
            markersize=8,
        )


def _draw_growth(bound: pd.DataFrame, fits: pd.DataFrame) -> Figure:
    """Draw the power laws that were fitted to the exact bases, and the paper's power
    law.
    """
    context = bound["context_tokens"]
    grid = np.geomspace(context.min(), context.max(), 50)
    figure, ax = shapes.make_axes()
    _draw_smallest(ax, bound)
    growth = {}
    for values in ("exact values", "printed fit"):
        look, name = CURVES[values]
        first = fits[fits["values"] == values].head(1)
        for fit in shapes.iterate_rows(first):
            label = f"{name}: {fit.coefficient:.3g} $L^{{{fit.exponent:.3f}}}$"
            shapes.draw_line(
                ax, grid, fit.coefficient * grid**fit.exponent, look, label
            )
            growth[values] = f"$L^{{{fit.exponent:.2f}}}$"
    shapes.draw_line(ax, context, context / CI_ZERO, *CURVES["asymptote"])

    title = "The smallest base by context, and power laws"
    if len(growth) > 1:
        exact, printed = growth.values()
        title = f"The smallest base grows as {exact}; the paper says {printed}"
    shapes.set_token_axis(ax)
    ax.set(yscale="log", xlabel="context length L, tokens", ylabel="base", title=title)
    shapes.set_base_axis(ax.yaxis, ax.get_ylim())
    shapes.put_legend_outside(ax)
    return figure


def _draw_theories(tables: Tables) -> Figure:
    """Draw the base that each theory advises for the longest context."""
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

    # Numbers beside the points have a white box behind them, so that no line crosses
    # them.
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
        f"Theories of the base for {tokens} tokens differ {_write_times(spread)}-fold\n"
        f"({head}; dashed: from here on the sum of cosines stays ≥ 0)",
    )
    # The axis goes on to the right, where the numbers beside the points need room.
    ax.set_xlim(table["base"].min() / 3, table["base"].max() * 1000)
    shapes.set_base_axis(ax.xaxis, ax.get_xlim())
    ax.grid(axis="y", visible=False)
    shapes.put_legend_below(figure, [ax], len(KINDS))
    return figure


def _write_times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio < 1e6 else f"{ratio:.0e}".replace("e+", "e")


def _select_theories(table: pd.DataFrame, context: int) -> pd.DataFrame:
    """Return the theories that advise a base for a context, the largest base first."""
    advises = (table["base"] > 1) & np.isfinite(table["base"])
    chosen = table[advises & (table["context_tokens"] == context)]
    return chosen.sort_values("base", ascending=False)


def _draw_windows(bound: pd.DataFrame, windows: pd.DataFrame) -> Figure:
    """Draw the intervals of admissible bases, a row per context."""
    figure, ax = shapes.make_axes((8, 1.2 + 0.4 * max(len(bound), 3)))
    smallest = bound["smallest_admissible_base"]
    # A context without a stable base has no base from which on all are admissible.
    stable = bound["stable_base"].dropna()
    first = smallest.min() / 1.5
    last = 1.3 * max(stable, default=8 * smallest.max())

    for row, context in enumerate(bound["context_tokens"]):
        windows_of_context = windows[windows["context_tokens"] == context]
        low = windows_of_context["low"].to_numpy()
        # The last window has no end, and is drawn beyond the edge.
        high = windows_of_context["high"].fillna(last * 10).to_numpy()
        spans = list(zip(low.tolist(), (high - low).tolist(), strict=True))
        ax.broken_barh(spans, (row - 0.3, 0.6), color=BLUE, linewidth=0)
        # A window narrower than a pixel is still seen by its edge.
        ax.vlines(low, row - 0.3, row + 0.3, color=BLUE, linewidth=0.8)

    contexts = bound["context_tokens"]
    ax.set_yticks(range(len(bound)), [shapes.format_tokens(c) for c in contexts])
    is_drawn = windows["context_tokens"].isin(contexts)
    contexts_of_windows = windows.loc[is_drawn, "context_tokens"]
    title = "Admissible bases (filled) by context"
    if contexts_of_windows.duplicated().any():
        title = "Admissible bases (filled) are not one interval"
    ax.set(xscale="log", xlim=(first, last), title=title)
    ax.set(xlabel="base", ylabel="context, tokens")
    shapes.set_base_axis(ax.xaxis, (first, last))
    ax.grid(axis="y", visible=False)
    return figure
