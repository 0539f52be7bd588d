"""Text loss beyond the trained length: by position, by context and by kind of text."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ropelab.runs.labels import AS_SHIPPED, WINDOW, extract_method, label_rows
from ropelab.runs.leading import find_lead
from ropelab.runs.stats import average_samples
from ropelab.show.figures import shapes
from ropelab.show.figures.extrapolate_lines import (
    ARMS,
    BASELINES,
    CEILING,
    NLL,
    Lines,
    add_labels,
    average_by_length,
    average_methods,
    draw_lines,
    find_trained_and_longest,
    join_equal_methods,
    join_labels,
    name_outside,
)
from ropelab.show.figures.names import label_points
from ropelab.show.figures.shapes import format_tokens
from ropelab.show.looks import GREY, Look, find_look

# The metrics of comparisons at the longest context, and at shorter contexts.
LAST = "nll_last_window"
SHORT = "nll_short_context"
# The most methods in the figure by kind of text. It shows the best methods; more of them
# would cover each other.
MOST_BY_KIND = 6


def draw_loss_by_position(
    table: pd.DataFrame, comparisons: pd.DataFrame, arm: str
) -> Figure:
    """Draw the loss of each method minus the loss of the sliding window.

    ``comparisons`` has the differences of two methods with their intervals, at the end of
    each bucket of positions.
    """
    (window,) = set(label_rows(table[table["method"] == WINDOW]))
    is_of_buckets = comparisons["metric"] == "nll_bucket"
    is_against_window = comparisons["method_b"] == window
    is_shown = comparisons["method_a"].isin(label_rows(table))
    rows = comparisons[is_of_buckets & is_against_window & is_shown]

    end = rows["at_tokens"].max()
    bands = shapes.write_intervals(int(rows["seeds"].max()), marks="bands")
    lines = Lines(
        dict(shapes.split_by(rows, "method_a")),
        x="at_tokens",
        y="difference",
        bounds=("ci_low", "ci_high"),
        xlabel=f"position in the text (tokens)\n{bands}",
        ylabel="loss above the sliding window (nats per byte)",
        title=_write_position_title(rows[rows["at_tokens"] == end], arm),
        trained=table["train_len_tokens"].iloc[0],
        window=[0],
        highest=CEILING,
    )
    return draw_lines(lines)


def _write_position_title(last: pd.DataFrame, arm: str) -> str:
    """Say which methods have a lower loss than the sliding window, or else how many have
    a higher one.

    ``last`` has the comparisons of methods with the sliding window in the last bucket. A
    difference counts if its whole interval is on one side of 0.
    """
    where = f"At {format_tokens(last['at_tokens'].iloc[0])}"
    better = last.loc[last["ci_high"] < 0, "method_a"].astype(str).tolist()
    worse_count = int((last["ci_low"] > 0).sum())
    than_window = f"than a sliding window\n({ARMS[arm]})"
    if len(better) == 1:
        return f"{where} {better[0]} has a lower loss {than_window}"
    if better:
        count = f"{len(better)} of {len(last)} methods have"
        return f"{where} {count} a lower loss {than_window}"
    if worse_count == len(last):
        return f"{where} every method has a higher loss {than_window}"
    intervals = f"{len(last) - worse_count} of {len(last)} bands reach 0"
    return (
        f"{where} no method is shown to read better than a sliding window\n"
        f"({intervals}; {ARMS[arm]})"
    )


def draw_loss_by_context(table: pd.DataFrame, arm: str) -> Figure:
    """Draw the loss of each method on the last tokens, by the length of the context."""
    is_window = table["method"] == WINDOW
    lines = Lines(
        average_methods(table[~is_window], "context_tokens", NLL),
        x="context_tokens",
        y=NLL,
        xlabel="length of the context before the same last bytes (tokens)",
        ylabel="loss (nats per byte)",
        title=_write_context_title(table, ARMS[arm]),
        trained=table["train_len_tokens"].iloc[0],
        window=table[is_window].groupby("context_tokens")[NLL].mean(),
        highest=table[NLL].min() + CEILING,
    )
    return draw_lines(lines)


def _write_context_title(table: pd.DataFrame, words_of_arm: str) -> str:
    """Say how many methods gain from a longer context, and what it does without one."""
    trained, longest = find_trained_and_longest(table)
    losses = average_by_length(table[table["method"] != WINDOW], "context_tokens", NLL)
    if trained not in losses or longest == trained:
        return (
            "Loss of the same last tokens by the length of their context"
            f"\n({words_of_arm})"
        )

    # A method that is far behind the best says nothing, and is not drawn.
    is_near_best = losses[trained] <= losses[longest].min() + CEILING
    near_best = losses[is_near_best]
    changes = (near_best[longest] - near_best[trained]).dropna()
    falls = changes[changes < 0]
    span = f"{format_tokens(longest)} instead of {format_tokens(trained)}"
    details = words_of_arm
    if "unscaled" in changes:
        change = shapes.write_signed(changes["unscaled"], "+.2f")
        details = f"unscaled: {change} nats per byte; {words_of_arm}"
    if falls.empty:
        result = "lowers the loss of no method"
    elif len(falls) == 1:
        result = f"lowers the loss of {falls.index[0]} only"
    else:
        result = f"lowers the loss of {len(falls)} methods"
    return f"A context of {span} {result}\n({details})"


def draw_tax_and_gain(table: pd.DataFrame, comparisons: pd.DataFrame) -> Figure:
    """Draw each method as a point: its loss at the trained length, and its loss at the
    longest context.

    From both the loss of the model without a method at its trained length is subtracted.
    A sliding window has this loss at every length, so it is the point 0, 0. The first
    difference is the tax: what the method costs in short contexts. Bars are the intervals
    of both differences, as far as they were compared.
    """
    trained, longest = find_trained_and_longest(table)
    losses = average_by_length(table, "context_tokens", NLL)
    losses = losses.reindex(columns=sorted({trained, longest}))
    baseline = AS_SHIPPED if AS_SHIPPED in losses.index else "unscaled"
    # If the baseline was not measured at its trained length, all differences are nan, and
    # no row is left.
    differences = (losses - losses[trained].get(baseline, math.nan)).dropna()
    is_outside = differences.max(axis=1) > CEILING
    inside_rows = differences.loc[~is_outside, [trained, longest]]
    inside_rows = inside_rows.set_axis(["x", "y"], axis=1)

    figure, ax = shapes.make_axes()
    taxes = _find_intervals(comparisons, SHORT, trained, baseline)
    gains = _find_intervals(comparisons, LAST, longest, WINDOW)
    points = []
    for (x, y), rows in inside_rows.groupby(["x", "y"], sort=False):
        names = [str(name) for name in rows.index]
        look = find_look(extract_method(names[0]))
        shapes.draw_dots(ax, [x], [y], look, markersize=8)
        bar: dict[str, Any] = {"color": look.color, "linewidth": 3, "alpha": 0.3}
        if names[0] in taxes:
            ax.hlines(y, *taxes[names[0]], **bar)
        if names[0] in gains:
            ax.vlines(x, *gains[names[0]], **bar)
        points.append((x, y, join_labels(names)))
    ax.axhline(0, color=GREY, linewidth=1)
    ax.axvline(0, color=GREY, linewidth=1)
    if (table["method"] == WINDOW).any():
        window = find_look(WINDOW)
        shapes.draw_dots(ax, [0], [0], Look(window.color, "s"), markersize=8)
        points.append((0, 0, WINDOW))
    ax.margins(x=0.15, y=0.25)
    style = {"xycoords": "axes fraction", "color": shapes.NOTE_COLOR}
    shapes.write_note(ax, "better: to the left and down", (0.01, 0.01), (2, 2), **style)

    trained_words = format_tokens(trained)
    longest_words = format_tokens(longest)
    bars = shapes.write_intervals(int(table["seed"].nunique()))
    ax.set(
        xlabel=(
            f"loss at {trained_words} above {baseline} (nats per byte)\n"
            f"{bars}, of paired differences"
        ),
        ylabel=(
            f"loss at {longest_words} above {baseline}\nat {trained_words} (nats per byte)"
        ),
        title=_write_tax_title(losses, comparisons, trained, longest),
    )
    name_outside(ax, differences.loc[is_outside, longest].to_dict())
    label_points(ax, points)
    return figure


def _find_intervals(
    comparisons: pd.DataFrame, metric: str, length: int, other: str
) -> dict[str, tuple[float, float]]:
    """Return the interval of each method's difference from another row."""
    is_asked = comparisons["metric"] == metric
    if "context_tokens" in comparisons:
        is_asked &= comparisons["context_tokens"] == length
    intervals = {}
    for row in shapes.iterate_rows(comparisons[is_asked]):
        if row.method_b == other:
            intervals[str(row.method_a)] = (row.ci_low, row.ci_high)
        elif row.method_a == other:
            intervals[str(row.method_b)] = (-row.ci_high, -row.ci_low)
    return intervals


