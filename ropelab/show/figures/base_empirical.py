"""Models trained with several bases: retrieval by distance and text loss by position.

A bound predicts for each base the distance from which on a model fails to find tokens:
the first position where the sum of cosines is negative.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.sentences import join_names
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import Look, pick_look

# The table of text loss, and the tables of retrieval.
TEXT = "text_nll"
TASKS = ("copy_accuracy", "associative_recall_accuracy")
# The column of text loss.
LOSS = "nll_nats_per_byte"


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the first task beside text loss, and a figure for each further task."""
    tasks = [name for name in TASKS if name in tables]
    first_figure = tasks[:1]
    if TEXT in tables:
        first_figure = [*first_figure, TEXT]
    figures = {"retrieval_and_text": _draw_panels(tables, first_figure)}
    for name in tasks[1:]:
        figures[name.removesuffix("_accuracy")] = _draw_panels(tables, [name])
    return figures


def _draw_panels(tables: Tables, names: Sequence[str]) -> Figure:
    """Draw a panel for each named table."""
    width = 6.5
    if len(names) > 1:
        width = 4.8 * len(names)
    figure, panels = shapes.make_panels(1, len(names), (width, 4.5))
    # The labels of the right panel keep away from the left panel.
    shapes.set_panel_distance(figure, 0.08)
    predictions = tables["predictions"]
    for ax, name in zip(panels[0], names, strict=True):
        if name == TEXT:
            heading = _draw_text_panel(ax, tables[name])
        else:
            task = name.removesuffix("_accuracy").replace("_", " ")
            _draw_task_panel(ax, tables[name], task, predictions)
            heading = f"finding what stood before ({task})"
        if len(names) > 1:
            ax.set_title(heading, fontweight="normal", loc="center")

    # The bases have the same looks in all panels, so that one legend serves them.
    first_panel = panels[0][:1]
    shapes.put_legend_below(figure, first_panel, 5)
    shapes.set_headline(figure, _write_title(predictions))
    return figure


def _draw_text_panel(ax: Axes, table: pd.DataFrame) -> str:
    """Draw text loss by position, a line per base: the loss minus the loss with the
    largest base. Return the heading of the panel.

    Some positions of a text are easy and some are hard, whatever the base. The difference
    does not depend on that.
    """
    heading = "reading text"
    bases = sorted(table["base"].unique())
    if len(bases) > 1:
        largest = bases[-1]
        table = _subtract_loss(table, largest)
        label = f"loss above that of base {largest:g}\n(nats per byte)"
        last = table[table["bucket_end_tokens"] == table["bucket_end_tokens"].max()]
        losses_at_end = last.groupby("base")[LOSS].mean().drop(largest)
        if (losses_at_end > 0).all():
            heading = (
                f"reading text: smaller bases end worse{_name_better_start(table)}"
            )
    else:
        label = "text loss (nats per byte)"

    for base, rows in table.groupby("base", sort=False):
        look = pick_look(bases.index(base))
        _draw_loss(ax, rows, look, f"base {base:g}")
    shapes.set_token_axis(ax)
    start, end = table[["bucket_start_tokens", "bucket_end_tokens"]].max()
    xlabel = f"position in the text (at {end}: tokens {start} to {end})"
    seeds = int(table["seed"].nunique())
    # A single model has no band here.
    if seeds > 1:
        xlabel = f"{xlabel}\n{shapes.write_range(seeds)}"
    ax.set(xlabel=xlabel, ylabel=label)
    return heading


def _name_better_start(table: pd.DataFrame) -> str:
    """Name the bases with which models read the beginning of a text better than with the
    largest base, in brackets; empty if there is none.
    """
    first = table[table["bucket_end_tokens"] == table["bucket_end_tokens"].min()]
    losses_at_start = first.groupby("base")[LOSS].max()
    # Every model reads better, not only their mean.
    better = [f"{base:g}" for base in losses_at_start[losses_at_start < 0].index]
    if not better:
        return ""
    verb = "begins" if len(better) == 1 else "begin"
    return f"\n(base {join_names(better)} {verb} better)"


def _subtract_loss(table: pd.DataFrame, base: float) -> pd.DataFrame:
    """Return the table with each loss minus the loss of one base, with the same seed at
    the same position.
    """
    keys = ["seed", "bucket_end_tokens"]
    losses = table.set_index(keys)[LOSS]
    losses_of_base = table[table["base"] == base].set_index(keys)[LOSS]
    differences = losses - losses_of_base.reindex(losses.index)
    return table.assign(**{LOSS: differences.to_numpy()})


