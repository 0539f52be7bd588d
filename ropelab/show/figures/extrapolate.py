"""Beyond the trained length: copying by distance, loss by position, by context and by
kind.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.comparisons import tied_with
from ropelab.runs.labels import AS_SHIPPED, CACHE, ROUNDED, WINDOW, name_in, row_labels
from ropelab.runs.leading import find_lead
from ropelab.runs.stats import mean_interval
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.show.figures import rounded, shapes
from ropelab.show.figures.shapes import tokens_label
from ropelab.show.looks import FIGURES, GREY, Look, labelled, look

NLL = "nll_nats_per_byte"
SAID = FIGURES["extrapolate"]
FOUND, HOW = SAID["found"], SAID["arms"]
# Losses so far above the best (nats per byte) are named, not drawn: the rest would be
# one line.
CEILING = 0.3
# The same for single dots, which leave more room.
WIDEST = 0.6
# Methods drawn by kind of text, the best ones; more would cover each other.
MOST_BY_KIND = 6


def words_of(task: str) -> tuple[str, str]:
    """Return the words for what is found in a task, and for a method that finds it."""
    found, finds = SAID["tasks"].get(task, (f"answers of {task}", f"solves {task}"))
    return found, finds


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the figures that the tables have rows for, for each arm that methods were
    tried in.
    """
    retrieval = [
        name for name in tables if name.endswith("_accuracy") and name not in FOUND
    ]
    # A task that the model does not do at all at its trained length decides nothing.
    measured = {
        name: tables[name]
        for name in (*retrieval, "text_nll", "last_window")
        if name in tables and _is_ok(tables[name]) and _is_compared(tables[name])
    }
    tried = {
        a
        for table in measured.values()
        for a in table["arm"][table["method"] != WINDOW]
    }
    # Baselines alone are drawn as the zero-shot arm would be.
    arms = [arm for arm in HOW if arm in tried] or ["zero_shot"]
    figures: dict[str, Figure] = (
        rounded.draw(tables["casts"]) if "casts" in tables else {}
    )
    for arm in arms:
        shown = {name: _of_arm(table, arm) for name, table in measured.items()}
        suffix = "" if arm == "zero_shot" else f"_{arm}"
        for name in (name for name in retrieval if name in shown):
            task, table = name.removesuffix("_accuracy"), shown[name]
            title = _retrieval_title(table, tables["comparisons"], task, arm)
            figures[f"{task}_by_distance{suffix}"] = _by_distance(table, task, title)
            figures[f"{task}_heatmap{suffix}"] = _heatmap(table, task, title)
        if "text_nll" in shown:
            # Up to its trained length a released model has no sliding window to compare
            # with.
            if WINDOW in shown["text_nll"]["method"].values:
                by_position = _loss_by_position(
                    shown["text_nll"], tables["comparisons"], arm
                )
                figures[f"loss_by_position{suffix}"] = by_position
            last = shown["last_window"]
            figures[f"loss_by_context{suffix}"] = _loss_by_context(last, arm)
            if arm == "zero_shot" and {AS_SHIPPED, "unscaled"} & {*row_labels(last)}:
                figures["tax_and_gain"] = _tax_and_gain(last, tables["comparisons"])
    if "text_by_document" in tables and _is_compared(tables["text_by_document"]):
        by_document = tables["text_by_document"]
        own = ~by_document["arm"].isin((CACHE, ROUNDED))
        figures["loss_by_kind"] = _loss_by_kind(by_document[own])
    for name in (name for name in FOUND if name in tables):
        figure = f"{name.removesuffix('_accuracy')}_depth_by_length"
        figures[figure] = _depth_by_length(tables[name], FOUND[name])
    if {"zero_shot", "finetuned"} <= set(arms):
        figures["finetuned_against_zero_shot"] = against_zero_shot(measured)
    return figures


def _is_ok(table: pd.DataFrame) -> bool:
    return "status" not in table or bool((table["status"] == "ok").all())


def _is_compared(table: pd.DataFrame) -> bool:
    """Return True if there is more than one row besides those with roundings."""
    return len({*row_labels(table[table["arm"] != ROUNDED])}) > 1


