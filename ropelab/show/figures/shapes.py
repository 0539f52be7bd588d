"""The shapes that figures are made of: lines with bands, dots with intervals, heat maps, arrows."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.show.looks import Look


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes as an array of two dimensions, however many there are."""
    return plt.subplots(rows, columns, figsize=size, squeeze=False, **options)


def line(
    ax: Axes,
    x: Any,
    y: Any,
    look: Look,
    label: str = "",
    band: tuple[Any, Any] | None = None,
    **options: Any,
) -> None:
    """Draw a line with its markers, and an interval around it as a band."""
    style = {"color": look.color, "marker": look.marker, "linestyle": look.line, "label": label}
    ax.plot(x, y, **{**style, **options})
    if band is not None:
        ax.fill_between(x, *band, color=look.color, alpha=0.15, linewidth=0)


def dots(
    ax: Axes,
    values: Any,
    places: Any,
    look: Look,
    label: str = "",
    interval: tuple[Any, Any] | None = None,
    hollow: bool = False,
    **options: Any,
) -> None:
    """Draw a dot for each row, at its value along the axis, with its interval as a bar."""
    if interval is not None:
        ax.hlines(places, *interval, color=look.color, linewidth=3, alpha=0.35)
    face = "white" if hollow else look.color
    style = {"color": look.color, "markerfacecolor": face, "markersize": 6, "label": label}
    ax.plot(values, places, look.marker, **{**style, **options})


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a figure from the top down."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()


def heat_map(
    ax: Axes,
    shades: np.ndarray,
    texts: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    colors: str = "cividis",
    dark_until: float = 0.5,
    size: float = 9,
) -> None:
    """Draw cells shaded from 0 to 1 with a text in each; a missing shade stays white."""
    ax.set_facecolor("white")
    ax.imshow(np.ma.masked_invalid(shades), cmap=colors, vmin=0, vmax=1, aspect="auto")
    for (row, column), text in np.ndenumerate(texts):
        # A missing shade compares as False, as white does not: its text is grey.
        shade = shades[row, column]
        color = "#7F7F7F" if np.isnan(shade) else "black" if shade > dark_until else "white"
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=size)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)


def shares(values: np.ndarray, missing: str = "", digits: str = ".2f") -> np.ndarray:
    """Write the shares of a heat map."""
    write = np.vectorize(lambda value: missing if np.isnan(value) else format(value, digits), [str])
    return np.asarray(write(values), dtype=object)


def over_seeds(rows: pd.DataFrame, x: str, value: str) -> pd.DataFrame:
    """Average over seeds at every x: columns x, value, low, high.

    The band is the range of the seeds if there are several, the interval over documents for one.
    """
    by_x = rows.groupby(x)
    many = rows["seed"].nunique() > 1
    low = by_x[value].min() if many else by_x["ci_low"].mean()
    high = by_x[value].max() if many else by_x["ci_high"].mean()
    return pd.DataFrame({value: by_x[value].mean(), "low": low, "high": high}).reset_index()


def each(table: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every value of a column, in its order, with its rows."""
    for name, rows in table.groupby(column, sort=False):
        yield str(name), rows


def records(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a table, their values as attributes."""
    yield from table.itertuples(index=False)


def arrow(ax: Axes, x: float, y: float, look: Look) -> None:
    """Draw an arrow from the origin."""
    style = {"arrowstyle": "-|>", "color": look.color, "linewidth": 2, "linestyle": look.line}
    ax.annotate("", (x, y), (0, 0), arrowprops={**style, "shrinkA": 0})


def unit_circle(ax: Axes, **limits: Any) -> None:
    """Draw the unit circle on axes without a frame."""
    around = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(around), np.sin(around), color="#cccccc", linewidth=1)
    ax.set(aspect="equal", **limits)
    ax.spines[:].set_visible(False)
    ax.grid(False)
