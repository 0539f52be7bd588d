"""Beyond the trained length: copying by distance, loss by position, by context and by
kind.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from ropelab.show.figures.shapes import format_tokens
from ropelab.show.looks import FIGURES, GREY, Look, find_look, read_looks

NLL = "nll_nats_per_byte"
WORDS = FIGURES["extrapolate"]
# What is found in the tasks that are drawn by depth and length, by the table's name.
FOUND = WORDS["found"]
ARMS = WORDS["arms"]
# Losses so far above the best (nats per byte) are named, not drawn: the rest would be
# one line.
CEILING = 0.3
# The same for single dots, which leave more room.
WIDEST = 0.6
# Methods drawn by kind of text, the best ones; more would cover each other.
MOST_BY_KIND = 6
# Lines in the figure by distance: more are drawn in a second figure with all methods.
MOST_LINES = 6
# Methods that give way where there are too many lines: those that `extrapolate` compares
# by default beside the ones that are asked about first.
ASKED_LESS = ("dynamic_ntk", "ntk_by_parts", "llama3")
# Rows that no method was applied to: they are what methods are compared with.
BASELINES = ("unscaled", AS_SHIPPED, WINDOW)
# Panels beside each other in the figure of depth by length.
MOST_ACROSS = 4


@dataclass(frozen=True)
class Lines:
    """What is drawn over tokens: axes, a line per method, and the sliding window's."""

    methods: Mapping[str, pd.DataFrame]
    x: str
    y: str
    xlabel: str
    ylabel: str
    title: str
    trained: int  # tokens
    # The columns of the lower and the upper bound; without them there is no band.
    bounds: tuple[str, str] | None = None
    # The losses of the sliding window, each a horizontal line.
    window: Iterable[float] = ()
    lowest: float | None = None
    # Methods that are above this everywhere are named with their last values.
    highest: float = math.inf
    # Names stand at the right ends of lines; else in a legend.
    names_at_ends: bool = False


def find_words(task: str) -> tuple[str, str]:
    """Return the words for what is found in a task, and for a method that finds it."""
    found, finds = WORDS["tasks"].get(task, (f"answers of {task}", f"solves {task}"))
    return found, finds


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the figures that the tables have rows for, for each arm that methods were
    tried in.
    """
    measured = _select_measured(tables)
    arms = _list_arms(measured)
    figures: dict[str, Figure] = {}
    if "casts" in tables:
        figures |= rounded.draw(tables["casts"])
    if "divergence_by_place" in tables:
        figures |= rounded.draw_divergence(tables["divergence_by_place"])
    for arm in arms:
        in_arm = {name: _select_arm(table, arm) for name, table in measured.items()}
        figures |= _draw_arm(in_arm, tables["comparisons"], arm)

    if "text_by_document" in tables:
        by_document = tables["text_by_document"]
        is_derived = by_document["arm"].isin((CACHE, ROUNDED))
        if _is_compared(by_document, _reaches_beyond(tables["text_nll"])):
            figures["loss_by_kind"] = _draw_loss_by_kind(by_document[~is_derived])
    for name, words in FOUND.items():
        if name in tables:
            figure = f"{name.removesuffix('_accuracy')}_depth_by_length"
            figures[figure] = _draw_depth_by_length(tables[name], words)
    if {"zero_shot", "finetuned"} <= set(arms):
        figures["finetuned_against_zero_shot"] = draw_against_zero_shot(measured)
    return figures


def _select_measured(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the tables of tasks that compare methods: retrieval first, then loss."""
    retrieval = [name for name in tables if _is_retrieval(name)]
    measured = {}
    for name in (*retrieval, "text_nll", "last_window"):
        # A task that the model does not do at all at its trained length decides
        # nothing.
        if name not in tables or not _is_ok(tables[name]):
            continue
        if _is_compared(tables[name], _reaches_beyond(tables[name])):
            measured[name] = tables[name]
    return measured


def _is_retrieval(name: str) -> bool:
    return name.endswith("_accuracy") and name not in FOUND


