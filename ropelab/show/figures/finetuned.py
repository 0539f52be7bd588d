"""What fine-tuning changes: every method before and after it, beside the baselines."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import WINDOW, method_label, name_in
from ropelab.runs.tables import in_longest_context
from ropelab.show.figures.findings import fine_tuning
from ropelab.show.figures.style import GREY, ORANGE, look, tokens_label

BASELINES = {
    "window": ("sliding window", ORANGE, ":"),
    "ceiling": ("trained at the tested length", GREY, "--"),
}
WIDEST = 0.6
"""Losses so far above the best (nats per byte) are written at the edge, not drawn."""


def against_zero_shot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel per task, a row per method: hollow before fine-tuning, filled after it.

    Losses are those of the last window at the tested length, accuracies the mean over all
    distances beyond the trained length, both averaged over seeds; bars are the range of the seeds.
    """
    values = {name: _values(name, tables[name]) for name in tables if name != "text_nll"}
    names = list(next(iter(values.values()))["zero_shot"])
    height = 1.6 + 0.34 * len(names)
    figure, axes = plt.subplots(
        1, len(values), squeeze=False, sharey=True, figsize=(4.6 * len(values), height)
    )
    for ax, (name, arms) in zip(axes[0], values.items(), strict=True):
        _panel(ax, arms, names, is_loss=name == "last_window")
        ax.set_xlabel(_axis(name, tables[name]))
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    named: dict[str, Artist] = {}
    for ax in axes[0]:
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        handles=list(named.values()), labels=list(named), loc="outside lower center", ncols=4
    )
    shown = "last_window" if "last_window" in values else next(iter(values))
    means = {
        arm: {method: spread.mean for method, spread in found.items()}
        for arm, found in values[shown].items()
    }
    title = fine_tuning(means["zero_shot"], means["finetuned"], is_loss=shown == "last_window")
    figure.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    return figure


class Spread(NamedTuple):
    """A mean over seeds, and the lowest and highest of them."""

    mean: float
    low: float
    high: float


def _values(name: str, table: pd.DataFrame) -> dict[str, dict[str, Spread]]:
    """arm -> method (with its factor) -> value over seeds, averaged over distances."""
    if name == "last_window":
        column = "nll_nats_per_byte"
        rows = table[table["context_tokens"] == table["context_tokens"].max()]
    else:
        column = "accuracy"
        far = in_longest_context(table)
        rows = far[far["distance_tokens"] > far["train_len_tokens"]]
    found: dict[str, dict[str, Spread]] = {}
    for (arm, method, factor), part in rows.groupby(["arm", "method", "factor"], sort=False):
        kind = "window" if method == WINDOW else arm
        seeds = part.groupby("seed")[column].mean()
        spread = Spread(float(seeds.mean()), float(seeds.min()), float(seeds.max()))
        found.setdefault(kind, {})[method_label(method, factor)] = spread
    return found


def _panel(ax: Axes, arms: dict[str, dict[str, Spread]], names: list[str], is_loss: bool) -> None:
    spreads = arms["zero_shot"], arms.get("finetuned", {})
    before, after = ({name: s.mean for name, s in found.items()} for found in spreads)
    edge = min([*before.values(), *after.values()]) + WIDEST if is_loss else 1.05
    for found in spreads:
        for name, (_, low, high) in found.items():
            ends = (min(low, edge), min(high, edge))
            y = names.index(name)
            ax.plot(ends, [y, y], color=look(name_in(name)).color, marker="|", lw=1.2, ls="-")
    for y, name in enumerate(names):
        start, end = min(before[name], edge), min(after.get(name, before[name]), edge)
        color, marker = look(name_in(name)).color, look(name_in(name)).marker
        ax.plot([start, end], [y, y], color=color, linewidth=1.5, alpha=0.5)
        ax.plot(start, y, marker, color=color, markersize=7, markerfacecolor="white", zorder=3)
        if name in after:
            ax.plot(end, y, marker, color=color, markersize=7, zorder=4)
        outside = [f"{arm[name]:.2f}" for arm in (before, after) if arm.get(name, 0.0) > edge]
        if outside:
            text = " → ".join(outside)
            ax.annotate(text, (edge, y), (0, 7), textcoords="offset points", size=8, ha="center")
    for arm, (label, color, line) in BASELINES.items():
        for spread in arms.get(arm, {}).values():
            ax.axvline(spread.mean, color=color, linestyle=line, label=label)
    for face, label in (("white", "as trained"), (GREY, "fine-tuned")):
        ax.plot([], [], "o", color=GREY, markerfacecolor=face, label=label)
    ax.grid(visible=False, axis="x")
    if not is_loss:
        ax.set_xlim(-0.04, 1.04)


def _axis(name: str, table: pd.DataFrame) -> str:
    if name == "last_window":
        return f"loss after {tokens_label(table['context_tokens'].max())} tokens (nats per byte)"
    return f"{name.split('_')[0]} accuracy beyond {tokens_label(table['train_len_tokens'].max())}"
