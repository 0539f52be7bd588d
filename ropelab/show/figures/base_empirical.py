"""Figure of trained bases: retrieval and text loss by distance beside the
predictions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import Look, pick_look

TEXT = "text_nll"
TASKS = ("copy_accuracy", "associative_recall_accuracy")


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw retrieval beside text loss; a further task has a figure of its own."""
    tasks = [name for name in TASKS if name in tables]
    text = [name for name in (TEXT,) if name in tables]
    figures = {"retrieval_and_text": _draw_panels(tables, tasks[:1] + text)}
    for name in tasks[1:]:
        figures[name.removesuffix("_accuracy")] = _draw_panels(tables, [name])
    return figures


def _draw_panels(tables: Tables, names: Sequence[str]) -> Figure:
    """Draw a panel per table, with the distances from which on the bound predicts
    failure as vertical lines.
    """
    width = 4.5 * len(names) if len(names) > 1 else 6.5
    figure, axes = shapes.make_panels(1, len(names), (width, 4.5))
    predictions = tables["predictions"]
    for ax, name in zip(axes[0], names, strict=True):
        bases = sorted(tables[name]["base"].unique())
        for base, rows in tables[name].groupby("base", sort=False):
            look = pick_look(bases.index(base))
            if name == TEXT:
                _draw_loss(ax, rows, look, f"base {base:g}")
            else:
                _draw_accuracy(ax, rows, look, f"base {base:g}")
                _mark_predicted(ax, predictions, base, look)

        shapes.set_token_axis(ax)
        if name == TEXT:
            ax.set(xlabel="position up to, tokens", ylabel="text loss, nats per byte")
        else:
            task = name.removesuffix("_accuracy").replace("_", " ")
            ax.set(xlabel="distance, tokens", ylabel=f"share found ({task})")
            # Room for the words of the vertical lines, above the data.
            ax.set_ylim(-0.03, 1.22)
            ax.set_yticks(np.linspace(0, 1, 6))

    shapes.put_legend_below(figure, axes[0][:1], 5)
    shapes.set_headline(figure, _write_title(predictions))
    return figure


def _mark_predicted(ax: Axes, predictions: pd.DataFrame, base: Any, look: Look) -> None:
    """Mark the distance from which on the bound predicts failure with a base."""
    if predictions.empty:
        return
    rows = predictions[predictions["base"] == base]
    for position in rows["first_failing_position_tokens"].dropna().unique():
        ax.axvline(position, color=look.color, linestyle=shapes.DASHED, linewidth=1.2)
        words = f"bound,\nbase {base:g}"
        place = {"xycoords": shapes.ABOVE, "va": "top", "color": look.color}
        shapes.write_note(ax, words, (position, 1), (3, -2), **place)


def _draw_loss(ax: Axes, rows: pd.DataFrame, look: Look, label: str) -> None:
    x = "bucket_end_tokens"
    value = "nll_nats_per_byte"
    means = shapes.average_over_seeds(rows, x, value)
    # A single model's interval over documents is wider than all lines of text together.
    band = None
    if rows["seed"].nunique() > 1:
        band = (means["low"], means["high"])
    shapes.draw_line(ax, means[x], means[value], look, label, band)


def _draw_accuracy(ax: Axes, rows: pd.DataFrame, look: Look, label: str) -> None:
    x = "distance_tokens"
    means = shapes.average_over_seeds(rows, x, "accuracy")
    band = (means["low"], means["high"])
    shapes.draw_line(ax, means[x], means["accuracy"], look, label, band)


def _write_title(table: pd.DataFrame) -> str:
    """Say whether models find things beyond the distance that the bound predicts."""
    judged = table[table["agrees"].notna() & table["bound_times_measured"].notna()]
    if table.empty:
        return "Text loss by position under several bases"
    if judged.empty:
        return "Retrieval and text loss under several bases"

    times = judged["bound_times_measured"]
    if (times < 1).all():
        return "Models find tokens from farther back than the bound predicts"
    if (times > 1).all():
        return "Models find tokens from less far back than the bound predicts"
    shortest, longest = times.min(), times.max()
    return f"The bound predicts {shortest:.1f} to {longest:.1f} times the measured distance"
