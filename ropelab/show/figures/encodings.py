"""Every encoding: cost beside quality, loss by position, copying by distance."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ropelab.runs.leading import UNIFORM
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, BLUE, FIGURES, GREY, Look, look, numbered

TEXT = "text loss"
COPY = "copy accuracy"
AXES, FAMILIES = (FIGURES["encodings"][part] for part in ("axes", "families"))


def draw(tables: Tables) -> dict[str, Figure]:
    cost, quality = tables["cost"], tables["quality"]
    figures = {"cost_and_quality": _cost_and_quality(cost, quality)}
    if "text_nll" in tables:
        figures["loss_by_position"] = _loss_by_position(tables, cost)
    if "copy_accuracy" in tables:
        figures["copy_heatmap"] = _copy_heatmap(tables, cost)
    return figures


def _cost_and_quality(cost: pd.DataFrame, quality: pd.DataFrame) -> Figure:
    metrics = [metric for metric in AXES if metric in set(quality["metric"])]
    longest = quality["times_trained_len"].max()
    # By the value at the longest context; encodings without one come last.
    last = quality[
        (quality["metric"] == metrics[0]) & (quality["times_trained_len"] == longest)
    ]
    values = last.set_index("encoding")["value"].reindex(cost["encoding"])
    order = values.sort_values(ascending=metrics[0] == TEXT, na_position="last").index
    costs = cost.set_index("encoding").loc[order]
    size = (10, max(3.2, 1.7 + 0.27 * len(order)))
    figure, (axes,) = shapes.panels(1, len(metrics) + 2, size, sharey=True)
    for ax, metric in zip(axes, metrics, strict=False):
        _dumbbells(ax, quality[quality["metric"] == metric], list(order), longest)
        ax.set(**AXES[metric])
    work, added = axes[-2:]
    work.axvline(1, color=GREY, linewidth=0.8)
    places = range(len(costs))
    train, decode = costs["train_flops_ratio"], costs["decode_flops_ratio"]
    shapes.dots(work, train, places, Look(BLACK, "s"), "training", markersize=5)
    shapes.dots(
        work, decode, places, Look(BLACK, "o"), "decoding", hollow=True, markersize=4.5
    )
    work.set(xlabel="matrix products\n(NoPE = 1)")
    work.xaxis.set_major_locator(MaxNLocator(4))
    shapes.legend_above(work, 2)
    # An axis that has room for no parameters.
    counts = costs["parameters"]
    added.barh(places, counts, color=GREY, height=0.6)
    added.set_xscale("symlog", linthresh=10)
    added.set(xlabel="parameters\nadded", xlim=(0, max(10, counts.max()) * 100))
    added.set_xticks(
        [0, 10, 1000, 100_000], ["0", "10", "1,000", "100,000"], fontsize=8
    )
    for row, count in enumerate(counts):
        shapes.note(added, f"{count:,}", (count, row), (3, 0), va="center")
    shapes.name_rows(axes[0], costs["label"].tolist())
    at = f"at {longest}x its trained length"
    shapes.headline(figure, f"The quality of each encoding {at}, and its cost")
    return figure


def _dumbbells(ax: Axes, rows: pd.DataFrame, order: list[str], longest: int) -> None:
    first, last = (
        rows[rows["times_trained_len"] == times].set_index("encoding").loc[order]
        for times in (1, longest)
    )
    places = np.arange(len(order))
    for at, style, times in (
        (first, Look(GREY, "o"), 1),
        (last, Look(BLUE, "D"), longest),
    ):
        interval = at["ci_low"], at["ci_high"]
        shapes.dots(
            ax, at["value"], places, style, f"at {times}x", interval, hollow=times == 1
        )
    ax.hlines(
        places, first["value"], last["value"], color=GREY, linewidth=0.8, zorder=1
    )
    # A value that is undefined at the longest context: as in the heat map, where there
    # is room.
    for row in np.flatnonzero(last["value"].isna()):
        low, high = first.iloc[row][["ci_low", "ci_high"]].fillna(
            first["value"].iloc[row]
        )
        left = low + high > sum(ax.get_xlim())
        end, side, away = (low, "right", -7) if left else (high, "left", 7)
        shapes.note(
            ax, "–", (end, int(row)), (away, 0), ha=side, va="center", color=GREY
        )
    ax.xaxis.set_major_locator(MaxNLocator(4))
    shapes.legend_above(ax, 2)


def _loss_by_position(tables: Tables, cost: pd.DataFrame) -> Figure:
    """Draw loss by position, a panel per family; the other encodings are grey behind
    it.
    """
    table = tables["text_nll"]
    ok = table[table["status"] == "ok"]
    losses = ok.groupby(["encoding", "bucket_end_tokens"])["nll_nats_per_byte"]
    spread = losses.agg(["mean", "min", "max"]).reset_index(level=1)
    families = [family for family in FAMILIES if family in set(cost["family"])]
    rows, count = -(-len(families) // 2), len(families)
    figure, axes = shapes.panels(
        rows, 2, (9, 3.4 * rows), count, sharex=True, sharey=True
    )
    for ax, family in zip(axes.flat, families, strict=False):
        for number, one in enumerate(
            shapes.records(cost[cost["encoding"].isin(spread.index)])
        ):
            its = spread.loc[[one.encoding]]
            xy = its["bucket_end_tokens"], its["mean"]
            if one.family == family:
                # Designs are told apart in this figure only; names have a look
                # everywhere.
                its_look = (
                    numbered(number) if "(" in one.encoding else look(one.encoding)
                )
                shapes.line(ax, *xy, its_look, one.label, (its["min"], its["max"]))
            else:
                ax.plot(*xy, color="#cccccc", linewidth=0.8, zorder=1)
        ax.set_title(FAMILIES[family], fontsize=9, fontweight="normal")
        shapes.token_axis(ax)
        shapes.mark(ax, table["train_len_tokens"].iloc[0], "trained length", "x")
    for ax in axes[-1]:
        ax.set_xlabel("position in the text (tokens, end of bucket)")
    shapes.legend_below(figure, list(axes.flat), 4)
    figure.supylabel("loss (nats per byte)")
    end = ok["bucket_end_tokens"].max()
    means = (
        ok[ok["bucket_end_tokens"] == end]
        .groupby("encoding")["nll_nats_per_byte"]
        .mean()
    )
    if means.min() >= UNIFORM:
        said = "no encoding reads better than guessing"
    else:
        said = _better_than_baseline(tables["comparisons"], TEXT, cost)
    shapes.headline(figure, f"Near {shapes.tokens_label(end)} tokens {said}")
    # Lines that run away leave the picture.
    low, middle = ok["nll_nats_per_byte"].min(), ok["nll_nats_per_byte"].median()
    axes[0, 0].set_ylim(low - 0.1 * (middle - low), middle + 3 * (middle - low))
    return figure


def _better_than_baseline(
    comparisons: pd.DataFrame, metric: str, cost: pd.DataFrame
) -> str:
    """Say which encodings comparisons show to be better at the longest text."""
    verb = {TEXT: "a lower loss than", COPY: "more copied than"}[metric]
    rows = comparisons[comparisons["metric"] == metric]
    if rows.empty:
        return "nothing is compared"
    rows = rows[rows["times_trained_len"] == rows["times_trained_len"].max()]
    labels = cost.set_index("encoding")["label"]
    baseline = labels[rows["encoding_b"].iloc[0]]
    better = rows.loc[rows["verdict"] == rows["encoding_a"], "encoding_a"]
    if better.empty:
        return f"no encoding is shown to have {verb} {baseline}"
    if len(better) == 1:
        return f"{labels[better.iloc[0]]} has {verb} {baseline}"
    return f"{len(better)} of {len(rows)} encodings have {verb} {baseline}"


def _copy_heatmap(tables: Tables, cost: pd.DataFrame) -> Figure:
    table = tables["copy_accuracy"]
    trained, longest = (
        int(table["train_len_tokens"].iloc[0]),
        table["context_tokens"].max(),
    )
    shown = table[table["context_tokens"].isin([trained, longest])]
    place = ["context_tokens", "distance_tokens"]
    wide = shown.pivot_table(
        index="encoding", columns=place, values="accuracy", dropna=False
    )
    columns = sorted(set(zip(*(shown[name] for name in place), strict=True)))
    labels = cost.set_index("encoding")["label"].to_dict()
    wide = wide.reindex(cost["encoding"])[columns].rename(labels)
    wide = wide.loc[wide.fillna(0).mean(axis=1).sort_values(ascending=False).index]
    figure, ax = shapes.new_axes((8, max(2.8, 1.6 + 0.3 * len(wide))))
    wide.columns = pd.Index([str(distance) for _, distance in columns])
    shapes.heat_map(ax, wide, shapes.shares(wide, missing="–"), size=8)
    # A line parts the two contexts, which are named above it.
    edge = sum(context <= trained for context, _ in columns) - 0.5
    ax.axvline(edge, color=BLACK, linewidth=2)
    above = {"xycoords": shapes.ABOVE, "color": shapes.FAINT}
    for x, context, side in (
        (edge - 0.1, trained, "right"),
        (edge + 0.1, longest, "left"),
    ):
        shapes.note(ax, f"in {context} tokens", (x, 1), (0, 4), ha=side, **above)
    # The farthest place at which an encoding is defined; one with a table ends with it.
    last = wide.dropna(axis=1, how="all").iloc[:, -1].dropna()
    said = _better_than_baseline(tables["comparisons"], COPY, cost)
    ax.set_title(
        f"From {last.name} tokens back up to {last.max():.2f} is copied; {said}",
        pad=22,
    )
    ax.set_xlabel("distance of the copied segment (tokens); –: not defined there")
    return figure
