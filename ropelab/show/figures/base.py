"""Figures of the base experiment: which bases a context needs, and what theories advise.

A base is admissible for a context if the sum of cosines of a head is at least 0 at
every position. From the recommended base on, all larger bases are admissible. A window
is an interval of admissible bases.
"""

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.math.bounds.rules import CI_ZERO
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, BLUE, FIGURES, ORANGE, read_looks

# The looks and labels of theories, by what they say of a base: at least, at most, use.
KINDS = read_looks(FIGURES["base"]["kinds"])
# The names of theories for a reader, by the names of their families.
THEORIES = FIGURES["base"]["theories"]
CURVES = read_looks(FIGURES["base"]["curves"])
# The kinds of theories that give a bound: they allow all larger or all smaller bases.
BOUNDS = ("at least", "at most")
# The beginning of the names of three bases that one theory advises.
SMALL = "small base"
# A printed base is said to hardly fail if it fails after this share of its context, or if
# it is less than this many times the smallest base that holds.
NEAR_END = 0.95
NEAR_SMALLEST = 1.05


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
    figure, ax = shapes.make_axes((8, 4.8))

    with_recommended = bound.dropna(subset="recommended_base")
    # Between the two lines a larger base may fail although a smaller one holds.
    ax.fill_between(
        with_recommended["context_tokens"],
        with_recommended["smallest_admissible_base"],
        with_recommended["recommended_base"],
        color=BLUE,
        alpha=0.1,
        linewidth=0,
        label="some bases between hold, some fail",
    )
    shapes.draw_line(
        ax,
        with_recommended["context_tokens"],
        with_recommended["recommended_base"],
        *CURVES["recommended"],
        linewidth=2,
    )
    _draw_smallest(ax, bound)
    title = "Bases whose sum of cosines stays at or above 0, by context"
    if len(published):
        fails = published["paper_fails_at_tokens"].notna()
        _draw_printed(ax, published[fails], "printed, fails", "full")
        _name_failures(ax, published[fails])
        _draw_printed(ax, published[~fails], "printed, holds", "none")
        count = f"{fails.sum()} of {len(published)}"
        title = f"{count} bases printed by Men et al. fail inside their context"

    shapes.set_token_axis(ax)
    ax.set(yscale="log", title=title)
    beyond, above = f"{1 - NEAR_END:.0%}", f"{NEAR_SMALLEST - 1:.0%}"
    ax.set_xlabel(
        "context length (tokens)\n"
        "a base fails if its sum of cosines turns negative inside the context;\n"
        f"percentages: where in the context, for bases that fail in its last {beyond}\n"
        f"or lie within {above} of the smallest base that holds"
    )
    ax.set_ylabel(_label_bases(bound))
    shapes.set_base_axis(ax.yaxis, ax.get_ylim())
    # The bases grow with the context, so the upper left corner is free.
    ax.legend(loc="upper left")
    _explain_step(ax, with_recommended)
    return figure


def _name_failures(ax: Axes, rows: pd.DataFrame) -> None:
    """Write beside some printed bases where they fail, as a percentage of the context.

    These are the bases of which a reader may doubt that they fail: they fail near the end
    of their context, or are hardly above the smallest base that holds.
    """
    share = rows["paper_fails_at_tokens"] / rows["context_tokens"]
    is_narrow = (share > NEAR_END) | (rows["times_exact"] < NEAR_SMALLEST)
    style = {"fontsize": 7.5, "color": ORANGE, "va": "top"}
    for row in shapes.iterate_rows(rows.assign(share=share)[is_narrow]):
        point = (row.context_tokens, row.paper_base)
        shapes.write_note(ax, f"{row.share:.1%}", point, (4, -4), **style)


def _explain_step(ax: Axes, bound: pd.DataFrame) -> None:
    """Say why the recommended base does not grow between the two longest contexts, if it
    does not: the largest base that fails is almost the same for both.
    """
    if len(bound) < 2:
        return
    before, last = (row for _, row in bound.tail(2).iterrows())
    if before["recommended_base"] != last["recommended_base"]:
        return
    longer = shapes.format_tokens(last["context_tokens"])
    shorter = shapes.format_tokens(before["context_tokens"])
    words = f"{shorter} and {longer}: the largest base\nthat fails is almost the same"
    point = (last["context_tokens"], last["recommended_base"])
    style = {"ha": "right", "va": "bottom", "color": shapes.NOTE_COLOR}
    shapes.write_note(ax, words, point, (4, 7), **style)
    # The words need room above the line.
    low, high = ax.get_ylim()
    ax.set_ylim(low, 30 * high)


def _label_bases(bound: pd.DataFrame, more: str = "") -> str:
    """Return the label of an axis of bases; ``more`` is written behind the head size."""
    return f"RoPE base (head size {bound['head_dim'].iloc[-1]}{more})"