def _of_arm(table: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Select an arm with rows that no method was applied to, and one window: that of
    the arm.
    """
    chosen, window = table["arm"].isin([arm, "ceiling"]), table["method"] == WINDOW
    if not (chosen & window).any():
        chosen |= window & (table["arm"] == "zero_shot")
    return table[chosen]


def _labelled(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(label=row_labels(table))


def _methods(table: pd.DataFrame, x: str, value: str) -> dict[str, pd.DataFrame]:
    """Average each method over seeds, with its band, in the order of the table."""
    labelled = shapes.each(_labelled(table), "label")
    return {label: shapes.over_seeds(rows, x, value) for label, rows in labelled}


def _means(table: pd.DataFrame, along: str, value: str) -> pd.DataFrame:
    """Average over seeds: a row per method, in their order, and a column per length."""
    labelled = _labelled(table).groupby(["label", along], sort=False)[value]
    return labelled.mean().unstack(sort=False).sort_index(axis=1)


def _ends(table: pd.DataFrame) -> tuple[int, int]:
    return table["train_len_tokens"].iloc[0], table["context_tokens"].max()


def _line_figure(
    table: pd.DataFrame,
    methods: Mapping[str, pd.DataFrame],
    columns: Sequence[str],
    labels: tuple[str, str, str],
    window: Iterable[float],
    limits: tuple[float | None, float],
) -> Figure:
    """Draw a line per method with the columns x, y and, if there is a band, its bounds.

    The second factor of a method is dotted, with hollow markers. Methods above the
    limits are named with their last values. `labels` are those of the axes and the
    title, `window` the losses of the sliding window.
    """
    figure, ax = shapes.new_axes()
    ax.set(**dict(zip(("xlabel", "ylabel", "title"), labels, strict=True)))
    (x, y, *band), seen, above = columns, set(), {}
    for label, rows in methods.items():
        if rows[y].min() > limits[1]:
            above[label] = rows[y].iloc[-1]
            continue
        name = name_in(label)
        second = {"markerfacecolor": "white", "linestyle": ":"} if name in seen else {}
        seen.add(name)
        bounds = (rows[band[0]], rows[band[1]]) if band else None
        shapes.line(
            ax, rows[x], rows[y], look(name), label, bounds, markersize=5, **second
        )
    for loss in window:
        ax.axhline(
            loss, color=look(WINDOW).color, linestyle=look(WINDOW).line, label=WINDOW
        )
    _say_outside(ax, above)
    ax.set_ylim(*limits)
    shapes.token_axis(ax)
    shapes.mark(ax, table["train_len_tokens"].iloc[0], "trained length", "x")
    shapes.legend_outside(ax)
    return figure


def _say_outside(ax: Axes, values: Mapping[str, float]) -> None:
    if values:
        text = ", ".join(f"{label} ({value:.2f})" for label, value in values.items())
        ax.set_xlabel(f"{ax.get_xlabel()}\nabove the scale: {text}")


def _retrieval_title(
    table: pd.DataFrame, comparisons: pd.DataFrame, task: str, arm: str
) -> str:
    """Name the method that finds most from twice the trained length back in the longest
    context.
    """
    trained, context = _ends(table)
    table = in_longest_context(table)
    distances = table["distance_tokens"].unique().tolist()
    at = min(distances, key=lambda distance: (abs(distance - 2 * trained), distance))
    means = _means(table, "distance_tokens", "accuracy")[at].dropna()
    about = {"at_tokens": at, "context_tokens": context, "metric": f"{task}_accuracy"}
    where = f"{tokens_label(at)} back in {tokens_label(context)} tokens"
    lead = find_lead(means, comparisons, about, lower_is_better=False)
    if lead is None or (len(means) > 1 and not lead.is_shown):
        return f"From {where} no method is shown to be better\n({HOW[arm]})"
    plain = ""
    if "unscaled" in means.drop(lead.first):
        plain = f"; unscaled {means['unscaled']:.2f}"
    share = f"{lead.value:.2f}{tied_with(lead.tied)}{plain}"
    verb = words_of(task)[1]
    return f"From {where} {lead.first} {verb} best:\n{share} ({HOW[arm]})"


def _by_distance(table: pd.DataFrame, task: str, title: str) -> Figure:
    methods = _methods(in_longest_context(table), "distance_tokens", "accuracy")
    labels = (
        f"distance of the {words_of(task)[0]} (tokens)",
        "share found correctly",
        title,
    )
    columns = ("distance_tokens", "accuracy", "low", "high")
    return _line_figure(table, methods, columns, labels, [], (-0.03, 1.05))


def _heatmap(table: pd.DataFrame, task: str, title: str) -> Figure:
    contexts = [rows for _, rows in table.groupby("context_tokens")]
    lines = table.groupby(["method", "factor", "arm"]).ngroups
    height = 0.6 + len(contexts) * (0.9 + 0.3 * lines)
    figure, axes = shapes.panels(len(contexts), 1, (8.0, height))
    for ax, rows in zip(axes.flat, contexts, strict=True):
        wide = _means(rows, "distance_tokens", "accuracy").rename(columns=tokens_label)
        shapes.heat_map(ax, wide, shapes.shares(wide))
        ax.set_title(
            f"in {tokens_label(rows['context_tokens'].iloc[0])} tokens", size=9
        )
    axes[-1, 0].set_xlabel(f"distance of the {words_of(task)[0]} (tokens)")
    shapes.headline(figure, title)
    return figure


def _loss_by_position(
    table: pd.DataFrame, comparisons: pd.DataFrame, arm: str
) -> Figure:
    (window,) = set(row_labels(table[table["method"] == WINDOW]))
    pairs = (comparisons["metric"] == "nll_bucket") & (
        comparisons["method_b"] == window
    )
    rows = comparisons[pairs & comparisons["method_a"].isin(row_labels(table))]
    last = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    better = last.loc[last["ci_high"] < 0, "method_a"].astype(str).tolist()
    who = (
        f"{better[0]} has" if len(better) == 1 else f"{len(better)} of {len(last)} have"
    )
    at = f"At {tokens_label(rows['at_tokens'].max())} {who if better else 'no method has'}"
    title = f"{at} a significantly lower loss\nthan a sliding window ({HOW[arm]})"
    position = "position in the text (tokens, end of bucket)"
    labels = position, "loss above the sliding window (nats per byte)", title
    methods = dict(shapes.each(rows, "method_a"))
    columns = ("at_tokens", "difference", "ci_low", "ci_high")
    return _line_figure(table, methods, columns, labels, [0], (None, CEILING))


def _loss_by_context(table: pd.DataFrame, arm: str) -> Figure:
    methods = _methods(table[table["method"] != WINDOW], "context_tokens", NLL)
    window = table.loc[table["method"] == WINDOW].groupby("context_tokens")[NLL].mean()
    title = _context_title(table, HOW[arm])
    labels = (
        "context that ends with the same tokens (tokens)",
        "loss (nats per byte)",
        title,
    )
    limits = None, table[NLL].min() + CEILING
    return _line_figure(table, methods, ("context_tokens", NLL), labels, window, limits)


def _context_title(table: pd.DataFrame, how: str) -> str:
    trained, longest = _ends(table)
    wide = _means(table[table["method"] != WINDOW], "context_tokens", NLL)
    if trained not in wide or longest == trained:
        return f"Loss of the same last tokens by the length of their context ({how})"
    # The gain of a method that is far behind the best says nothing.
    readable = wide[wide[longest] <= wide[longest].min() + CEILING]
    gains = (readable[longest] - readable[trained]).dropna()
    span = f"{tokens_label(longest)} instead of {tokens_label(trained)}"
    if not (gains < 0).any():
        return f"A context of {span} helps no method with the same last tokens\n({how})"
    gain = f"{gains.min():+.3f} nats per byte"
    return f"A context of {span} helps {gains.idxmin()} most: {gain}\n({how})"


def _tax_and_gain(table: pd.DataFrame, comparisons: pd.DataFrame) -> Figure:
    figure, ax = shapes.new_axes()
    trained, longest = _ends(table)
    wide = _means(table, "context_tokens", NLL).reindex(
        columns=sorted({trained, longest})
    )
    baseline = AS_SHIPPED if AS_SHIPPED in wide.index else "unscaled"
    # Without the baseline at its trained length there is nothing to compare with.
    above = (wide - wide[trained].get(baseline, math.nan)).dropna()
    outside = above.max(axis=1) > CEILING
    shown = above.loc[~outside, [trained, longest]].set_axis(["x", "y"], axis=1)
    for point in shapes.records(shown):
        shapes.dots(
            ax, [point.x], [point.y], look(name_in(str(point.Index))), markersize=8
        )
    ax.axhline(0, color=GREY, linewidth=1)
    ax.axvline(0, color=GREY, linewidth=1)
    ax.margins(x=0.15, y=0.25)
    inside, beyond = tokens_label(trained), tokens_label(longest)
    scaled = wide.drop(["unscaled", AS_SHIPPED, WINDOW], errors="ignore").dropna()
    title = "Loss at the trained length against the loss at the tested length"
    leads = []
    for length in (trained, longest):
        about = {"metric": "nll_last_window", "context_tokens": length}
        leads.append(
            find_lead(scaled[length], comparisons, about, lower_is_better=True)
        )
    short, long = (lead.names if lead else () for lead in leads)
    if len(short) == len(long) == 1:
        then = " and" if short == long else f", {long[0]}"
        title = f"{short[0]} costs least at {inside}{then} is best at {beyond}"
    ax.set(
        xlabel=f"short-context tax: loss at {inside} above {baseline}",
        ylabel=f"loss at {beyond} above\n{baseline} at {inside}",
        title=title,
    )
    _say_outside(ax, above.loc[outside, longest].to_dict())
    shapes.label_points(
        ax, [(point.x, point.y, point.Index) for point in shapes.records(shown)]
    )
    return figure


def _depth_by_length(table: pd.DataFrame, found: str) -> Figure:
    contexts = sorted(table["context_tokens"].unique().tolist())
    methods = list(shapes.each(_labelled(table), "label"))
    down, across = math.ceil(len(methods) / 4), min(4, len(methods))
    size, shared = (8.0, 0.9 + 2.1 * down), {"sharex": True, "sharey": True}
    figure, axes = shapes.panels(down, across, size, len(methods), **shared)
    for ax, (label, rows) in zip(axes.flat, methods, strict=False):
        wide = rows.pivot_table(
            index="depth_percent", columns="context_tokens", values="accuracy"
        )
        # A context in which a method was not evaluated stays empty.
        wide = wide.reindex(columns=contexts).rename(
            index="{:g}".format, columns=tokens_label
        )
        shapes.heat_map(ax, wide, shapes.shares(wide, ".2g"))
        ax.set_title(label, size=9)
    # One label for all panels: each is too narrow for its own.
    figure.supxlabel("context (tokens)")
    figure.supylabel("depth of the key (% of the text)")
    means = _means(table, "context_tokens", "accuracy")[contexts[-1]].dropna()
    where = f"{found} in {tokens_label(contexts[-1])} tokens"
    undecided = f"The model does not find {where}: no verdict"
    shapes.headline(figure, _depth_title(means, where) if _is_ok(table) else undecided)
    return figure


def _depth_title(means: pd.Series, where: str) -> str:
    # A released model is compared with itself, one trained here with the best method.
    baseline = AS_SHIPPED if AS_SHIPPED in means else "unscaled"
    others = means.drop(baseline, errors="ignore")
    if baseline not in means:
        return f"Up to {others.max():.2f} finds {where}"
    share = f"{baseline} {means[baseline]:.2f}"
    if others.empty or others.max() <= means[baseline]:
        return f"Nothing finds {where} more often than the model {share}"
    return f"Methods find {where} with up to {others.max():.2f}, {share}"


def _loss_by_kind(table: pd.DataFrame) -> Figure:
    above = against_window(table)
    labels = above.groupby("label")["above"].mean().sort_values().index[:MOST_BY_KIND]
    kinds = above.drop_duplicates(["name", "kind"])["kind"].value_counts()
    figure, ax = shapes.new_axes((8.0, 1.5 + 0.6 * len(kinds)))
    for number, label in enumerate(labels):
        rows = above[above["label"] == label].groupby("kind")["above"]
        means = [mean_interval(rows.get_group(kind)) for kind in kinds.index]
        values, low, high = zip(
            *((mean.value, mean.low, mean.high) for mean in means), strict=True
        )
        places = np.arange(len(kinds)) + (number + 0.5) / len(labels) * 0.8 - 0.4
        style = {
            "hollow": name_in(label) in map(name_in, labels[:number]),
            "markersize": 5,
        }
        shapes.dots(
            ax, values, places, look(name_in(label)), label, (low, high), **style
        )
    ax.axvline(0, color=look(WINDOW).color, linestyle=look(WINDOW).line, label=WINDOW)
    shapes.name_rows(ax, [f"{kind} ({count})" for kind, count in kinds.items()])
    ax.set(
        xlabel="loss at the end of the text above the sliding window (nats per byte)",
        title=kinds_title(above[above["label"] == labels[0]], labels[0]),
    )
    shapes.legend_outside(ax)
    return figure


def against_window(table: pd.DataFrame) -> pd.DataFrame:
    """Return every document's loss above that of the sliding window, as the column
    `above`.
    """
    named, about = _labelled(table), ["name", "kind"]
    windows = named[named["method"] == WINDOW]
    # Of a model that was trained as long, where there is one.
    arm = named["arm"].where(named["arm"].isin(windows["arm"]), "zero_shot")
    window = windows.set_index([*about, "arm"])[NLL].rename("window")
    others = named.assign(own=arm)[named["method"] != WINDOW].join(
        window, on=[*about, "own"]
    )
    return others.assign(above=others[NLL] - others["window"])


def kinds_title(best: pd.DataFrame, label: str) -> str:
    """Say the span of the best method, from the kind that it reads best to the worst
    one.
    """
    by_kind = best.groupby("kind")["above"].agg(["mean", "count"])
    # A kind of a single document names no end of the span, unless every kind is one.
    several = by_kind[by_kind["count"] > 1]
    means = (by_kind if several.empty else several)["mean"].sort_values()
    ends = [f"{value:+.3f} ({kind})" for kind, value in means.iloc[[0, -1]].items()]
    span = " to ".join(dict.fromkeys(ends))
    return f"{label} against a sliding window, by kind of text:\n{span} nats per byte"


def against_zero_shot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel per task, a row per method: hollow before fine-tuning, filled after
    it.

    Losses are those of the last window at the tested length, accuracies the mean over
    all distances beyond the trained length, both averaged over seeds; bars are the
    range of the seeds.
    """
    arms = {
        name: _by_arm(table) for name, table in tables.items() if name != "text_nll"
    }
    names = list(next(iter(arms.values()))["zero_shot"].index)
    size = (4.6 * len(arms), 1.6 + 0.34 * len(names))
    figure, axes = shapes.panels(1, len(arms), size, sharey=True)
    for ax, (name, found) in zip(axes[0], arms.items(), strict=True):
        is_loss = name == "last_window"
        _before_and_after(ax, found, is_loss)
        if is_loss:
            at = tokens_label(tables[name]["context_tokens"].max())
            ax.set_xlabel(f"loss after {at} tokens (nats per byte)")
        else:
            trained = tokens_label(tables[name]["train_len_tokens"].max())
            ax.set(
                xlabel=f"{name.replace('_', ' ')} beyond {trained}", xlim=(-0.04, 1.04)
            )
    shapes.name_rows(axes[0][0], names)
    shapes.legend_below(figure, axes[0], 4)
    shown = "last_window" if "last_window" in arms else next(iter(arms))
    # The lowest loss is the best, and the highest accuracy.
    sign = 1 if shown == "last_window" else -1
    before, after = (
        sign * arms[shown][arm]["mean"] for arm in ("zero_shot", "finetuned")
    )
    helped = (
        f"Fine-tuning helps {(after < before.reindex(after.index)).sum()} of"
        f" {len(after)}"
    )
    shapes.headline(figure, f"{helped} methods")
    return figure


def _by_arm(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Average over distances and seeds: arm to mean, min and max by method with its
    factor.
    """
    column = "accuracy" if "accuracy" in table else NLL
    rows = in_longest_context(table)
    if column == "accuracy":
        rows = rows[rows["distance_tokens"] > rows["train_len_tokens"]]
    # The label is that of the method, whatever its arm, so that the arms share a row.
    rows = _labelled(rows.assign(arm="")).assign(
        kind=rows["arm"].where(rows["method"] != WINDOW, "window " + rows["arm"])
    )
    seeds = rows.groupby(["kind", "label", "seed"], sort=False)[column].mean()
    spreads = seeds.groupby(["kind", "label"], sort=False).agg(["mean", "min", "max"])
    return {
        str(kind): part.droplevel(0)
        for kind, part in spreads.groupby("kind", sort=False)
    }


def _before_and_after(
    ax: Axes, arms: Mapping[str, pd.DataFrame], is_loss: bool
) -> None:
    before = arms["zero_shot"]
    both = pd.concat(
        [before, arms.get("finetuned", before.iloc[:0])], keys=["before", "after"]
    )
    edge = both["mean"].min() + WIDEST if is_loss else 1.05
    for row, name in enumerate(before.index):
        spreads, style = both.xs(name, level=1), look(name_in(name))
        shown = spreads.clip(upper=edge)
        for when, (mean, low, high) in shown.iterrows():
            size = {"hollow": when == "before", "markersize": 7, "zorder": 3}
            shapes.dots(ax, [mean], [row], style, "", ([low], [high]), **size)
        ends = shown["mean"].iloc[[0, -1]]
        ax.plot(ends, [row, row], color=style.color, linewidth=1.5, alpha=0.5)
        outside = [f"{mean:.2f}" for mean in spreads["mean"] if mean > edge]
        if outside:
            shapes.note(ax, " → ".join(outside), (edge, row), (0, 7), ha="center")
    for arm, (style, label) in labelled(SAID["plain"]).items():
        for mean in arms[arm]["mean"] if arm in arms else ():
            ax.axvline(mean, color=style.color, linestyle=style.line, label=label)
    for hollow, label in ((True, "as trained"), (False, "fine-tuned")):
        shapes.dots(ax, [], [], Look(GREY, "o"), label, hollow=hollow)
    ax.grid(visible=False, axis="x")
