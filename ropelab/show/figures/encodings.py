"""Position encodings compared: cost and quality, loss by position, copying by distance.

A model was trained with each encoding, and was tested on longer texts. A design is an
encoding with settings in parentheses. A method changes RoPE only when a model is tested,
and is written `rope + yarn`.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ropelab.runs.leading import UNIFORM_LOSS
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import (
    BLACK,
    BLUE,
    FIGURES,
    GREY,
    SKY,
    Look,
    find_look,
    pick_look,
)

TEXT = "text loss"
COPY = "copy accuracy"
NLL = "nll_nats_per_byte"
# The table that compares designs with methods, which need no training.
AGAINST_METHODS = "against_methods"
# The most rows of the first heat map of copying, so that it is read at a glance.
MOST_ROWS = 8
# The columns of the work in training and in decoding, as multiples of the work of a
# model without an encoding.
WORK = ("train_flops_ratio", "decode_flops_ratio")
# The most letters of a name in a title, which has at most 70.
LONGEST_NAME = 16
# The looks of lengths, the trained one first and the longest last.
LENGTHS = (Look(GREY, "o"), Look(SKY, "s"), Look(BLUE, "D"))
AXES = FIGURES["encodings"]["axes"]
FAMILIES = FIGURES["encodings"]["families"]
# The words for an encoding that comparisons show to be better, by what is compared.
BETTER = {TEXT: "a lower loss than", COPY: "more copied than"}


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw cost and quality, then figures for each of the two tasks that was run."""
    cost = tables["cost"]
    quality = _draw_cost_and_quality(cost, tables["quality"], tables["comparisons"])
    figures = {"cost_and_quality": quality}
    if "text_nll" in tables:
        figures["loss_by_position"] = _draw_loss_by_position(tables, cost)
    if "copy_accuracy" in tables:
        figures |= _draw_copies(tables, cost)
    if AGAINST_METHODS in tables:
        for metric, name in ((COPY, "designs_and_methods"), (TEXT, "designs_and_text")):
            if (tables[AGAINST_METHODS]["metric"] == metric).any():
                figures[name] = draw_against_methods(tables, cost, metric)
    return figures


def _draw_copies(tables: Tables, cost: pd.DataFrame) -> dict[str, Figure]:
    """Draw what the best encodings copy. If there are more encodings, draw a second
    figure with all of them.

    The first figure leaves out RoPE with methods, which `draw_against_methods` shows.
    """
    is_method = cost["encoding"].str.contains(" + ", regex=False)
    trained_encodings = cost[~is_method]
    best = _draw_copy_heatmap(tables, trained_encodings, MOST_ROWS)
    if len(cost) <= MOST_ROWS:
        return {"copy_heatmap": best}
    complete = _draw_copy_heatmap(tables, cost)
    return {"copy_heatmap": best, "copy_heatmap_all": complete}


def _draw_cost_and_quality(
    cost: pd.DataFrame, quality: pd.DataFrame, comparisons: pd.DataFrame
) -> Figure:
    """Draw a row per encoding: the quality on each task, the work, the parameters."""
    measured_metrics = set(quality["metric"])
    metrics = [metric for metric in AXES if metric in measured_metrics]
    longest = quality["times_trained_len"].max()
    rows_of_metric = quality[quality["metric"] == metrics[0]]
    order = _order_by_quality(cost["encoding"], rows_of_metric, metrics[0], longest)
    costs = cost.set_index("encoding").loc[order]
    shows_work = bool((costs[list(WORK)] != 1).to_numpy().any())
    shows_parameters = bool((costs["parameters"] > 0).any())

    size = (10, max(3.2, 1.7 + 0.27 * len(order)))
    count = len(metrics) + shows_work + shows_parameters
    figure, axes = shapes.make_panels(1, count, size, sharey=True)
    panels = axes[0]
    for ax, metric in zip(panels, metrics, strict=False):
        _draw_dumbbells(ax, quality[quality["metric"] == metric], order, longest)
        ax.set(**AXES[metric])
    # A panel in which all rows are alike would say nothing.
    if shows_work:
        _draw_work(panels[len(metrics)], costs)
    if shows_parameters:
        _draw_parameters(panels[-1], costs["parameters"])
    shapes.name_rows(panels[0], costs["label"].tolist())
    intervals = shapes.write_intervals(int(quality["seeds"].max()))
    panels[0].set_xlabel(f"{panels[0].get_xlabel()}\n{intervals}")
    # In print a legend above each panel would be wider than the panel.
    shapes.put_legend_below(figure, list(panels), 4)
    title = _write_title_of_quality(comparisons, costs, rows_of_metric, metrics[0])
    shapes.set_headline(figure, title)
    return figure


