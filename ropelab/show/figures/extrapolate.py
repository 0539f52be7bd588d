"""Beyond the trained length: copying by distance, loss by position, by context and by kind."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.comparisons import and_rivals, not_told_from
from ropelab.runs.labels import AS_SHIPPED, SEARCHED, WINDOW, name_in, row_labels
from ropelab.runs.stats import mean_interval
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.show.figures.shapes import (
    dots,
    each,
    heat_map,
    line,
    name_rows,
    over_seeds,
    panels,
    shares,
)
from ropelab.show.figures.style import (
    headline,
    label_points,
    legend_below,
    legend_outside,
    note,
    token_axis,
    tokens_label,
    trained_length_line,
)
from ropelab.show.looks import GREY, ORANGE, Look, look

NLL = "nll_nats_per_byte"
WIDE = (8.0, 4.5)
WORDS = {
    "copy": ("copied symbols", "copies"),
    "hidden": ("symbols hidden in text", "finds them"),
    "recall": ("key and its value", "looks up keys"),
    "nearer": ("nearer of two values", "tells the nearer value"),
}
FOUND = {"passkey": "the pass key", "multiquery": "several keys"}
HOW = {
    "zero_shot": "without fine-tuning",
    SEARCHED: "parameters searched on this model",
    "finetuned": "after fine-tuning",
}
# Losses so far above the best (nats per byte) are named, not drawn: the rest would be one line.
CEILING = 0.3
# The same for single dots, which leave more room.
WIDEST = 0.6
# Methods drawn by kind of text, the best ones; more would cover each other.
MOST_BY_KIND = 6


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the figures that the tables have rows for, for each arm that methods were tried in."""
    accuracies = [f"{task}_accuracy" for task in WORDS if _is_decided(tables, task)]
    losses = [name for name in ("text_nll", "last_window") if name in tables]
    measured = {name: tables[name] for name in (*accuracies, *losses)}
    tried = set().union(*(table["arm"][~_is_baseline(table)] for table in measured.values()))
    # Baselines alone are drawn as the zero-shot arm would be.
    arms = [arm for arm in HOW if arm in tried] or ["zero_shot"]
    figures: dict[str, Figure] = {}
    for arm in arms:
        shown = {
            name: table[(table["arm"] == arm) | _is_baseline(table)]
            for name, table in measured.items()
        }
        suffix = "" if arm == "zero_shot" else f"_{arm}"
        drawn = _of_one_arm(shown, tables["comparisons"], arm)
        figures |= {f"{name}{suffix}": figure for name, figure in drawn}
    if "text_by_document" in tables:
        figures["loss_by_kind"] = loss_by_kind(tables["text_by_document"])
    for task in FOUND:
        if f"{task}_accuracy" in tables:
            figures[f"{task}_depth_by_length"] = depth_by_length(tables[f"{task}_accuracy"], task)
    if {"zero_shot", "finetuned"} <= set(arms):
        figures["finetuned_against_zero_shot"] = against_zero_shot(measured)
    return figures


def _is_decided(tables: Tables, task: str) -> bool:
    """Return True if a task was measured, and the model does it at all."""
    table = tables.get(f"{task}_accuracy")
    return table is not None and ("status" not in table or bool((table["status"] == "ok").all()))


def _is_baseline(table: pd.DataFrame) -> pd.Series:
    """Return True for the rows that no method was applied to; they are drawn in every arm."""
    return (table["arm"] == "ceiling") | (table["method"] == WINDOW)


def _of_one_arm(
    tables: Tables, comparisons: pd.DataFrame, arm: str
) -> Iterator[tuple[str, Figure]]:
    for task in WORDS:
        if f"{task}_accuracy" in tables:
            table = tables[f"{task}_accuracy"]
            title = _retrieval_title(table, comparisons, task, arm)
            yield f"{task}_by_distance", _by_distance(table, task, title)
            yield f"{task}_heatmap", _heatmap(table, task, title)
    if "text_nll" in tables:
        yield "loss_by_position", _loss_by_position(tables["text_nll"], comparisons, arm)
        yield "loss_by_context", _loss_by_context(tables["last_window"], arm)
        if arm == "zero_shot":
            yield "tax_and_gain", _tax_and_gain(tables["last_window"])


def _methods(table: pd.DataFrame, x: str) -> dict[str, pd.DataFrame]:
    """Average each method over seeds: label to rows with the value and its band, in their order."""
    value = "accuracy" if "accuracy" in table else NLL
    labelled = table.assign(label=row_labels(table))
    return {label: over_seeds(rows, x, value) for label, rows in each(labelled, "label")}


