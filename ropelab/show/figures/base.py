"""Figures of the base experiment: base against context, and what the theories say about one."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ropelab.math.bounds.published import Printed
from ropelab.runs.tables import Tables
from ropelab.show.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    legend_outside,
    token_axis,
    tokens_label,
)

KINDS = {
    "at least": (BLUE, ">", "at least (a lower bound)"),
    "use": (GREEN, "o", "use (a recipe)"),
    "at most": (ORANGE, "<", "at most (an upper bound)"),
    "small": (GREY, "s", "small, with tuning"),
}


def draw(tables: Tables) -> dict[str, Figure]:
    """Bounds over contexts if there are several, the theories, the windows where all are known."""
    figures = {}
    if len(tables["bound"]) > 1:
        figures["bound"] = _bound(tables)
    figures["theories"] = _theories(tables)
    bound = tables["bound"]
    shown = bound[(bound["status"] == "all windows") & (bound["first_admissible_base"] > 1)]
    if len(shown):
        figures["windows"] = _windows(shown, tables["windows"])
    return figures


def _bound(tables: Tables) -> Figure:
    bound, published, fits = tables["bound"], tables["published"], tables["fits"]
    figure, ax = plt.subplots()
    context = bound["context_tokens"]
    usable = bound.dropna(subset="usable_base")
    ax.plot(
        usable["context_tokens"],
        usable["usable_base"],
        color=GREEN,
        marker="^",
        linewidth=2,
        label="use: it and all above work",
    )
    ax.plot(
        context,
        bound["first_admissible_base"],
        color=BLUE,
        marker="o",
        markersize=4,
        linewidth=1,
        label="first admissible base",
    )
    if len(published):
        ax.plot(
            published["context_tokens"],
            published["paper_base"],
            color=ORANGE,
            marker="s",
            linestyle="none",
            markerfacecolor="none",
            markersize=8,
            label="paper's table",
        )
    for values, color, line in (("exact values", BLUE, ":"), ("printed fit", ORANGE, "--")):
        _fit(ax, fits, values, context, color, line)
    ax.plot(context, context / 0.6165, color=GREY, linestyle="-.", label="asymptote, d to infinity")
    token_axis(ax)
    ax.set(yscale="log", xlabel="context length, tokens", ylabel="base", title=_bound_title(tables))
    _mark_bases(ax.yaxis, ax.get_ylim())
    legend_outside(ax)
    return figure


def _mark_bases(axis: Axis, limits: tuple[float, float]) -> None:
    """Ticks at powers of ten, and between them on a short axis, as people type them: 1e6, 3e6.

    Set as plain text: to typeset exponents takes a third of the time of a figure.
    """
    few = limits[1] < 100 * limits[0]
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda base, _: _typed(base)))
    axis.set_minor_locator(NullLocator())


def _typed(base: float) -> str:
    """One digit and a power of ten.

    >>> _typed(3e6)
    '3e6'
    """
    digit, power = f"{base:.0e}".split("e")
    return f"{digit}e{int(power)}"


def _fit(
    ax: Axes, fits: pd.DataFrame, values: str, context: pd.Series, color: str, line: str
) -> None:
    row = fits[fits["values"] == values]
    if row.empty:
        return
    fit = row.iloc[0]
    grid = np.geomspace(context.min(), context.max(), 50)
    whose = "fit to the exact" if values == "exact values" else "paper's fit"
    label = f"{whose}: {fit.coefficient:.3g} L^{fit.exponent:.3f}"
    ax.plot(grid, fit.coefficient * grid**fit.exponent, color=color, linestyle=line, label=label)


def _bound_title(tables: Tables) -> str:
    published = tables["published"]
    if published.empty:
        return "Which base does a context length need?"
    loose = (published["verdict"] == Printed.LOOSE).sum()
    return f"{loose} of {len(published)} published lower bounds on the base are loose"


def _theories(tables: Tables) -> Figure:
    context = tables["bound"]["context_tokens"].max()
    table = tables["theories"]
    table = table[(table["context_tokens"] == context) & (table["base"] > 1)]
    table = table[np.isfinite(table["base"])].sort_values("base", ascending=False)
    figure, ax = plt.subplots(figsize=(8, 1.7 + 0.24 * len(table)))
    rows = np.arange(len(table))
    for kind, (color, marker, label) in KINDS.items():
        chosen = (table["kind"] == kind).to_numpy()
        if chosen.any():
            ax.plot(
                table["base"][chosen],
                rows[chosen],
                color=color,
                marker=marker,
                linestyle="none",
                markersize=7,
                label=label,
            )
    for row, (base, fails) in enumerate(zip(table["base"], table["fails_at_tokens"], strict=True)):
        text = f"{base:.3g}" if np.isnan(fails) else f"{base:.3g}, fails at {fails:.0f}"
        ax.annotate(
            text,
            (base, row),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    usable = tables["bound"]["usable_base"].iloc[-1]
    if usable > 1:
        ax.axvline(usable, color=BLACK, linestyle="--", linewidth=1, zorder=0)
    ax.set_yticks(rows, table["theory"])
    ax.set(xscale="log", xlabel="base")
    figure.suptitle(_theories_title(table, context), x=0.01, ha="left", weight="bold", size=11)
    ax.set_xlim(table["base"].min() / 3, table["base"].max() * 1000)
    _mark_bases(ax.xaxis, ax.get_xlim())
    ax.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=len(KINDS))
    return figure


def _theories_title(table: pd.DataFrame, context: int) -> str:
    spread = table["base"].max() / table["base"].min()
    return (
        f"Bases for {tokens_label(context)} tokens: the theories lie {_round(spread)}-fold apart "
        f"(dashed: from here on all work)"
    )


def _round(value: float) -> str:
    """One significant digit, written out."""
    return f"{float(f'{value:.1g}'):,.0f}"


def _windows(bound: pd.DataFrame, windows: pd.DataFrame) -> Figure:
    figure, ax = plt.subplots(figsize=(8, 1.2 + 0.4 * max(len(bound), 3)))
    stable = bound["stable_base"].dropna()  # missing where no base is certified from above
    last = max(stable, default=8 * bound["first_admissible_base"].max()) * 1.3
    for row, context in enumerate(bound["context_tokens"]):
        own = windows[windows["context_tokens"] == context]
        low, high = own["low"].to_numpy(), own["high"].fillna(last * 10).to_numpy()
        spans = list(zip(low.tolist(), (high - low).tolist(), strict=True))
        ax.broken_barh(spans, (row - 0.3, 0.6), color=BLUE, linewidth=0)
        ax.vlines(low, row - 0.3, row + 0.3, color=BLUE, linewidth=0.5)
    ax.set_yticks(range(len(bound)), [tokens_label(c) for c in bound["context_tokens"]])
    first = bound["first_admissible_base"].min() / 1.5
    ax.set(
        xscale="log",
        xlim=(first, last),
        xlabel="base",
        ylabel="context, tokens",
        title="Admissible bases (filled) are not one interval",
    )
    _mark_bases(ax.xaxis, (first, last))
    ax.grid(axis="y", visible=False)
    return figure
