"""Figures of an audit: what the runtimes make of each pair, and wavelengths against the lengths."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ropelab.show.figures.style import BLACK, GREY, LINES, PALETTE, legend_outside, token_axis

Rows = Sequence[Mapping[str, Any]]


def draw(tables: Mapping[str, Rows]) -> dict[str, Figure]:
    """Ratios between runtimes, then wavelengths."""
    layer = main_layer(tables["runtimes"])
    rows = [row for row in tables["pairs"] if row["layers"] in (layer, "all")]
    return {"ratios": _ratios(rows), "wavelengths": _wavelengths(rows, tables["context"], layer)}


def main_layer(rows: Rows) -> str:
    """Full attention where there is such a layer type, else the first that was read."""
    layers = [row["layers"] for row in rows if row["outcome"] == "read"]
    return "full_attention" if "full_attention" in layers else layers[0]


def groups(rows: Rows) -> list[tuple[list[str], list[Mapping[str, Any]]]]:
    """Runtimes whose frequencies are the same to nine digits, drawn as one line."""
    by_runtime: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_runtime.setdefault(row["runtime"], []).append(row)
    found: dict[tuple[str, ...], tuple[list[str], list[Mapping[str, Any]]]] = {}
    for name, mine in by_runtime.items():
        key = tuple(f"{row['inv_freq']:.9g}" for row in mine)
        found.setdefault(key, ([], mine))[0].append(name)
    return list(found.values())


def legend_of(names: Sequence[str]) -> str:
    """The first name, the rest counted."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _ratios(rows: Rows) -> Figure:
    figure, ax = plt.subplots()
    found = groups(rows)
    for number, (names, mine) in enumerate(found):
        pairs = [row["pair"] for row in mine if row["ratio"] is not None]
        ratios = [row["ratio"] for row in mine if row["ratio"] is not None]
        ax.plot(pairs, ratios, **_style(number), label=legend_of(names))
    alike = len(found) == 1
    ways = f"The runtimes turn the pairs in {len(found)} different ways"
    ax.set(
        yscale="log",
        xlabel="pair, fastest first",
        ylabel="frequency / reference",
        title="Every runtime turns every pair alike" if alike else ways,
    )
    for which in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        which(FuncFormatter(lambda value, _: f"{value:g}"))
    legend_outside(ax)
    return figure


def _style(number: int) -> dict[str, Any]:
    """Colour and dashes by the order in which the groups were found."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": LINES[number % len(LINES)],
        "marker": "none",
    }


def _wavelengths(rows: Rows, context: Rows, layer: str) -> Figure:
    figure, ax = plt.subplots()
    for number, (names, mine) in enumerate(groups(rows)):
        turning = [row for row in mine if row["wavelength_tokens"] is not None]
        pairs = [row["pair"] for row in turning]
        lengths = [row["wavelength_tokens"] for row in turning]
        ax.plot(pairs, lengths, **_style(number), label=legend_of(names))
    about = next(row for row in context if row["layers"] == layer)
    unfinished = about["critical_pair"]
    _length(ax, about["trained_tokens"], "trained", BLACK)
    if about["claimed_tokens"] and about["claimed_tokens"] != about["trained_tokens"]:
        _length(ax, about["claimed_tokens"], "claimed", GREY)
    token_axis(ax, "y")
    said = f"From pair {unfinished} on, training shows no whole turn"
    ax.set(
        xlabel="pair, fastest first",
        ylabel="wavelength, tokens",
        title="Every pair completes a turn in training" if unfinished is None else said,
    )
    legend_outside(ax)
    return figure


def _length(ax: Axes, tokens: float, name: str, color: str) -> None:
    ax.axhline(tokens, color=color, linestyle=(0, (4, 3)), linewidth=1)
    ax.annotate(
        f"{name} length",
        (0, tokens),
        xytext=(2, 3 if name == "claimed" else -11),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
    )