def _line(ax: Axes, label: str, x: Any, y: Any, band: tuple[Any, Any] | None = None) -> None:
    """Draw one method; the second factor of a method is dotted with hollow markers."""
    style = look(name_in(label))
    again = any(name_in(str(drawn.get_label())) == name_in(label) for drawn in ax.lines)
    second = {"markerfacecolor": "white", "linestyle": ":"} if again else {}
    line(ax, x, y, style, label, band, markersize=5, **second)


def _finished(figure: Figure, ax: Axes, table: pd.DataFrame) -> Figure:
    token_axis(ax)
    trained_length_line(ax, table["train_len_tokens"].iloc[0])
    legend_outside(ax)
    return figure


def _say_outside(ax: Axes, values: Mapping[str, float]) -> None:
    """Name the methods that are too bad for the scale, with their last value."""
    if values:
        text = ", ".join(f"{label} ({value:.2f})" for label, value in values.items())
        ax.set_xlabel(f"{ax.get_xlabel()}\nabove the scale: {text}")


def _retrieval_title(table: pd.DataFrame, comparisons: pd.DataFrame, task: str, arm: str) -> str:
    """Name the method that finds most from twice the trained length back in the longest context."""
    table = in_longest_context(table)
    trained, context = table["train_len_tokens"].iloc[0], table["context_tokens"].max()
    distances = sorted(table["distance_tokens"].unique())
    at = min(distances, key=lambda distance: (abs(distance - 2 * trained), distance))
    rows = table[table["distance_tokens"] == at]
    means = rows.groupby(row_labels(rows), sort=False)["accuracy"].mean()
    best = str(means.idxmax())
    plain = f"; unscaled {means['unscaled']:.2f}" if "unscaled" in means.drop(best) else ""
    about = {"at_tokens": at, "context_tokens": context, "metric": f"{task}_accuracy"}
    rivals = [x for x in not_told_from(best, comparisons, about) if x in means.index]
    where = f"{tokens_label(at)} back in {tokens_label(context)} tokens"
    share = f"{means.max():.2f}{and_rivals(rivals)}{plain}"
    return f"From {where} {best} {WORDS[task][1]} best:\n{share} ({HOW[arm]})"


def _by_distance(table: pd.DataFrame, task: str, title: str) -> Figure:
    """Draw accuracy against distance in the longest context, a line per method."""
    figure, ax = plt.subplots(figsize=WIDE)
    for label, rows in _methods(in_longest_context(table), "distance_tokens").items():
        band = rows["low"], rows["high"]
        _line(ax, label, rows["distance_tokens"], rows["accuracy"], band)
    xlabel = f"distance of the {WORDS[task][0]} (tokens)"
    ax.set(xlabel=xlabel, ylabel="share found correctly", ylim=(-0.03, 1.05), title=title)
    return _finished(figure, ax, table)


def _heatmap(table: pd.DataFrame, task: str, title: str) -> Figure:
    """Draw methods by distances, a panel per length of context, the accuracy in every cell."""
    contexts = [rows for _, rows in table.groupby("context_tokens")]
    lines = table.groupby(["method", "factor", "arm"]).ngroups
    height = 0.6 + len(contexts) * (0.9 + 0.3 * lines)
    figure, axes = panels(len(contexts), 1, (8.0, height))
    for ax, part in zip(axes[:, 0], contexts, strict=True):
        methods = _methods(part, "distance_tokens")
        values = np.array([rows["accuracy"] for rows in methods.values()])
        distances = next(iter(methods.values()))["distance_tokens"]
        heat_map(ax, values, shares(values), list(methods), [*map(tokens_label, distances)])
        ax.set_title(f"in {tokens_label(part['context_tokens'].iloc[0])} tokens", size=9)
    axes[-1, 0].set_xlabel(f"distance of the {WORDS[task][0]} (tokens)")
    headline(figure, title)
    return figure


