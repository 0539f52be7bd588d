"""Figures made ready: titles that fit, and the size and letters of a printed column."""

import textwrap
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text

COLUMN, PAGE = 3.3, 6.9
"""Widths in inches of one column and of both; figures of several panels take both."""
LOWEST = 2.1
POINTS, SMALL = 8.0, 6.5
MARKER, LINE = 3.5, 1.2
SHORT = 24
"""Letters of a name that still leaves room for the data in one column."""


def fit_titles(figure: Figure) -> None:
    """Break titles that would run over the figure's right edge."""
    titles = list(_titles(figure))
    if all(_surely_fits(figure, title) for title in titles):
        return  # laying the figure out takes longer than drawing it
    figure.draw_without_rendering()
    for title in titles:
        text, extent = title.get_text(), title.get_window_extent()
        room = figure.bbox.x1 - extent.x0
        if text and extent.width > room:
            longest = max(map(len, text.split("\n")))
            letters = max(20, int(longest * room / extent.width) - 1)
            title.set_text("\n".join(textwrap.fill(line, letters) for line in text.split("\n")))


def _surely_fits(figure: Figure, title: Text) -> bool:
    """Whether a title fits wherever the layout puts its axes: it knows its width already."""
    if title.figure is None or title.axes is None:
        return title.get_window_extent().x1 <= figure.bbox.x1
    return title.get_window_extent().width <= figure.bbox.width / 2


def _titles(figure: Figure) -> Iterator[Text]:
    """The figure's title, or that of its only axes."""
    if figure.get_suptitle():
        yield figure._suptitle  # type: ignore[attr-defined]
    elif len(figure.axes) == 1:
        yield figure.axes[0]._left_title  # type: ignore[attr-defined]


def for_paper(figure: Figure) -> None:
    """One column (3.3 in) of 8 pt, without title; the legend below the axes.

    Several panels, and names too long for a column, take the width of the page.
    """
    panels = [ax for ax in figure.axes if ax.get_visible()]
    narrow = len(panels) == 1 and not figure.legends and _longest_name(panels[0]) <= SHORT
    wide, high = figure.get_size_inches()
    width = COLUMN if narrow else PAGE
    figure.suptitle("")
    legends = [(ax, legend) for ax in panels if (legend := ax.get_legend())]
    rows = _legend_below(figure, *legends[0], 2 if narrow else 4) if len(legends) == 1 else 0
    figure.set_size_inches(width, max(width * high / wide, LOWEST) + 0.16 * rows)
    for ax in panels:
        if len(panels) == 1:
            ax.set_title("")
        ax.set_ylabel(textwrap.fill(ax.get_ylabel(), SHORT + 4))
    _small(figure, panels)


def _longest_name(ax: Axes) -> int:
    return max((len(label.get_text()) for label in ax.get_yticklabels()), default=0)


def _small(figure: Figure, panels: list[Axes]) -> None:
    """Letters of at most 8 pt, smaller ones among the data, markers to match."""
    for text in figure.findobj(Text):
        text.set_fontsize(min(text.get_fontsize(), POINTS))
    for ax in panels:
        for text in ax.texts:
            text.set_fontsize(min(text.get_fontsize(), SMALL))
    for line in figure.findobj(Line2D):
        line.set_markersize(min(line.get_markersize(), MARKER))
        line.set_linewidth(min(line.get_linewidth(), LINE))


def _legend_below(figure: Figure, ax: Axes, legend: Legend, columns: int) -> int:
    """Move the axes' legend below the figure; the number of its rows."""
    handles, labels = ax.get_legend_handles_labels()
    if max(map(len, labels)) > SHORT:
        columns = columns // 2
    legend.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=POINTS - 1)
    lines = sum(label.count("\n") for label in labels)
    return -(-(len(labels) + lines) // columns)