def _draw_smallest(ax: Axes, bound: pd.DataFrame) -> None:
    smallest = bound["smallest_admissible_base"]
    look, label = CURVES["smallest"]
    # Without markers the line does not hide the printed bases, many of which lie on it.
    style: dict[str, Any] = {"marker": "", "linewidth": 1.2}
    shapes.draw_line(ax, bound["context_tokens"], smallest, look, label, **style)


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
            markersize=5,
            zorder=3,
        )


def _draw_growth(bound: pd.DataFrame, fits: pd.DataFrame) -> Figure:
    """Draw the power laws that were fitted to the exact bases, and the paper's power
    law.
    """
    context = bound["context_tokens"]
    grid = np.geomspace(context.min(), context.max(), 50)
    figure, ax = shapes.make_axes()
    _draw_smallest(ax, bound)
    power_laws = {}
    for values in ("exact values", "printed fit"):
        look, name = CURVES[values]
        # The table of one row, or of none if there is no fit of these values.
        first_fit = fits[fits["values"] == values].head(1)
        for fit in shapes.iterate_rows(first_fit):
            label = f"{name}: {fit.coefficient:.2g} L^{fit.exponent:.2f}"
            shapes.draw_line(
                ax, grid, fit.coefficient * grid**fit.exponent, look, label
            )
            power_laws[values] = f"L^{fit.exponent:.2f}"
    shapes.draw_line(ax, context, context / CI_ZERO, *CURVES["asymptote"])

    title = "The smallest base by context, and power laws"
    if len(power_laws) > 1:
        exact_law, printed_law = power_laws.values()
        title = f"The smallest base grows as {exact_law}; the paper says {printed_law}"
    shapes.set_token_axis(ax)
    ax.set(yscale="log", xlabel="context length L (tokens)", title=title)
    ax.set_ylabel(_label_bases(bound))
    shapes.set_base_axis(ax.yaxis, ax.get_ylim())
    # The bases grow with the context, so the upper left corner is free.
    ax.legend(loc="upper left")
    return figure


def _draw_theories(tables: Tables) -> Figure:
    """Draw the bases that theories allow or advise for the longest context, a row per
    theory.

    A bar has all bases that a bound allows: the bases above a lower bound, or the bases
    below an upper bound.
    """
    bound = tables["bound"]
    context = bound["context_tokens"].max()
    table = _select_theories(tables["theories"], context)
    figure, ax = shapes.make_axes((8, 1.6 + 0.3 * len(table)))

    # The axis goes beyond the outermost bases, so that there is room for their numbers.
    low = table["base"].min() / 30
    high = table["base"].max() * 30
    for row, theory in enumerate(shapes.iterate_rows(table)):
        look, _ = KINDS[theory.kind]
        _draw_allowed(ax, row, theory, (low, high))
        shapes.draw_line(ax, [theory.base], [row], look, markersize=7)

    recommended = bound["recommended_base"].iloc[-1]
    if recommended > 1:
        line: dict[str, Any] = {"linestyle": shapes.DASHED, "linewidth": 1}
        ax.axvline(recommended, color=BLACK, zorder=0, **line)
        style = {"xycoords": shapes.DATA_AND_HEIGHT, "color": shapes.NOTE_COLOR}
        words = "from here on the sum of cosines stays ≥ 0"
        shapes.write_note(ax, words, (recommended, 1), (4, 3), ha="right", **style)

    shapes.name_rows(ax, [name_theory(name) for name in table["theory"]])
    ax.set(xscale="log", xlim=(low, high), xlabel=_label_bases(bound))
    shapes.set_base_axis(ax.xaxis, ax.get_xlim())
    ax.grid(axis="y", visible=False)
    shapes.set_headline(figure, _write_title_of_theories(table, context))
    _put_legend_of_kinds(figure, ax, table["kind"].unique())
    return figure


def _draw_allowed(ax: Axes, row: int, theory: Any, limits: tuple[float, float]) -> None:
    """Draw a bar over the bases that a bound allows, and write the theory's base beside
    its mark.

    The number is on the side that has no bar.
    """
    look, _ = KINDS[theory.kind]
    low, high = limits
    is_lower_bound = theory.kind == "at least"
    if is_lower_bound:
        left, right = theory.base, high
    else:
        left, right = low, theory.base
    if theory.kind in BOUNDS:
        ax.barh(row, right - left, 0.5, left=left, color=look.color, alpha=0.35)

    # A white box hides the dashed line behind the number.
    white_box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    style = {"bbox": white_box, "va": "center"}
    number = _write_base(theory.base)
    point = (theory.base, row)
    if is_lower_bound:
        shapes.write_note(ax, number, point, (-8, 0), ha="right", **style)
    else:
        shapes.write_note(ax, number, point, (8, 0), ha="left", **style)


def _write_base(base: float) -> str:
    """Write a base with two digits, in plain text as beside the axes of bases."""
    if base < 1000:
        return f"{base:.0f}"
    return f"{base:.1e}".replace("e+0", "e").replace("e+", "e")


