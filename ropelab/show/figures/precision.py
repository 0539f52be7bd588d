"""Figures of the precision experiment: collisions, growing errors, the ladder, drifting scores."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ropelab.math.numerics.casts import STAGES
from ropelab.runs.tables import Tables
from ropelab.show.figures.style import (
    GREY,
    color_of,
    legend_outside,
    line_of,
    marker_of,
    token_axis,
    tokens_label,
)


def draw(tables: Tables) -> dict[str, Figure]:
    """All figures the tables have the rows for, the most telling first."""
    figures = {}
    if "collisions" in tables:
        figures["collisions"] = collisions(tables["collisions"], tables["resolution"])
    if (tables["casts"]["kind"] == "stage").any():
        figures["ladder"] = ladder(tables["casts"])
    if (tables["growth"]["max_angle_error_rad"] > 0).any():
        figures["angle_error"] = angle_error(tables["growth"])
    if (tables["drift"]["rms_score_change"] > 0).any():
        figures["score_drift"] = score_drift(tables["drift"])
    return figures


PANELS = (
    ("single", "cos", "one frequency:\ncos alone"),
    ("single", "pair", "one frequency:\ncos and sin"),
    ("rope", "pair", "RoPE: its\nslowest pair alone"),
    ("rope", "vector", "RoPE:\nall pairs"),
)


def collisions(table: pd.DataFrame, resolution: pd.DataFrame) -> Figure:
    """Share of neighbours with the same stored code, against position, per code and format."""
    found = _panels(table)
    figure, axes = plt.subplots(
        1, len(found), figsize=(2 + 2.2 * len(found), 4.2), sharey=True, squeeze=False
    )
    for ax, (scheme, channel, title) in zip(axes[0], found, strict=True):
        rows = _code(table, scheme, channel)
        for name, group in rows.groupby("format", sort=False):
            percent = 100 * group["fraction"]
            ax.plot(group["position_end"], percent, label=name, clip_on=False, **_look(name))
        _position_axis(ax)
        ax.set(ylim=(0, 100))
        ax.set_title(title, fontsize=10)
        if rows["adjacent_collisions"].sum() == 0:
            ax.text(0.5, 0.5, "none, in\nany format", transform=ax.transAxes, ha="center")
    axes[0][0].set_ylabel("neighbours with the same code, %")
    legend_outside(axes[0][-1])
    figure.suptitle(_collision_title(resolution), fontweight="bold", x=0.01, ha="left")
    return figure


def _panels(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Scheme, channel and title of at most four codes: the ones that compare best, if there."""
    telling = [panel for panel in PANELS if not _code(table, *panel[:2]).empty]
    names = table[["scheme", "channel"]].drop_duplicates().head(4).to_numpy(dtype=str).tolist()
    return telling or [(scheme, channel, f"{scheme}:\n{channel}") for scheme, channel in names]


def _code(table: pd.DataFrame, scheme: str, channel: str) -> pd.DataFrame:
    return table[(table["scheme"] == scheme) & (table["channel"] == channel)]


def _collision_title(resolution: pd.DataFrame) -> str:
    """The finding, if it is the usual one; else the question."""
    worst = resolution.groupby(["scheme", "channel"])["adjacent_collisions"].max()
    if worst.get(("rope", "vector")) == 0 and worst.get(("single", "pair"), 0) > 0:
        return "One frequency loses its neighbours in 16 bits; many frequencies keep them"
    return "Which neighbours share a stored code?"


def ladder(casts: pd.DataFrame) -> Figure:
    """Heatmap: stages against formats, the worst angle error and from where it is too large."""
    stages = casts[casts["kind"] == "stage"]
    formats = stages["format"].unique()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4))
    angle = _grid(stages, formats, "max_angle_error_rad")
    where = _grid(stages, formats, "first_bad_position")
    lost = ~np.isnan(where) & np.isnan(angle)
    texts = [
        [_angle_text(*cell) for cell in zip(*rows, strict=True)]
        for rows in zip(angle.tolist(), where.tolist(), lost.tolist(), strict=True)
    ]
    _heatmap(left, np.where(lost, math.pi, angle), texts, formats, (1e-4, 4))
    left.set_title("worst angle error, rad\n(from position …)", fontsize=10)
    scores = _grid(stages, formats, "rms_score_error")
    _heatmap(
        right,
        scores,
        [[_score_text(v) for v in row] for row in scores.tolist()],
        formats,
        (1e-7, 2),
    )
    right.set(yticklabels=[])
    right.set_title("score error (scores have deviation 1)", fontsize=10)
    first = "Casts before the cosine ruin the angle; casts after it only add noise"
    figure.suptitle(first, fontweight="bold", x=0.01, ha="left")
    return figure


def _grid(stages: pd.DataFrame, formats: np.ndarray, column: str) -> np.ndarray:
    wide = stages.pivot(index="stage", columns="format", values=column)
    return wide.reindex(index=list(STAGES), columns=formats).to_numpy(dtype=float, na_value=np.nan)


def _angle_text(value: float, where: float, lost: bool) -> str:
    if lost:
        return f"overflow\n({where:.0f})"
    if value == 0:
        return "0"
    number = "≥ 3.1" if value > 3.1 else f"{value:.1g}"
    return number if math.isnan(where) else f"{number}\n({where:.0f})"


def _score_text(value: float) -> str:
    if math.isnan(value):
        return "overflow"
    return "0" if value == 0 else f"{value:.1g}"