def _write_title_of_quality(
    comparisons: pd.DataFrame, costs: pd.DataFrame, quality: pd.DataFrame, metric: str
) -> str:
    """Compare the encoding in the first row with the baseline, at the longest length.

    ``costs`` has the encodings in the order of the rows.
    """
    rows = _select_longest(comparisons, metric)
    longest = quality["times_trained_len"].max()
    where = f"At {longest}x the trained length"
    best = str(costs.index[0])
    name = str(costs["label"].iloc[0])
    at_longest = quality[quality["times_trained_len"] == longest]
    values = at_longest.set_index("encoding")["value"]
    if rows.empty or np.isnan(values[best]):
        return f"{where}: the quality of {len(costs)} encodings and their cost"

    baseline = str(rows["encoding_b"].iloc[0])
    name_of_baseline = costs["label"].get(baseline, baseline)
    if best not in _list_better(comparisons, metric):
        # Without ties all other encodings are worse.
        reason = ": bars overlap" if _has_ties(rows) else ""
        return f"{where} none is shown better than {name_of_baseline}{reason}"
    # A long name begins the second line.
    gap = "\n" if len(name) > LONGEST_NAME else " "
    if metric == TEXT:
        losses = f"{values[best]:.1f}, {name_of_baseline} {values[baseline]:.1f}"
        return f"{where}{gap}{name} has a loss of {losses}"
    shares = f"{values[best]:.0%}, {name_of_baseline} {values[baseline]:.0%}"
    return f"{where}{gap}{name} copies {shares}"


