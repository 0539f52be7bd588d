"""Figures of the precision experiment: collisions, errors by stage and position,
drift.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ropelab.runs.sentences import listed
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import NOTICED
from ropelab.show.figures import shapes
from ropelab.show.looks import FIGURES, look, numbered

PANELS, PHASE = (FIGURES["precision"][part] for part in ("panels", "stages"))
HATCHES = ("", "//", "..")
# Radians; the line that is drawn for orientation, whatever tolerance a run was given.
TOLERANCE = 0.01
# Changes of a score below this are those of float64 itself.
UNSEEN = 1e-12
# float64 itself leaves spreads of about this size.
NO_SPREAD = 1e-9
WORST = "worst angle error, rad\n(in brackets: first wrong position)"
SPREAD = "a score varies with the place by\n(scores have deviation 1)"


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the figures: the first answers the question that was asked."""
    figures = {}
    casts = tables["casts"]
    growth = tables["growth"]

    stages = casts[casts["kind"] == "stage"]
    rises = (growth["max_angle_error_rad"] > 0).any()
    if rises and stages.empty:
        figures["angle_error"] = _growth(growth)

    if "neighbours" in tables:
        figures["resolution"] = _resolution(tables["neighbours"])
    if (tables["spread"]["score_spread"] > NO_SPREAD).any():
        figures["score_spread"] = _spread_by_distance(tables["spread"])
    if len(stages):
        figures["per_stage_rounding"] = _per_stage_rounding(stages)
    if "collisions" in tables:
        figures["collisions"] = _collisions(tables["collisions"], tables["resolution"])
    if rises and len(stages):
        figures["angle_error"] = _growth_by_stage(growth)

    drift = tables["drift"]
    if (drift["rms_score_change"] > 0).any():
        rows = drift[(drift["alignment"] == "random") & (drift["status"] == "ok")]
        figures["score_drift"] = _score_drift(rows)
    return figures


def _resolution(neighbours: pd.DataFrame) -> Figure:
    """Draw the share of neighbours that are stored alike, by encoding and format."""
    rows = neighbours[neighbours["format"] != "float64"]
    if rows.empty:
        rows = neighbours
    encodings = rows["encoding"].unique()
    formats = rows["format"].unique()
    shares = rows.set_index(["encoding", "format"])["equal_neighbours"]

    figure, ax = shapes.new_axes((max(6.0, 2 * len(encodings) + 1.5), 4.2))
    width = 0.8 / len(formats)
    for number, fmt in enumerate(formats):
        places = np.arange(len(encodings)) + (number - (len(formats) - 1) / 2) * width
        values = [shares[name, fmt] for name in encodings]
        ax.bar(
            places,
            values,
            0.92 * width,
            label=fmt,
            color=look(fmt).color,
            edgecolor="white",
            hatch=HATCHES[number % len(HATCHES)],
        )
        for x, value in zip(places, values, strict=True):
            ax.text(x, value + 0.02, _percent(value), ha="center", fontsize=8.5)

    names = [name.replace(", ", "\n", 1) for name in encodings]
    ax.set_xticks(range(len(encodings)), names)
    ax.set(
        ylabel="neighbours that look equal",
        ylim=(0, 1.12),
        yticks=[0, 0.25, 0.5, 0.75, 1],
    )
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(axis="x", visible=False)
    ax.set_title(_title_of_resolution(rows))
    shapes.legend_outside(ax)
    return figure


def _title_of_resolution(rows: pd.DataFrame) -> str:
    worst = rows.groupby(["scheme", "component"])["equal_neighbours"].max()
    one = worst.get(("single", "pair"))
    many = worst.get(("rope", "vector"))
    if one is not None and many is not None and one > 0 == many:
        return "One slow frequency loses neighbours; many frequencies keep them all"
    return "Which neighbours look equal when they are stored?"


def _percent(share: float) -> str:
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{share:.1%}" if 0.0005 <= share <= 0.9995 else f"{100 * share:.3g}%"


