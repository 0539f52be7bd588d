"""Text told apart by kind of document: where reading on pays, and where it costs."""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.labels import WINDOW, name_in, row_labels
from ropelab.runs.stats import mean_interval
from ropelab.show.figures.style import legend_outside, look

NLL = "nll_nats_per_byte"
SHOWN = 6
"""Ways to read that are drawn, the best of all documents; more would lie on each other."""


def loss_by_kind(table: pd.DataFrame) -> Figure:
    """Loss above the sliding window's on each kind of document, with intervals over documents."""
    above = against_window(table)
    labels = list(above.groupby("label")["above"].mean().sort_values().index[:SHOWN])
    kinds = above.drop_duplicates(["name", "kind"])["kind"].value_counts()
    figure, ax = plt.subplots(figsize=(8.0, 1.5 + 0.6 * len(kinds)))
    for number, label in enumerate(labels):
        _row(ax, above[above["label"] == label], list(kinds.index), number / len(labels) - 0.4)
    ax.axvline(0, color=look(WINDOW).color, linestyle=look(WINDOW).line, label=WINDOW)
    ax.set_yticks(range(len(kinds)), [f"{kind} ({count})" for kind, count in kinds.items()])
    ax.invert_yaxis()
    ax.set(
        xlabel="loss at the end of the text above the sliding window (nats per byte)",
        title=title(above[above["label"] == labels[0]], labels[0]),
    )
    legend_outside(ax)
    return figure


def against_window(table: pd.DataFrame) -> pd.DataFrame:
    """Every document's loss under every other row, above that of the sliding window: `above`."""
    named = table.assign(label=row_labels(table))
    about = ["name", "kind"]
    window = named[named["label"] == WINDOW].set_index(about)[NLL].rename("window")
    others = named[named["label"] != WINDOW].join(window, on=about)
    return others.assign(above=others[NLL] - others["window"])


def _row(ax: Axes, rows: pd.DataFrame, kinds: list[str], offset: float) -> None:
    """One way to read: a point with an interval for each kind."""
    label = str(rows["label"].iloc[0])
    found = [mean_interval(rows.loc[rows["kind"] == kind, "above"]) for kind in kinds]
    style = look(name_in(label))
    again = any(name_in(str(line.get_label())) == name_in(label) for line in ax.containers)
    ax.errorbar(
        [each.value for each in found],
        [place + offset for place in range(len(kinds))],
        xerr=[
            [each.value - each.low for each in found],
            [each.high - each.value for each in found],
        ],
        fmt=style.marker,
        color=style.color,
        markerfacecolor="white" if again else style.color,
        markersize=5,
        capsize=2,
        linestyle="none",
        label=label,
    )


def title(best: pd.DataFrame, label: str) -> str:
    """How the best row stands to the window, from the kind it reads best to the worst one.

    A kind of a single document names no end of the span, unless every kind is one.
    """
    by_kind = best.groupby("kind")["above"].agg(["mean", "count"])
    several = by_kind[by_kind["count"] > 1]
    means = (by_kind if several.empty else several)["mean"].sort_values()
    ends = [f"{value:+.3f} ({kind})" for kind, value in means.iloc[[0, -1]].items()]
    span = " to ".join(dict.fromkeys(ends))
    return f"{label} against a sliding window, by kind of text:\n{span} nats per byte"
