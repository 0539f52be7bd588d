"""Every encoding: cost beside quality, loss by position, copying by distance."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ropelab.runs.tables import Tables
from ropelab.show.figures import findings
from ropelab.show.figures.style import BLACK, BLUE, GREY, look, token_axis, trained_length_line

TEXT, COPY = "text loss", "copy accuracy"
FAMILIES = {
    "embeddings": "nothing, or vectors added to embeddings",
    "scores": "learned vectors in the scores",
    "bias": "numbers added to the scores",
    "rotation": "queries and keys rotated",
}


def draw(tables: Tables) -> dict[str, Figure]:
    """The figures of one run; those whose tables it has."""
    cost, quality = tables["cost"], tables["quality"]
    figures = {"cost_and_quality": cost_and_quality(cost, quality)}
    if "text_nll" in tables:
        figures["loss_by_position"] = loss_by_position(tables["text_nll"], cost)
    if "copy_accuracy" in tables:
        figures["copy_heatmap"] = copy_heatmap(tables["copy_accuracy"], cost)
    return figures


def cost_and_quality(cost: pd.DataFrame, quality: pd.DataFrame) -> Figure:
    """A row per encoding, best first: text loss, copying, work and parameters side by side."""
    metrics = [metric for metric in (TEXT, COPY) if metric in set(quality["metric"])]
    order = _best_first(cost, quality, metrics[0])
    figure, axes = plt.subplots(
        1, len(metrics) + 2, sharey=True, figsize=(10, 1.7 + 0.27 * len(order))
    )
    if TEXT in metrics:
        axes[0].set(xlabel="text loss at the end\n(nats per byte)")
    if COPY in metrics:
        axes[metrics.index(COPY)].set(xlabel="tokens copied\ncorrectly", xlim=(-0.05, 1.05))
    for ax, metric in zip(axes, metrics, strict=False):
        _dumbbells(ax, quality[quality["metric"] == metric], order)
    _work(axes[-2], cost, order)
    _parameters(axes[-1], cost, order)
    labels = cost.set_index("encoding")["label"]
    axes[0].set_yticks(range(len(order)), [labels[name] for name in order])
    axes[0].invert_yaxis()
    times = quality["times_trained_len"].max()
    figure.suptitle(
        f"What each encoding keeps at {times}x its trained length, and what it costs",
        x=0.01, ha="left", fontweight="bold", fontsize=11,
    )  # fmt: skip
    return figure


def _best_first(cost: pd.DataFrame, quality: pd.DataFrame, metric: str) -> list[str]:
    """Encodings by their value at the longest context; those without one come last."""
    longest = quality["times_trained_len"].max()
    chosen = quality[(quality["metric"] == metric) & (quality["times_trained_len"] == longest)]
    values = chosen.set_index("encoding")["value"].reindex(cost["encoding"])
    return list(values.sort_values(ascending=metric == TEXT, na_position="last").index)


def _dumbbells(ax: Axes, rows: pd.DataFrame, order: list[str]) -> None:
    """From the trained length (open) to the longest context (full), with intervals over seeds.

    What is undefined at the longest says so beside its only marker.
    """
    longest = rows["times_trained_len"].max()
    for times, color, face, size in ((1, GREY, "white", 6), (longest, BLUE, BLUE, 6)):
        at = rows[rows["times_trained_len"] == times].set_index("encoding").loc[order]
        y = np.arange(len(order))
        ax.hlines(y, at["ci_low"], at["ci_high"], color=color, linewidth=3, alpha=0.35)
        ax.plot(
            at["value"], y, "o" if times == 1 else "D", color=color, markerfacecolor=face,
            markersize=size, label=f"at {times}x",
        )  # fmt: skip
    values = rows.pivot(index="encoding", columns="times_trained_len", values="value").loc[order]
    ax.hlines(range(len(order)), values[1], values[longest], color=GREY, linewidth=0.8, zorder=1)
    trained = rows[rows["times_trained_len"] == 1].set_index("encoding")
    low, high = (trained[end].fillna(trained["value"]) for end in ("ci_low", "ci_high"))
    for row, name in enumerate(order):
        if np.isnan(values.loc[name, longest]):
            _beside(ax, row, (low[name], high[name]), "undefined")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, handletextpad=0.1, fontsize=8)


def _beside(ax: Axes, row: int, interval: tuple[float, float], text: str) -> None:
    """Words beside a row's interval, where the panel has more room."""
    low, high = interval
    left = low + high > sum(ax.get_xlim())
    ax.annotate(
        text, (low if left else high, row), xytext=(-7 if left else 7, 0),
        textcoords="offset points", ha="right" if left else "left", va="center", fontsize=8,
        color=GREY,
    )  # fmt: skip


def _work(ax: Axes, cost: pd.DataFrame, order: list[str]) -> None:
    """Matrix products in training and in decoding, against none."""
    rows = cost.set_index("encoding").loc[order]
    y = range(len(order))
    ax.axvline(1, color=GREY, linewidth=0.8)
    ax.plot(rows["train_flops_ratio"], y, "s", color=BLACK, markersize=5, label="training")
    ax.plot(
        rows["decode_flops_ratio"], y, "o", color=BLACK, markerfacecolor="white", label="decoding"
    )
    ax.set(xlabel="matrix products\n(NoPE = 1)")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, handletextpad=0.1, fontsize=8)