def _spread_by_distance(table: pd.DataFrame) -> Figure:
    """Draw how much a score varies with the place, by distance; a line per cast."""
    rows = table[table["score_spread"] > NO_SPREAD]
    named = rows["name"]
    if (rows["kind"] == "stage").any():
        formats = rows["format"].unique()
        chosen = "bfloat16" if "bfloat16" in formats else formats[0]
        rows = rows[rows["format"] == chosen]
        named = rows["stage"] + f" in {chosen}"

    figure, ax = shapes.new_axes((9, 4.5))
    for number, (name, line) in enumerate(shapes.each(rows.assign(line=named), "line")):
        band = line["ci_low"], line["ci_high"]
        shapes.line(
            ax,
            line["distance_tokens"],
            line["score_spread"],
            numbered(number),
            name,
            band,
        )
    shapes.token_axis(ax)
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
    ax.set(
        yscale="log",
        xlabel="distance of query and key, tokens",
        ylabel="deviation of a score over places\n(scores have deviation 1)",
        title="At one distance, how much does a score vary with the place?",
    )
    shapes.mark(ax, NOTICED, "small models notice", up=4)
    shapes.legend_outside(ax)
    return figure


def _collisions(table: pd.DataFrame, resolution: pd.DataFrame) -> Figure:
    codes = (
        table[["scheme", "component"]].drop_duplicates().to_numpy(dtype=str).tolist()
    )

    found = [panel for panel in PANELS if panel[:2] in codes]
    found = found or [
        (scheme, channel, f"{scheme}:\n{channel}") for scheme, channel in codes[:4]
    ]
    figure, axes = shapes.panels(
        1, len(found), (2 + 2.2 * len(found), 4.2), sharey=True
    )

    for ax, (scheme, channel, title) in zip(axes[0], found, strict=True):
        rows = table[(table["scheme"] == scheme) & (table["component"] == channel)]
        for name, group in shapes.each(rows, "format"):
            percent = 100 * group["fraction"]
            shapes.line(
                ax, group["position_end"], percent, look(name), name, clip_on=False
            )
        _position_axis(ax)
        ax.set(ylim=(0, 100))
        ax.set_title(title, fontsize=10)
        if rows["adjacent_collisions"].sum() == 0:
            ax.text(
                0.5, 0.5, "none, in\nany format", transform=ax.transAxes, ha="center"
            )

    axes[0][0].set_ylabel("neighbours with the same code, %")
    shapes.legend_outside(axes[0][-1])

    worst = resolution.groupby(["scheme", "component"])["adjacent_collisions"].max()
    usual = worst.get(("rope", "vector")) == 0 and worst.get(("single", "pair"), 0) > 0
    finding = (
        "One frequency loses its neighbours in 16 bits; many frequencies keep them"
    )
    shapes.headline(
        figure, finding if usual else "Which neighbours share a stored code?"
    )
    return figure


def _per_stage_rounding(stages: pd.DataFrame) -> Figure:
    names = stages["stage"].unique()
    formats = stages["format"].unique()
    angle, first, spread = (
        stages.pivot(index="stage", columns="format", values=column)
        .reindex(index=names, columns=formats)
        .astype(float)
        for column in (
            "max_angle_error_rad",
            "first_position_over_tolerance",
            "score_spread",
        )
    )

    # Sums in float64 leave 1e-13 where places do not count at all.
    spread = spread.mask(spread < NO_SPREAD, 0.0)
    overflow = (
        stages.pivot(index="stage", columns="format", values="worst_position")
        .reindex(index=names, columns=formats)
        .astype(float)
        .where(angle.isna())
    )
    angle_texts = angle.map(_write_error)
    angle_texts += overflow.map(lambda m: "" if np.isnan(m) else f"\nfrom {m:.0f}")
    angle_texts += first.map(lambda m: "" if np.isnan(m) else f"\n({m:.0f})")
    figure, axes = shapes.panels(1, 2, (10, 4.4))
    for ax, values, texts, (low, high), title in (
        (axes[0, 0], angle, angle_texts, (1e-4, 4), WORST),
        (axes[0, 1], spread, spread.map(_write_error), (1e-7, 2), SPREAD),
    ):
        # Shades are logarithms; what overflows is as bright as the largest error.
        shades = np.log(values.fillna(high).clip(low, high) / low) / np.log(high / low)
        shapes.heat_map(ax, shades, texts, dark_until=0.55, size=7.5)
        ax.set_xticks(range(len(formats)), formats, rotation=30, ha="right", fontsize=8)
        ax.set_title(title, fontsize=10)
    axes[0, 1].set(yticklabels=[])
    worst = spread.fillna(np.inf).max(axis=1).sort_values()  # nan: overflow
    finding = (
        "Rounded positions and angles make scores vary with the place; frequencies"
        " do not"
    )
    usual = {*worst.index[-2:]} == {"position", "angle"} and worst.get("inv_freq") == 0
    shapes.headline(
        figure, finding if usual else "Errors of the angle and of the score by stage"
    )
    return figure


