"""Every encoding: cost beside quality, loss by position, copying by distance."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ropelab.runs.leading import UNIFORM
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, BLUE, FIGURES, GREY, Look, find_look, pick_look

TEXT = "text loss"
COPY = "copy accuracy"
NLL = "nll_nats_per_byte"
AXES = FIGURES["encodings"]["axes"]
FAMILIES = FIGURES["encodings"]["families"]
# The words for an encoding that comparisons show to be better, by what is compared.
BETTER = {TEXT: "a lower loss than", COPY: "more copied than"}


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw cost and quality, then a figure for each of the two tasks that was run."""
    cost = tables["cost"]
    figures = {"cost_and_quality": _draw_cost_and_quality(cost, tables["quality"])}
    if "text_nll" in tables:
        figures["loss_by_position"] = _draw_loss_by_position(tables, cost)
    if "copy_accuracy" in tables:
        figures["copy_heatmap"] = _draw_copy_heatmap(tables, cost)
    return figures


def _draw_cost_and_quality(cost: pd.DataFrame, quality: pd.DataFrame) -> Figure:
    measured = set(quality["metric"])
    metrics = [metric for metric in AXES if metric in measured]
    longest = quality["times_trained_len"].max()
    first = quality[quality["metric"] == metrics[0]]
    order = _order_by_quality(cost["encoding"], first, metrics[0], longest)
    costs = cost.set_index("encoding").loc[order]

    size = (10, max(3.2, 1.7 + 0.27 * len(order)))
    figure, axes = shapes.make_panels(1, len(metrics) + 2, size, sharey=True)
    *quality_axes, work_axes, parameter_axes = axes[0]
    for ax, metric in zip(quality_axes, metrics, strict=True):
        _draw_dumbbells(ax, quality[quality["metric"] == metric], order, longest)
        ax.set(**AXES[metric])
    _draw_work(work_axes, costs)
    _draw_parameters(parameter_axes, costs["parameters"])
    shapes.name_rows(axes[0, 0], costs["label"].tolist())
    shapes.set_headline(
        figure,
        f"The quality of each encoding at {longest}x its trained length, and its cost",
    )
    return figure


def _order_by_quality(
    encodings: pd.Series, quality: pd.DataFrame, metric: str, longest: int
) -> list[str]:
    """Order by the value at the longest context; encodings without one come last."""
    last = quality[quality["times_trained_len"] == longest]
    values = last.set_index("encoding")["value"].reindex(encodings)
    lower_is_better = metric == TEXT
    ordered = values.sort_values(ascending=lower_is_better, na_position="last")
    return list(ordered.index)


def _draw_work(ax: Axes, costs: pd.DataFrame) -> None:
    ax.axvline(1, color=GREY, linewidth=0.8)
    rows = range(len(costs))
    train = costs["train_flops_ratio"]
    shapes.draw_dots(ax, train, rows, Look(BLACK, "s"), "training", markersize=5)
    shapes.draw_dots(
        ax,
        costs["decode_flops_ratio"],
        rows,
        Look(BLACK, "o"),
        "decoding",
        hollow=True,
        markersize=4.5,
    )
    ax.set(xlabel="matrix products\n(NoPE = 1)")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    shapes.put_legend_above(ax, 2)


def _draw_parameters(ax: Axes, counts: pd.Series) -> None:
    ax.barh(range(len(counts)), counts, color=GREY, height=0.6)
    # Linear up to ten: the axis has room for no parameters.
    ax.set_xscale("symlog", linthresh=10)
    ax.set(xlabel="parameters\nadded", xlim=(0, max(10, counts.max()) * 100))
    ticks = [0, 10, 1000, 100_000]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
    for row, count in enumerate(counts):
        shapes.write_note(ax, f"{count:,}", (count, row), (3, 0), va="center")


