"""Methods before and after fine-tuning, on every task that was measured both times."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import WINDOW, extract_method
from ropelab.runs.tables import select_longest_context
from ropelab.show.figures import shapes
from ropelab.show.figures.extrapolate_lines import NLL, WORDS, add_labels
from ropelab.show.figures.shapes import format_tokens
from ropelab.show.looks import GREY, Look, find_look, read_looks

# A loss that exceeds the best loss by more than this, in nats per byte, is written at the
# edge of the panel. The limit is larger than CEILING of the figures with lines, since
# single dots do not cover each other.
CEILING_OF_DOTS = 0.6


def draw_against_zero_shot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel per task, a row per method: hollow before fine-tuning, filled after
    it.

    A loss is the loss of the last window at the tested length. An accuracy is the mean
    over all distances beyond the trained length. Both are averaged over seeds, and bars
    show the range of the seeds.
    """
    tasks = {name: table for name, table in tables.items() if name != "text_nll"}
    spreads = {name: _average_by_arm(table) for name, table in tasks.items()}
    spreads_of_first, *_ = spreads.values()
    names = list(spreads_of_first["zero_shot"].index)
    size = (4.6 * len(tasks), 1.6 + 0.34 * len(names))
    figure, axes = shapes.make_panels(1, len(tasks), size, sharey=True)
    for ax, (name, table) in zip(axes[0], tasks.items(), strict=True):
        is_loss = name == "last_window"
        _draw_before_and_after(ax, spreads[name], is_loss)
        if is_loss:
            longest = format_tokens(table["context_tokens"].max())
            ax.set_xlabel(f"loss after {longest} tokens (nats per byte)")
        else:
            trained = format_tokens(table["train_len_tokens"].iloc[0])
            metric = name.replace("_", " ")
            ax.set_xlabel(f"{metric} beyond {trained}")
            ax.set_xlim(-0.04, 1.04)

    shapes.name_rows(axes[0][0], names)
    shapes.put_legend_below(figure, axes[0], 4)
    if "last_window" in spreads:
        count = _count_helped(spreads["last_window"], is_loss=True)
    else:
        count = _count_helped(spreads_of_first, is_loss=False)
    shapes.set_headline(figure, f"Fine-tuning helps {count} methods")
    return figure


def _count_helped(arms: Mapping[str, pd.DataFrame], is_loss: bool) -> str:
    """Count the methods that fine-tuning made better: `3 of 5`."""
    after = arms["finetuned"]["mean"]
    before = arms["zero_shot"]["mean"].reindex(after.index)
    is_better = after < before if is_loss else after > before
    return f"{is_better.sum()} of {len(after)}"


def _average_by_arm(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Average the values of a task over distances and seeds.

    The result has a table for each arm: a row per method with its factor, and the
    columns mean, min and max over the seeds.
    """
    rows = select_longest_context(table)
    column = NLL
    if "accuracy" in table:
        column = "accuracy"
        rows = rows[rows["distance_tokens"] > rows["train_len_tokens"]]

    # Sliding windows get separate arms, since no method was applied to them.
    is_window = rows["method"] == WINDOW
    arm = rows["arm"].mask(is_window, "window " + rows["arm"])
    # A label usually names the arm. Without the arm a method has the same label before
    # and after fine-tuning.
    without_arm = rows.assign(arm="")
    rows = add_labels(without_arm).assign(arm=arm)

    by_seed = rows.groupby(["arm", "label", "seed"], sort=False)[column].mean()
    by_method = by_seed.groupby(["arm", "label"], sort=False)
    spreads = by_method.agg(["mean", "min", "max"])
    tables = {}
    for name, spreads_of_arm in spreads.groupby("arm", sort=False):
        tables[str(name)] = spreads_of_arm.droplevel("arm")
    return tables


def _draw_before_and_after(
    ax: Axes, arms: Mapping[str, pd.DataFrame], is_loss: bool
) -> None:
    """Draw the rows of all methods on one task, and lines for the sliding windows."""
    before = arms["zero_shot"]
    no_rows = before.iloc[:0]
    after = arms.get("finetuned", no_rows)
    # The index has two levels: before or after, and the method.
    both = pd.concat([before, after], keys=["before", "after"])
    edge = 1.05
    if is_loss:
        edge = both["mean"].min() + CEILING_OF_DOTS
    for row, name in enumerate(before.index):
        is_method = both.index.get_level_values(1) == name
        spreads_of_method = both[is_method].droplevel(1)
        _draw_method(ax, row, name, spreads_of_method, edge)

    for arm, (look, label) in read_looks(WORDS["plain"]).items():
        if arm in arms:
            for mean in arms[arm]["mean"]:
                ax.axvline(mean, color=look.color, linestyle=look.line, label=label)
    # The legend explains the markers of all methods.
    shapes.draw_dots(ax, [], [], Look(GREY, "o"), "as trained", hollow=True)
    shapes.draw_dots(ax, [], [], Look(GREY, "o"), "fine-tuned")
    ax.grid(visible=False, axis="x")


def _draw_method(
    ax: Axes, row: int, name: str, spreads: pd.DataFrame, edge: float
) -> None:
    """Draw a method before and after fine-tuning.

    ``spreads`` has the rows `before` and `after`, with mean, min and max. Values beyond
    the edge of the panel are written there.
    """
    look = find_look(extract_method(name))
    shown = spreads.clip(upper=edge)
    for when, (mean, low, high) in shown.iterrows():
        shapes.draw_dots(
            ax,
            [mean],
            [row],
            look,
            bars=([low], [high]),
            hollow=when == "before",
            markersize=7,
            zorder=3,
        )

    # The line goes from the mean before fine-tuning to the mean after it. Without a row
    # `after` both ends are the same point.
    before_and_after = shown["mean"].iloc[[0, -1]]
    ax.plot(before_and_after, [row, row], color=look.color, linewidth=1.5, alpha=0.5)

    outside = [f"{mean:.2f}" for mean in spreads["mean"] if mean > edge]
    if outside:
        shapes.write_note(ax, " → ".join(outside), (edge, row), (0, 7), ha="center")