def _loss_by_position(table: pd.DataFrame, comparisons: pd.DataFrame, arm: str) -> Figure:
    """Draw loss above the sliding window's by position; paired intervals over documents."""
    figure, ax = plt.subplots(figsize=WIDE)
    pairs = (comparisons["metric"] == "nll_bucket") & (comparisons["method_b"] == WINDOW)
    rows = comparisons[pairs & comparisons["method_a"].isin(row_labels(table))]
    outside = {}
    for label, group in each(rows, "method_a"):
        if group["difference"].min() > CEILING:
            outside[label] = group["difference"].iloc[-1]
        else:
            band = group["ci_low"], group["ci_high"]
            _line(ax, label, group["at_tokens"], group["difference"], band)
    ax.axhline(0, color=look(WINDOW).color, linestyle=look(WINDOW).line, label=WINDOW)
    last = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    better = last.loc[last["ci_high"] < 0, "method_a"].astype(str).tolist()
    who = f"{better[0]} has" if len(better) == 1 else f"{len(better)} of {len(last)} have"
    who = who if better else "no method has"
    end = tokens_label(rows["at_tokens"].max())
    ax.set(
        xlabel="position in the text (tokens, end of bucket)",
        ylabel="loss above the sliding window (nats per byte)",
        title=f"At {end} {who} a lower loss than a sliding window ({HOW[arm]})",
    )
    ax.set_ylim(top=CEILING)
    _say_outside(ax, outside)
    return _finished(figure, ax, table)


def _loss_by_context(table: pd.DataFrame, arm: str) -> Figure:
    """Draw the loss of the same final tokens against the length that was read before them."""
    figure, ax = plt.subplots(figsize=WIDE)
    best, outside = table[NLL].min(), {}
    for label, rows in _methods(table, "context_tokens").items():
        if len(rows) == 1 and label == WINDOW:
            ax.axhline(rows[NLL].iloc[0], color=look(label).color, linestyle=":", label=label)
        elif rows[NLL].min() > best + CEILING:
            outside[label] = rows[NLL].iloc[-1]
        else:
            _line(ax, label, rows["context_tokens"], rows[NLL])
    ax.set(
        xlabel="context before the same final tokens (tokens)",
        ylabel="loss (nats per byte)",
        title=_context_title(table, HOW[arm]),
    )
    ax.set_ylim(top=best + CEILING)
    _say_outside(ax, outside)
    return _finished(figure, ax, table)


def _context_title(table: pd.DataFrame, how: str) -> str:
    """Name the method that gains most by the longest context instead of the trained length."""
    trained, longest = table["train_len_tokens"].iloc[0], table["context_tokens"].max()
    methods = table[table["method"] != WINDOW]
    wide = methods.groupby([row_labels(methods), "context_tokens"])[NLL].mean().unstack()
    if trained not in wide or longest == trained:
        return f"Loss of the same last tokens by the length of their context ({how})"
    # The gain of a method that is far behind the best says nothing.
    readable = wide[wide[longest] <= wide[longest].min() + CEILING]
    gains = (readable[longest] - readable[trained]).dropna()
    span = f"{tokens_label(longest)} instead of {tokens_label(trained)}"
    helped = gains[gains < 0].sort_values()
    if helped.empty:
        return f"A context of {span} helps no method with the same last tokens\n({how})"
    gain = f"{helped.iloc[0]:+.3f} nats per byte"
    return f"A context of {span} helps {helped.index[0]} most: {gain}\n({how})"


def _tax_and_gain(table: pd.DataFrame) -> Figure:
    """Draw the loss at the trained length against that at the tested length, above no scaling."""
    figure, ax = plt.subplots(figsize=WIDE)
    trained, longest = table["train_len_tokens"].iloc[0], table["context_tokens"].max()
    losses = {
        label: rows.set_index("context_tokens")[NLL]
        for label, rows in _methods(table, "context_tokens").items()
    }
    baseline = AS_SHIPPED if AS_SHIPPED in losses else "unscaled"
    plain = losses[baseline][trained] if baseline in losses else math.nan
    outside, named = {}, []
    for label, loss in losses.items():
        if baseline not in losses or trained not in loss:
            continue
        tax, change = loss[trained] - plain, loss[longest] - plain
        if max(tax, change) > CEILING:
            outside[label] = change
        else:
            dots(ax, [tax], [change], look(name_in(label)), markersize=8)
            named.append((tax, change, label))
    ax.axhline(0, color=GREY, linewidth=1)
    ax.axvline(0, color=GREY, linewidth=1)
    ax.margins(x=0.15, y=0.25)
    inside, beyond = tokens_label(trained), tokens_label(longest)
    scaled = [
        (loss[trained], loss[longest], name)
        for name, loss in losses.items()
        if name not in ("unscaled", AS_SHIPPED, WINDOW) and {trained, longest} <= set(loss.index)
    ]
    title = "Loss at the trained length against the loss at the tested length"
    if scaled:
        cheapest = min(scaled, key=lambda found: found[0])[2]
        lowest = min(scaled, key=lambda found: found[1])[2]
        then = " and" if lowest == cheapest else f", {lowest}"
        title = f"{cheapest} costs least at {inside}{then} is best at {beyond}"
    ax.set(
        xlabel=f"short-context tax: loss at {inside} above {baseline}",
        ylabel=f"loss at {beyond} above\n{baseline} at {inside}",
        title=title,
    )
    _say_outside(ax, outside)
    if named:
        label_points(ax, named)
    return figure


