"""Figures of the freqs experiment: wavelengths before and after, and the angles at the target."""

import math

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures.shapes import line
from ropelab.show.figures.style import legend_outside, mark, token_axis
from ropelab.show.looks import BLACK, ORANGE, Look, look

SHADES = {"kept": "#dfeee8", "ramp": "#fbf0d5", "interpolated": "#dceaf5"}


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the wavelengths, then the phases."""
    return {"wavelengths": _wavelengths(tables), "phases": _phases(tables)}


def _wavelengths(tables: Tables) -> Figure:
    pairs, scaling = tables["pairs"], tables["scaling"].iloc[0]
    figure, ax = plt.subplots()
    # A band behind each stretch of pairs with the same role; the legend names a role once.
    named: set[str] = set()
    for _, part in pairs.groupby((pairs["role"] != pairs["role"].shift()).cumsum()):
        role = part["role"].iloc[0]
        if role in SHADES:
            first, last = part["pair"].iloc[0] - 0.5, part["pair"].iloc[-1] + 0.5
            label = None if role in named else role
            ax.axvspan(first, last, color=SHADES[role], linewidth=0, label=label)
            named.add(role)
    after = Look(look(scaling["method"]).color, look(scaling["method"]).marker, "none")
    line(ax, pairs["pair"], pairs["wavelength_tokens"], Look(BLACK, ""), "before")
    line(ax, pairs["pair"], pairs["scaled_wavelength_tokens"], after, "after")
    mark(ax, scaling["train_len_tokens"], "trained length")
    mark(ax, scaling["test_len_tokens"], "tested length")
    token_axis(ax, "y")
    counts = pairs["role"].value_counts(sort=False)
    roles = ", ".join(f"{count} {role}" for role, count in counts.items())
    ax.set(ylabel="wavelength, tokens", title=f"{scaling['method']}: {roles}")
    return _finished(figure, ax)


def _phases(tables: Tables) -> Figure:
    pairs, scaling = tables["pairs"], tables["scaling"].iloc[0]
    figure, ax = plt.subplots()
    new = pairs["unseen"] == "new angles"
    line(ax, pairs["pair"], pairs["trained_phase_rad"], Look(BLACK, ""), "trained, at its end")
    for part, style, label in (
        (
            pairs[~new],
            Look(look(scaling["method"]).color, "o", "none"),
            "scaled, at the tested length",
        ),
        (pairs[new], Look(ORANGE, "X", "none"), "the same, angles never seen"),
    ):
        if len(part):
            line(ax, part["pair"], part["test_phase_rad"], style, label)
    mark(ax, 2 * math.pi, "a full turn")
    title = f"{new.sum()} of {len(pairs)} pairs meet angles that training never showed"
    ax.set(yscale="log", ylabel="angle, rad", title=title)
    return _finished(figure, ax)


def _finished(figure: Figure, ax: Axes) -> Figure:
    ax.set_xlabel("pair, fastest first")
    legend_outside(ax)
    return figure
