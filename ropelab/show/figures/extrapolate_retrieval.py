"""Retrieval beyond the trained length: by distance, and by depth and length of a text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ropelab.runs.labels import AS_SHIPPED, WINDOW, extract_method
from ropelab.runs.leading import find_lead
from ropelab.runs.sentences import join_names
from ropelab.runs.tables import select_longest_context
from ropelab.show.figures import shapes
from ropelab.show.figures.extrapolate_lines import (
    ARMS,
    WORDS,
    Lines,
    add_labels,
    average_by_length,
    draw_lines,
    find_trained_and_longest,
    is_ok,
)
from ropelab.show.figures.shapes import format_tokens

# The most lines in the first figure by distance. If there are more methods, a second
# figure shows all methods.
MOST_LINES = 6
# Methods that are left out first if there are too many lines. `extrapolate` compares them
# by default, but few people ask about them.
RARELY_ASKED = ("dynamic_ntk", "ntk_by_parts", "llama3")
# The most methods that a title names as not shown to be worse.
MOST_NAMED = 3
# The most panels in a row of the figure of depth by length.
MOST_ACROSS = 4


def find_words(task: str) -> tuple[str, str]:
    """Return two phrases about a task: one names what a model has to find (`symbols`),
    the other says that a method finds it (`finds symbols`).
    """
    sought, finds = WORDS["tasks"].get(task, (f"answers of {task}", f"solves {task}"))
    return sought, finds


def write_retrieval_title(
    table: pd.DataFrame, comparisons: pd.DataFrame, task: str, arm: str
) -> str:
    """Name the method that finds most in the longest context, at the distance nearest to
    twice the trained length.
    """
    trained, context = find_trained_and_longest(table)
    table = select_longest_context(table)
    distances = table["distance_tokens"].unique().tolist()
    chosen_distance = _choose_distance(distances, trained)
    means_by_distance = average_by_length(table, "distance_tokens", "accuracy")
    means = means_by_distance[chosen_distance].dropna()

    about = {
        "at_tokens": chosen_distance,
        "context_tokens": context,
        "metric": f"{task}_accuracy",
    }
    lead = find_lead(means, comparisons, about, lower_is_better=False)
    where = f"{format_tokens(chosen_distance)} back in {format_tokens(context)} tokens"
    # A single method needs no comparison to be named.
    if lead is None or (len(means) > 1 and not lead.is_shown):
        reason = f"no test tells them apart; {ARMS[arm]}"
        return f"At {where} no method is shown to be better\n({reason})"

    _, finds = find_words(task)
    title = f"At {where} {lead.first} {finds} best: {lead.value:.0%}"
    if "unscaled" in means.drop(lead.first):
        title += f", unscaled {means['unscaled']:.0%}"
    details = ARMS[arm]
    near_by = _find_lead_of_window(means_by_distance, comparisons, about, trained)
    if near_by:
        details = f"{near_by}; {details}"
    if lead.tied:
        tied_methods = f"{len(lead.tied)} others"
        if len(lead.tied) <= MOST_NAMED:
            tied_methods = join_names(lead.tied)
        details = f"not shown to be better than {tied_methods}; {details}"
    return f"{title}\n({details})"


def _find_lead_of_window(
    means: pd.DataFrame,
    comparisons: pd.DataFrame,
    about: Mapping[str, Any],
    trained: int,
) -> str:
    """Say up to which distance the sliding window finds most; empty if it does not lead
    from the nearest distance on.

    `means` has a row per method and a column per distance.
    """
    farthest = 0
    for distance in means.columns:
        means_here = means[distance].dropna()
        place = {**about, "at_tokens": distance}
        lead = find_lead(means_here, comparisons, place, lower_is_better=False)
        if lead is None or lead.first != WINDOW or not lead.is_shown:
            break
        farthest = int(distance)
    if farthest == 0:
        return ""
    window = write_window(trained)
    share = float(means[farthest][WINDOW])
    return f"best up to {format_tokens(farthest)} back: {window}, {share:.0%}"


def write_window(trained: int) -> str:
    """Name the sliding window with the tokens that it sees."""
    return f"{WINDOW} of {format_tokens(trained)}"


def _choose_distance(distances: Sequence[int], trained: int) -> int:
    """Return the distance nearest to twice the trained length. If two are equally near,
    the shorter one is taken.
    """

    def rank_distance(distance: int) -> tuple[int, int]:
        return abs(distance - 2 * trained), distance

    return min(distances, key=rank_distance)


def select_lines(
    methods: Mapping[str, pd.DataFrame], title: str
) -> Mapping[str, pd.DataFrame]:
    """Return the lines of the first figure; all lines if there are few.

    A method with several factors has only the line of its first factor. Lines that the
    title names always stay.
    """
    if len(methods) <= MOST_LINES:
        return methods

    selected = {}
    names = set()
    for label, rows in methods.items():
        name = extract_method(label)
        is_first_factor = name not in names
        is_often_asked = name not in RARELY_ASKED
        if (is_first_factor and is_often_asked) or label in title:
            selected[label] = rows
        names.add(name)
    return selected


def draw_by_distance(
    table: pd.DataFrame, task: str, title: str, methods: Mapping[str, pd.DataFrame]
) -> Figure:
    """Draw the share that each method finds at each distance, with bands."""
    sought, _ = find_words(task)
    seeds = table["seed"].nunique()
    bands = shapes.write_range(seeds)
    trained = int(table["train_len_tokens"].iloc[0])
    distances = sorted(select_longest_context(table)["distance_tokens"].unique())
    # A released model has symbols of its own, and is not asked for one of these.
    symbols = WORDS["symbols"].get(task)
    guessing = None
    if symbols and AS_SHIPPED not in methods:
        guessing = 1 / symbols

    lines_below = [f"how far back the {sought} stood (tokens; 1k: 1024)", bands]
    if WINDOW in methods and _are_asked_at_end(distances, trained):
        lines_below.append(
            "asked for at the end, where sliding_window holds nearly"
            f" {format_tokens(trained)} tokens"
        )
    lines = Lines(
        methods,
        x="distance_tokens",
        y="accuracy",
        bounds=("low", "high"),
        xlabel="\n".join(lines_below),
        ylabel="recall (share found rightly)",
        title=title,
        trained=trained,
        lowest=-0.07,
        highest=1.05,
        ticks=distances,
        guessing=guessing,
        names={WINDOW: write_window(trained)},
    )
    return draw_lines(lines)


def _are_asked_at_end(distances: Sequence[int], trained: int) -> bool:
    """Return True if all questions of a context stand so near its end that the sliding
    window holds three quarters of the trained length or more there.

    A window begins half of the trained length after the window before, so it may be half
    full elsewhere. Questions stand side by side if the nearest source is before them.
    """
    tokens = len(distances) * WORDS["question"]["most_symbols"]
    return bool(tokens <= min(distances[0], trained // 4))


def draw_heatmap(table: pd.DataFrame, task: str, title: str) -> Figure:
    """Draw a panel per context: a row per method, a column per distance."""
    contexts = sorted(table["context_tokens"].unique())
    count = table.groupby(["method", "factor", "arm"]).ngroups
    height = 0.6 + len(contexts) * (0.9 + 0.3 * count)
    figure, axes = shapes.make_panels(len(contexts), 1, (8.0, height))
    for ax, context in zip(axes.flat, contexts, strict=True):
        rows = table[table["context_tokens"] == context]
        means = average_by_length(rows, "distance_tokens", "accuracy")
        means = means.rename(columns=format_tokens)
        shapes.draw_heat_map(ax, means, shapes.format_shares(means))
        ax.set_title(f"in {format_tokens(context)} tokens", size=9)

    # The title is about the last panel.
    distances = [int(distance) for distance in sorted(rows["distance_tokens"].unique())]
    trained, _ = find_trained_and_longest(table)
    shapes.frame_column(ax, distances.index(_choose_distance(distances, trained)))
    sought, _ = find_words(task)
    axes[-1, 0].set_xlabel(f"how far back the {sought} stood (tokens; cells: recall)")
    shapes.set_headline(figure, title)
    return figure


def draw_depth_by_length(table: pd.DataFrame, sought: str) -> Figure:
    """Draw a panel per method: a row per depth, a column per context.

    ``sought`` names the thing that is hidden in the text, such as `the pass key`.
    """
    contexts = sorted(table["context_tokens"].unique().tolist())
    methods = dict(shapes.split_by(add_labels(table), "label"))
    panel_rows = math.ceil(len(methods) / MOST_ACROSS)
    panel_columns = min(MOST_ACROSS, len(methods))
    size = (8.0, 0.9 + 2.1 * panel_rows)
    figure, axes = shapes.make_panels(
        panel_rows, panel_columns, size, len(methods), sharex=True, sharey=True
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

    # All panels share one label: each panel is too narrow for a label of its own.
    figure.supxlabel("context (tokens; cells: share found)")
    figure.supylabel("depth of the key (% of the text)")
    longest = contexts[-1]
    where = f"{sought} in {format_tokens(longest)} tokens"
    if is_ok(table):
        means = average_by_length(table, "context_tokens", "accuracy")[longest].dropna()
        shapes.set_headline(figure, _write_depth_title(means, where))
    else:
        share = f"{table['accuracy'].mean():.0%} of trials"
        where = f"{where[0].upper()}{where[1:]}"
        shapes.set_headline(figure, f"{where}: found in {share}, no verdict")
    return figure


def _write_depth_title(means: pd.Series, where: str) -> str:
    """Say how often methods find something, and how often the model finds it without a
    method.
    """
    # A released model has the row AS_SHIPPED, models that were trained here have the row
    # `unscaled`. If both rows are missing, only the best share is named.
    baseline = AS_SHIPPED if AS_SHIPPED in means else "unscaled"
    means_of_methods = means.drop(baseline, errors="ignore")
    if baseline not in means:
        return f"Up to {means_of_methods.max():.2f} finds {where}"
    share = f"{baseline} {means[baseline]:.2f}"
    if means_of_methods.empty or means_of_methods.max() <= means[baseline]:
        return f"Nothing finds {where} more often than the model {share}"
    return f"Methods find {where} with up to {means_of_methods.max():.2f}, {share}"