def _write_tax_title(
    losses: pd.DataFrame, comparisons: pd.DataFrame, trained: int, longest: int
) -> str:
    """Name the best method at each of the two lengths, if comparisons show one."""
    methods = losses.drop(list(BASELINES), errors="ignore").dropna()

    def find_best(metric: str, length: int) -> str:
        """Return the method that is shown to be better than all others; empty if there
        is none.
        """
        about = {"metric": metric, "context_tokens": length}
        lead = find_lead(methods[length], comparisons, about, lower_is_better=True)
        if lead is None or len(lead.names) != 1:
            return ""
        return lead.first

    inside = format_tokens(trained)
    beyond = format_tokens(longest)
    best_inside = find_best(SHORT, trained)
    best_beyond = find_best(LAST, longest)
    if not best_inside and not best_beyond:
        return f"No method is shown best at {inside} or at {beyond}: their bars overlap"
    if not best_beyond:
        return f"{best_inside} costs least at {inside}; at {beyond} bars overlap"
    title = f"At {beyond} {best_beyond} reads best of the methods"
    losses_beyond = losses[longest]
    if losses_beyond[best_beyond] > losses_beyond.get(WINDOW, math.inf):
        title += ", a sliding window better"
    if best_inside:
        title += f"\n(at {inside} {best_inside} costs least)"
    return title