def _select_longest(comparisons: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the comparisons of a metric with the baseline in the longest text."""
    if comparisons.empty:
        return comparisons
    rows = comparisons[comparisons["metric"] == metric]
    return rows[rows["times_trained_len"] == rows["times_trained_len"].max()]


def _list_better(comparisons: pd.DataFrame, metric: str) -> list[str]:
    """Return the encodings that are shown to be better than the baseline in the longest
    text.

    The verdict of a comparison is the name of the better encoding, if one is shown to be
    better.
    """
    rows = _select_longest(comparisons, metric)
    if rows.empty:
        return []
    better = rows.loc[rows["verdict"] == rows["encoding_a"], "encoding_a"]
    return [str(name) for name in better]


def _has_ties(rows: pd.DataFrame) -> bool:
    """Return True if some encoding is not shown to differ from the baseline."""
    return bool((rows["verdict"] == shapes.UNDECIDED).any())


def _mark_labels(
    cost: pd.DataFrame, comparisons: pd.DataFrame, metric: str
) -> pd.DataFrame:
    """Add signs to the labels of encodings: COUNTED if an encoding is shown to be better
    than the baseline, and UNDECIDED if its comparison with the baseline decides nothing.
    """
    rows = _select_longest(comparisons, metric)
    if rows.empty:
        return cost
    is_undecided = rows["verdict"] == shapes.UNDECIDED
    undecided = set(rows.loc[is_undecided, "encoding_a"])
    better = _list_better(comparisons, metric)
    labels = []
    for name, label in zip(cost["encoding"], cost["label"], strict=True):
        if name in better:
            label = f"{label} {shapes.COUNTED}"
        elif name in undecided:
            label = f"{label} {shapes.UNDECIDED}"
        labels.append(label)
    return cost.assign(label=labels)


def _explain_signs(
    better: str, comparisons: pd.DataFrame, metric: str, cost: pd.DataFrame
) -> str:
    """Say what the signs beside names mean, for a label below the panels. Empty if no
    name has a sign.

    ``better`` is what a better encoding has, such as "lower loss".
    """
    rows = _select_longest(comparisons, metric)
    if rows.empty:
        return ""
    labels = cost.set_index("encoding")["label"]
    parts = []
    if _list_better(comparisons, metric):
        baseline = labels[rows["encoding_b"].iloc[0]]
        parts.append(f"{shapes.COUNTED} {better} than {baseline} by a paired test")
    if (rows["verdict"] == shapes.UNDECIDED).any():
        parts.append(f"{shapes.UNDECIDED} not decided by it")
    return ", ".join(parts)


def _order_by_quality(
    encodings: pd.Series, quality: pd.DataFrame, metric: str, longest: int
) -> list[str]:
    """Order encodings by their value at the longest context, the best first. Encodings
    without a value there come last.
    """
    last = quality[quality["times_trained_len"] == longest]
    values = last.set_index("encoding")["value"].reindex(encodings)
    lower_is_better = metric == TEXT
    ordered = values.sort_values(ascending=lower_is_better, na_position="last")
    return list(ordered.index)


def _draw_work(ax: Axes, costs: pd.DataFrame) -> None:
    ax.axvline(1, color=GREY, linewidth=0.8)

    rows = range(len(costs))
    in_training, in_decoding = WORK
    train = costs[in_training]
    shapes.draw_dots(ax, train, rows, Look(BLACK, "s"), "training", markersize=5)
    shapes.draw_dots(
        ax,
        costs[in_decoding],
        rows,
        Look(BLACK, "o"),
        "decoding",
        hollow=True,
        markersize=4.5,
    )

    ax.set(xlabel="matrix products\n(1: no encoding)")
    ax.xaxis.set_major_locator(MaxNLocator(4))


def _draw_parameters(ax: Axes, counts: pd.Series) -> None:
    ax.barh(range(len(counts)), counts, color=GREY, height=0.6)
    # A logarithmic axis cannot show 0, so this axis is linear up to ten.
    ax.set_xscale("symlog", linthresh=10)
    ax.set(xlabel="parameters\nadded", xlim=(0, max(10, counts.max()) * 100))
    ticks = [0, 10, 1000, 100_000]
    ax.set_xticks(ticks, ["0", "10", "1k", "100k"])
    for row, count in enumerate(counts):
        shapes.write_note(ax, _shorten_count(count), (count, row), (3, 0), va="center")


def _shorten_count(count: int) -> str:
    """Write a count of parameters in two digits or three.

    >>> _shorten_count(33280), _shorten_count(396)
    ('33k', '396')
    """
    return f"{count / 1000:.2g}k" if count >= 1000 else str(count)


def _draw_dumbbells(
    ax: Axes, rows: pd.DataFrame, order: list[str], longest: int
) -> None:
    """Draw for each encoding the value at the trained length, the value at the longest
    length, and a line between the two.
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


def _select_length(rows: pd.DataFrame, times: int, order: list[str]) -> pd.DataFrame:
    chosen = rows[rows["times_trained_len"] == times]
    return chosen.set_index("encoding").loc[order]


def _mark_undefined(ax: Axes, first: pd.Series, row: int) -> None:
    """Write a dash for a value that is undefined at the longest context.

    The dash is beside the value at the trained length (``first``), on the side that has
    more room. The heat map of copying has a dash for undefined values, too.
    """
    low, high = first[["ci_low", "ci_high"]].fillna(first["value"])
    middle = (low + high) / 2
    left, right = ax.get_xlim()
    middle_of_axis = (left + right) / 2
    style = {"va": "center", "color": GREY}
    if middle > middle_of_axis:
        shapes.write_note(ax, "–", (low, row), (-7, 0), ha="right", **style)
    else:
        shapes.write_note(ax, "–", (high, row), (7, 0), ha="left", **style)


def _draw_loss_by_position(tables: Tables, cost: pd.DataFrame) -> Figure:
    """Draw loss by position, a panel per family of encodings.

    In each panel the encodings of other families are grey lines behind the family.
    """
    table = tables["text_nll"]
    finished = table[table["status"] == "ok"]
    losses = finished.groupby(["encoding", "bucket_end_tokens"])[NLL]
    spread = losses.agg(["mean", "min", "max"]).reset_index(level=1)
    comparisons = tables["comparisons"]
    marked = _mark_labels(cost, comparisons, TEXT)
    encodings = marked[marked["encoding"].isin(spread.index)]
    baseline = ""
    if len(comparisons):
        baseline = str(comparisons["encoding_b"].iloc[0])
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
        _draw_family(ax, family, encodings, spread, baseline)
        ax.set_title(FAMILIES[family], fontsize=9, fontweight="normal")
        shapes.set_token_axis(ax)
        shapes.mark_value(ax, trained, "trained length", "x")
    shapes.label_last_panels(axes, "position in the text (tokens)")
    notes = shapes.write_range(int(finished["seed"].nunique()))
    signs = _explain_signs("lower loss", comparisons, TEXT, cost)
    if signs:
        notes = f"{signs}; {notes}"
    shapes.put_legend_below(figure, list(axes.flat), 4, notes)
    figure.supylabel("loss (nats per byte)")

    end = finished["bucket_end_tokens"].max()
    last_bucket = finished[finished["bucket_end_tokens"] == end]
    if last_bucket.groupby("encoding")[NLL].mean().min() >= UNIFORM_LOSS:
        result = "no encoding reads better than guessing"
    else:
        result = _name_better(comparisons, TEXT, cost)
    shapes.set_headline(figure, f"Near {shapes.format_tokens(end)} tokens {result}")
    # The axis ends above the median by three times the distance from the lowest loss to
    # the median. Lines of very large losses leave the panel: an axis that has room for
    # them would make all other lines look flat.
    lowest = finished[NLL].min()
    median = finished[NLL].median()
    height = median - lowest
    axes[0, 0].set_ylim(lowest - 0.1 * height, median + 3 * height)
    return figure


def _draw_family(
    ax: Axes,
    family: str,
    encodings: pd.DataFrame,
    spread: pd.DataFrame,
    baseline: str,
) -> None:
    """Draw the encodings of a family and the baseline, with all other encodings in grey
    behind them.
    """
    for number, encoding in enumerate(shapes.iterate_rows(encodings)):
        name = encoding.encoding
        rows = spread.loc[[name]]
        x = rows["bucket_end_tokens"]
        if encoding.family != family and name != baseline:
            ax.plot(x, rows["mean"], color=shapes.FRAME_COLOR, linewidth=0.8, zorder=1)
            continue

        # An encoding without settings has the same look in all figures. A design or a
        # method has no look of its own, and gets one by its number in this figure.
        is_composed = "(" in name or " + " in name
        if is_composed:
            look = pick_look(number)
        else:
            look = find_look(name)
        # The baseline is a line without a band in the panels of other families.
        band = None
        if encoding.family == family:
            band = (rows["min"], rows["max"])
        shapes.draw_line(ax, x, rows["mean"], look, encoding.label, band)


def _name_better(comparisons: pd.DataFrame, metric: str, cost: pd.DataFrame) -> str:
    """Say which encodings are shown to be better than the baseline in the longest text.

    ``comparisons`` has a row for each encoding_a against the baseline, encoding_b.
    """
    rows = _select_longest(comparisons, metric)
    if rows.empty:
        return "nothing is compared"
    labels = cost.set_index("encoding")["label"]
    baseline = rows["encoding_b"].iloc[0]
    than_baseline = f"{BETTER[metric]} {labels[baseline]}"
    better = _list_better(comparisons, metric)
    if not better and _has_ties(rows):
        return f"none is shown to be below {labels[baseline]}: bands overlap"
    if not better:
        return f"no encoding is shown to have {than_baseline}"
    if len(better) == 1:
        return f"{labels[better[0]]} has {than_baseline}"
    count = f"{len(better)} of {len(rows)} encodings ({shapes.COUNTED})"
    return f"{count} have {than_baseline}"


def _draw_copy_heatmap(
    tables: Tables, cost: pd.DataFrame, most: int | None = None
) -> Figure:
    """Draw the share copied in percent, a row per encoding and a column per context and
    distance.

    ``most`` is the most rows that are drawn; None draws all.
    """
    table = tables["copy_accuracy"]
    trained = int(table["train_len_tokens"].iloc[0])
    longest = table["context_tokens"].max()
    in_both_contexts = table[table["context_tokens"].isin([trained, longest])]
    # The title counts the encodings that this figure is about.
    comparisons = tables["comparisons"]
    comparisons = comparisons[comparisons["encoding_a"].isin(cost["encoding"])]
    marked = _mark_labels(cost, comparisons, COPY)
    all_shares = _average_copies(in_both_contexts, marked)
    shares = all_shares
    if most:
        shares = _select_rows(all_shares, comparisons, marked, most)
    contexts = shares.columns.get_level_values("context_tokens")
    shares.columns = shares.columns.get_level_values("distance_tokens").astype(str)

    figure, ax = shapes.make_axes((8, max(2.8, 1.6 + 0.34 * len(shares))))
    texts = shapes.format_shares(100 * shares, ".0f", missing="–")
    shapes.draw_heat_map(ax, shares, texts, size=9)
    # A line separates the columns of the two contexts. The contexts are named above the
    # heat map, on both sides of the line.
    edge = int((contexts <= trained).sum()) - 0.5
    # The title is about half of the longest context. Shorter contexts, whose columns come
    # first, may have a column of the same distance.
    has_half = shares.columns == str(longest // 2)
    if len(_select_longest(comparisons, COPY)) and has_half.any():
        shapes.frame_column(ax, int(np.flatnonzero(has_half)[-1]))
    ax.axvline(edge, color=BLACK, linewidth=2)
    style = {"xycoords": shapes.DATA_AND_HEIGHT, "color": shapes.NOTE_COLOR}
    left = (edge - 0.1, 1)
    shapes.write_note(ax, f"in {trained} tokens", left, (0, 4), ha="right", **style)
    right = (edge + 0.1, 1)
    shapes.write_note(ax, f"in {longest} tokens", right, (0, 4), ha="left", **style)

    # Names of designs take much width, so the title begins at the edge of the figure.
    shapes.set_headline(figure, _write_title_of_copies(comparisons, cost, longest))
    notes = ["cells: % copied"]
    signs = _explain_signs("more", comparisons, COPY, cost)
    if len(shares) < len(all_shares):
        notes.append(f"{len(shares)} of {len(all_shares)} rows")
    if shares.isna().to_numpy().any():
        notes.append("–: not defined there")
    label = f"tokens back ({'; '.join(notes)})"
    ax.set_xlabel(f"{label}\n{signs}".strip())
    return figure


def _select_rows(
    shares: pd.DataFrame, comparisons: pd.DataFrame, cost: pd.DataFrame, most: int
) -> pd.DataFrame:
    """Return the first ``most`` rows. If the baseline is not among them, it replaces the
    last of them.
    """
    chosen = list(shares.index[:most])
    # A run with a single encoding compares nothing, and has no baseline.
    if comparisons.empty:
        return shares.loc[chosen]

    labels = cost.set_index("encoding")["label"]
    baseline = labels.get(comparisons["encoding_b"].iloc[0])
    if baseline in shares.index and baseline not in chosen:
        chosen[-1] = baseline
    return shares.loc[chosen]


def _write_title_of_copies(
    comparisons: pd.DataFrame, cost: pd.DataFrame, longest: int
) -> str:
    """Say how many encodings are shown to copy more than the baseline.

    Encodings are compared by what they copy from half of a context back.
    """
    rows = _select_longest(comparisons, COPY)
    where = f"at {longest // 2} back in {longest} tokens"
    if rows.empty:
        return f"Which encodings copy {where}?"
    labels = cost.set_index("encoding")["label"]
    than_baseline = f"more than {labels[rows['encoding_b'].iloc[0]]} {where}"
    better = _list_better(comparisons, COPY)
    if not better:
        return f"No encoding is shown to copy {than_baseline}"
    copy = "copies" if len(better) == 1 else "copy"
    count = f"{len(better)} of {len(rows)} encodings ({shapes.COUNTED})"
    return f"{count} {copy} {than_baseline}"


def draw_against_methods(tables: Tables, cost: pd.DataFrame, metric: str) -> Figure:
    """Draw designs above methods, each sorted with the best first, and in every row a
    dot for each length.

    The title compares the best design with the best method in the longest text, by the
    table `against_methods`.
    """
    compared = tables[AGAINST_METHODS]
    quality = tables["quality"].query("metric == @metric")
    lengths = sorted(quality["times_trained_len"].unique())
    at_longest = quality[quality["times_trained_len"] == lengths[-1]]
    means = at_longest.set_index("encoding")["value"]
    is_loss = metric == TEXT

    def order_names(column: str) -> list[str]:
        names = compared[column].unique()
        ordered = means.reindex(names).sort_values(ascending=is_loss)
        return [str(name) for name in ordered.index]

    designs = order_names("encoding_a")
    methods = order_names("encoding_b")
    rows = [*designs, *methods]

    figure, ax = shapes.make_axes((8.5, 1.8 + 0.36 * len(rows)))
    for number, times in enumerate(lengths):
        at_length = quality[quality["times_trained_len"] == times]
        at_length = at_length.set_index("encoding").reindex(rows)
        # The longest length has the last look. If there are more lengths than looks, the
        # shortest lengths share the first look.
        look = LENGTHS[max(0, len(LENGTHS) - len(lengths) + number)]
        # The dots of a row are 0.2 apart, around the middle of the row.
        offset = 0.2 * (number - (len(lengths) - 1) / 2)
        y_positions = np.arange(len(rows)) + offset
        shapes.draw_dots(
            ax,
            at_length["value"],
            y_positions,
            look,
            f"at {times}x the trained length",
            (at_length["ci_low"], at_length["ci_high"]),
            hollow=times != lengths[-1],
        )

    edge = len(designs) - 0.5
    ax.axhline(edge, color=BLACK, linewidth=1)
    style = {
        "xycoords": ("axes fraction", "data"),
        "ha": "left",
        "color": shapes.NOTE_COLOR,
    }
    # The words are to the right of the panel, above and below the line.
    for words, points_up in (("designs", 4), ("methods", -11)):
        shapes.write_note(ax, words, (1.01, edge), (0, points_up), **style)
    labels = cost.set_index("encoding")["label"]
    shapes.name_rows(ax, [str(labels.get(name, name)) for name in rows])
    unit = "text loss (nats per byte)" if is_loss else "tokens copied correctly (share)"
    bars = shapes.write_intervals(int(quality["seeds"].max()))
    kinds = "designs: trained so; methods: RoPE, changed when it is tested"
    ax.set_xlabel(f"{unit}\n{bars}\n{kinds}")
    if not is_loss:
        ax.set_xlim(-0.03, 1.03)
    best = (designs[0], methods[0])
    title = _write_title_against(compared, means, metric, lengths[-1], best, labels)
    # The names of designs take much width, and leave a narrow panel. A title of the panel
    # would be broken into several lines.
    shapes.set_headline(figure, title)
    shapes.put_legend_below(figure, [ax], len(lengths))
    return figure


def _write_title_against(
    compared: pd.DataFrame,
    means: pd.Series,
    metric: str,
    times: int,
    best: tuple[str, str],
    labels: pd.Series,
) -> str:
    """Compare the best design with the best method at a multiple of the trained length.

    ``labels`` has the names of the rows.
    """
    design, method = best
    row = compared[
        (compared["metric"] == metric)
        & (compared["times_trained_len"] == times)
        & (compared["encoding_a"] == design)
        & (compared["encoding_b"] == method)
    ]

    verdict = row["verdict"].iloc[0] if len(row) else None
    if verdict not in best:
        measure = "loss" if metric == TEXT else "copying"
        return (
            f"At {times}x the best design and method are not shown to differ in {measure}"
            f"\n({labels.get(design, design)}; {labels.get(method, method)})"
        )

    where = f"At {times}x the trained length"
    if metric == TEXT:
        shown = f"have a loss of {means[design]:.2f}, methods {means[method]:.2f}"
    else:
        shown = f"copy up to {means[design]:.0%}, methods {means[method]:.0%}"
    return f"{where} designs {shown}"


def _average_copies(table: pd.DataFrame, cost: pd.DataFrame) -> pd.DataFrame:
    """Return the shares copied: a row per encoding, under its label and with the best
    first, and a column per context and distance.
    """
    keys = ["context_tokens", "distance_tokens"]
    # An encoding that is undefined in a column keeps an empty cell there.
    shares = table.pivot_table(
        index="encoding", columns=keys, values="accuracy", dropna=False
    )
    # The pivot has every distance in every context. Only the combinations that were
    # measured are kept.
    measured_keys = pd.MultiIndex.from_frame(table[keys].drop_duplicates())
    shares = shares.reindex(cost["encoding"])
    shares = shares[measured_keys.sort_values()]
    labels = cost.set_index("encoding")["label"].to_dict()
    shares = shares.rename(labels)

    means = shares.fillna(0).mean(axis=1)
    return shares.loc[means.sort_values(ascending=False).index]
