"""Beyond the trained length: copying by distance, loss by position, loss by context."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.figures.style import (
    legend_outside,
    look,
    token_axis,
    tokens_label,
    trained_length_line,
)
from ropelab.labels import row_labels
from ropelab.tables import Tables

WIDE = (8.0, 4.5)


def draw(tables: Tables) -> dict[str, Figure]:
    """The figures of one run; those whose tables it has."""
    figures: dict[str, Figure] = {}
    if "copy_accuracy" in tables:
        figures["copy_by_distance"] = copy_by_distance(tables["copy_accuracy"])
        figures["copy_heatmap"] = copy_heatmap(tables["copy_accuracy"])
    if "text_nll" in tables:
        figures["loss_by_position"] = loss_by_position(tables["text_nll"])
        figures["loss_by_context"] = loss_by_context(tables["last_window"])
    return figures


def copy_by_distance(table: pd.DataFrame) -> Figure:
    """Accuracy against distance, a line per method."""
    figure, ax = plt.subplots(figsize=WIDE)
    for label, rows in _methods(table, "distance_tokens"):
        _line(ax, label, rows, "distance_tokens", "accuracy")
    ax.set(
        xlabel="distance of the copied segment (tokens)",
        ylabel="tokens copied correctly",
        ylim=(-0.03, 1.05),
        title="How far back can each method copy, without training on?",
    )
    return _finished(figure, ax, table)


def loss_by_position(table: pd.DataFrame) -> Figure:
    """Loss against position in one pass over held-out text, a line per method."""
    figure, ax = plt.subplots(figsize=WIDE)
    for label, rows in _methods(table, "bucket_end_tokens"):
        _line(ax, label, rows, "bucket_end_tokens", "nll_nats_per_byte")
    ax.set(
        xlabel="position in the text (tokens, end of bucket)",
        ylabel="loss (nats per byte)",
        title="What does a longer context do to the loss on text?",
    )
    return _finished(figure, ax, table)


def loss_by_context(table: pd.DataFrame) -> Figure:
    """Loss of the same final tokens against how much was read before them."""
    figure, ax = plt.subplots(figsize=WIDE)
    for label, rows in _methods(table, "context_tokens"):
        if len(rows) == 1:
            value = rows["nll_nats_per_byte"].iloc[0]
            ax.axhline(value, color=look(label).color, linestyle=":", label=f"{label} (truncated)")
        else:
            _line(ax, label, rows, "context_tokens", "nll_nats_per_byte")
    ax.set(
        xlabel="context read before the same final tokens (tokens)",
        ylabel="loss (nats per byte)",
        title="Does reading more help to predict the same last tokens?",
    )
    return _finished(figure, ax, table)


def copy_heatmap(table: pd.DataFrame) -> Figure:
    """Methods by distances, the accuracy written in every cell."""
    labels, rows = zip(*_methods(table, "distance_tokens"), strict=True)
    values = np.array([row["accuracy"] for row in rows])
    distances = rows[0]["distance_tokens"].tolist()
    figure, ax = plt.subplots(figsize=(8.0, 1.3 + 0.36 * len(labels)))
    ax.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        color = "black" if value > 0.5 else "white"
        ax.text(x, y, f"{value:.2f}", ha="center", va="center", color=color, fontsize=9)
    ax.set_xticks(range(len(distances)), [tokens_label(d) for d in distances])
    ax.set_yticks(range(len(labels)), labels)
    ax.grid(visible=False)
    ax.set(
        xlabel="distance of the copied segment (tokens)", title="Share of tokens copied correctly"
    )
    return figure


def _methods(table: pd.DataFrame, x: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Label and rows of each method in their order, averaged over seeds.

    The band is the interval over documents for one seed, the range of the seeds for several.
    """
    value = "accuracy" if "accuracy" in table else "nll_nats_per_byte"
    many = table["seed"].nunique() > 1
    for label, rows in table.assign(label=row_labels(table)).groupby("label", sort=False):
        by_x = rows.groupby(x)
        low = by_x[value].min() if many else by_x["ci_low"].mean()
        high = by_x[value].max() if many else by_x["ci_high"].mean()
        frame = pd.DataFrame({value: by_x[value].mean(), "low": low, "high": high})
        yield str(label), frame.reset_index()


def _line(ax: Axes, label: str, rows: pd.DataFrame, x: str, y: str) -> None:
    """One method with its interval as a band; a second factor of a method is drawn thinner."""
    style = look(label.split(" ×")[0])
    ax.plot(
        rows[x],
        rows[y],
        label=label,
        color=style.color,
        marker=style.marker,
        linestyle=style.line,
        markersize=5,
    )
    ax.fill_between(rows[x], rows["low"], rows["high"], color=style.color, alpha=0.12, linewidth=0)


def _finished(figure: Figure, ax: Axes, table: pd.DataFrame) -> Figure:
    """Token axis, trained length and legend, the same on every line plot."""
    token_axis(ax)
    trained_length_line(ax, table["trained_len_tokens"].iloc[0])
    legend_outside(ax)
    return figure
