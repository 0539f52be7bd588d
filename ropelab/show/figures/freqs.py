"""Figures of the freqs experiment: wavelengths before and after, and the angles at the
target.
"""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, ORANGE, Look, look

SHADES = {"kept": "#dfeee8", "ramp": "#fbf0d5", "interpolated": "#dceaf5"}


def draw(tables: Tables) -> dict[str, Figure]:
    pairs, scaling = tables["pairs"], tables["scaling"].iloc[0]
    figures = {}
    for name, draw_on in (("wavelengths", _wavelengths), ("phases", _phases)):
        figures[name], ax = shapes.new_axes()
        draw_on(ax, pairs, scaling, look(scaling["method"]))
        ax.set_xlabel("pair, fastest first")
        shapes.legend_outside(ax)
    return figures


def _wavelengths(
    ax: Axes, pairs: pd.DataFrame, scaling: pd.Series, style: Look
) -> None:
    # A band behind each stretch of pairs with the same role; the legend names a role
    # once.
    shades = dict(SHADES)
    for _, part in pairs.groupby((pairs["role"] != pairs["role"].shift()).cumsum()):
        role, (first, last) = part["role"].iloc[0], part["pair"].iloc[[0, -1]]
        if role in SHADES:
            label = role if shades.pop(role, None) else None
            ax.axvspan(
                first - 0.5, last + 0.5, color=SHADES[role], linewidth=0, label=label
            )
    after = Look(style.color, style.marker, "none")
    shapes.line(
        ax, pairs["pair"], pairs["wavelength_tokens"], Look(BLACK, ""), "before"
    )
    shapes.line(ax, pairs["pair"], pairs["scaled_wavelength_tokens"], after, "after")
    shapes.mark(ax, scaling["train_len_tokens"], "trained length")
    shapes.mark(ax, scaling["test_len_tokens"], "tested length")
    shapes.token_axis(ax, "y")
    counts = pairs["role"].value_counts(sort=False)
    roles = ", ".join(f"{count} {role}" for role, count in counts.items())
    ax.set(ylabel="wavelength, tokens", title=f"{scaling['method']}: {roles}")


def _phases(ax: Axes, pairs: pd.DataFrame, scaling: pd.Series, style: Look) -> None:
    new = pairs["unseen_extended"] == "new angles"
    before = pairs["trained_phase_rad"]
    shapes.line(ax, pairs["pair"], before, Look(BLACK, ""), "trained, at its end")
    for part, color, marker, label in (
        (pairs[~new], style.color, "o", "scaled, at the tested length"),
        (pairs[new], ORANGE, "X", "the same, angles not seen in training"),
    ):
        if len(part):
            of = Look(color, marker, "none")
            shapes.line(ax, part["pair"], part["test_phase_rad"], of, label)
    shapes.mark(ax, 2 * math.pi, "a full rotation")
    lengths = scaling[["train_len_tokens", "extended_len_tokens"]].dropna()
    trained = " and ".join(map(shapes.tokens_label, lengths))
    title = (
        f"{new.sum()} of {len(pairs)} pairs meet angles not seen in training at"
        f" {trained}"
    )
    ax.set(yscale="log", ylabel="angle, rad", title=title)