def depth_by_length(table: pd.DataFrame, task: str) -> Figure:
    """Draw the share found by depth in the text and length of the context, a panel per method."""
    contexts = sorted(table["context_tokens"].unique().tolist())
    methods = list(each(table.assign(label=row_labels(table)), "label"))
    across, down = min(4, len(methods)), math.ceil(len(methods) / 4)
    figure, axes = panels(down, across, (8.0, 0.9 + 2.1 * down), sharex=True, sharey=True)
    for ax, (label, rows) in zip(axes.flat, methods, strict=False):
        wide = rows.pivot_table(index="depth_percent", columns="context_tokens", values="accuracy")
        # A context in which a method was not evaluated stays empty.
        values = wide.reindex(columns=contexts).to_numpy()
        depths = [f"{depth:g}" for depth in wide.index]
        texts = shares(values, digits=".2g")
        heat_map(ax, values, texts, depths, [*map(tokens_label, contexts)])
        ax.set_title(label, size=9)
    for ax in axes.flat[len(methods) :]:
        ax.set_visible(False)
    figure.supxlabel("context (tokens)", size=10)
    figure.supylabel("depth of the key (% of the text)", size=10)
    at = table[table["context_tokens"] == contexts[-1]]
    means = at.groupby(row_labels(at), sort=False)["accuracy"].mean()
    where = f"{FOUND[task]} in {tokens_label(contexts[-1])} tokens"
    if "status" in table and (table["status"] != "ok").any():
        headline(figure, f"The model does not find {where}: no verdict")
        return figure
    # A released model is compared with itself, one trained here with the best method.
    unmodified = AS_SHIPPED if AS_SHIPPED in means else "unscaled"
    said = "as shipped" if unmodified == AS_SHIPPED else unmodified
    others = means.drop(unmodified, errors="ignore")
    if unmodified not in means:
        found = f"{others.idxmax()} finds {where}: {others.max():.2f}"
    elif others.empty or others.max() <= means[unmodified]:
        share = f"({means[unmodified]:.2f})"
        found = f"Nothing finds {where} more often than the model {said} {share}"
    else:
        share = f"{others.max():.2f}, {said} {means[unmodified]:.2f}"
        found = f"{others.idxmax()} finds {where}: {share}"
    headline(figure, found)
    return figure


def loss_by_kind(table: pd.DataFrame) -> Figure:
    """Draw loss above the sliding window's on each kind of document, with intervals over them."""
    above = against_window(table)
    labels = above.groupby("label")["above"].mean().sort_values().index[:MOST_BY_KIND]
    kinds = above.drop_duplicates(["name", "kind"])["kind"].value_counts()
    figure, ax = plt.subplots(figsize=(8.0, 1.5 + 0.6 * len(kinds)))
    seen: set[str] = set()
    for number, label in enumerate(labels):
        rows, style = above[above["label"] == label], look(name_in(label))
        means = [mean_interval(rows.loc[rows["kind"] == kind, "above"]) for kind in kinds.index]
        values, low, high = zip(*((mean.value, mean.low, mean.high) for mean in means), strict=True)
        places = np.arange(len(kinds)) + number / len(labels) - 0.4
        hollow = name_in(label) in seen
        dots(ax, values, places, style, label, (low, high), hollow, markersize=5)
        seen.add(name_in(label))
    ax.axvline(0, color=look(WINDOW).color, linestyle=look(WINDOW).line, label=WINDOW)
    name_rows(ax, [f"{kind} ({count})" for kind, count in kinds.items()])
    ax.set(
        xlabel="loss at the end of the text above the sliding window (nats per byte)",
        title=kinds_title(above[above["label"] == labels[0]], labels[0]),
    )
    legend_outside(ax)
    return figure


def against_window(table: pd.DataFrame) -> pd.DataFrame:
    """Return every document's loss above that of the sliding window, as the column `above`."""
    named = table.assign(label=row_labels(table))
    about = ["name", "kind"]
    window = named[named["label"] == WINDOW].set_index(about)[NLL].rename("window")
    others = named[named["label"] != WINDOW].join(window, on=about)
    return others.assign(above=others[NLL] - others["window"])