def _write_title_of_theories(table: pd.DataFrame, context: int) -> str:
    """Say whether an upper bound excludes what a lower bound demands."""
    tokens = shapes.format_tokens(context)
    highest_lower_bound = table.loc[table["kind"] == "at least", "base"].max()
    lowest_upper_bound = table.loc[table["kind"] == "at most", "base"].min()
    if lowest_upper_bound < highest_lower_bound:
        return f"No base for {tokens} tokens satisfies all theories"
    return f"What theories say about the base for {tokens} tokens"


def _put_legend_of_kinds(figure: Figure, ax: Axes, kinds: Collection[str]) -> None:
    """Put a legend below the panel that names the marks of the kinds of theories."""
    for kind, (look, label) in KINDS.items():
        if kind in kinds:
            shapes.draw_line(ax, [], [], look, label, markersize=7)
    shapes.put_legend_below(figure, [ax], len(KINDS))


def _select_theories(table: pd.DataFrame, context: int) -> pd.DataFrame:
    """Return the theories that advise a base for a context, by kind and then by base.

    Some theories have several rows in the table: for number formats, numbers of layers,
    or several small bases. Such a theory is drawn once: its row for bfloat16, or the row
    with its largest base. Of two theories that advise the same base, one is drawn.
    """
    advises = (table["base"] > 1) & np.isfinite(table["base"])
    chosen = table[advises & (table["context_tokens"] == context)]
    # The stable base is left out, since the recommended base is the same, rounded up.
    chosen = chosen[chosen["theory"] != "stable base"]

    kinds = list(KINDS)
    chosen = chosen.assign(
        order=chosen["kind"].map(kinds.index),
        family=chosen["theory"].map(_name_family),
        has_other_format=~chosen["theory"].str.startswith("bfloat16"),
    )
    largest_first = chosen.sort_values(
        ["has_other_format", "base"], ascending=[True, False]
    )
    drawn = largest_first.drop_duplicates("family").drop_duplicates(["kind", "base"])
    return drawn.sort_values(["order", "base"], ascending=[True, False])


def _name_family(theory: str) -> str:
    """Return the part of a theory's name that its variants share.

    >>> [_name_family(name) for name in ("float32: slowest cosine moves", "DC, 1 layer")]
    ['slowest cosine moves', 'DC']
    """
    rule = theory.partition(": ")[2] or theory
    family = rule.partition(", ")[0]
    if family.startswith(SMALL):
        return SMALL
    return family


def name_theory(theory: str) -> str:
    """Name a theory for a reader: in plain words, or by author and year.

    >>> name_theory("bfloat16: slowest cosine moves"), name_theory("asymptote")
    ('slowest cosine moves in bfloat16', 'limit for wide heads (Su 2024)')
    """
    words = THEORIES.get(_name_family(theory), theory)
    name_of_format, _, rule = theory.partition(": ")
    if rule:
        return words.format(format=name_of_format)
    _, _, variant = theory.partition(", ")
    return words.format(variant=variant)


def _draw_windows(bound: pd.DataFrame, windows: pd.DataFrame) -> Figure:
    """Draw the intervals of admissible bases, a row per context."""
    figure, ax = shapes.make_axes((8, 1.2 + 0.4 * max(len(bound), 3)))
    smallest = bound["smallest_admissible_base"]
    # From its stable base on, all bases are admissible for a context. Some contexts have
    # no stable base.
    stable = bound["stable_base"].dropna()
    left_edge = smallest.min() / 1.5
    right_edge = 1.3 * max(stable, default=8 * smallest.max())

    for row, context in enumerate(bound["context_tokens"]):
        windows_of_context = windows[windows["context_tokens"] == context]
        low = windows_of_context["low"].to_numpy()
        # The last window has no end, and is drawn beyond the edge.
        high = windows_of_context["high"].fillna(right_edge * 10).to_numpy()
        spans = list(zip(low.tolist(), (high - low).tolist(), strict=True))
        ax.broken_barh(spans, (row - 0.3, 0.6), color=BLUE, linewidth=0)
        # A window that is narrower than a pixel is seen by the line at its lower end.
        ax.vlines(low, row - 0.3, row + 0.3, color=BLUE, linewidth=0.8)
    for row, base in enumerate(bound["stable_base"]):
        if base > 0:
            ax.vlines(base, row - 0.42, row + 0.42, color=ORANGE, linewidth=2)

    contexts = bound["context_tokens"]
    ax.set_yticks(range(len(bound)), [shapes.format_tokens(c) for c in contexts])
    is_drawn = windows["context_tokens"].isin(contexts)
    contexts_of_windows = windows.loc[is_drawn, "context_tokens"]
    title = "Bases whose sum of cosines stays ≥ 0 (filled), by context"
    if contexts_of_windows.duplicated().any():
        title = "Bases whose sum of cosines stays ≥ 0 (filled) are not one interval"
    ax.set(xscale="log", xlim=(left_edge, right_edge), title=title)
    label = _label_bases(bound, ", logarithmic axis")
    if len(stable):
        label += "\norange: from here on all bases"
    ax.set(xlabel=label, ylabel="context (tokens)")
    shapes.set_base_axis(ax.xaxis, (left_edge, right_edge))
    ax.grid(axis="y", visible=False)
    return figure