def _list_arms(measured: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the arms that methods were tried in, in the order of ARMS."""
    tried = set()
    for table in measured.values():
        is_method = table["method"] != WINDOW
        tried |= set(table.loc[is_method, "arm"])
    arms = [arm for arm in ARMS if arm in tried]
    # Baselines alone are drawn as the zero-shot arm would be.
    return arms or ["zero_shot"]


def _draw_arm(
    measured: Mapping[str, pd.DataFrame], comparisons: pd.DataFrame, arm: str
) -> dict[str, Figure]:
    suffix = "" if arm == "zero_shot" else f"_{arm}"
    figures = {}
    for name, table in measured.items():
        if not _is_retrieval(name):
            continue
        task = name.removesuffix("_accuracy")
        title = _write_retrieval_title(table, comparisons, task, arm)
        by_distance = _average_methods(
            in_longest_context(table), "distance_tokens", "accuracy"
        )
        few = _select_lines(by_distance, title)
        draw_lines = partial(_draw_by_distance, table, task, title)
        figures[f"{task}_by_distance{suffix}"] = draw_lines(few)
        if len(few) < len(by_distance):
            figures[f"{task}_by_distance_all{suffix}"] = draw_lines(by_distance)
        figures[f"{task}_heatmap{suffix}"] = _draw_heatmap(table, task, title)
    if "text_nll" not in measured:
        return figures

    text = measured["text_nll"]
    # Up to its trained length a released model has no sliding window to compare with.
    if (text["method"] == WINDOW).any():
        by_position = _draw_loss_by_position(text, comparisons, arm)
        figures[f"loss_by_position{suffix}"] = by_position
    last = measured["last_window"]
    figures[f"loss_by_context{suffix}"] = _draw_loss_by_context(last, arm)
    labels = set(row_labels(last))
    has_baseline = bool({AS_SHIPPED, "unscaled"} & labels)
    has_methods = bool(labels - set(BASELINES))
    # Texts may be shorter than what the model was trained on: nothing is gained there.
    if arm == "zero_shot" and has_baseline and has_methods and _reaches_beyond(last):
        figures["tax_and_gain"] = _draw_tax_and_gain(last, comparisons)
    return figures


def _is_ok(table: pd.DataFrame) -> bool:
    return "status" not in table or bool((table["status"] == "ok").all())


def _reaches_beyond(table: pd.DataFrame) -> bool:
    """Return True if texts are longer than what the models were trained on."""
    ends = "context_tokens" if "context_tokens" in table else "bucket_end_tokens"
    return bool(table[ends].max() > table["train_len_tokens"].iloc[0])


def _is_compared(table: pd.DataFrame, reaches_beyond: bool) -> bool:
    """Return True if there is more than one row besides those with roundings.

    Up to the trained length a sliding window is the model itself, and compares nothing.
    """
    plain = table[table["arm"] != ROUNDED]
    if not reaches_beyond:
        plain = plain[plain["method"] != WINDOW]
    return len(set(row_labels(plain))) > 1


def _select_arm(table: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Select an arm with rows that no method was applied to, and one window: that of
    the arm.
    """
    chosen = table["arm"].isin([arm, "ceiling"])
    is_window = table["method"] == WINDOW
    if not (chosen & is_window).any():
        chosen |= is_window & (table["arm"] == "zero_shot")
    return table[chosen]


def _add_labels(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(label=row_labels(table))


def _average_methods(
    table: pd.DataFrame, x: str, value: str
) -> dict[str, pd.DataFrame]:
    """Average each method over seeds, with its band, in the order of the table."""
    methods = {}
    for label, rows in shapes.split_by(_add_labels(table), "label"):
        methods[label] = shapes.average_over_seeds(rows, x, value)
    return methods


def _spread_means(table: pd.DataFrame, along: str, value: str) -> pd.DataFrame:
    """Average over seeds: a row per method, in their order, and a column per length."""
    groups = _add_labels(table).groupby(["label", along], sort=False)
    return groups[value].mean().unstack(sort=False).sort_index(axis=1)


def _find_trained_and_longest(table: pd.DataFrame) -> tuple[int, int]:
    return table["train_len_tokens"].iloc[0], table["context_tokens"].max()


def _draw_lines(lines: Lines) -> Figure:
    """Draw a line per method, with its band if there is one.

    The second factor of a method is dotted, with hollow markers. Methods above the
    limits are named with their last values.
    """
    figure, ax = shapes.make_axes()
    ax.set(xlabel=lines.xlabel, ylabel=lines.ylabel, title=lines.title)
    names = set()
    above = {}
    for label, rows in lines.methods.items():
        values = rows[lines.y]
        if values.min() > lines.highest:
            above[label] = values.iloc[-1]
            continue

        style: dict[str, Any] = {"markersize": 5}
        name = name_in(label)
        if name in names:
            style |= {"markerfacecolor": "white", "linestyle": ":"}
        names.add(name)
        band = None
        if lines.bounds:
            low, high = lines.bounds
            band = (rows[low], rows[high])
        shapes.draw_line(
            ax, rows[lines.x], values, find_look(name), label, band, **style
        )

    window = find_look(WINDOW)
    for loss in lines.window:
        ax.axhline(loss, color=window.color, linestyle=window.line, label=WINDOW)
    _name_outside(ax, above)
    ax.set_ylim(lines.lowest, lines.highest)
    shapes.set_token_axis(ax)
    shapes.mark_value(ax, lines.trained, "trained length", "x")
    if lines.names_at_ends:
        shapes.name_line_ends(ax)
    else:
        shapes.put_legend_outside(ax)
    return figure


def _name_outside(ax: Axes, values: Mapping[str, float]) -> None:
    """Name methods with their values that are above the scale."""
    if values:
        text = ", ".join(f"{label} ({value:.2f})" for label, value in values.items())
        ax.set_xlabel(f"{ax.get_xlabel()}\nabove the scale: {text}")


def _write_retrieval_title(
    table: pd.DataFrame, comparisons: pd.DataFrame, task: str, arm: str
) -> str:
    """Name the method that finds most from twice the trained length back in the longest
    context.
    """
    trained, context = _find_trained_and_longest(table)
    table = in_longest_context(table)
    distances = table["distance_tokens"].unique().tolist()
    # Of two distances that are as near, the shorter one.
    at = min(distances, key=lambda distance: (abs(distance - 2 * trained), distance))
    means = _spread_means(table, "distance_tokens", "accuracy")[at].dropna()

    about = {"at_tokens": at, "context_tokens": context, "metric": f"{task}_accuracy"}
    lead = find_lead(means, comparisons, about, lower_is_better=False)
    where = f"{format_tokens(at)} back in {format_tokens(context)} tokens"
    if lead is None or (len(means) > 1 and not lead.is_shown):
        return f"From {where} no method is shown to be better\n({ARMS[arm]})"

    _, finds = find_words(task)
    title = f"From {where} {lead.first} {finds} best: {lead.value:.0%}"
    if "unscaled" in means.drop(lead.first):
        title += f", unscaled {means['unscaled']:.0%}"
    tied = tied_with(lead.tied).removeprefix(", ")
    details = "; ".join(filter(None, (tied, ARMS[arm])))
    return f"{title}\n({details})"


def _select_lines(
    methods: Mapping[str, pd.DataFrame], title: str
) -> Mapping[str, pd.DataFrame]:
    """Return the lines that a reader can tell apart; all of them if they are few.

    Lines that the title names stay, and of a method with several factors the first.
    """
    if len(methods) <= MOST_LINES:
        return methods

    few = {}
    names = set()
    for label, rows in methods.items():
        name = name_in(label)
        is_first = name not in names and name not in ASKED_LESS
        if is_first or label in title:
            few[label] = rows
        names.add(name)
    return few


def _draw_by_distance(
    table: pd.DataFrame, task: str, title: str, methods: Mapping[str, pd.DataFrame]
) -> Figure:
    found, _ = find_words(task)
    seeds = table["seed"].nunique()
    if seeds > 1:
        bands = f"bands: from the lowest to the highest of {seeds} models"
    else:
        bands = "bands: 95 % intervals of one model"
    lines = Lines(
        methods,
        x="distance_tokens",
        y="accuracy",
        bounds=("low", "high"),
        xlabel=f"distance of the {found} (tokens)\n{bands}",
        ylabel="share found correctly",
        title=title,
        trained=table["train_len_tokens"].iloc[0],
        lowest=-0.03,
        highest=1.05,
        names_at_ends=True,
    )
    return _draw_lines(lines)


def _draw_heatmap(table: pd.DataFrame, task: str, title: str) -> Figure:
    """Draw a panel per context: a row per method, a column per distance."""
    contexts = sorted(table["context_tokens"].unique())
    count = table.groupby(["method", "factor", "arm"]).ngroups
    height = 0.6 + len(contexts) * (0.9 + 0.3 * count)
    figure, axes = shapes.make_panels(len(contexts), 1, (8.0, height))
    for ax, context in zip(axes.flat, contexts, strict=True):
        rows = table[table["context_tokens"] == context]
        means = _spread_means(rows, "distance_tokens", "accuracy")
        means = means.rename(columns=format_tokens)
        shapes.draw_heat_map(ax, means, shapes.format_shares(means))
        ax.set_title(f"in {format_tokens(context)} tokens", size=9)
    found, _ = find_words(task)
    axes[-1, 0].set_xlabel(f"distance of the {found} (tokens)")
    shapes.set_headline(figure, title)
    return figure


def _draw_loss_by_position(
    table: pd.DataFrame, comparisons: pd.DataFrame, arm: str
) -> Figure:
    """Draw the loss of each method above that of the sliding window."""
    (window,) = set(row_labels(table[table["method"] == WINDOW]))
    is_pair = (comparisons["metric"] == "nll_bucket") & (
        comparisons["method_b"] == window
    )
    is_shown = comparisons["method_a"].isin(row_labels(table))
    rows = comparisons[is_pair & is_shown]
    end = rows["at_tokens"].max()
    better = _write_better(rows[rows["at_tokens"] == end])
    lines = Lines(
        dict(shapes.split_by(rows, "method_a")),
        x="at_tokens",
        y="difference",
        bounds=("ci_low", "ci_high"),
        xlabel="position in the text (tokens, end of bucket)",
        ylabel="loss above the sliding window (nats per byte)",
        title=(
            f"At {format_tokens(end)} {better} a significantly lower loss\n"
            f"than a sliding window ({ARMS[arm]})"
        ),
        trained=table["train_len_tokens"].iloc[0],
        window=[0],
        highest=CEILING,
    )
    return _draw_lines(lines)


def _write_better(last: pd.DataFrame) -> str:
    """Say which methods have a lower loss than the sliding window, with the verb."""
    better = last.loc[last["ci_high"] < 0, "method_a"].astype(str).tolist()
    if not better:
        return "no method has"
    if len(better) == 1:
        return f"{better[0]} has"
    return f"{len(better)} of {len(last)} have"


def _draw_loss_by_context(table: pd.DataFrame, arm: str) -> Figure:
    is_window = table["method"] == WINDOW
    lines = Lines(
        _average_methods(table[~is_window], "context_tokens", NLL),
        x="context_tokens",
        y=NLL,
        xlabel="context that ends with the same tokens (tokens)",
        ylabel="loss (nats per byte)",
        title=_write_context_title(table, ARMS[arm]),
        trained=table["train_len_tokens"].iloc[0],
        window=table[is_window].groupby("context_tokens")[NLL].mean(),
        highest=table[NLL].min() + CEILING,
    )
    return _draw_lines(lines)


def _write_context_title(table: pd.DataFrame, how: str) -> str:
    """Say which method gains most from a longer context."""
    trained, longest = _find_trained_and_longest(table)
    losses = _spread_means(table[table["method"] != WINDOW], "context_tokens", NLL)
    if trained not in losses or longest == trained:
        return f"Loss of the same last tokens by the length of their context\n({how})"

    # The gain of a method that is far behind the best says nothing.
    is_near = losses[longest] <= losses[longest].min() + CEILING
    near = losses[is_near]
    gains = (near[longest] - near[trained]).dropna()
    span = f"{format_tokens(longest)} instead of {format_tokens(trained)}"
    if not (gains < 0).any():
        return f"A context of {span} lowers the loss of no method\n({how})"
    gain = f"{gains.min():+.3f} nats per byte"
    return f"A context of {span} helps {gains.idxmin()} most: {gain}\n({how})"


def _draw_tax_and_gain(table: pd.DataFrame, comparisons: pd.DataFrame) -> Figure:
    """Draw each method at its loss within the trained length, and beyond it."""
    trained, longest = _find_trained_and_longest(table)
    losses = _spread_means(table, "context_tokens", NLL)
    losses = losses.reindex(columns=sorted({trained, longest}))
    baseline = AS_SHIPPED if AS_SHIPPED in losses.index else "unscaled"
    # Without the baseline at its trained length there is nothing to compare with.
    above = (losses - losses[trained].get(baseline, math.nan)).dropna()
    is_outside = above.max(axis=1) > CEILING
    shown = above.loc[~is_outside, [trained, longest]].set_axis(["x", "y"], axis=1)

    figure, ax = shapes.make_axes()
    points = []
    for point in shapes.iterate_rows(shown):
        look = find_look(name_in(str(point.Index)))
        shapes.draw_dots(ax, [point.x], [point.y], look, markersize=8)
        points.append((point.x, point.y, point.Index))
    ax.axhline(0, color=GREY, linewidth=1)
    ax.axvline(0, color=GREY, linewidth=1)
    ax.margins(x=0.15, y=0.25)

    inside = format_tokens(trained)
    beyond = format_tokens(longest)
    ax.set(
        xlabel=f"short-context tax: loss at {inside} above {baseline}",
        ylabel=f"loss at {beyond} above\n{baseline} at {inside}",
        title=_write_tax_title(losses, comparisons, trained, longest),
    )
    _name_outside(ax, above.loc[is_outside, longest].to_dict())
    shapes.label_points(ax, points)
    return figure


def _write_tax_title(
    losses: pd.DataFrame, comparisons: pd.DataFrame, trained: int, longest: int
) -> str:
    """Name the methods that lead at both lengths, and say where none is shown to."""
    scaled = losses.drop(list(BASELINES), errors="ignore").dropna()

    def find_best(length: int) -> Sequence[str]:
        about = {"metric": "nll_last_window", "context_tokens": length}
        lead = find_lead(scaled[length], comparisons, about, lower_is_better=True)
        return lead.names if lead else ()

    inside = format_tokens(trained)
    beyond = format_tokens(longest)
    best_inside = find_best(trained)
    best_beyond = find_best(longest)
    if len(best_inside) != 1 and len(best_beyond) != 1:
        return (
            f"No method is shown to cost least at {inside}, or to be best at {beyond}"
        )
    if len(best_inside) != 1:
        return f"{best_beyond[0]} is best at {beyond}; none is shown best at {inside}"
    if len(best_beyond) != 1:
        return (
            f"{best_inside[0]} costs least at {inside}; none is shown best at {beyond}"
        )
    if best_inside == best_beyond:
        return f"{best_inside[0]} costs least at {inside} and is best at {beyond}"
    return f"{best_inside[0]} costs least at {inside}, {best_beyond[0]} is best at {beyond}"


def _draw_depth_by_length(table: pd.DataFrame, found: str) -> Figure:
    """Draw a panel per method: a row per depth, a column per context."""
    contexts = sorted(table["context_tokens"].unique().tolist())
    methods = dict(shapes.split_by(_add_labels(table), "label"))
    down = math.ceil(len(methods) / MOST_ACROSS)
    across = min(MOST_ACROSS, len(methods))
    size = (8.0, 0.9 + 2.1 * down)
    figure, axes = shapes.make_panels(
        down, across, size, len(methods), sharex=True, sharey=True
    )
    for ax, (label, rows) in zip(axes.flat, methods.items(), strict=False):
        shares = rows.pivot_table(
            index="depth_percent", columns="context_tokens", values="accuracy"
        )
        # A context in which a method was not evaluated stays empty.
        shares = shares.reindex(columns=contexts)
        shares = shares.rename(index="{:g}".format, columns=format_tokens)
        shapes.draw_heat_map(ax, shares, shapes.format_shares(shares, ".2g"))
        ax.set_title(label, size=9)

    # One label for all panels: each is too narrow for its own.
    figure.supxlabel("context (tokens)")
    figure.supylabel("depth of the key (% of the text)")
    longest = contexts[-1]
    where = f"{found} in {format_tokens(longest)} tokens"
    if _is_ok(table):
        means = _spread_means(table, "context_tokens", "accuracy")[longest].dropna()
        shapes.set_headline(figure, _write_depth_title(means, where))
    else:
        shapes.set_headline(figure, f"The model does not find {where}: no verdict")
    return figure


def _write_depth_title(means: pd.Series, where: str) -> str:
    # A released model is compared with itself, one trained here with the best method.
    baseline = AS_SHIPPED if AS_SHIPPED in means else "unscaled"
    others = means.drop(baseline, errors="ignore")
    if baseline not in means:
        return f"Up to {others.max():.2f} finds {where}"
    share = f"{baseline} {means[baseline]:.2f}"
    if others.empty or others.max() <= means[baseline]:
        return f"Nothing finds {where} more often than the model {share}"
    return f"Methods find {where} with up to {others.max():.2f}, {share}"


def _draw_loss_by_kind(table: pd.DataFrame) -> Figure:
    """Draw the loss of the best methods above the sliding window, by kind of text."""
    above = subtract_window(table)
    means = above.groupby("label")["above"].mean()
    labels = means.sort_values().index[:MOST_BY_KIND]
    documents = above.drop_duplicates(["name", "kind"])
    kinds = documents["kind"].value_counts()
    figure, ax = shapes.make_axes((8.0, 1.5 + 0.6 * len(kinds)))
    names = set()
    for number, label in enumerate(labels):
        by_kind = above[above["label"] == label].groupby("kind")["above"]
        intervals = [mean_interval(by_kind.get_group(kind)) for kind in kinds.index]
        low = tuple(interval.low for interval in intervals)
        high = tuple(interval.high for interval in intervals)
        # The dots of a kind share 0.8 of its row.
        places = np.arange(len(kinds)) + (number + 0.5) / len(labels) * 0.8 - 0.4
        name = name_in(label)
        shapes.draw_dots(
            ax,
            tuple(interval.value for interval in intervals),
            places,
            find_look(name),
            label,
            (low, high),
            hollow=name in names,
            markersize=5,
        )
        names.add(name)

    window = find_look(WINDOW)
    ax.axvline(0, color=window.color, linestyle=window.line, label=WINDOW)
    shapes.name_rows(ax, [f"{kind} ({count})" for kind, count in kinds.items()])
    best = above[above["label"] == labels[0]]
    ax.set(
        xlabel="loss at the end of the text above the sliding window (nats per byte)",
        title=write_kinds_title(best, labels[0]),
    )
    shapes.put_legend_outside(ax)
    return figure


def subtract_window(table: pd.DataFrame) -> pd.DataFrame:
    """Return every document's loss above that of the sliding window, as the column
    `above`.
    """
    rows = _add_labels(table)
    is_window = rows["method"] == WINDOW
    windows = rows[is_window]
    # The window of a model that was trained as long, where there is one.
    has_own = rows["arm"].isin(windows["arm"])
    rows["own"] = rows["arm"].where(has_own, "zero_shot")

    losses = windows.set_index(["name", "kind", "arm"])[NLL].rename("window")
    others = rows[~is_window].join(losses, on=["name", "kind", "own"])
    return others.assign(above=others[NLL] - others["window"])


def write_kinds_title(best: pd.DataFrame, label: str) -> str:
    """Say the span of the best method, from the kind that it reads best to the worst
    one.
    """
    by_kind = best.groupby("kind")["above"].agg(["mean", "count"])
    # A kind of a single document names no end of the span, unless every kind is one.
    several = by_kind[by_kind["count"] > 1]
    if not several.empty:
        by_kind = several
    means = by_kind["mean"].sort_values()
    ends = [f"{value:+.3f} ({kind})" for kind, value in means.iloc[[0, -1]].items()]
    # With a single kind both ends are the same, and it is named once.
    span = " to ".join(dict.fromkeys(ends))
    return f"{label} against a sliding window, by kind of text:\n{span} nats per byte"


def draw_against_zero_shot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel per task, a row per method: hollow before fine-tuning, filled after
    it.

    Losses are those of the last window at the tested length, accuracies the mean over
    all distances beyond the trained length, both averaged over seeds; bars are the
    range of the seeds.
    """
    tasks = {name: table for name, table in tables.items() if name != "text_nll"}
    spreads = {name: _average_by_arm(table) for name, table in tasks.items()}
    first = next(iter(spreads.values()))
    names = list(first["zero_shot"].index)
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
        helped = _count_helped(spreads["last_window"], is_loss=True)
    else:
        helped = _count_helped(first, is_loss=False)
    shapes.set_headline(figure, f"Fine-tuning helps {helped} methods")
    return figure


def _count_helped(arms: Mapping[str, pd.DataFrame], is_loss: bool) -> str:
    """Count the methods that fine-tuning made better: `3 of 5`."""
    after = arms["finetuned"]["mean"]
    before = arms["zero_shot"]["mean"].reindex(after.index)
    is_better = after < before if is_loss else after > before
    return f"{is_better.sum()} of {len(after)}"


def _average_by_arm(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Average over distances and seeds: arm to mean, min and max by method with its
    factor.
    """
    rows = in_longest_context(table)
    column = NLL
    if "accuracy" in table:
        column = "accuracy"
        rows = rows[rows["distance_tokens"] > rows["train_len_tokens"]]

    # Windows are an arm of their own, as no method was applied to them.
    is_window = rows["method"] == WINDOW
    kind = rows["arm"].mask(is_window, "window " + rows["arm"])
    # The label is that of the method, whatever its arm, so that the arms share a row.
    rows = _add_labels(rows.assign(arm="")).assign(kind=kind)
    seeds = rows.groupby(["kind", "label", "seed"], sort=False)[column].mean()
    spreads = seeds.groupby(["kind", "label"], sort=False).agg(["mean", "min", "max"])
    arms = {}
    for arm, part in spreads.groupby("kind", sort=False):
        arms[str(arm)] = part.droplevel(0)
    return arms


def _draw_before_and_after(
    ax: Axes, arms: Mapping[str, pd.DataFrame], is_loss: bool
) -> None:
    before = arms["zero_shot"]
    after = arms.get("finetuned", before.iloc[:0])
    both = pd.concat([before, after], keys=["before", "after"])
    edge = 1.05
    if is_loss:
        edge = both["mean"].min() + WIDEST
    for row, name in enumerate(before.index):
        own = both[both.index.get_level_values(1) == name].droplevel(1)
        _draw_method(ax, row, name, own, edge)

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
    """Draw a method before and after fine-tuning; values beyond the edge are written
    there.
    """
    look = find_look(name_in(name))
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
    ends = shown["mean"].iloc[[0, -1]]
    ax.plot(ends, [row, row], color=look.color, linewidth=1.5, alpha=0.5)
    outside = [f"{mean:.2f}" for mean in spreads["mean"] if mean > edge]
    if outside:
        shapes.write_note(ax, " → ".join(outside), (edge, row), (0, 7), ha="center")
