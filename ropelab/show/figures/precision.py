"""Figures of the precision experiment: what roundings of RoPE do to positions and scores.

A cast is a plan of roundings: a number format for each stage of the rotation (position,
frequency, angle, cos and sin, ...). A code is what is stored for a position, such as the
cos and sin of one pair of a head. The spread of a score says how much the score of two
tokens varies when both are moved along the text and their distance stays the same.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ropelab.runs.sentences import join_names, write_number
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import NOTICED, UNNOTICED
from ropelab.show.figures import shapes
from ropelab.show.figures.names import name_line_ends
from ropelab.show.looks import FIGURES, find_look, pick_look

# The scheme, component and title of the codes that are drawn.
PANELS = FIGURES["precision"]["panels"]
# Words for the stages of the rotation: in the singular, in the plural, and for the stage
# after it is rounded.
STAGES = FIGURES["precision"]["stages"]
PLURALS = FIGURES["precision"]["plurals"]
ROUNDED = FIGURES["precision"]["rounded"]
# The colours of roundings that are safe, that only change angles, of which some cost models
# something, and that are unsafe. They are pale, so that words on them can be read, and
# differ in print without colour.
SAFE_COLOR = "#e3f2ec"
OTHER_ANGLES_COLOR = "#d5d5d5"
BETWEEN_COLOR = "#ececec"
UNSAFE_COLOR = "#f8d3bd"
# The formats of 16 bits. They are named together if the same stages are unsafe in both.
FORMATS_OF_16_BITS = ("float16", "bfloat16")
# The hatches of bars.
HATCHES = ("", "//", "..")
# The most codes that are drawn if a run has none of PANELS.
MOST_PANELS = 4
# An error of an angle in radians that is marked for orientation, even if the run had
# another tolerance.
TOLERANCE = 0.01
# Changes of a score below this are rounding errors of float64.
LEAST_CHANGE = 1e-12
# Spreads below this are rounding errors of float64.
LEAST_SPREAD = 1e-9
# The most stages that a title names. If there are more, the title gives their number.
MOST_NAMED = 3
# The upper end of the axis of spreads, whose largest values are near 1.
HIGHEST_SPREAD = 3.0


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the figures. The first one answers the question of the run."""
    figures = {}
    casts = tables["casts"]
    growth = tables["growth"]

    stages = casts[casts["kind"] == "stage"]
    rises = (growth["max_angle_error_rad"] > 0).any()
    if rises and stages.empty:
        figures["angle_error"] = _draw_growth(growth)

    if "neighbours" in tables:
        figures["resolution"] = _draw_resolution(tables["neighbours"])
    if (tables["spread"]["score_spread"] > LEAST_SPREAD).any():
        figures["score_spread"] = _draw_spread_by_distance(tables)
    if len(stages):
        figures["per_stage_rounding"] = _draw_per_stage_rounding(stages)
    if "collisions" in tables:
        resolution = tables["resolution"]
        figures["collisions"] = _draw_collisions(tables["collisions"], resolution)
    if rises and len(stages):
        figures["angle_error"] = _draw_growth_by_stage(growth)

    drift = tables["drift"]
    if (drift["rms_score_change"] > 0).any():
        rows = drift[(drift["alignment"] == "random") & (drift["status"] == "ok")]
        figures["score_drift"] = _draw_score_drift(rows)
    return figures


def _draw_resolution(neighbours: pd.DataFrame) -> Figure:
    """Draw the share of neighbours that are stored alike, by encoding and format."""
    rows = neighbours[neighbours["format"] != "float64"]
    if rows.empty:
        rows = neighbours
    encodings = rows["encoding"].unique()
    formats = rows["format"].unique()
    shares = rows.set_index(["encoding", "format"])["equal_neighbours"]

    figure, ax = shapes.make_axes((max(6.0, 2 * len(encodings) + 1.5), 4.2))
    width = 0.8 / len(formats)
    for number, fmt in enumerate(formats):
        # The bars of an encoding are side by side, around the whole number of the
        # encoding.
        bars_from_middle = number - (len(formats) - 1) / 2
        x_positions = np.arange(len(encodings)) + bars_from_middle * width
        values = [shares[name, fmt] for name in encodings]
        ax.bar(
            x_positions,
            values,
            0.92 * width,
            label=fmt,
            color=find_look(fmt).color,
            edgecolor="white",
            hatch=HATCHES[number % len(HATCHES)],
        )
        for x, value in zip(x_positions, values, strict=True):
            ax.text(x, value + 0.02, _write_percent(value), ha="center", fontsize=8.5)

    names = [name.replace(", ", "\n", 1) for name in encodings]
    ax.set_xticks(range(len(encodings)), names)
    ax.set(ylabel="neighbouring positions stored alike", ylim=(0, 1.12))
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(axis="x", visible=False)
    ax.set_title(_write_title_of_resolution(rows))
    shapes.put_legend_outside(ax)
    return figure