def draw_loss_by_kind(table: pd.DataFrame) -> Figure:
    """Draw the loss of the best methods minus that of the sliding window, by kind of
    text.
    """
    differences = _join_equal_labels(subtract_window(table))
    by_method = differences.groupby("label")["above"].mean().sort_values()
    is_outside = by_method > CEILING
    # If all methods are outside, they are drawn.
    if is_outside.all():
        is_outside[:] = False
    labels = by_method.index[~is_outside][:MOST_BY_KIND]
    documents = differences.drop_duplicates(["name", "kind"])
    kinds = documents["kind"].value_counts()
    figure, ax = shapes.make_axes((8.0, 1.5 + 0.6 * len(kinds)))
    drawn_names = set()
    for number, label in enumerate(labels):
        rows_of_method = differences[differences["label"] == label]
        by_kind = rows_of_method.groupby("kind")["above"]
        intervals = [average_samples(by_kind.get_group(kind)) for kind in kinds.index]
        low = tuple(interval.low for interval in intervals)
        high = tuple(interval.high for interval in intervals)
        # There is a row per kind of text. The dots of all methods in a row take 0.8 of
        # the height of the row, around its middle.
        share = (number + 0.5) / len(labels)
        y_positions = np.arange(len(kinds)) + share * 0.8 - 0.4
        name = extract_method(label)
        shapes.draw_dots(
            ax,
            tuple(interval.value for interval in intervals),
            y_positions,
            find_look(name),
            label,
            (low, high),
            hollow=name in drawn_names,
            markersize=5,
        )
        drawn_names.add(name)

    window = find_look(WINDOW)
    ax.axvline(0, color=window.color, linestyle=window.line, label=WINDOW)
    shapes.name_rows(ax, [f"{kind} ({count})" for kind, count in kinds.items()])
    shown = differences[differences["label"].isin(labels)]
    bars = shapes.write_intervals(int(table["seeds"].max()))
    if kinds.max() == 1:
        bars = "one text of each kind, so no bars"
    ax.set(
        xlabel=f"loss at the end of the text above the sliding window (nats per byte)\n{bars}",
        title=write_kinds_title(shown),
    )
    outside = by_method[is_outside]
    name_outside(ax, dict(zip(map(str, outside.index), outside, strict=True)))
    shapes.put_legend_outside(ax)
    return figure


def _join_equal_labels(differences: pd.DataFrame) -> pd.DataFrame:
    """Give methods with the same differences one label, and keep the rows of one."""
    methods = dict(shapes.split_by(differences, "label"))
    joined = []
    for label, rows in join_equal_methods(methods, "above").items():
        joined.append(rows.assign(label=label))
    return pd.concat(joined)


def subtract_window(table: pd.DataFrame) -> pd.DataFrame:
    """Return every document's loss minus the loss of the sliding window, as the column
    `above`.
    """
    rows = add_labels(table)
    is_window = rows["method"] == WINDOW
    windows = rows[is_window]
    # A fine-tuned method is compared with the window of a model that was fine-tuned for
    # as many tokens. If there is none, it is compared with the window of the model as
    # trained.
    has_window = rows["arm"].isin(windows["arm"])
    rows["window_arm"] = rows["arm"].where(has_window, "zero_shot")

    losses = windows.set_index(["name", "kind", "arm"])[NLL].rename("window")
    other_methods = rows[~is_window].join(losses, on=["name", "kind", "window_arm"])
    return other_methods.assign(above=other_methods[NLL] - other_methods["window"])


def write_kinds_title(shown: pd.DataFrame) -> str:
    """Say on how many kinds of text some method reads better than a sliding window, or
    that all read worse.

    ``shown`` has the rows of the methods in the figure, as `subtract_window` returns
    them. A difference counts if its whole interval is on one side of 0; a single text has
    no interval.
    """
    kinds = shown["kind"].nunique()
    kinds_with_gain = set()
    worse_everywhere = True
    for (_, kind), rows in shown.groupby(["label", "kind"]):
        interval = average_samples(rows["above"])
        low = interval.low
        high = interval.high
        if len(rows) == 1:
            low = high = interval.value
        if high < 0:
            kinds_with_gain.add(kind)
        worse_everywhere &= bool(low > 0)

    on_kinds = {1: "one kind", 2: "both kinds"}.get(kinds, f"all {kinds} kinds")
    if worse_everywhere:
        return f"Every method reads worse than a sliding window on {on_kinds} of text"
    if not kinds_with_gain:
        return "No kind of text is shown to be read better than by a sliding window"
    count = f"{len(kinds_with_gain)} of {kinds} kinds of text"
    return f"On {count} some method reads better than a sliding window"