def kinds_title(best: pd.DataFrame, label: str) -> str:
    """Say the span of the best method, from the kind that it reads best to the worst one."""
    by_kind = best.groupby("kind")["above"].agg(["mean", "count"])
    # A kind of a single document names no end of the span, unless every kind is one.
    several = by_kind[by_kind["count"] > 1]
    means = (by_kind if several.empty else several)["mean"].sort_values()
    ends = [f"{value:+.3f} ({kind})" for kind, value in means.iloc[[0, -1]].items()]
    span = " to ".join(dict.fromkeys(ends))
    return f"{label} against a sliding window, by kind of text:\n{span} nats per byte"


def against_zero_shot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel per task, a row per method: hollow before fine-tuning, filled after it.

    Losses are those of the last window at the tested length, accuracies the mean over all
    distances beyond the trained length, both averaged over seeds; bars are the range of the seeds.
    """
    arms = {name: _by_arm(name, table) for name, table in tables.items() if name != "text_nll"}
    names = list(next(iter(arms.values()))["zero_shot"].index)
    size = (4.6 * len(arms), 1.6 + 0.34 * len(names))
    figure, axes = panels(1, len(arms), size, sharey=True)
    for ax, (name, found) in zip(axes[0], arms.items(), strict=True):
        _before_and_after(ax, found, is_loss=name == "last_window")
        if name == "last_window":
            at = tokens_label(tables[name]["context_tokens"].max())
            ax.set_xlabel(f"loss after {at} tokens (nats per byte)")
        else:
            trained = tokens_label(tables[name]["train_len_tokens"].max())
            ax.set(xlabel=f"{name.split('_')[0]} accuracy beyond {trained}", xlim=(-0.04, 1.04))
    name_rows(axes[0][0], names)
    legend_below(figure, axes[0], 4)
    shown = "last_window" if "last_window" in arms else next(iter(arms))
    sign = 1 if shown == "last_window" else -1
    after = sign * arms[shown]["finetuned"]["mean"]
    before = sign * arms[shown]["zero_shot"]["mean"].reindex(after.index)
    helped = f"Fine-tuning helps {(after < before).sum()} of {len(after)} methods"
    headline(figure, f"{helped}; {after.idxmin()} is then best")
    return figure


def _by_arm(name: str, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Average over distances and seeds: arm to mean, min and max by method with its factor."""
    column = NLL if name == "last_window" else "accuracy"
    rows = in_longest_context(table)
    if column == "accuracy":
        rows = rows[rows["distance_tokens"] > rows["train_len_tokens"]]
    # The label is that of the method, whatever its arm, so that the arms share a row.
    rows = rows.assign(
        label=row_labels(rows.assign(arm="")),
        kind=rows["arm"].mask(rows["method"] == WINDOW, "window"),
    )
    seeds = rows.groupby(["kind", "label", "seed"], sort=False)[column].mean()
    spreads = seeds.groupby(["kind", "label"], sort=False).agg(["mean", "min", "max"])
    return {str(kind): part.droplevel(0) for kind, part in spreads.groupby("kind", sort=False)}


def _before_and_after(ax: Axes, arms: Mapping[str, pd.DataFrame], is_loss: bool) -> None:
    before = arms["zero_shot"]
    after = arms["finetuned"] if "finetuned" in arms else before.iloc[:0]
    both = pd.concat([before, after])
    edge = both["mean"].min() + WIDEST if is_loss else 1.05
    for row, name in enumerate(before.index):
        style = look(name_in(name))
        shown = [(before.loc[name], True)] + [(after.loc[name], False)] * (name in after.index)
        for spread, hollow in shown:
            mean, low, high = np.minimum(spread.to_numpy(dtype=float), edge)
            dots(ax, [mean], [row], style, "", ([low], [high]), hollow, markersize=7, zorder=3)
        ends = [min(spread["mean"], edge) for spread, _ in shown]
        ax.plot([ends[0], ends[-1]], [row, row], color=style.color, linewidth=1.5, alpha=0.5)
        outside = [f"{spread['mean']:.2f}" for spread, _ in shown if spread["mean"] > edge]
        if outside:
            note(ax, " → ".join(outside), (edge, row), (0, 7), ha="center")
    for arm, label, color, style_of_line in (
        ("window", "sliding window", ORANGE, ":"),
        ("ceiling", "trained at the tested length", GREY, "--"),
    ):
        for mean in arms[arm]["mean"] if arm in arms else ():
            ax.axvline(mean, color=color, linestyle=style_of_line, label=label)
    for hollow, label in ((True, "as trained"), (False, "fine-tuned")):
        dots(ax, [], [], Look(GREY, "o"), label, hollow=hollow)
    ax.grid(visible=False, axis="x")