def _draw_task_panel(
    ax: Axes, table: pd.DataFrame, task: str, predictions: pd.DataFrame
) -> None:
    """Draw recall by distance, a line per base, and the distances that the bound
    predicts.
    """
    bases = sorted(table["base"].unique())
    for base, rows in table.groupby("base", sort=False):
        look = pick_look(bases.index(base))
        _draw_accuracy(ax, rows, look, f"base {base:g}")
        _mark_predicted(ax, predictions, base, look)
    shapes.set_token_axis(ax)
    bands = shapes.write_range(int(table["seed"].nunique()))
    trained = int(table["context_tokens"].max())
    lines = [f"how far back (tokens; trained at {trained})", bands]
    unmarked = _list_unmarked(predictions)
    if unmarked:
        lines.append(f"base {join_names(unmarked)}: the sum does not turn negative")
    ax.set(xlabel="\n".join(lines), ylabel="recall (share found)")
    # The words of the vertical lines are above the data, between 1 and the upper limit.
    ax.set_ylim(-0.03, 1.34)
    ax.set_yticks(np.linspace(0, 1, 6))


def _list_unmarked(predictions: pd.DataFrame) -> list[str]:
    """Return the bases for which the bound predicts no failure in the tested texts."""
    if predictions.empty:
        return []
    positions = predictions.groupby("base")["first_failing_position_tokens"].max()
    return [f"{base:g}" for base in positions[positions.isna()].index]


def _mark_predicted(ax: Axes, predictions: pd.DataFrame, base: Any, look: Look) -> None:
    """Mark the distance from which on the bound predicts that models with a base fail."""
    # A run without tasks of retrieval has no predictions.
    if predictions.empty:
        return
    rows = predictions[predictions["base"] == base]
    for position in rows["first_failing_position_tokens"].dropna().unique():
        ax.axvline(position, color=look.color, linestyle=shapes.DASHED, linewidth=1.2)
        words = f"sum turns\nnegative:\nbase {base:g}"
        style = {"xycoords": shapes.DATA_AND_HEIGHT, "va": "top", "color": look.color}
        upper_end = (position, 1)
        shapes.write_note(ax, words, upper_end, offset=(3, -2), **style)


def _draw_loss(ax: Axes, rows: pd.DataFrame, look: Look, label: str) -> None:
    x = "bucket_end_tokens"
    means = shapes.average_over_seeds(rows, x, LOSS)
    # A band is drawn only if there are several models. The interval of a single model is
    # one over documents, and wider than the distance between the lines of all bases.
    band = None
    if rows["seed"].nunique() > 1:
        band = (means["low"], means["high"])
    shapes.draw_line(ax, means[x], means[LOSS], look, label, band)


def _draw_accuracy(ax: Axes, rows: pd.DataFrame, look: Look, label: str) -> None:
    x = "distance_tokens"
    means = shapes.average_over_seeds(rows, x, "accuracy")
    band = (means["low"], means["high"])
    shapes.draw_line(ax, means[x], means["accuracy"], look, label, band)


def _write_title(predictions: pd.DataFrame) -> str:
    """Say whether models find things beyond the distance that the bound predicts."""
    if predictions.empty:
        return "Text loss by position under several bases"
    # A prediction is judged only if the predicted and the measured distance of failure
    # are inside the texts.
    is_judged = predictions["agrees"].notna()
    is_measured = predictions["bound_times_measured"].notna()
    judged = predictions[is_judged & is_measured]
    if judged.empty:
        return "Retrieval and text loss under several bases"

    disagrees = not judged["agrees"].astype(bool).any()
    if disagrees and judged["failing_before"].sum() > 0:
        return (
            "The sum of cosines predicts neither where recall ends\n"
            "nor that it fails near by"
        )

    # The predicted distance, divided by the distance at which models fail.
    times = judged["bound_times_measured"]
    if (times < 1).all():
        return "Models find tokens from farther back than the sum of cosines predicts"
    if (times > 1).all():
        return "Models find tokens less far back than the sum of cosines predicts"
    range_of_times = f"{times.min():.1f} to {times.max():.1f}"
    return f"The sum of cosines predicts {range_of_times} times the measured distance"