def _write_title_of_resolution(rows: pd.DataFrame) -> str:
    keys = ["scheme", "component", "format"]
    shares = rows.groupby(keys)["equal_neighbours"].max()
    worst = shares.groupby(["scheme", "component"]).max()
    # A run may lack one of the two codes.
    one_frequency = worst.get(("single", "pair"), math.nan)
    many_frequencies = worst.get(("rope", "vector"), math.nan)
    if one_frequency > 0 and many_frequencies == 0:
        share = _write_percent(one_frequency)
        coarsest = shares["single", "pair"].idxmax()
        return (
            f"In {coarsest} one slow frequency stores {share} of neighbours alike,"
            "\nRoPE's pairs none"
        )
    return "Neighbouring positions that look equal when they are stored"


def _write_percent(share: float) -> str:
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.0005:
        return "<0.1%"
    if share > 0.9995:
        return ">99.9%"
    return f"{share:.1%}"


def _draw_spread_by_distance(tables: Tables) -> Figure:
    """Draw the spread of scores by distance, a line per cast."""
    table = tables["spread"]
    rows = table[table["score_spread"] > LEAST_SPREAD]
    names = rows["name"]
    is_by_stage = (rows["kind"] == "stage").any()
    lines_below = [
        "distance of query and key (tokens; a point: mean from there to the next)",
        _describe_rope(tables),
    ]
    if is_by_stage:
        chosen_format = _choose_format(rows)
        rows = rows[rows["format"] == chosen_format]
        names = rows["stage"].map(ROUNDED)
        largest_spreads = rows.groupby("stage")["score_spread"].max()
        title = _write_title_of_stages(largest_spreads, chosen_format)
        lines_below.append(f"lines: what is rounded to {chosen_format}")
        lines_below += _describe_missing_lines(tables, chosen_format)
    else:
        title = _write_title_of_casts(table.groupby("name")["score_spread"].max())

    figure, ax = shapes.make_axes((9, 5))
    averages = _average_octaves(rows.assign(line=names))
    for number, (name, line) in enumerate(shapes.split_by(averages, "line")):
        # The first line is wide, since a later line may lie on it.
        width = 4.5 if number == 0 else 1.5
        x, y = line["distance_tokens"], line["score_spread"]
        shapes.draw_line(ax, x, y, pick_look(number), name, linewidth=width)

    low = averages["score_spread"].min() / 3
    shapes.set_token_axis(ax)
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
    ax.set(
        yscale="log",
        ylim=(low, HIGHEST_SPREAD),
        xlabel="\n".join(filter(None, lines_below)),
        ylabel="how much a score varies with the place\n(1: as scores of random tokens do)",
        title=title,
    )
    ax.axhspan(NOTICED, HIGHEST_SPREAD, color=UNSAFE_COLOR, linewidth=0)
    ax.axhspan(UNNOTICED, NOTICED, color=BETWEEN_COLOR, linewidth=0)
    shapes.mark_value(ax, NOTICED, "unsafe: small models lose something", up=4)
    between = "between: of two roundings one costs something"
    shapes.mark_value(ax, UNNOTICED, between, up=4)
    if is_by_stage:
        name_line_ends(ax)
    else:
        shapes.put_legend_outside(ax)
    return figure


def _describe_rope(tables: Tables) -> str:
    """Name the base, the rotated features and the positions that a run is about. The base
    is left out if the frequencies are not those of a base.
    """
    casts = tables["casts"]
    stages = casts[casts["kind"] == "stage"]
    positions = ""
    if len(stages):
        first = int(stages["offset"].iloc[0])
        last = first + int(stages["length"].iloc[0]) - 1
        positions = f"positions {first:,} to {last:,}"
    # A run without schemes has no table of pairs.
    pairs = tables.get("pairs")
    if pairs is None:
        return positions
    rope = pairs[pairs["scheme"] == "rope"].drop_duplicates("pair")
    inv_freq = rope["inv_freq_rad"].to_numpy()
    if len(inv_freq) < 2:
        return positions

    base = (inv_freq[0] / inv_freq[1]) ** len(inv_freq)
    expected = base ** -(np.arange(len(inv_freq)) / len(inv_freq))
    parts = [f"{2 * len(inv_freq)} rotated features of a head", positions]
    if np.allclose(inv_freq, expected, rtol=1e-6):
        parts.insert(0, f"base {write_number(float(f'{base:.6g}'))}")
    return ", ".join(filter(None, parts))


