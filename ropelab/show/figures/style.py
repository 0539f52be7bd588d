"""One style for all figures: the style sheet, titles that fit, the size of a printed
column.
"""

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from ropelab.show.figures.shapes import place_names

# Widths in inches of one printed column and of both; figures of several panels take
# both.
COLUMN, PAGE = 3.3, 6.9
LOWEST = 2.1
POINTS, SMALL = 8.0, 6.5
MARKER, LINE = 3.5, 1.2
# Letters of a name that still leaves room for the data in one column.
SHORT = 24
# Letters that fit below the axes of one column.
LONG = 44


@contextmanager
def use_style() -> Iterator[None]:
    """Draw and write inside this block in the style that ships with the package.

    The library's defaults come first, so that a user's matplotlibrc changes nothing.
    """
    sheet = as_file(files("ropelab.show.figures") / "ropelab.mplstyle")
    with sheet as path, style.context(["default", str(path)]):
        yield


def fit_titles(figure: Figure) -> None:
    """Break titles that would run over the right edge."""
    for ax in figure.axes:
        ax._left_title.set_wrap(True)  # type: ignore[attr-defined]


def take_title(figure: Figure) -> str:
    """Remove a figure's title and return it, for a page that prints it as text."""
    panels = [ax for ax in figure.axes if ax.get_visible()]
    title = figure.get_suptitle()
    if title:
        figure.suptitle("")
    elif len(panels) == 1:
        title = panels[0].get_title(loc="left")
        panels[0].set_title("", loc="left")
    return " ".join(title.split())


def fit_paper(figure: Figure) -> None:
    """Make a figure one column wide (3.3 in) in 8 pt, without title, the legend below
    the axes.

    Several panels, heat maps, and names too long for a column take the width of the
    page.
    """
    panels = [ax for ax in figure.axes if ax.get_visible()]
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    below = [label.get_text() for label in panels[0].get_xticklabels()]
    # Numbers that do not fit are left out; words cannot be.
    words = sum(
        max(map(len, label.splitlines())) for label in below if label[-3:].isalpha()
    )
    short = max(map(len, names), default=0) <= SHORT and words <= LONG
    narrow = len(panels) == 1 and not figure.legends and not panels[0].images and short
    wide, high = figure.get_size_inches()
    width = COLUMN if narrow else PAGE
    figure.suptitle("")
    legends = [(ax, legend) for ax in panels if (legend := ax.get_legend())]
    rows = 0
    if len(legends) == 1:
        ((ax, legend),) = legends
        handles, labels = ax.get_legend_handles_labels()
        columns = (2 if narrow else 4) // (2 if max(map(len, labels)) > SHORT else 1)
        legend.remove()
        below_all: dict[str, Any] = {
            "loc": "outside lower center",
            "fontsize": POINTS - 1,
        }
        figure.legend(handles, labels, ncols=columns, **below_all)
        rows = -(-(len(labels) + sum(label.count("\n") for label in labels)) // columns)
    if len(panels) == 1:
        panels[0].set_title("")
    # Letters of at most 8 pt, smaller ones among the data, markers to match.
    for text in figure.findobj(Text):
        text.set_fontsize(min(text.get_fontsize(), POINTS))
    more = 0
    for ax in panels:
        place = ax.get_subplotspec()
        columns = place.get_gridspec().ncols if place else 1
        lines, room = ax.get_xlabel().splitlines(), int(LONG * width / COLUMN / columns)
        ax.set_xlabel("\n".join(textwrap.fill(line, room) for line in lines))
        more = max(more, ax.get_xlabel().count("\n"))
        ax.set_ylabel(textwrap.fill(ax.get_ylabel(), SHORT + 4))
        for text in ax.texts:
            text.set_fontsize(min(text.get_fontsize(), SMALL))
    figure.set_size_inches(
        width, max(width * high / wide, LOWEST) + 0.16 * (rows + more)
    )
    for line in figure.findobj(Line2D):
        line.set_markersize(min(line.get_markersize(), MARKER))
        line.set_linewidth(min(line.get_linewidth(), LINE))
    for ax in panels:
        place_names(ax)
        _thin_ticks(ax)


def _thin_ticks(ax: Axes) -> None:
    """Leave out numbers below the axes that would run into the one before them."""
    end = -math.inf
    low, high = sorted(ax.get_xlim())
    for tick in ax.xaxis.get_major_ticks():
        extent = tick.label1.get_window_extent()
        if (
            tick.label1.get_rotation()
            or not low <= tick.get_loc() <= high
            or not extent.width
        ):
            continue
        if extent.x0 < end:
            tick.label1.set_visible(False)
        else:
            end = extent.x1 + 0.06 * ax.figure.dpi