def _heatmap(
    ax: Axes,
    values: np.ndarray,
    texts: list[list[str]],
    formats: np.ndarray,
    limits: tuple[float, float],
) -> None:
    shown = np.clip(np.where(np.isnan(values), limits[1], values), *limits)
    ax.imshow(shown, norm=LogNorm(*limits), aspect="auto", cmap="cividis")
    for row, column in np.ndindex(values.shape):
        dark = float(np.log(shown[row, column] / limits[0])) < 0.55 * np.log(limits[1] / limits[0])
        ax.text(
            column,
            row,
            texts[row][column],
            ha="center",
            va="center",
            fontsize=7.5,
            color="white" if dark else "black",
        )
    ax.set_xticks(range(len(formats)), formats, rotation=30, ha="right", fontsize=8)
    ax.set_yticks(range(len(STAGES)), STAGES)
    ax.grid(False)


def angle_error(growth: pd.DataFrame) -> Figure:
    """Worst angle error per octave of positions, log-log: what grows, and from where."""
    if (growth["kind"] == "stage").any():
        return _stages_growth(growth)
    figure, ax = plt.subplots(figsize=(9, 4.5))
    same = _alike(growth)
    for name, names in same.items():
        label = "\n".join([name, *(f"  = {other}" for other in names)])
        _growth_line(ax, growth[growth["name"] == name], name, label)
    _growth_axes(ax)
    ax.set(ylabel="worst angle error, rad", title=_growth_title(growth))
    legend_outside(ax)
    return figure


def _alike(growth: pd.DataFrame) -> dict[str, list[str]]:
    """Implementations with the same errors everywhere, under the first of them."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for name, rows in growth.groupby("name", sort=False):
        groups.setdefault(tuple(rows["max_angle_error_rad"].fillna(-1)), []).append(str(name))
    return {names[0]: names[1:] for names in groups.values()}


def _growth_title(growth: pd.DataFrame) -> str:
    """How many implementations stay below the usual tolerance to the end."""
    worst = growth.groupby("name")["max_angle_error_rad"].max()
    right = int((worst <= TOLERANCE).sum())
    end = tokens_label(growth["position_end"].max() + 1)
    return f"{right} of {len(worst)} keep every angle below {TOLERANCE} rad up to position {end}"


TOLERANCE = 0.01
"""Radians; the line that is drawn for orientation, whatever tolerance a run was given."""


def _stages_growth(growth: pd.DataFrame) -> Figure:
    stages = [s for s in STAGES if growth.loc[growth["stage"] == s, "max_angle_error_rad"].any()]
    figure, axes = plt.subplots(
        1, len(stages), figsize=(10, 4.2), sharex=True, sharey=True, squeeze=False
    )
    for ax, stage in zip(axes[0], stages, strict=True):
        for name, group in growth[growth["stage"] == stage].groupby("format", sort=False):
            _growth_line(ax, group, str(name))
        _growth_axes(ax)
        ax.set_title(f"{stage} rounded")
    axes[0][0].set_ylabel("worst angle error, rad")
    legend_outside(axes[0][-1])
    figure.suptitle(
        "Rounding a position, a frequency or an angle costs a phase that grows",
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    return figure


def _growth_line(ax: Axes, group: pd.DataFrame, name: str, label: str = "") -> None:
    shown = group[group["max_angle_error_rad"] > 0]
    if not shown.empty:
        ax.plot(
            shown["position_end"], shown["max_angle_error_rad"], label=label or name, **_look(name)
        )


def _growth_axes(ax: Axes) -> None:
    _position_axis(ax)
    ax.set(yscale="log", ylim=(1e-9, 50))
    ax.axhline(math.pi, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
    ax.axhline(TOLERANCE, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
    for height, text in ((math.pi, "half a turn: lost"), (TOLERANCE, f"{TOLERANCE} rad")):
        ax.annotate(
            text,
            (0.02, height),
            xycoords=("axes fraction", "data"),
            xytext=(0, 4),
            textcoords="offset points",
            fontsize=8,
            color="#555555",
        )


def _position_axis(ax: Axes) -> None:
    """Positions in powers of two, few enough labels for a narrow panel."""
    token_axis(ax)
    ax.xaxis.set_major_locator(LogLocator(base=8, numticks=12))
    ax.set_xlabel("position")


def score_drift(drift: pd.DataFrame) -> Figure:
    """How far a score moves when query and key shift together, with 95 % intervals."""
    rows = drift[(drift["alignment"] == "random") & (drift["status"] == "ok")]
    figure, ax = plt.subplots(figsize=(8, 4.5))
    for name, group in rows.groupby("name", sort=False):
        look = _look(str(name).removeprefix("all "))
        shown = group[group["rms_score_change"] > 0]
        shift, change = shown["shift_tokens"], shown["rms_score_change"]
        ax.plot(shift, change, label=name, **look)
        low = shown["ci_low"].clip(lower=change / 10)
        ax.fill_between(shift, low, shown["ci_high"], color=look["color"], alpha=0.2, lw=0)
    token_axis(ax)
    ax.set(
        yscale="log",
        xlabel="shift of query and key, tokens",
        ylabel="change of the score (deviation 1)",
        title=_drift_title(rows),
    )
    legend_outside(ax)
    return figure


def _drift_title(rows: pd.DataFrame) -> str:
    if (rows["name"] == "inv_freq=bfloat16").any():
        return "Shifting query and key shows most roundings, but not a rounded inv_freq"
    return "A score should depend on the distance only: how far does a shift move it?"


def _look(name: object) -> dict[str, Any]:
    """Colour, marker and line of a format or an implementation, the same in every figure."""
    text = str(name)
    return {"color": color_of(text), "marker": marker_of(text), "linestyle": line_of(text)}