def _draw_dumbbells(
    ax: Axes, rows: pd.DataFrame, order: list[str], longest: int
) -> None:
    """Draw the value at the trained length and at the longest context, and a line
    between.
    """
    first = _select_length(rows, 1, order)
    last = _select_length(rows, longest, order)
    places = np.arange(len(order))
    shapes.draw_dots(
        ax,
        first["value"],
        places,
        Look(GREY, "o"),
        "at 1x",
        (first["ci_low"], first["ci_high"]),
        hollow=True,
    )
    shapes.draw_dots(
        ax,
        last["value"],
        places,
        Look(BLUE, "D"),
        f"at {longest}x",
        (last["ci_low"], last["ci_high"]),
    )
    ax.hlines(
        places, first["value"], last["value"], color=GREY, linewidth=0.8, zorder=1
    )
    undefined = np.flatnonzero(last["value"].isna())
    for row in undefined:
        _mark_undefined(ax, first.iloc[row], int(row))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    shapes.put_legend_above(ax, 2)


def _select_length(rows: pd.DataFrame, times: int, order: list[str]) -> pd.DataFrame:
    chosen = rows[rows["times_trained_len"] == times]
    return chosen.set_index("encoding").loc[order]


def _mark_undefined(ax: Axes, first: pd.Series, row: int) -> None:
    """Write a dash for a value that is undefined at the longest context.

    It stands beside the first value, on the side that has more room. The heat map of
    copying writes the same dash.
    """
    low, high = first[["ci_low", "ci_high"]].fillna(first["value"])
    middle = (low + high) / 2
    left, right = ax.get_xlim()
    middle_of_axis = (left + right) / 2
    if middle > middle_of_axis:
        place, offset, side = (low, row), (-7, 0), "right"
    else:
        place, offset, side = (high, row), (7, 0), "left"
    shapes.write_note(ax, "–", place, offset, ha=side, va="center", color=GREY)


def _draw_loss_by_position(tables: Tables, cost: pd.DataFrame) -> Figure:
    """Draw loss by position, a panel per family; the other encodings are grey behind
    it.
    """
    table = tables["text_nll"]
    finished = table[table["status"] == "ok"]
    losses = finished.groupby(["encoding", "bucket_end_tokens"])[NLL]
    spread = losses.agg(["mean", "min", "max"]).reset_index(level=1)
    encodings = cost[cost["encoding"].isin(spread.index)]
    families = [family for family in FAMILIES if family in set(cost["family"])]
    trained = table["train_len_tokens"].iloc[0]

    # Two panels stand side by side, and the last row may have a single one.
    panel_rows = math.ceil(len(families) / 2)
    figure, axes = shapes.make_panels(
        panel_rows,
        2,
        (9, 3.4 * panel_rows),
        len(families),
        sharex=True,
        sharey=True,
    )
    for ax, family in zip(axes.flat, families, strict=False):
        _draw_family(ax, family, encodings, spread)
        ax.set_title(FAMILIES[family], fontsize=9, fontweight="normal")
        shapes.set_token_axis(ax)
        shapes.mark_value(ax, trained, "trained length", "x")
    for ax in axes[-1]:
        ax.set_xlabel("position in the text (tokens, end of bucket)")
    shapes.put_legend_below(figure, list(axes.flat), 4)
    figure.supylabel("loss (nats per byte)")

    end = finished["bucket_end_tokens"].max()
    at_end = finished[finished["bucket_end_tokens"] == end]
    if at_end.groupby("encoding")[NLL].mean().min() >= UNIFORM:
        result = "no encoding reads better than guessing"
    else:
        result = _name_better(tables["comparisons"], TEXT, cost)
    shapes.set_headline(figure, f"Near {shapes.format_tokens(end)} tokens {result}")
    # The axis is cut a few heights above the median: a line that runs away leaves the
    # picture, where it would flatten all others.
    low = finished[NLL].min()
    middle = finished[NLL].median()
    height = middle - low
    axes[0, 0].set_ylim(low - 0.1 * height, middle + 3 * height)
    return figure