def _parameters(ax: Axes, cost: pd.DataFrame, order: list[str]) -> None:
    """Added parameters, on an axis that has room for none."""
    counts = cost.set_index("encoding").loc[order]["parameters"]
    ax.barh(range(len(order)), counts, color=GREY, height=0.6)
    ax.set_xscale("symlog", linthresh=10)
    ax.set(xlabel="parameters\nadded", xlim=(0, max(10, counts.max()) * 100))
    ax.set_xticks([0, 10, 1000, 100_000], ["0", "10", "1,000", "100,000"], fontsize=8)
    for y, count in enumerate(counts):
        ax.annotate(
            f"{count:,}", (count, y), xytext=(3, 0), textcoords="offset points", va="center",
            fontsize=8,
        )  # fmt: skip


def loss_by_position(table: pd.DataFrame, cost: pd.DataFrame) -> Figure:
    """Loss against position, a panel per family; the other encodings stay in grey behind."""
    families = [family for family in FAMILIES if family in set(cost["family"])]
    figure, panels = plt.subplots(2, 2, sharex=True, sharey=True, figsize=(9, 6.2), squeeze=False)
    for ax, family in zip(panels.flat, families, strict=False):
        for name, label, rows in _lines(table, cost):
            mine = cost.loc[cost["encoding"] == name, "family"].item() == family
            _position_line(ax, name, label, rows, mine)
        ax.set_title(FAMILIES[family], fontsize=9, fontweight="normal")
        ax.legend(loc="upper left", fontsize=8, frameon=True, framealpha=0.85, edgecolor="none")
        token_axis(ax)
        trained_length_line(ax, table["train_len_tokens"].iloc[0])
    for ax in panels.flat[len(families) :]:
        ax.set_visible(False)
    figure.supxlabel("position in the text (tokens, end of bucket)", fontsize=10)
    figure.supylabel("loss (nats per byte)", fontsize=10)
    figure.suptitle(
        findings.reads_farthest(table, cost.set_index("encoding")["label"]),
        x=0.01, ha="left", fontweight="bold", fontsize=11,
    )  # fmt: skip
    _zoom(panels.flat[0], table)
    return figure


def _lines(table: pd.DataFrame, cost: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Name, label and defined rows of every encoding: mean, least and largest over the seeds."""
    for name, label in zip(cost["encoding"], cost["label"], strict=True):
        rows = table[(table["encoding"] == name) & (table["status"] == "ok")]
        by_end = rows.groupby("bucket_end_tokens")["nll_nats_per_byte"]
        yield name, label, by_end.agg(["mean", "min", "max"]).reset_index()


def _position_line(ax: Axes, name: str, label: str, rows: pd.DataFrame, mine: bool) -> None:
    if not mine:
        ax.plot(rows["bucket_end_tokens"], rows["mean"], color="#cccccc", linewidth=0.8, zorder=1)
        return
    style = look(name)
    ax.plot(
        rows["bucket_end_tokens"], rows["mean"], color=style.color, marker=style.marker,
        linestyle=style.line, label=label,
    )  # fmt: skip
    ax.fill_between(
        rows["bucket_end_tokens"], rows["min"], rows["max"], color=style.color, alpha=0.15, lw=0
    )


def _zoom(ax: Axes, table: pd.DataFrame) -> None:
    """Leave room above for the legends, and let lines that run away leave the picture."""
    ok = table.loc[table["status"] == "ok", "nll_nats_per_byte"]
    low, middle = ok.min(), ok.median()
    ax.set_ylim(low - 0.1 * (middle - low), middle + 3 * (middle - low))


def copy_heatmap(table: pd.DataFrame, cost: pd.DataFrame) -> Figure:
    """Encodings by distances, in the trained and in the longest context, accuracy in every cell."""
    trained = int(table["train_len_tokens"].iloc[0])
    shown = table[table["context_tokens"].isin([trained, table["context_tokens"].max()])]
    place = ["context_tokens", "distance_tokens"]
    wide = shown.pivot_table(index="encoding", columns=place, values="accuracy", dropna=False)
    columns = shown[place].drop_duplicates().sort_values(place)
    wide = wide.reindex(cost["encoding"])[list(columns.itertuples(index=False, name=None))]
    order = wide.fillna(0).mean(axis=1).sort_values(ascending=False).index
    values = wide.loc[order].to_numpy()
    figure, ax = plt.subplots(figsize=(8, 1.6 + 0.3 * len(order)))
    ax.set_facecolor("white")
    ax.imshow(np.ma.masked_invalid(values), cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        text, color = ("–", GREY) if np.isnan(value) else (f"{value:.2f}", "white")
        ax.text(
            x, y, text, ha="center", va="center", fontsize=8,
            color="black" if value > 0.5 else color,
        )  # fmt: skip
    _inside(ax, wide.columns.get_level_values(0), trained)
    labels = cost.set_index("encoding")["label"]
    ax.set_yticks(range(len(order)), [labels[name] for name in order])
    ax.set_xticks(
        range(len(wide.columns)), [str(distance) for distance in wide.columns.get_level_values(1)]
    )
    ax.grid(visible=False)
    ax.set_title(findings.copies_farthest(wide.rename(index=dict(labels))), pad=22)
    ax.set_xlabel("distance of the copied segment (tokens); –: not defined there")
    return figure


def _inside(ax: Axes, contexts: pd.Index, trained: int) -> None:
    """Part the two contexts."""
    fit = int((contexts <= trained).sum())
    ax.axvline(fit - 0.5, color=BLACK, linewidth=2)
    for x, context, side in ((fit - 0.6, trained, "right"), (fit - 0.4, max(contexts), "left")):
        ax.annotate(
            f"in {context} tokens",
            (x, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 4),
            textcoords="offset points", ha=side, fontsize=8, color="#555555",
        )  # fmt: skip
