"""Figures of an audit: frequencies of each pair by runtime, and wavelengths against the lengths."""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ropelab.runs.tables import Tables
from ropelab.show.figures.shapes import each, line
from ropelab.show.figures.style import legend_outside, mark, token_axis
from ropelab.show.looks import LINES, PALETTE, Look


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw ratios between runtimes, then wavelengths."""
    # Full attention if there is such a layer type, else the first that was read.
    runtimes, pairs, context = tables["runtimes"], tables["pairs"], tables["context"]
    layers = runtimes.loc[runtimes["outcome"] == "read", "layers"].tolist()
    layer = "full_attention" if "full_attention" in layers else layers[0]
    rows = pairs[pairs["layers"].isin([layer, "all"])]
    about = context[context["layers"] == layer].iloc[0]
    # Runtimes whose frequencies are the same to nine digits are one line.
    found: dict[tuple[str, ...], tuple[list[str], pd.DataFrame]] = {}
    for name, mine in each(rows, "runtime"):
        key = tuple(f"{value:.9g}" for value in mine["inv_freq"])
        found.setdefault(key, ([], mine))[0].append(name)
    groups = list(found.values())
    return {"ratios": _ratios(groups), "wavelengths": _wavelengths(groups, about)}


def _lines(groups: list[tuple[list[str], pd.DataFrame]], column: str) -> Figure:
    """Draw a column by pair, a line per group of runtimes; the legend counts the group."""
    figure, ax = plt.subplots()
    for number, (names, mine) in enumerate(groups):
        known = mine.dropna(subset=column)
        style = Look(PALETTE[number % len(PALETTE)], "none", LINES[number % len(LINES)])
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        line(ax, known["pair"], known[column].astype(float), style, label)
    ax.set_xlabel("pair, fastest first")
    legend_outside(ax)
    return figure


def _ratios(groups: list[tuple[list[str], pd.DataFrame]]) -> Figure:
    figure = _lines(groups, "ratio")
    (ax,) = figure.axes
    ways = f"The runtimes turn the pairs in {len(groups)} different ways"
    title = "Every runtime turns every pair alike" if len(groups) == 1 else ways
    ax.set(yscale="log", ylabel="frequency / reference", title=title)
    for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure


def _wavelengths(groups: list[tuple[list[str], pd.DataFrame]], about: pd.Series) -> Figure:
    figure = _lines(groups, "wavelength_tokens")
    (ax,) = figure.axes
    trained, claimed = about["trained_tokens"], about["claimed_tokens"]
    mark(ax, trained, "trained length", up=-11)
    if pd.notna(claimed) and claimed != trained:
        mark(ax, claimed, "claimed length")
    token_axis(ax, "y")
    if pd.isna(about["critical_pair"]):
        title = "Every pair completes a turn in training"
    else:
        title = f"From pair {about['critical_pair']:.0f} on, training shows no whole turn"
    ax.set(ylabel="wavelength, tokens", title=title)
    return figure
