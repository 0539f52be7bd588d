"""Figures of the sinusoidal code: its waves, their sum, how it falls with distance, its turning."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.show.figures.style import AMBER, BLACK, BLUE, GREEN, GREY, ORANGE, token_axis

NAMES = {"harmonic": "evenly spaced", "exponential": "the Transformer's"}
COLORS = {"harmonic": ORANGE, "exponential": BLUE}
SAME = 1e-6


def code(values: pd.DataFrame) -> Figure:
    """The code as a heat map, and four of its columns as waves."""
    grid = values.pivot(index="feature", columns="position_tokens", values="value")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), width_ratios=[1, 1.15])
    image = left.imshow(grid.to_numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(xlabel="position, tokens", ylabel="feature: sin, cos, sin, cos, ...")
    left.grid(False)
    figure.colorbar(image, ax=left, ticks=[-1, 0, 1], fraction=0.05)
    lines = ("-", "--", "-.", ":")
    shown = np.linspace(0, len(grid) // 2, 4).astype(int) // 2 * 2
    for feature, color, line in zip(shown, (BLUE, ORANGE, GREEN, BLACK), lines, strict=True):
        right.plot(grid.columns, grid.loc[feature], line, color=color, label=f"feature {feature}")
    right.set(xlabel="position, tokens", ylabel="value", ylim=(-1.1, 1.1))
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    _head(figure, "The sinusoidal code: fast waves in the first features, slow ones in the last")
    return figure


def summed(curves: pd.DataFrame) -> Figure:
    """F(t), the sum of all waves, and F one period of the slowest wave later."""
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6), sharey=True)
    back = {}
    for ax, (spacing, mine) in zip(axes, curves.groupby("spacing", sort=False), strict=True):
        wide = mine.pivot(index="position_tokens", columns="start", values="value")
        back[spacing] = bool((wide["0"] - wide["period"]).abs().max() < SAME)
        period = mine["period_tokens"].iloc[0]
        ax.plot(wide.index, wide["0"], color=GREY, linewidth=3.5, label="F(t)")
        label = f"F(t + {period:,.0f})"
        ax.plot(wide.index, wide["period"], "--", color=COLORS[str(spacing)], label=label)
        ax.set_title(f"{NAMES[str(spacing)]} frequencies", fontweight="normal", loc="center")
        ax.set(xlabel="t, tokens")
        ax.legend(loc="upper right")
    axes[0].set(ylabel="sum of the features, per pair")
    repeats = back["harmonic"] and not back["exponential"]
    _head(
        figure,
        "One period of the slowest wave later even spacing is back, the Transformer's code is not"
        if repeats
        else "The sum of the waves, and the sum one period of the slowest wave later",
    )
    return figure


def by_distance(curves: pd.DataFrame) -> Figure:
    """The product of two codes against the distance of their positions."""
    figure, ax = plt.subplots()
    last = {}
    for spacing, mine in curves.groupby("spacing", sort=False):
        line = "-" if spacing == "exponential" else ":"
        ax.plot(
            mine["distance_tokens"],
            mine["value"],
            line,
            color=COLORS[str(spacing)],
            label=f"{NAMES[str(spacing)]} frequencies",
        )
        far = mine[mine["distance_tokens"] > 100]
        last[spacing] = float(far["value"].max())
    ax.axhline(0, color=BLACK, linewidth=0.8)
    token_axis(ax)
    ax.set(xlabel="distance in tokens", ylabel="product of two codes, 1 at distance 0")
    ax.legend(loc="upper center", bbox_to_anchor=(0.55, 0.98))
    ax.set_title(
        "The Transformer's code falls with the distance; an evenly spaced one comes back"
        if last["harmonic"] > 0.9 > last["exponential"]
        else "How alike the codes of two positions are"
    )
    return figure


def shift(vectors: pd.DataFrame) -> Figure:
    """One pair (sin, cos) as arrows: turned by the printed matrix it goes back, not forward."""
    figure, ax = plt.subplots(figsize=(6.8, 3.7))
    circle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(circle), np.sin(circle), color="#cccccc", linewidth=1)
    looks = ((GREY, "-"), (BLUE, "-"), (AMBER, "--"))
    for (_, row), look in zip(vectors.iterrows(), looks, strict=True):
        _arrow(ax, row, *look)
    ax.set(xlim=(-1.9, 1.9), ylim=(-0.2, 1.3), aspect="equal", xlabel="sin", ylabel="cos")
    ax.set(xticks=[-1, 0, 1], yticks=[0, 1])
    ax.spines[:].set_visible(False)
    ax.grid(False)
    later, turned = vectors[["x", "y"]].to_numpy()[1:]
    agree = bool(np.abs(later - turned).max() < SAME)
    ax.set_title(
        "A standard rotation takes the code where it belongs"
        if agree
        else "(sin, cos) turns clockwise: a standard rotation takes it back by δ",
    )
    return figure


def _arrow(ax: Axes, row: pd.Series, color: str, line: str) -> None:
    arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2, "linestyle": line, "shrinkA": 0}
    ax.annotate("", (row["x"], row["y"]), (0, 0), arrowprops=arrow)
    side = "left" if row["x"] > 0 else "right"
    ax.text(1.1 * row["x"], 1.1 * row["y"] + 0.03, row["vector"], ha=side, va="center", color=color)


def _head(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontsize=11, fontweight="bold")
