"""Figures of an audit: how each runtime rotates the pairs of a model's heads.

An audit reads one configuration as each runtime does. A layer type is a kind of layers
that rotates alike, such as full attention.
"""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import LINES, PALETTE, Look


class RuntimeGroup(NamedTuple):
    """Runtimes with equal rotations, and the pairs as the first of these runtimes
    rotates them.
    """

    runtimes: list[str]
    pairs: pd.DataFrame


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw, for one layer type, frequencies over the reference and wavelengths."""
    runtimes = tables["runtimes"]
    layer_types = runtimes.loc[runtimes["outcome"] == "read", "layers"].tolist()
    # Full attention is drawn if the model has it, else the layer type that was read
    # first.
    layer_type = layer_types[0]
    if "full_attention" in layer_types:
        layer_type = "full_attention"

    pairs = tables["pairs"]
    # A row `all` is about all layer types.
    is_drawn = pairs["layers"].isin([layer_type, "all"])
    groups = _group_by_frequencies(pairs[is_drawn])
    context = tables["context"]
    lengths = context[context["layers"] == layer_type].iloc[0]
    return {
        "ratios": _draw_ratios(groups),
        "wavelengths": _draw_wavelengths(groups, lengths),
    }


def _group_by_frequencies(pairs: pd.DataFrame) -> list[RuntimeGroup]:
    """Group the runtimes whose frequencies are the same to nine digits."""
    groups: dict[tuple[str, ...], RuntimeGroup] = {}
    for runtime, rows in shapes.split_by(pairs, "runtime"):
        digits = tuple(f"{value:.9g}" for value in rows["inv_freq"])
        group = groups.setdefault(digits, RuntimeGroup([], rows))
        group.runtimes.append(runtime)
    return list(groups.values())


def _draw_ratios(groups: list[RuntimeGroup]) -> Figure:
    figure, ax = _draw_lines(groups, "ratio")
    title = "Every runtime rotates every pair alike"
    if len(groups) > 1:
        title = f"The runtimes rotate the pairs in {len(groups)} different ways"
    ax.set(yscale="log", ylabel="frequency / reference", title=title)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    return figure


def _draw_wavelengths(groups: list[RuntimeGroup], lengths: pd.Series) -> Figure:
    figure, ax = _draw_lines(groups, "wavelength_tokens")
    trained = lengths["trained_tokens"]
    claimed = lengths["claimed_tokens"]
    shapes.mark_value(ax, trained, "trained length", up=-11)
    if pd.notna(claimed) and claimed != trained:
        shapes.mark_value(ax, claimed, "claimed length")
    shapes.set_token_axis(ax, "y")

    title = "Every pair completes a rotation in training"
    critical = lengths["critical_pair"]
    if pd.notna(critical):
        title = f"From pair {critical:.0f} on, training shows no whole rotation"
    ax.set(ylabel="wavelength, tokens", title=title)
    return figure


def _draw_lines(groups: Iterable[RuntimeGroup], column: str) -> tuple[Figure, Axes]:
    figure, ax = shapes.make_axes()
    for number, (runtimes, pairs) in enumerate(groups):
        known = pairs.dropna(subset=column)
        color = PALETTE[number % len(PALETTE)]
        look = Look(color, "none", LINES[number % len(LINES)])
        label = runtimes[0]
        if len(runtimes) > 1:
            label += f" and {len(runtimes) - 1} more"
        shapes.draw_line(ax, known["pair"], known[column].astype(float), look, label)
    ax.set_xlabel("pair, fastest first")
    shapes.put_legend_outside(ax)
    return figure, ax
