"""Text loss beyond the trained length: by position, by context and by kind of text."""

import math
from collections.abc import Sequence

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
    name_outside,
)
from ropelab.show.figures.shapes import format_tokens
from ropelab.show.looks import GREY, find_look

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
    return draw_lines(lines)


def _write_better(last: pd.DataFrame) -> str:
    """Say which methods have a lower loss than the sliding window: `pi has`.

    ``last`` has the comparisons of methods with the sliding window in the last bucket.
    """
    # The whole interval of the difference is below 0.
    better = last.loc[last["ci_high"] < 0, "method_a"].astype(str).tolist()
    if not better:
        return "no method has"
    if len(better) == 1:
        return f"{better[0]} has"
    return f"{len(better)} of {len(last)} have"


def draw_loss_by_context(table: pd.DataFrame, arm: str) -> Figure:
    """Draw the loss of each method on the last tokens, by the length of the context."""
    is_window = table["method"] == WINDOW
    lines = Lines(
        average_methods(table[~is_window], "context_tokens", NLL),
        x="context_tokens",
        y=NLL,
        xlabel="context that ends with the same tokens (tokens)",
        ylabel="loss (nats per byte)",
        title=_write_context_title(table, ARMS[arm]),
        trained=table["train_len_tokens"].iloc[0],
        window=table[is_window].groupby("context_tokens")[NLL].mean(),
        highest=table[NLL].min() + CEILING,
    )
    return draw_lines(lines)


def _write_context_title(table: pd.DataFrame, words_of_arm: str) -> str:
    """Say which method gains most from a longer context."""
    trained, longest = find_trained_and_longest(table)
    losses = average_by_length(table[table["method"] != WINDOW], "context_tokens", NLL)
    if trained not in losses or longest == trained:
        return (
            "Loss of the same last tokens by the length of their context"
            f"\n({words_of_arm})"
        )

    # The gain of a method that is far behind the best says nothing.
    is_near_best = losses[longest] <= losses[longest].min() + CEILING
    near_best = losses[is_near_best]
    changes = (near_best[longest] - near_best[trained]).dropna()
    span = f"{format_tokens(longest)} instead of {format_tokens(trained)}"
    if not (changes < 0).any():
        return f"A context of {span} lowers the loss of no method\n({words_of_arm})"
    largest_fall = f"{changes.min():+.3f} nats per byte"
    best = changes.idxmin()
    return f"A context of {span} helps {best} most: {largest_fall}\n({words_of_arm})"


def draw_tax_and_gain(table: pd.DataFrame, comparisons: pd.DataFrame) -> Figure:
    """Draw each method as a point: its loss at the trained length, and its loss at the
    longest context.

    From both the loss of the model without a method at its trained length is subtracted.
    The first difference is the tax: what the method costs in short contexts.
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
    points = []
    for point in shapes.iterate_rows(inside_rows):
        look = find_look(extract_method(str(point.Index)))
        shapes.draw_dots(ax, [point.x], [point.y], look, markersize=8)
        points.append((point.x, point.y, point.Index))
    ax.axhline(0, color=GREY, linewidth=1)
    ax.axvline(0, color=GREY, linewidth=1)
    ax.margins(x=0.15, y=0.25)

    trained_words = format_tokens(trained)
    longest_words = format_tokens(longest)
    ax.set(
        xlabel=f"short-context tax: loss at {trained_words} above {baseline}",
        ylabel=f"loss at {longest_words} above\n{baseline} at {trained_words}",
        title=_write_tax_title(losses, comparisons, trained, longest),
    )
    name_outside(ax, differences.loc[is_outside, longest].to_dict())
    shapes.label_points(ax, points)
    return figure


def _write_tax_title(
    losses: pd.DataFrame, comparisons: pd.DataFrame, trained: int, longest: int
) -> str:
    """Name the best method at each of the two lengths, if comparisons show one."""
    methods = losses.drop(list(BASELINES), errors="ignore").dropna()

    def find_best(length: int) -> Sequence[str]:
        """Return the best method, and all methods that are not shown to be worse."""
        about = {"metric": "nll_last_window", "context_tokens": length}
        lead = find_lead(methods[length], comparisons, about, lower_is_better=True)
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


def draw_loss_by_kind(table: pd.DataFrame) -> Figure:
    """Draw the loss of the best methods minus that of the sliding window, by kind of
    text.
    """
    differences = subtract_window(table)
    means = differences.groupby("label")["above"].mean()
    labels = means.sort_values().index[:MOST_BY_KIND]
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
    best = differences[differences["label"] == labels[0]]
    ax.set(
        xlabel="loss at the end of the text above the sliding window (nats per byte)",
        title=write_kinds_title(best, labels[0]),
    )
    shapes.put_legend_outside(ax)
    return figure


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
    others = rows[~is_window].join(losses, on=["name", "kind", "window_arm"])
    return others.assign(above=others[NLL] - others["window"])


def write_kinds_title(best: pd.DataFrame, label: str) -> str:
    """Say on which kind of text the best method gains most, and on which it gains least.

    ``best`` has the rows of the best method, as `subtract_window` returns them, and
    ``label`` is its name.
    """
    by_kind = best.groupby("kind")["above"].agg(["mean", "count"])
    # Kinds with a single document are left out, unless all kinds have a single
    # document.
    with_several_documents = by_kind[by_kind["count"] > 1]
    if not with_several_documents.empty:
        by_kind = with_several_documents

    means = by_kind["mean"].sort_values()
    first_and_last = means.iloc[[0, -1]]
    ends = [f"{value:+.3f} ({kind})" for kind, value in first_and_last.items()]
    # If there is a single kind, both ends are the same, and are written once.
    span = " to ".join(dict.fromkeys(ends))
    return f"{label} against a sliding window, by kind of text:\n{span} nats per byte"
