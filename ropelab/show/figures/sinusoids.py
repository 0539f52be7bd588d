"""Figures of the sinusoidal code: its waves, their sum, its fall with distance, its rotation."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from ropelab.show.figures import shapes
from ropelab.show.looks import AMBER, BLACK, BLUE, GREEN, GREY, LINES, ORANGE, Look

NAMES = {"harmonic": "evenly spaced", "exponential": "the Transformer's"}
COLORS = {"harmonic": ORANGE, "exponential": BLUE}
# Sums of 64 features that differ by less are the same; their rounding in float64 is 1e-14.
SAME = 1e-6


def code(values: pd.DataFrame) -> Figure:
    """Draw the code as a heat map, and four of its columns as waves."""
    grid = values.pivot(index="feature", columns="position_tokens", values="value")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), width_ratios=[1, 1.15])
    image = left.imshow(grid.to_numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(xlabel="position, tokens", ylabel="feature: sin, cos, sin, cos, ...")
    left.grid(False)
    figure.colorbar(image, ax=left, ticks=[-1, 0, 1], fraction=0.05)
    # Sines of the faster half, evenly taken: the slow half are straight lines.
    features = np.linspace(0, len(grid) // 2, 4).astype(int) // 2 * 2
    for feature, color, dash in zip(features, (BLUE, ORANGE, GREEN, BLACK), LINES, strict=True):
        style = Look(color, "", dash)
        shapes.line(right, grid.columns, grid.loc[feature], style, f"feature {feature}")
    right.set(xlabel="position, tokens", ylabel="value", ylim=(-1.1, 1.1))
    shapes.legend_outside(right)
    title = "The sinusoidal code: fast waves in the first features, slow ones in the last"
    shapes.headline(figure, title)
    return figure


def summed(curves: pd.DataFrame) -> Figure:
    """Draw F(t), the sum of all waves, and F one period of the slowest wave later."""
    figure, axes = shapes.panels(1, 2, (9.2, 3.6), sharey=True)
    repeats = {}
    for ax, (spacing, mine) in zip(axes[0], shapes.each(curves, "spacing"), strict=True):
        wide = mine.pivot(index="position_tokens", columns="start", values="value")
        repeats[spacing] = bool((wide["0"] - wide["period"]).abs().max() < SAME)
        later = f"F(t + {mine['period_tokens'].iloc[0]:,.0f})"
        shapes.line(ax, wide.index, wide["0"], Look(GREY, ""), "F(t)", linewidth=3.5)
        shapes.line(ax, wide.index, wide["period"], Look(COLORS[spacing], "", "--"), later)
        ax.set_title(f"{NAMES[spacing]} frequencies", fontweight="normal", loc="center")
        ax.set(xlabel="t, tokens")
        ax.legend(loc="upper right")
    axes[0, 0].set(ylabel="sum of the features, per pair")
    usual = repeats["harmonic"] and not repeats["exponential"]
    found = (
        "One period of the slowest wave later even spacing is back, the Transformer's code is not"
    )
    title = "The sum of the waves, and the sum one period of the slowest wave later"
    shapes.headline(figure, found if usual else title)
    return figure


def by_distance(curves: pd.DataFrame) -> Figure:
    """Draw the product of two codes against the distance of their positions."""
    figure, ax = plt.subplots()
    last = {}
    for spacing, mine in shapes.each(curves, "spacing"):
        style = Look(COLORS[spacing], "", "-" if spacing == "exponential" else ":")
        label = f"{NAMES[spacing]} frequencies"
        shapes.line(ax, mine["distance_tokens"], mine["value"], style, label)
        last[spacing] = mine.loc[mine["distance_tokens"] > 100, "value"].max()
    ax.axhline(0, color=BLACK, linewidth=0.8)
    shapes.token_axis(ax)
    ax.set(xlabel="distance in tokens", ylabel="product of two codes, 1 at distance 0")
    ax.legend(loc="upper center", bbox_to_anchor=(0.55, 0.98))
    found = "The Transformer's code falls with the distance; an evenly spaced one comes back"
    usual = last["harmonic"] > 0.9 > last["exponential"]
    ax.set_title(found if usual else "Similarity of the codes of two positions")
    return figure


def shift(vectors: pd.DataFrame) -> Figure:
    """Draw one pair (sin, cos) as arrows, and the same rotated by the printed matrix."""
    figure, ax = plt.subplots(figsize=(6.8, 3.7))
    shapes.unit_circle(ax, xlim=(-1.9, 1.9), ylim=(-0.2, 1.3), xlabel="sin", ylabel="cos")
    ax.set(xticks=[-1, 0, 1], yticks=[0, 1])
    looks = Look(GREY, ""), Look(BLUE, ""), Look(AMBER, "", "--")
    for row, style in zip(shapes.records(vectors), looks, strict=True):
        shapes.arrow(ax, row.x, row.y, style)
        x, y, side = 1.1 * row.x, 1.1 * row.y + 0.03, "left" if row.x > 0 else "right"
        ax.text(x, y, row.vector, ha=side, va="center", color=style.color)
    later, rotated = vectors[["x", "y"]].to_numpy()[1:]
    found = "(sin, cos) rotates clockwise: a standard rotation takes it back by δ"
    agree = bool(np.abs(later - rotated).max() < SAME)
    ax.set_title("A standard rotation takes the code where it belongs" if agree else found)
    return figure
