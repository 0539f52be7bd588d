"""Figures of the precision experiment: collisions, errors by stage and position,
drift.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ropelab.runs.sentences import listed
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import FIGURES, look

PANELS, PHASE = (FIGURES["precision"][part] for part in ("panels", "stages"))
# Radians; the line that is drawn for orientation, whatever tolerance a run was given.
TOLERANCE = 0.01
# Changes of a score below this are those of float64 itself.
UNSEEN = 1e-12
WORST = "worst angle error, rad\n(from position …)"
SPREAD = "a score varies with the place by\n(scores have deviation 1)"


def draw(tables: Tables) -> dict[str, Figure]:
    figures = {}
    stages = tables["casts"][tables["casts"]["kind"] == "stage"]
    if len(stages):
        figures["per_stage_rounding"] = _per_stage_rounding(stages)
    if "collisions" in tables:
        figures["collisions"] = _collisions(tables["collisions"], tables["resolution"])
    growth, drift = tables["growth"], tables["drift"]
    if (growth["max_angle_error_rad"] > 0).any():
        by_stage = (growth["kind"] == "stage").any()
        figures["angle_error"] = (
            _growth_by_stage(growth) if by_stage else _growth(growth)
        )
    if (drift["rms_score_change"] > 0).any():
        rows = drift[(drift["alignment"] == "random") & (drift["status"] == "ok")]
        figures["score_drift"] = _score_drift(rows)
    # The one that shows the verdict on implementations.
    first = (
        {} if len(stages) else {k: v for k, v in figures.items() if k == "angle_error"}
    )
    return first | figures


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
    names, formats = stages["stage"].unique(), stages["format"].unique()
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

    def error(value: float) -> str:
        return (
            "overflow"
            if np.isnan(value)
            else "≥ 3.1"
            if value > 3.1
            else f"{value:.1g}"
        )

    # Sums in float64 leave 1e-13 where places do not count at all.
    spread = spread.mask(spread < 1e-9, 0.0)
    from_there = first.map(
        lambda position: "" if np.isnan(position) else f"\n({position:.0f})"
    )
    figure, axes = shapes.panels(1, 2, (10, 4.4))
    for ax, values, texts, (low, high), title in (
        (axes[0, 0], angle, angle.map(error) + from_there, (1e-4, 4), WORST),
        (axes[0, 1], spread, spread.map(error), (1e-7, 2), SPREAD),
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


def _growth(growth: pd.DataFrame) -> Figure:
    """Draw the worst angle error per octave; implementations that agree share a
    line.
    """
    figure, ax = plt.subplots(figsize=(9, 4.5))
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
        shown, style = rows[rows["max_angle_error_rad"] > 0], look(label.split("\n")[0])
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
    figure, ax = plt.subplots()
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
