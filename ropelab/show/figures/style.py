"""One look for all figures: each method, format or encoding has its colour, marker and line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Literal

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox

from ropelab.show.looks import (
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
    "label_points",
    "legend_outside",
    "line_of",
    "look",
    "marker_of",
    "token_axis",
    "tokens_label",
    "trained_length_line",
    "use_style",
]


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
    """Draw inside this block in the style that ships with the package.

    The user's backend stays what it is; figures made here open no window and are shown once, where
    they are handed over, not again by a notebook.
    """
    before = set(plt.get_fignums())
    sheet = as_file(files("ropelab.show.figures") / "ropelab.mplstyle")
    with sheet as path, plt.style.context(path), plt.ioff():
        yield
    for number in set(plt.get_fignums()) - before:
        plt.close(number)


def tokens_label(tokens: float) -> str:
    """A number of tokens as people say it.

    >>> tokens_label(2048), tokens_label(1048576), tokens_label(1536), tokens_label(100)
    ('2k', '1M', '1.5k', '100')
    """
    for size, suffix in ((1024**2, "M"), (1024, "k")):
        if tokens >= size and (tokens * 8 / size) % 1 == 0:
            return f"{tokens / size:g}{suffix}"
    return f"{tokens:g}"


class PowersAndLast(LogLocator):
    """Ticks at powers, and one at the last point drawn if none of them is near."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """See LogLocator."""
        ticks = np.asarray(super().tick_values(vmin, vmax))
        assert self.axis is not None
        last = self.axis.get_data_interval()[1]
        shown = ticks[(ticks >= vmin) & (ticks <= vmax)]
        apart = np.abs(np.log2(shown / last)) > LEAST_APART if last > 0 else np.array([False])
        return [*ticks, last] if last <= vmax and apart.all() else list(ticks)


LEAST_APART = 0.35
"""Octaves between two labelled ticks."""


def label_points(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Name points beside them, each where it covers no other name and no other point."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    at = ax.transData.transform([point[:2] for point in points])
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in at]
    for x, y, label in points:
        note = ax.annotate(label, (x, y), (0, 0), textcoords="offset points", fontsize=9)
        for offset, side in PLACES:
            note.set(position=offset, ha=side)
            extent = note.get_window_extent()
            if not any(extent.overlaps(other) for other in taken):
                break
        taken.append(extent)


PLACES: tuple[tuple[tuple[int, int], str], ...] = (
    *(((8, up), "left") for up in (3, -10)),
    *(((-8, up), "right") for up in (3, -10)),
    *(((8, up), "left") for up in (14, -21, 25, -32)),
    *(((-8, up), "right") for up in (14, -21, 25, -32)),
)
"""Where a name may stand, in points from its point; the best place first."""


def token_axis(ax: Axes, which: Literal["x", "y"] = "x") -> None:
    """Make an axis of tokens: powers of two, labelled 2k, 4k, 8k."""
    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(PowersAndLast(base=2, numticks=12))
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