def _write_error(value: float) -> str:
    if np.isnan(value):
        return "overflow"
    return "≥ 3.1" if value > 3.1 else f"{value:.1g}"


def _growth(growth: pd.DataFrame) -> Figure:
    """Draw the worst angle error per octave; implementations that agree share a
    line.
    """
    figure, ax = shapes.new_axes((9, 4.5))

    alike: dict[tuple[float, ...], list[str]] = {}
    found = dict(shapes.each(growth, "name"))
    for name, rows in found.items():
        alike.setdefault(tuple(rows["max_angle_error_rad"].fillna(-1)), []).append(name)
    _growth_lines(
        ax, {"\n  = ".join(names): found[names[0]] for names in alike.values()}
    )

    worst = growth.groupby("name")["max_angle_error_rad"].max()
    right = (
        f"{(worst <= TOLERANCE).sum()} of {len(worst)} keep every angle below"
        f" {TOLERANCE} rad"
    )
    end = shapes.tokens_label(growth["position_end"].max() + 1)
    ax.set(ylabel="worst angle error, rad", title=f"{right} up to position {end}")
    shapes.legend_outside(ax)
    return figure


def _growth_by_stage(growth: pd.DataFrame) -> Figure:
    stages = list(shapes.each(growth[growth["max_angle_error_rad"] > 0], "stage"))
    figure, axes = shapes.panels(1, len(stages), (10, 4.2), sharex=True, sharey=True)

    for ax, (stage, rows) in zip(axes[0], stages, strict=True):
        _growth_lines(ax, dict(shapes.each(rows, "format")))
        ax.set_title(f"{stage} rounded")

    axes[0][0].set_ylabel("worst angle error, rad")
    shapes.legend_outside(axes[0][-1])

    errors = growth.groupby(["stage", "format"])["max_angle_error_rad"]
    grow = ((errors.max() == 0) | (errors.first() < errors.max())).all()
    rounded = listed([PHASE[stage] for stage, _ in stages], "or")
    title = (
        f"Rounding {rounded}{' costs a phase that grows' if grow else ': worst errors'}"
    )
    shapes.headline(figure, title)
    return figure


def _growth_lines(ax: Axes, lines: Mapping[str, pd.DataFrame]) -> None:
    """Draw lines with their labels, which begin with the name that they look like."""
    for label, rows in lines.items():
        shown = rows[rows["max_angle_error_rad"] > 0]
        style = look(label.split("\n")[0])
        if len(shown):
            shapes.line(
                ax, shown["position_end"], shown["max_angle_error_rad"], style, label
            )
    _position_axis(ax)
    ax.set(yscale="log", ylim=(1e-9, 50))
    shapes.mark(ax, math.pi, "half a rotation: lost", up=4)
    # To the right, where lines are above it: the first points of a panel are often near
    # it.
    shapes.mark(ax, TOLERANCE, f"{TOLERANCE} rad", up=4, end="right")


def _position_axis(ax: Axes) -> None:
    shapes.token_axis(ax)
    # Few enough labels for a narrow panel.
    ax.xaxis.set_major_locator(LogLocator(base=8, numticks=12))
    ax.set_xlabel("position")


def _score_drift(rows: pd.DataFrame) -> Figure:
    figure, ax = shapes.new_axes()
    for name, shown in shapes.each(rows[rows["rms_score_change"] > 0], "name"):
        change = shown["rms_score_change"]
        # An interval down to 0 would run to the bottom of a logarithmic axis.
        band = shown["ci_low"].clip(lower=change / 10), shown["ci_high"]
        shapes.line(
            ax,
            shown["shift_tokens"],
            change,
            look(name.removeprefix("all ")),
            name,
            band,
        )

    shapes.token_axis(ax)
    largest = rows.groupby("name")["rms_score_change"].max()
    usual = largest.get("inv_freq=bfloat16", math.inf) < UNSEEN < largest.median()
    finding = "Shifting query and key shows most roundings, but not a rounded inv_freq"
    question = (
        "A score should depend on the distance only: how far does a shift move it?"
    )

    ax.set(
        yscale="log",
        xlabel="shift of query and key, tokens",
        ylabel="change of the score (deviation 1)",
        title=finding if usual else question,
    )
    shapes.legend_outside(ax)
    return figure
