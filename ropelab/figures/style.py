"""One look for all figures: each method, format or encoding has its colour, marker and line."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Literal

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ropelab.looks import (
    AMBER,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LINES,
    MARKERS,
    ORANGE,
    PALETTE,
    PINK,
    SKY,
    look,
)

__all__ = [
    "AMBER",
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "LINES",
    "MARKERS",
    "ORANGE",
    "PALETTE",
    "PINK",
    "SKY",
    "color_of",
    "legend_outside",
    "line_of",
    "look",
    "marker_of",
    "token_axis",
    "tokens_label",
    "trained_length_line",
    "use_style",
]

matplotlib.use("Agg")


def color_of(name: str) -> str:
    """The colour of a method, format or encoding."""
    return look(name).color


def marker_of(name: str) -> str:
    """The marker of a method, format or encoding."""
    return look(name).marker


def line_of(name: str) -> str:
    """The line style of a method, format or encoding."""
    return look(name).line


@contextmanager
def use_style() -> Iterator[None]:
    """Draw inside this block in the style that ships with the package."""
    with as_file(files("ropelab.figures") / "ropelab.mplstyle") as sheet, plt.style.context(sheet):
        yield


def tokens_label(tokens: float) -> str:
    """A number of tokens as people say it.

    >>> tokens_label(2048), tokens_label(1048576), tokens_label(1536), tokens_label(100)
    ('2k', '1M', '1.5k', '100')
    """
    for size, suffix in ((1024**2, "M"), (1024, "k")):
        if tokens >= size and (tokens * 8 / size) % 1 == 0:
            return f"{tokens / size:g}{suffix}"
    return f"{tokens:g}"


def token_axis(ax: Axes, which: Literal["x", "y"] = "x") -> None:
    """Make an axis of tokens: powers of two, labelled 2k, 4k, 8k."""
    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(base=2, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tokens_label(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(LogLocator(base=2, numticks=1))


def trained_length_line(ax: Axes, length: float, label: str = "trained length") -> None:
    """Mark the trained length with a line that is named where it stands."""
    ax.axvline(length, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
    ax.annotate(
        label,
        (length, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color="#555555",
    )


def legend_outside(ax: Axes, **options: object) -> None:
    """Put the legend to the right of the axes, where it covers no data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, **options)
