"""Figures of an audit: frequencies of each pair by runtime, and wavelengths against the lengths."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ropelab.show.figures.shapes import line
from ropelab.show.figures.style import legend_outside, mark, token_axis
from ropelab.show.looks import LINES, PALETTE, Look

Rows = Sequence[Mapping[str, Any]]


def draw(tables: Mapping[str, Rows]) -> dict[str, Figure]:
    """Draw ratios between runtimes, then wavelengths."""
    layer = main_layer(tables["runtimes"])
    rows = [row for row in tables["pairs"] if row["layers"] in (layer, "all")]
    about = next(row for row in tables["context"] if row["layers"] == layer)
    return {"ratios": _ratios(rows), "wavelengths": _wavelengths(rows, about)}


def main_layer(rows: Rows) -> str:
    """Return full attention where there is such a layer type, else the first that was read."""
    layers = [row["layers"] for row in rows if row["outcome"] == "read"]
    return "full_attention" if "full_attention" in layers else layers[0]


def groups(rows: Rows) -> list[tuple[list[str], list[Mapping[str, Any]]]]:
    """Group the runtimes whose frequencies are the same to nine digits; each is one line."""
    by_runtime: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_runtime.setdefault(row["runtime"], []).append(row)
    found: dict[tuple[str, ...], tuple[list[str], list[Mapping[str, Any]]]] = {}
    for name, mine in by_runtime.items():
        key = tuple(f"{row['inv_freq']:.9g}" for row in mine)
        found.setdefault(key, ([], mine))[0].append(name)
    return list(found.values())


def _lines(rows: Rows, column: str) -> Figure:
    """Draw a column by pair, a line per group of runtimes; the legend counts the group."""
    figure, ax = plt.subplots()
    for number, (names, mine) in enumerate(groups(rows)):
        known = [row for row in mine if row[column] is not None]
        style = Look(PALETTE[number % len(PALETTE)], "none", LINES[number % len(LINES)])
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        line(ax, [row["pair"] for row in known], [row[column] for row in known], style, label)
    ax.set_xlabel("pair, fastest first")
    legend_outside(ax)
    return figure


def _ratios(rows: Rows) -> Figure:
    figure = _lines(rows, "ratio")
    (ax,) = figure.axes
    count = len(groups(rows))
    alike, ways = "Every runtime turns every pair alike", f"in {count} different ways"
    title = alike if count == 1 else f"The runtimes turn the pairs {ways}"
    ax.set(yscale="log", ylabel="frequency / reference", title=title)
    for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return figure


def _wavelengths(rows: Rows, about: Mapping[str, Any]) -> Figure:
    figure = _lines(rows, "wavelength_tokens")
    (ax,) = figure.axes
    mark(ax, about["trained_tokens"], "trained length", up=-11)
    if about["claimed_tokens"] and about["claimed_tokens"] != about["trained_tokens"]:
        mark(ax, about["claimed_tokens"], "claimed length")
    token_axis(ax, "y")
    unfinished = about["critical_pair"]
    said = f"From pair {unfinished} on, training shows no whole turn"
    title = "Every pair completes a turn in training" if unfinished is None else said
    ax.set(ylabel="wavelength, tokens", title=title)
    return figure
