"""One style for all figures: the style sheet, axes of tokens and bases, titles, legends, marks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any, Literal

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from ropelab.show.looks import GREY

# Octaves between two labelled ticks.
LEAST_APART = 0.35
FAINT = "#555555"
DASHED = (0, (4, 3))
# The coordinates of a place at an x of the data, and a share of the panel's height.
ABOVE = ("data", "axes fraction")
# Where the name of a point may be, in points from it; the best place first.
PLACES: tuple[tuple[tuple[int, int], str], ...] = (
    *(((8, up), "left") for up in (3, -10)),
    *(((-8, up), "right") for up in (3, -10)),
    *(((8, up), "left") for up in (14, -21, 25, -32)),
    *(((-8, up), "right") for up in (14, -21, 25, -32)),
)


@contextmanager
def use_style() -> Iterator[None]:
    """Draw inside this block in the style that ships with the package."""
    before = set(plt.get_fignums())
    sheet = as_file(files("ropelab.show.figures") / "ropelab.mplstyle")
    # The user's backend stays; without ioff a notebook would open a window for every figure.
    with sheet as path, plt.style.context(path), plt.ioff():
        yield
    # A figure that pyplot still knows would be shown a second time at the end of a notebook's cell.
    for number in set(plt.get_fignums()) - before:
        plt.close(number)


def headline(figure: Figure, text: str) -> None:
    """Give a figure of several panels its title."""
    figure.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=11)


def tokens_label(tokens: float) -> str:
    """Write a number of tokens as people say it.

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


def token_axis(ax: Axes, which: Literal["x", "y"] = "x") -> None:
    """Make an axis of tokens: powers of two, labelled 2k, 4k, 8k."""
    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(PowersAndLast(base=2, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tokens_label(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(LogLocator(base=2, numticks=1))


def base_axis(axis: Axis, limits: tuple[float, float]) -> None:
    """Make an axis of bases: powers of ten, and on a short axis those between: 1e6, 3e6."""
    few = limits[1] < 100 * limits[0]
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0) if few else (1.0,)))
    # Plain text: to typeset exponents takes a third of the time of a figure.
    axis.set_major_formatter(FuncFormatter(lambda base, _: _typed(base)))
    axis.set_minor_locator(NullLocator())


def _typed(base: float) -> str:
    """Write a base with one digit and a power of ten.

    >>> _typed(3e6), _typed(1e13)
    ('3e6', '1e13')
    """
    digit, power = f"{base:.0e}".split("e")
    return f"{digit}e{int(power)}"


def mark(ax: Axes, value: float, text: str, which: Literal["x", "y"] = "y", up: int = 3) -> None:
    """Mark a value of an axis with a dashed line that is named beside it."""
    draw_line = ax.axvline if which == "x" else ax.axhline
    draw_line(value, color=GREY, linestyle=DASHED, linewidth=1)
    if which == "x":
        note(ax, text, (value, 1), (3, -3), xycoords=ABOVE, va="top", color=FAINT)
    else:
        note(ax, text, (0.01, value), (2, up), xycoords=("axes fraction", "data"), color=FAINT)


def note(
    ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> None:
    """Write a small text beside a point, as many points from it as the offset says."""
    ax.annotate(text, at, xytext=offset, textcoords="offset points", **{"fontsize": 8, **style})


def trained_length_line(ax: Axes, length: float) -> None:
    """Mark the trained length on an axis of tokens."""
    mark(ax, length, "trained length", "x")


def legend_outside(ax: Axes) -> None:
    """Put the legend to the right of the axes, where it covers no data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)


def legend_above(ax: Axes, columns: int = 1) -> None:
    """Put a small legend above the axes of a panel."""
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, handletextpad=0.1, fontsize=8
    )


def legend_below(figure: Figure, axes: Sequence[Axes], columns: int) -> None:
    """Put one legend for all panels below them; a name in several panels is listed once."""
    named: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=min(columns, len(named)),
    )


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