def _draw_family(
    ax: Axes, family: str, encodings: pd.DataFrame, spread: pd.DataFrame
) -> None:
    """Draw the encodings of a family, those of the others in grey behind them."""
    for number, encoding in enumerate(shapes.iterate_rows(encodings)):
        name = encoding.encoding
        rows = spread.loc[[name]]
        x = rows["bucket_end_tokens"]
        if encoding.family != family:
            ax.plot(x, rows["mean"], color="#cccccc", linewidth=0.8, zorder=1)
            continue
        # A named encoding has the same look in all figures. A design, which is written
        # with its settings in parentheses, and a method on top of RoPE have none of
        # their own: they take one by their place in this figure.
        is_composed = "(" in name or " + " in name
        if is_composed:
            look = pick_look(number)
        else:
            look = find_look(name)
        band = (rows["min"], rows["max"])
        shapes.draw_line(ax, x, rows["mean"], look, encoding.label, band)


def _name_better(comparisons: pd.DataFrame, metric: str, cost: pd.DataFrame) -> str:
    """Say which encodings comparisons show to be better at the longest text."""
    rows = comparisons[comparisons["metric"] == metric]
    if rows.empty:
        return "nothing is compared"
    rows = rows[rows["times_trained_len"] == rows["times_trained_len"].max()]
    labels = cost.set_index("encoding")["label"]
    baseline = rows["encoding_b"].iloc[0]
    than_baseline = f"{BETTER[metric]} {labels[baseline]}"
    better = rows.loc[rows["verdict"] == rows["encoding_a"], "encoding_a"]
    if better.empty:
        return f"no encoding is shown to have {than_baseline}"
    if len(better) == 1:
        return f"{labels[better.iloc[0]]} has {than_baseline}"
    return f"{len(better)} of {len(rows)} encodings have {than_baseline}"


def _draw_copy_heatmap(tables: Tables, cost: pd.DataFrame) -> Figure:
    table = tables["copy_accuracy"]
    trained = int(table["train_len_tokens"].iloc[0])
    longest = table["context_tokens"].max()
    shown = table[table["context_tokens"].isin([trained, longest])]
    shares = _average_copies(shown, cost)
    contexts = shares.columns.get_level_values("context_tokens")
    shares.columns = shares.columns.get_level_values("distance_tokens").astype(str)

    figure, ax = shapes.make_axes((8, max(2.8, 1.6 + 0.3 * len(shares))))
    texts = shapes.format_shares(shares, missing="–")
    shapes.draw_heat_map(ax, shares, texts, size=8)
    # A line parts the two contexts, which are named above it.
    edge = int((contexts <= trained).sum()) - 0.5
    ax.axvline(edge, color=BLACK, linewidth=2)
    above = {"xycoords": shapes.ABOVE, "color": shapes.FAINT}
    left = (edge - 0.1, 1)
    shapes.write_note(ax, f"in {trained} tokens", left, (0, 4), ha="right", **above)
    right = (edge + 0.1, 1)
    shapes.write_note(ax, f"in {longest} tokens", right, (0, 4), ha="left", **above)

    # The farthest place at which an encoding is defined; one with a table ends with it.
    last = shares.dropna(axis=1, how="all").iloc[:, -1].dropna()
    better = _name_better(tables["comparisons"], COPY, cost)
    title = f"From {last.name} tokens back up to {last.max():.2f} is copied; {better}"
    ax.set_title(title, pad=22)
    ax.set_xlabel("distance of the copied segment (tokens); –: not defined there")
    return figure


def _average_copies(table: pd.DataFrame, cost: pd.DataFrame) -> pd.DataFrame:
    """Return a row per encoding, by its label, the best first, and a column per context
    and distance.
    """
    place = ["context_tokens", "distance_tokens"]
    # An encoding that is undefined at a place keeps its empty cell there.
    shares = table.pivot_table(
        index="encoding", columns=place, values="accuracy", dropna=False
    )
    # The pivot has every distance in every context; those that were measured are kept.
    measured = pd.MultiIndex.from_frame(table[place].drop_duplicates()).sort_values()
    shares = shares.reindex(cost["encoding"])
    shares = shares[measured]
    labels = cost.set_index("encoding")["label"].to_dict()
    shares = shares.rename(labels)

    means = shares.fillna(0).mean(axis=1)
    return shares.loc[means.sort_values(ascending=False).index]