def _describe_missing_lines(tables: Tables, chosen_format: str) -> list[str]:
    """Return sentences about what has no line: a stage whose rounding changes a score
    alike at all places, and another format of 16 bits that overflows.
    """
    casts = tables["casts"]
    in_format = casts[(casts["kind"] == "stage") & (casts["format"] == chosen_format)]
    without_line = in_format[in_format["score_spread"] <= LEAST_SPREAD]
    sentences = []
    if len(without_line):
        names = join_names([ROUNDED[stage] for stage in without_line["stage"]])
        sentences.append(
            f"{names} has no line: rounded, no score varies with the place"
        )

    for other in FORMATS_OF_16_BITS:
        rows = casts[
            (casts["format"] == other) & casts["stage"].isin(("position", "angle"))
        ]
        overflows = rows[rows["max_angle_error_rad"].isna()]
        if other != chosen_format and len(overflows) and len(overflows) == len(rows):
            first = int(overflows["worst_position"].min())
            sentences.append(
                f"in {other} positions and angles overflow from {first:,} on"
            )
    return sentences


def _choose_format(rows: pd.DataFrame) -> str:
    """Return bfloat16 if a run rounds to it, else the first of its formats."""
    formats = rows["format"].unique()
    return "bfloat16" if "bfloat16" in formats else str(formats[0])


