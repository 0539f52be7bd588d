"""Pass keys found, by depth in the text and length of the context, a panel per way of reading."""

import math

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import AS_SHIPPED, row_labels
from ropelab.show.figures.style import tokens_label

FOUND = {"passkey": "the pass key", "multiquery": "several keys"}
ACROSS = 4
"""Panels side by side."""


def depth_by_length(table: pd.DataFrame, task: str) -> Figure:
    """Share found in every cell, its place in the text downwards and the length to the right."""
    contexts = sorted(table["context_tokens"].unique().tolist())
    panels = list(table.assign(label=row_labels(table)).groupby("label", sort=False))
    down = math.ceil(len(panels) / ACROSS)
    figure, axes = plt.subplots(
        down,
        min(ACROSS, len(panels)),
        figsize=(8.0, 0.9 + 2.1 * down),
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for ax, (label, rows) in zip(axes.flat, panels, strict=False):
        _panel(ax, rows, contexts)
        ax.set_title(str(label), size=9)
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    figure.supxlabel("context (tokens)", size=10)
    figure.supylabel("depth of the key (% of the text)", size=10)
    figure.suptitle(_title(table, task), x=0.01, ha="left", weight="bold", size=11)
    return figure


def _panel(ax: Axes, rows: pd.DataFrame, contexts: list[int]) -> None:
    """One way of reading; a context that it was not asked in stays empty."""
    wide = rows.pivot_table(index="depth_percent", columns="context_tokens", values="accuracy")
    wide = wide.reindex(columns=contexts)
    values = wide.to_numpy()
    ax.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        color = "black" if value > 0.5 else "white"
        if not np.isnan(value):
            ax.text(x, y, f"{value:.2g}", ha="center", va="center", color=color, fontsize=9)
    ax.set_xticks(range(len(wide.columns)), [tokens_label(n) for n in contexts])
    ax.set_yticks(range(len(wide.index)), [f"{depth:g}" for depth in wide.index])
    ax.grid(visible=False)


def _title(table: pd.DataFrame, task: str) -> str:
    """What is found in the longest context, as shipped and by the best other way of reading."""
    longest = table["context_tokens"].max()
    at = table[table["context_tokens"] == longest]
    means = at.groupby(row_labels(at), sort=False)["accuracy"].mean()
    where = f"{FOUND[task]} in {tokens_label(longest)} tokens"
    if (table["status"] != "ok").any():
        return f"The model does not find {where}: no verdict"
    shipped, others = means[AS_SHIPPED], means.drop(AS_SHIPPED)
    if others.empty or others.max() <= shipped:
        return f"Nothing finds {where} more often than the model as shipped ({shipped:.2f})"
    return f"{others.idxmax()} finds {where}: {others.max():.2f}, as shipped {shipped:.2f}"
