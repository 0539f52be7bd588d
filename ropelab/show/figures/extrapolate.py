"""Beyond the trained length: copying by distance, loss by position, loss by context."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import AS_SHIPPED, SEARCHED, WINDOW, name_in, row_labels
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.show.figures import findings
from ropelab.show.figures.finetuned import against_zero_shot
from ropelab.show.figures.kinds import loss_by_kind
from ropelab.show.figures.needles import FOUND, depth_by_length
from ropelab.show.figures.style import (
    label_points,
    legend_outside,
    look,
    token_axis,
    tokens_label,
    trained_length_line,
)

WIDE = (8.0, 4.5)
WORDS = {
    "copy": ("copied symbols", "copies"),
    "hidden": ("symbols hidden in text", "finds them"),
    "recall": ("key and its value", "looks up keys"),
    "nearer": ("nearer of two values", "tells the nearer value"),
}
HOW = {
    "zero_shot": "without fine-tuning",
    SEARCHED: "knobs searched on this model",
    "finetuned": "after fine-tuning",
}
ROW = ["method", "factor", "arm"]
CEILING = 0.3
"""Losses so far above the best (nats per byte) are named, not drawn: the rest would be one line."""


def draw(tables: Tables) -> dict[str, Figure]:
    """The figures of one run; those whose tables it has, for each arm that methods were tried in.

    Baselines alone are drawn as the zero-shot arm would be.
    """
    accuracies = [f"{task}_accuracy" for task in WORDS if _is_decided(tables, task)]
    losses = [name for name in ("text_nll", "last_window") if name in tables]
    measured = {name: tables[name] for name in (*accuracies, *losses)}
    tried = set().union(*(table["arm"][~_is_baseline(table)] for table in measured.values()))
    arms = [arm for arm in HOW if arm in tried] or ["zero_shot"]
    figures: dict[str, Figure] = {}
    for arm in arms:
        shown = {name: _of_arm(table, arm) for name, table in measured.items()}
        shown["comparisons"] = tables["comparisons"]
        suffix = "" if arm == "zero_shot" else f"_{arm}"
        figures |= {f"{name}{suffix}": figure for name, figure in _of_one_arm(shown, arm)}
    if "text_by_document" in tables:
        figures["loss_by_kind"] = loss_by_kind(tables["text_by_document"])
    for task in FOUND:
        if f"{task}_accuracy" in tables:
            figures[f"{task}_depth_by_length"] = depth_by_length(tables[f"{task}_accuracy"], task)
    if {"zero_shot", "finetuned"} <= set(arms):
        figures["finetuned_against_zero_shot"] = against_zero_shot(measured)
    return figures


def _is_decided(tables: Tables, task: str) -> bool:
    """Whether a task was measured, and the model does it at all."""
    table = tables.get(f"{task}_accuracy")
    return table is not None and ("status" not in table or bool((table["status"] == "ok").all()))


def _of_arm(table: pd.DataFrame, arm: str) -> pd.DataFrame:
    """The rows of an arm, and the baselines, which stand beside both."""
    return table[(table["arm"] == arm) | _is_baseline(table)]


def _is_baseline(table: pd.DataFrame) -> pd.Series:
    """True for the rows of baselines, which no method was applied to."""
    return (table["arm"] == "ceiling") | (table["method"] == WINDOW)


def _of_one_arm(tables: Tables, arm: str) -> Iterator[tuple[str, Figure]]:
    for task in WORDS:
        if f"{task}_accuracy" in tables:
            yield f"{task}_by_distance", by_distance(tables, task, arm)
            yield f"{task}_heatmap", heatmap(tables, task, arm)
    if "text_nll" in tables:
        yield "loss_by_position", loss_by_position(tables, arm)
        yield "loss_by_context", loss_by_context(tables["last_window"], arm)
        if arm == "zero_shot":
            yield "tax_and_gain", tax_and_gain(tables["last_window"])


def by_distance(tables: Tables, task: str, arm: str) -> Figure:
    """Accuracy against distance in the longest context, a line per method."""
    table = tables[f"{task}_accuracy"]
    figure, ax = plt.subplots(figsize=WIDE)
    for label, rows in _methods(in_longest_context(table), "distance_tokens"):
        _line(ax, label, rows, "distance_tokens", "accuracy")
    what, does = WORDS[task]
    ax.set(
        xlabel=f"distance of the {what} (tokens)",
        ylabel="share found correctly",
        ylim=(-0.03, 1.05),
        title=findings.retrieval(table, tables["comparisons"], task, does, HOW[arm]),
    )
    return _finished(figure, ax, table["train_len_tokens"].iloc[0])


def loss_by_position(tables: Tables, arm: str) -> Figure:
    """Loss above that of the sliding window, by position; paired intervals over documents."""
    figure, ax = plt.subplots(figsize=WIDE)
    shown, compared = tables["text_nll"], tables["comparisons"]
    rows = compared[(compared["metric"] == "nll_bucket") & (compared["method_b"] == WINDOW)]
    rows = rows[rows["method_a"].isin(row_labels(shown))]
    lines = {str(label): group for label, group in rows.groupby("method_a", sort=False)}
    outside = [label for label, group in lines.items() if group["difference"].min() > CEILING]
    for label, group in lines.items():
        if label not in outside:
            bounds = {"low": group["ci_low"], "high": group["ci_high"]}
            _line(ax, label, group.assign(**bounds), "at_tokens", "difference")
    ax.axhline(0, color=look(WINDOW).color, linestyle=look(WINDOW).line, label=WINDOW)
    ax.set(
        xlabel="position in the text (tokens, end of bucket)",
        ylabel="loss above the sliding window (nats per byte)",
        title=findings.against_window(rows, HOW[arm]),
    )
    ax.set_ylim(top=CEILING)
    _say_outside(ax, {label: lines[label]["difference"].iloc[-1] for label in outside})
    return _finished(figure, ax, shown["train_len_tokens"].iloc[0])


def loss_by_context(table: pd.DataFrame, arm: str) -> Figure:
    """Loss of the same final tokens against how much was read before them."""
    figure, ax = plt.subplots(figsize=WIDE)
    best = table["nll_nats_per_byte"].min()
    outside = {}
    for label, rows in _methods(table, "context_tokens"):
        losses = rows["nll_nats_per_byte"]
        if len(rows) == 1 and label == WINDOW:
            ax.axhline(losses.iloc[0], color=look(label).color, linestyle=":", label=label)
        elif losses.min() > best + CEILING:
            outside[label] = losses.iloc[-1]
        else:
            _line(
                ax, label, rows.drop(columns=["low", "high"]), "context_tokens", "nll_nats_per_byte"
            )
    ax.set(
        xlabel="context read before the same final tokens (tokens)",
        ylabel="loss (nats per byte)",
        title=findings.reading_more(table, HOW[arm]),
    )
    ax.set_ylim(top=best + CEILING)
    _say_outside(ax, outside)
    return _finished(figure, ax, table["train_len_tokens"].iloc[0])


def tax_and_gain(table: pd.DataFrame) -> Figure:
    """What a method costs at the trained length against what the tested length brings."""
    figure, ax = plt.subplots(figsize=WIDE)
    trained_len, longest = table["train_len_tokens"].iloc[0], table["context_tokens"].max()
    losses = {
        label: rows.set_index("context_tokens")["nll_nats_per_byte"]
        for label, rows in _methods(table, "context_tokens")
    }
    baseline = AS_SHIPPED if AS_SHIPPED in losses else "unscaled"
    plain = losses[baseline][trained_len] if baseline in losses else None
    outside, named = {}, []
    for label, loss in losses.items():
        if plain is None or trained_len not in loss:
            continue
        tax, change = loss[trained_len] - plain, loss[longest] - plain
        if max(tax, change) > CEILING:
            outside[label] = change
            continue
        style = look(name_in(label))
        ax.plot(tax, change, style.marker, color=style.color, markersize=8)
        named.append((tax, change, label))
    ax.axhline(0, color="#7F7F7F", linewidth=1)
    ax.axvline(0, color="#7F7F7F", linewidth=1)
    ax.margins(x=0.15, y=0.25)
    ax.set(
        xlabel=f"short-context tax: loss at {tokens_label(trained_len)} above {baseline}",
        ylabel=f"loss at {tokens_label(longest)} above\n{baseline} at {tokens_label(trained_len)}",
        title=findings.tax(losses, trained_len, longest),
    )
    _say_outside(ax, outside)
    if named:
        label_points(ax, named)
    return figure


def _say_outside(ax: Axes, values: dict[str, float]) -> None:
    """Name the methods that are too bad for the scale, with their last value."""
    if values:
        text = ", ".join(f"{label} ({value:.2f})" for label, value in values.items())
        ax.set_xlabel(f"{ax.get_xlabel()}\nabove the scale: {text}")


def heatmap(tables: Tables, task: str, arm: str) -> Figure:
    """Methods by distances, a panel per length of context, the accuracy written in every cell."""
    table = tables[f"{task}_accuracy"]
    contexts = sorted(table["context_tokens"].unique())
    parts = [table[table["context_tokens"] == context] for context in contexts]
    figure, axes = plt.subplots(
        len(parts),
        figsize=(8.0, 0.6 + len(parts) * (0.9 + 0.3 * table.groupby(ROW).ngroups)),
        squeeze=False,
    )
    for ax, context, part in zip(axes[:, 0], contexts, parts, strict=True):
        _cells(ax, part)
        ax.set_title(f"in {tokens_label(context)} tokens", size=9)
    what, does = WORDS[task]
    axes[-1, 0].set_xlabel(f"distance of the {what} (tokens)")
    title = findings.retrieval(table, tables["comparisons"], task, does, HOW[arm])
    figure.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return figure


def _cells(ax: Axes, table: pd.DataFrame) -> None:
    """One panel of a heatmap."""
    labels, rows = zip(*_methods(table, "distance_tokens"), strict=True)
    values = np.array([row["accuracy"] for row in rows])
    distances = rows[0]["distance_tokens"].tolist()
    ax.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        color = "black" if value > 0.5 else "white"
        ax.text(x, y, f"{value:.2f}", ha="center", va="center", color=color, fontsize=9)
    ax.set_xticks(range(len(distances)), [tokens_label(d) for d in distances])
    ax.set_yticks(range(len(labels)), labels)
    ax.grid(visible=False)


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
    """One method, its interval as a band; the second factor of a method has hollow markers."""
    style = look(name_in(label))
    again = any(name_in(str(line.get_label())) == name_in(label) for line in ax.lines)
    ax.plot(
        rows[x],
        rows[y],
        label=label,
        color=style.color,
        marker=style.marker,
        markerfacecolor="white" if again else style.color,
        linestyle=":" if again else style.line,
        markersize=5,
    )
    if "low" in rows:
        low, high = rows["low"], rows["high"]
        ax.fill_between(rows[x], low, high, color=style.color, alpha=0.12, linewidth=0)


def _finished(figure: Figure, ax: Axes, trained_len: int) -> Figure:
    """Token axis, trained length and legend, the same on every line plot."""
    token_axis(ax)
    trained_length_line(ax, trained_len)
    legend_outside(ax)
    return figure
