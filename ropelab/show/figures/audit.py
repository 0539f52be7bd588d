"""Figures of an audit: frequencies of each pair by runtime, and wavelengths against the
lengths.
"""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import LINES, PALETTE, Look


def draw(tables: Tables) -> dict[str, Figure]:
    # Full attention if there is such a layer type, else the first that was read.
    runtimes, pairs, context = tables["runtimes"], tables["pairs"], tables["context"]
    layers = runtimes.loc[runtimes["outcome"] == "read", "layers"].tolist()
    layer = "full_attention" if "full_attention" in layers else layers[0]
    # Runtimes whose frequencies are the same to nine digits are one line.
    groups: dict[tuple[str, ...], list[tuple[str, pd.DataFrame]]] = {}
    for name, mine in shapes.each(
        pairs[pairs["layers"].isin([layer, "all"])], "runtime"
    ):
        same = tuple(f"{value:.9g}" for value in mine["inv_freq"])
        groups.setdefault(same, []).append((name, mine))
    ratios, ax = _lines(groups.values(), "ratio")
    ways = f"The runtimes rotate the pairs in {len(groups)} different ways"
    title = "Every runtime rotates every pair alike" if len(groups) == 1 else ways
    ax.set(yscale="log", ylabel="frequency / reference", title=title)
    for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        set_formatter("{x:g}")

    wavelengths, ax = _lines(groups.values(), "wavelength_tokens")
    about = context[context["layers"] == layer].iloc[0]
    trained, claimed = about["trained_tokens"], about["claimed_tokens"]
    shapes.mark(ax, trained, "trained length", up=-11)
    if pd.notna(claimed) and claimed != trained:
        shapes.mark(ax, claimed, "claimed length")
    shapes.token_axis(ax, "y")
    title = "Every pair completes a rotation in training"
    if pd.notna(about["critical_pair"]):
        title = (
            f"From pair {about['critical_pair']:.0f} on, training shows no whole"
            " rotation"
        )
    ax.set(ylabel="wavelength, tokens", title=title)
    return {"ratios": ratios, "wavelengths": wavelengths}


def _lines(
    groups: Iterable[list[tuple[str, pd.DataFrame]]], column: str
) -> tuple[Figure, Axes]:
    figure, ax = shapes.new_axes()
    for number, ((name, mine), *others) in enumerate(groups):
        known = mine.dropna(subset=column)
        style = Look(PALETTE[number % len(PALETTE)], "none", LINES[number % len(LINES)])
        label = f"{name} and {len(others)} more" if others else name
        shapes.line(ax, known["pair"], known[column].astype(float), style, label)
    ax.set_xlabel("pair, fastest first")
    shapes.legend_outside(ax)
    return figure, ax