def _average_octaves(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the spreads of each line over the distances of each octave, d to 2 d.

    At multiples of large powers of two the errors of rounded positions cancel. A line
    through single distances would therefore jump up and down.
    """
    octaves = np.floor(np.log2(rows["distance_tokens"]))
    squares = rows.assign(square=rows["score_spread"] ** 2)
    by_octave = squares.groupby(["line", octaves.rename("octave")], sort=False)
    means = by_octave.agg({"distance_tokens": "min", "square": "mean"}).reset_index()
    return means.assign(score_spread=np.sqrt(means["square"]))


def _write_title_of_stages(spreads: pd.Series, name_of_format: str) -> str:
    """Name the stages that must not be rounded to a format.

    `spreads` has the largest spread of each stage. The spread is nan if scores overflow,
    and the stage is then unsafe.
    """
    is_unsafe = spreads.isna() | (spreads >= NOTICED)
    unsafe_stages = spreads.index[is_unsafe]
    count = len(unsafe_stages)
    if count == 0:
        return f"Scores do not depend on the place when a stage is in {name_of_format}"
    if count > MOST_NAMED:
        return (
            f"{count} of {len(spreads)} stages must not be rounded to {name_of_format}"
        )
    names = [PLURALS[stage] for stage in PLURALS if stage in unsafe_stages]
    return f"Never round {join_names(names, 'or')} to {name_of_format}"


def _write_title_of_casts(spreads: pd.Series) -> str:
    unsafe_count = (spreads >= NOTICED).sum()
    return f"{unsafe_count} of {len(spreads)} casts make a score depend on the place"


def _draw_collisions(table: pd.DataFrame, resolution: pd.DataFrame) -> Figure:
    """Draw the share of neighbouring positions with equal codes, by position.

    There is a panel for each code, and a line for each format.
    """
    if (table["format"] != "float64").any():
        # In float64 all neighbours have different codes, and its line would hide other
        # lines.
        table = table[table["format"] != "float64"]
    panels = _choose_panels(table)
    size = (2 + 2.2 * len(panels), 4.2)
    figure, axes = shapes.make_panels(1, len(panels), size, sharey=True)
    for ax, (scheme, component, title) in zip(axes[0], panels, strict=True):
        rows = table[(table["scheme"] == scheme) & (table["component"] == component)]
        for name, group in shapes.split_by(rows, "format"):
            x = group["position_end"]
            percent = 100 * group["fraction"]
            shapes.draw_line(ax, x, percent, find_look(name), name, clip_on=False)
        _set_position_axis(ax)
        ax.set(ylim=(0, 105))
        ax.set_title(title, fontsize=10)
        if rows["adjacent_collisions"].sum() == 0:
            text = "none, in\nany format"
            ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center")

    axes[0][0].set_ylabel("neighbouring positions stored alike (%)")
    shapes.put_legend_outside(axes[0][-1])

    worst = resolution.groupby(["scheme", "component"])["adjacent_collisions"].max()
    many_keep_all = worst.get(("rope", "vector")) == 0
    one_loses = worst.get(("single", "pair"), 0) > 0
    title = "Neighbouring positions that share a stored code"
    if many_keep_all and one_loses:
        title = "One slow frequency stores neighbours alike; all of RoPE's pairs do not"
    shapes.set_headline(figure, title)
    return figure


def _choose_panels(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return the scheme, component and title of each code that is drawn.

    They are the codes of PANELS, or the first codes of the run if the run has no code
    of PANELS.
    """
    names = table[["scheme", "component"]].drop_duplicates()
    codes = [(str(row.scheme), str(row.component)) for row in names.itertuples()]
    panels = []
    for scheme, component, title in PANELS:
        if (scheme, component) in codes:
            panels.append((scheme, component, title))

    if not panels:
        for scheme, component in codes[:MOST_PANELS]:
            panels.append((scheme, component, f"{scheme}:\n{component}"))
    return panels


def _draw_per_stage_rounding(stages: pd.DataFrame) -> Figure:
    """Draw which roundings are safe: a row per stage, a column per format.

    Cells have words instead of numbers. Which of two safe roundings has the smaller
    spread depends on the random vectors, and says nothing.
    """
    spread = _pivot_stages(stages, "score_spread")
    angle_error = _pivot_stages(stages, "max_angle_error_rad")
    first_wrong = _pivot_stages(stages, "first_position_over_tolerance")
    # If angles overflow, their error is nan, and the worst position is the first one that
    # overflows.
    overflow = _pivot_stages(stages, "worst_position").where(angle_error.isna())
    is_unsafe = spread.isna() | (spread >= NOTICED)
    is_between = ~is_unsafe & (spread > UNNOTICED)
    has_other_angles = ~is_unsafe & ~is_between & first_wrong.notna()

    # A shade is the number of a word, and of a color below: 0 is safe, 1 other angles,
    # 2 between, 3 unsafe.
    words = ("safe", "other angles", "between", "unsafe")
    shades = pd.DataFrame(0, index=spread.index, columns=spread.columns)
    shades = shades.mask(has_other_angles, 1).mask(is_between, 2).mask(is_unsafe, 3)
    texts = shades.map(lambda shade: words[shade])
    limits = overflow.map("overflows\nfrom {:,.0f}".format)
    # Some angles are wrong before the first position that overflows.
    is_wrong_before = first_wrong < overflow
    wrong_before = first_wrong.map("wrong from {:,.0f},\n".format)
    limits = limits.where(~is_wrong_before, wrong_before + limits)
    texts = texts.where(overflow.isna(), limits)

    figure, ax = shapes.make_axes((9, 1.6 + 0.6 * len(shades)))
    colors = [SAFE_COLOR, OTHER_ANGLES_COLOR, BETWEEN_COLOR, UNSAFE_COLOR]
    ax.imshow(shades, cmap=ListedColormap(colors), vmin=0, vmax=3, aspect="auto")
    for row, column in np.ndindex(shades.shape):
        text = str(texts.iat[row, column])
        ax.text(column, row, text, ha="center", va="center", fontsize=9)
    names = [ROUNDED[stage] for stage in shades.index]
    ax.set_yticks(range(len(shades)), names)
    ax.set_xticks(range(len(shades.columns)), list(shades.columns))
    _separate_cells(ax, shades.shape)
    explanation = _explain_shades(
        has_other_angles=bool(has_other_angles.to_numpy().any()),
        has_between=bool(is_between.to_numpy().any()),
        has_wrong_before=bool(is_wrong_before.to_numpy().any()),
    )
    ax.set_xlabel(explanation)

    chosen_format = _choose_format(stages)
    formats_alike = []
    for fmt in FORMATS_OF_16_BITS:
        if _are_alike(is_unsafe, fmt, chosen_format):
            formats_alike.append(fmt)
    name = chosen_format
    if is_unsafe[chosen_format].any() and chosen_format in formats_alike:
        name = join_names(formats_alike, "or")
    ax.set_title(_write_title_of_stages(spread[chosen_format], name))
    return figure


def _are_alike(is_unsafe: pd.DataFrame, first: str, second: str) -> bool:
    """Return True if the same stages are unsafe in two formats. False if the run does
    not have the first format.
    """
    if first not in is_unsafe:
        return False
    return bool((is_unsafe[first] == is_unsafe[second]).all())


def _separate_cells(ax: Axes, shape: tuple[int, int]) -> None:
    """Draw white lines between the cells.

    The usual grid goes through the middles of the cells, and is hidden. Lines at minor
    ticks between the cells are drawn instead.
    """
    rows, columns = shape
    ax.grid(visible=False)
    ax.set_xticks(np.arange(columns - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(rows - 1) + 0.5, minor=True)
    ax.grid(visible=True, which="minor", color="white", linewidth=2)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    ax.set_axisbelow(False)


def _explain_shades(
    has_other_angles: bool, has_between: bool, has_wrong_before: bool
) -> str:
    lines = [
        f"unsafe: a score varies with the place by {NOTICED} of its deviation or more"
    ]
    if has_between:
        lines.append(
            f"between: by {UNNOTICED} to {NOTICED}; of two such roundings one costs models"
        )
    if has_wrong_before:
        lines.append("wrong from: the first position with a wrong angle")
    if has_other_angles:
        lines.append(
            "other angles: another rotation, the same everywhere; in 16 bits costs are"
            " shown in long contexts only"
        )
    return "\n".join(lines)


def _pivot_stages(stages: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a column of the stages as a table: a row per stage, a column per format."""
    table = stages.pivot(index="stage", columns="format", values=column)
    names = stages["stage"].unique()
    formats = stages["format"].unique()
    return table.reindex(index=names, columns=formats).astype(float)


def _draw_growth(growth: pd.DataFrame) -> Figure:
    """Draw the worst angle error in each octave of positions, a line per cast.

    Casts with the same errors share a line.
    """
    figure, ax = shapes.make_axes((9, 4.5))

    # The error nan, which is an overflow, is not equal to itself. It is replaced by -1
    # where errors are compared.
    names_by_errors: dict[tuple[float, ...], list[str]] = {}
    rows_by_name = dict(shapes.split_by(growth, "name"))
    for name, rows in rows_by_name.items():
        errors = tuple(rows["max_angle_error_rad"].fillna(-1))
        names_by_errors.setdefault(errors, []).append(name)
    lines = {}
    for names in names_by_errors.values():
        lines["\n  = ".join(names)] = rows_by_name[names[0]]
    _draw_growth_lines(ax, lines)

    worst = growth.groupby("name")["max_angle_error_rad"].max()
    count = f"{(worst <= TOLERANCE).sum()} of {len(worst)}"
    end = shapes.format_tokens(growth["position_end"].max() + 1)
    ax.set(
        ylabel="worst angle error (rad)",
        title=f"{count} keep every angle below {TOLERANCE} rad up to position {end}",
    )
    shapes.put_legend_outside(ax)
    return figure


def _draw_growth_by_stage(growth: pd.DataFrame) -> Figure:
    """Draw the worst angle error in each octave: a panel per stage, a line per format."""
    with_errors = growth[growth["max_angle_error_rad"] > 0]
    stages = dict(shapes.split_by(with_errors, "stage"))
    count = len(stages)
    figure, axes = shapes.make_panels(1, count, (10, 4.2), sharex=True, sharey=True)

    for ax, (stage, rows) in zip(axes[0], stages.items(), strict=True):
        _draw_growth_lines(ax, dict(shapes.split_by(rows, "format")))
        ax.set_title(f"{stage} rounded")

    axes[0][0].set_ylabel("worst angle error (rad)")
    shapes.put_legend_outside(axes[0][-1])

    errors = growth.groupby(["stage", "format"])["max_angle_error_rad"]
    is_exact = errors.max() == 0
    grows = errors.first() < errors.max()
    stage_names = join_names([STAGES[stage] for stage in stages], "or")
    title = f"Rounding {stage_names}: worst errors"
    worst_of_format = growth.groupby("format")["max_angle_error_rad"].max()
    # An error that overflows is nan, and not below the tolerance.
    overflows = growth["max_angle_error_rad"].isna().groupby(growth["format"]).any()
    fine = (worst_of_format < TOLERANCE) & ~overflows
    fine_formats = [str(name) for name in fine.index[fine] if name != "float64"]
    if len(fine_formats) == 1:
        title = f"Only {fine_formats[0]} keeps every angle error below {TOLERANCE} rad"
    elif (is_exact | grows).all():
        title = f"Rounding {stage_names}: the angle error grows"
    shapes.set_headline(figure, title)
    return figure


def _draw_growth_lines(ax: Axes, lines: Mapping[str, pd.DataFrame]) -> None:
    """Draw a line for each label.

    A label has the name of a cast or format. Other casts that share the line are named in
    further lines of the label. The first name decides the look.
    """
    for label, rows in lines.items():
        with_errors = rows[rows["max_angle_error_rad"] > 0]
        if with_errors.empty:
            continue
        name, _, _ = label.partition("\n")
        x = with_errors["position_end"]
        errors = with_errors["max_angle_error_rad"]
        shapes.draw_line(ax, x, errors, find_look(name), label)
    _set_position_axis(ax)
    ax.set(yscale="log", ylim=(1e-9, 50))
    shapes.mark_value(ax, math.pi, "half a rotation: lost", up=4)
    # The name is at the right end of this line, since the first points of the casts are
    # often near the left end.
    shapes.mark_value(ax, TOLERANCE, f"{TOLERANCE} rad", up=4, end="right")


def _set_position_axis(ax: Axes) -> None:
    shapes.set_token_axis(ax)
    # A narrow panel has room for a label at every third power of two.
    ax.xaxis.set_major_locator(LogLocator(base=8, numticks=12))
    ax.set_xlabel("position (tokens)")


def _draw_score_drift(rows: pd.DataFrame) -> Figure:
    """Draw by how much a score changes when query and key move together.

    Changes that are rounding errors of float64 are far below the axis, and are named.
    """
    figure, ax = shapes.make_axes()
    with_changes = rows[rows["rms_score_change"] > 0]
    largest_changes = rows.groupby("name")["rms_score_change"].max()
    below_scale = largest_changes[largest_changes < LEAST_CHANGE]
    if len(below_scale) == len(largest_changes):
        # If all changes are rounding errors of float64, the axis shows these.
        below_scale = below_scale.iloc[:0]
    is_below = with_changes["name"].isin(below_scale.index)
    last_shift = rows["shift_tokens"].max()
    for name, line in shapes.split_by(with_changes[~is_below], "name"):
        change = line["rms_score_change"]
        # On a logarithmic axis an interval that reaches 0 would have no lower end. It is
        # cut at a tenth of the change.
        low = line["ci_low"].clip(lower=change / 10)
        label = name
        if line["shift_tokens"].max() < last_shift:
            label = f"{name} (then overflows)"
        shapes.draw_line(
            ax,
            line["shift_tokens"],
            change,
            find_look(name.removeprefix("all ")),
            label,
            (low, line["ci_high"]),
        )

    shapes.set_token_axis(ax)
    xlabel = "shift of query and key (tokens)\nbands: 95 %, over random vectors"
    if len(below_scale):
        text = ", ".join(
            f"{name} ({shapes.write_signed(change, '.0e')})"
            for name, change in below_scale.items()
        )
        xlabel += f"\nbelow the scale: {text}"
    ax.set(
        yscale="log",
        xlabel=xlabel,
        ylabel="change of the score\n(1: standard deviation of all scores)",
        title=_write_title_of_drift(largest_changes),
    )
    low_end, _ = ax.get_ylim()
    ax.set_ylim(low_end, HIGHEST_SPREAD)
    ax.axhspan(NOTICED, HIGHEST_SPREAD, color=UNSAFE_COLOR, linewidth=0)
    shapes.mark_value(ax, NOTICED, "unsafe from here on", up=4)
    name_line_ends(ax)
    return figure


def _write_title_of_drift(largest_changes: pd.Series) -> str:
    """Say that a shift finds roundings but not the rounding of frequencies, if it is so.

    ``largest_changes`` has the largest change of a score under each cast.
    """
    change_of_inv_freq = largest_changes.get("inv_freq=bfloat16", math.inf)
    most_change = largest_changes.median() > LEAST_CHANGE
    if change_of_inv_freq < LEAST_CHANGE and most_change:
        return "A shift of query and key finds roundings, but not that of inv_freq"
    unsafe_count = int((largest_changes >= NOTICED).sum())
    count = f"{unsafe_count} of {len(largest_changes)} casts"
    return f"A shift of query and key changes scores noticeably under {count}"
