"""Figures of the freqs experiment: what a scaling method changes in each pair of a head.

A pair of features rotates with a wavelength in tokens. A role is what the method does to
a pair: kept, divided by the whole factor (interpolated), or between (ramp).
"""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, ORANGE, Look, find_look

# The colour behind the pairs of each role.
SHADES = {"kept": "#dfeee8", "ramp": "#fbf0d5", "interpolated": "#dceaf5"}


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the wavelength of each pair, and its angle at the end of the text."""
    pairs = tables["pairs"]
    scaling = tables["scaling"].iloc[0]
    return {
        "wavelengths": _draw_wavelengths(pairs, scaling),
        "phases": _draw_phases(pairs, scaling),
    }


def _draw_wavelengths(pairs: pd.DataFrame, scaling: pd.Series) -> Figure:
    figure, ax = shapes.make_axes()
    _shade_roles(ax, pairs)
    before = pairs["wavelength_tokens"]
    shapes.draw_line(ax, pairs["pair"], before, Look(BLACK, ""), "before")
    after = pairs["scaled_wavelength_tokens"]
    look = find_look(scaling["method"])
    points = Look(look.color, look.marker, "none")
    shapes.draw_line(ax, pairs["pair"], after, points, "after")
    for words, column in (
        ("trained", "train_len_tokens"),
        ("tested", "test_len_tokens"),
    ):
        length = scaling[column]
        shapes.mark_value(ax, length, f"{words} length, {shapes.format_tokens(length)}")
    shapes.set_token_axis(ax, "y")

    ax.set(xlabel="pair of features, fastest first", ylabel="wavelength (tokens)")
    ax.set_title(_write_title_of_roles(pairs["role"], scaling))
    shapes.put_legend_outside(ax)
    return figure


def _write_title_of_roles(roles: pd.Series, scaling: pd.Series) -> str:
    """Say how many pairs the method keeps, and how many it stretches by the factor."""
    counts = roles.value_counts()
    method = scaling["method"]
    kept_count = counts.get("kept", 0)
    stretched = counts.get("interpolated", 0)
    factor = f"{scaling['effective_factor']:.3g}"
    if kept_count == len(roles):
        return f"{method} keeps all {kept_count} pairs"
    if stretched == len(roles):
        return f"{method} stretches all {stretched} pairs by {factor}"
    if kept_count and stretched:
        return (
            f"{method} keeps {kept_count} fast pairs, stretches {stretched} slow ones"
            f" by {factor}"
        )
    parts = ", ".join(f"{count} {role}" for role, count in counts.items())
    return f"{method} treats pairs unlike: {parts}"


def _shade_roles(ax: Axes, pairs: pd.DataFrame) -> None:
    """Draw a band behind each run of neighbouring pairs with the same role."""
    # The cumulative sum numbers the runs: it grows by one at each pair whose role differs
    # from the role of the pair before.
    is_start = pairs["role"] != pairs["role"].shift()
    runs = pairs.groupby(is_start.cumsum())

    roles_in_legend = set()
    for _, pairs_of_run in runs:
        role = pairs_of_run["role"].iloc[0]
        if role not in SHADES:
            continue

        # A role with several bands has one entry in the legend.
        label = None if role in roles_in_legend else role
        roles_in_legend.add(role)
        first = pairs_of_run["pair"].iloc[0]
        last = pairs_of_run["pair"].iloc[-1]
        ax.axvspan(
            first - 0.5, last + 0.5, color=SHADES[role], linewidth=0, label=label
        )


def _draw_phases(pairs: pd.DataFrame, scaling: pd.Series) -> Figure:
    """Draw the angle of each pair at the end of the text, before and after scaling.

    Angles that training did not reach are marked.
    """
    figure, ax = shapes.make_axes()
    trained = pairs["trained_phase_rad"]
    trained_words = shapes.format_tokens(scaling["train_len_tokens"])
    tested = shapes.format_tokens(scaling["test_len_tokens"])
    label = f"at {trained_words}, as trained"
    shapes.draw_line(ax, pairs["pair"], trained, Look(BLACK, ""), label)

    is_new = pairs["unseen_extended"] == "new angles"
    seen = pairs[~is_new]
    unseen = pairs[is_new]
    color = find_look(scaling["method"]).color
    if len(seen):
        look = Look(color, "o", "none")
        label = f"at {tested}, scaled"
        shapes.draw_line(ax, seen["pair"], seen["test_phase_rad"], look, label)
    if len(unseen):
        look = Look(ORANGE, "X", "none")
        label = f"at {tested}, not seen in training"
        shapes.draw_line(ax, unseen["pair"], unseen["test_phase_rad"], look, label)
    ax.set(yscale="log", xlabel="pair of features, fastest first", ylabel="angle (rad)")
    # The shade must not move the upper end of the axis, so the end is set again.
    axis_end = ax.get_ylim()[1]
    ax.axhspan(2 * math.pi, axis_end, color=SHADES["kept"], linewidth=0)
    shapes.mark_value(ax, 2 * math.pi, "above a full rotation every angle was seen")
    ax.set_ylim(top=axis_end)

    lengths = scaling[["train_len_tokens", "extended_len_tokens"]].dropna()
    tokens = " and ".join(map(shapes.format_tokens, lengths))
    if len(unseen):
        count = f"{len(unseen)} of {len(pairs)}"
        title = f"At {tested}, {count} pairs meet angles not trained at {tokens}"
    else:
        title = f"At {tested}, no pair meets an angle that was not trained at {tokens}"
    ax.set_title(title)
    shapes.put_legend_outside(ax)
    return figure
