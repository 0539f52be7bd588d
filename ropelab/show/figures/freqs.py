"""Figures of the freqs experiment: wavelengths before and after, and the angles at the target."""

import math

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures.style import BLACK, GREY, ORANGE, legend_outside, look, token_axis

SHADES = {"kept": "#dfeee8", "ramp": "#fbf0d5", "interpolated": "#dceaf5"}


def draw(tables: Tables) -> dict[str, Figure]:
    """Wavelengths, then phases."""
    return {"wavelengths": _wavelengths(tables), "phases": _phases(tables)}


def _wavelengths(tables: Tables) -> Figure:
    pairs, scaling = tables["pairs"], tables["scaling"].iloc[0]
    figure, ax = plt.subplots()
    _shade_roles(ax, pairs)
    ax.plot(pairs["pair"], pairs["wavelength_tokens"], color=BLACK, label="before")
    ax.plot(
        pairs["pair"],
        pairs["scaled_wavelength_tokens"],
        color=look(scaling["method"]).color,
        marker=look(scaling["method"]).marker,
        linestyle="none",
        label="after",
    )
    for length, name in (("train_len_tokens", "trained"), ("test_len_tokens", "tested")):
        ax.axhline(scaling[length], color=GREY, linestyle=(0, (4, 3)), linewidth=1)
        ax.annotate(
            f"{name} length",
            (0, scaling[length]),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize=8,
            color="#555555",
        )
    token_axis(ax, "y")
    ax.set(
        xlabel="pair, fastest first",
        ylabel="wavelength, tokens",
        title=f"{scaling['method']}: {_what(pairs)}",
    )
    legend_outside(ax)
    return figure


def _what(pairs: pd.DataFrame) -> str:
    counts = pairs["role"].value_counts(sort=False)
    return ", ".join(f"{count} {role}" for role, count in counts.items())


def _shade_roles(ax: Axes, pairs: pd.DataFrame) -> None:
    """A band behind each stretch of pairs with the same role."""
    stretch = (pairs["role"] != pairs["role"].shift()).cumsum()
    named: set[str] = set()
    for _, part in pairs.groupby(stretch):
        role = part["role"].iloc[0]
        if role in SHADES:
            first, last = part["pair"].iloc[0] - 0.5, part["pair"].iloc[-1] + 0.5
            label = None if role in named else role
            ax.axvspan(first, last, color=SHADES[role], linewidth=0, label=label)
            named.add(role)


def _phases(tables: Tables) -> Figure:
    pairs, scaling = tables["pairs"], tables["scaling"].iloc[0]
    figure, ax = plt.subplots()
    new = pairs["unseen"] == "new angles"
    ax.plot(pairs["pair"], pairs["trained_phase_rad"], color=BLACK, label="trained, at its end")
    for chosen, color, marker, label in (
        (~new, look(scaling["method"]).color, "o", "scaled, at the tested length"),
        (new, ORANGE, "X", "the same, angles never seen"),
    ):
        if chosen.any():
            part = pairs[chosen]
            ax.plot(
                part["pair"],
                part["test_phase_rad"],
                color=color,
                marker=marker,
                linestyle="none",
                label=label,
            )
    ax.axhline(2 * math.pi, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
    ax.annotate(
        "a full turn",
        (0, 2 * math.pi),
        xytext=(2, 3),
        textcoords="offset points",
        fontsize=8,
        color="#555555",
    )
    ax.set(
        yscale="log",
        xlabel="pair, fastest first",
        ylabel="angle, rad",
        title=f"{new.sum()} of {len(pairs)} pairs meet angles that training never showed",
    )
    legend_outside(ax)
    return figure
