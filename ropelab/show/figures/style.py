"""One style for all figures, for a screen, a page in a browser, and paper.

Figures are drawn for a screen (`use_style`, `fit_titles`). A page in a browser prints the
title as text, and shows single panels of a figure large (`take_title`, `show_alone`).
`fit_paper` changes a figure for a printed column.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import as_file, files
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.text import Text

from ropelab.show.figures.names import place_line_ends, place_names

# The widths in inches of one printed column, and of a page of two columns.
COLUMN_WIDTH = 3.3
PAGE_WIDTH = 6.9
# The least height of a printed figure, in inches.
LEAST_HEIGHT = 2.1
# The width and height in inches of a panel that is shown alone.
PANEL_SIZE = (8.0, 4.5)
# The height in inches by which a printed figure grows for each line of its legend and of
# its broken labels.
LINE_HEIGHT = 0.16
# The largest letters of a printed figure, and of texts inside its panels, in points.
FONT_POINTS = 8.0
PANEL_FONT_POINTS = 6.5
# The largest markers and the thickest lines of a printed figure, in points.
MARKER_POINTS = 3.5
LINE_POINTS = 1.2
# The most letters of the name of a row that leaves room for the data in one column.
LETTERS_OF_NAME = 24
# The most letters of a number beside an axis.
LETTERS_OF_NUMBER = 8
# The number of letters that fit below the axes in one column.
LETTERS_OF_COLUMN = 44


@contextmanager
def use_style() -> Iterator[None]:
    """Use the style that comes with the package for figures that the block draws and
    writes.

    The defaults of matplotlib are set first, so that a matplotlibrc of the user has no
    effect.
    """
    sheet = as_file(files("ropelab.show.figures") / "ropelab.mplstyle")
    with sheet as path, style.context(["default", str(path)]):
        yield


def fit_titles(figure: Figure) -> None:
    """Break titles into lines if they would run over the right edge of the figure."""
    for ax in figure.axes:
        title: Text = ax._left_title  # type: ignore[attr-defined]
        title.set_wrap(True)
        # matplotlib limits the width of a line of text also by the room above the text.
        # Before the layout a title is above the figure, where there is no room, and each
        # word would get a line. The method that is set here knows only the right edge.
        title._get_wrap_line_width = partial(_measure_to_right_edge, title)  # type: ignore[attr-defined]


def _measure_to_right_edge(title: Text) -> float:
    """Return the pixels between the start of a title and the edge of its figure."""
    figure = title.get_figure(root=True)
    assert figure is not None
    start, _ = title.get_transform().transform(title.get_position())
    return float(figure.bbox.x1 - start)


def take_title(figure: Figure) -> str:
    """Remove the title of a figure and return it, for a page that prints it as text."""
    panels = _list_panels(figure)
    title = figure.get_suptitle()
    if title:
        figure.suptitle("")
    elif len(panels) == 1:
        title = panels[0].get_title(loc="left")
        panels[0].set_title("", loc="left")
    return " ".join(title.split())


def list_small_panels(figure: Figure) -> list[Axes]:
    """Return the panels that are too small to be read beside each other.

    If a figure has three or more panels, some of them side by side, these are all its
    panels. In other figures no panel is too small.
    """
    panels = []
    some_side_by_side = False
    for panel in _list_panels(figure):
        cell = panel.get_subplotspec()
        # A scale of colours belongs to its panel, and has no cell in the grid.
        if cell is None:
            continue
        # Panels without axes are lists of words, which are read together.
        if not panel.axison:
            return []
        panels.append(panel)
        if cell.get_gridspec().ncols > 1:
            some_side_by_side = True

    if len(panels) > 2 and some_side_by_side:
        return panels
    return []


def show_alone(panel: Axes, panels: Sequence[Axes]) -> None:
    """Show one of the panels of a figure, as large as a figure of one panel.

    The panel gets the labels and the legend that it shares with the other panels.
    """
    figure = panel.get_figure(root=True)
    assert figure is not None
    for other in panels:
        other.set_visible(other is panel)
    first = panels[0]
    shares_rows = panel.get_shared_y_axes().joined(panel, first)
    if shares_rows and not panel.get_ylabel():
        panel.set_ylabel(first.get_ylabel())
    panel.tick_params(labelleft=True, labelbottom=True)

    panels_with_legend = [each for each in panels if each.get_legend() is not None]
    if panels_with_legend and panel.get_legend() is None and not figure.legends:
        handles, labels = panels_with_legend[0].get_legend_handles_labels()
        _, labels_of_panel = panel.get_legend_handles_labels()
        if set(labels) & set(labels_of_panel):
            style: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
            panel.legend(handles, labels, frameon=False, **style)

    rows = panel.get_subplotspec().get_gridspec().nrows  # type: ignore[union-attr]
    width, least_height = PANEL_SIZE
    height = max(least_height, figure.get_figheight() / rows)
    figure.set_size_inches(width, height)
    panel.set_subplotspec(GridSpec(1, 1, figure=figure)[0])
    # When a panel is encoded, `fix_layout` in ropelab/show/drawn.py removes the engine that
    # places labels. The next panel needs it again.
    figure.set_layout_engine("constrained")


def fit_paper(figure: Figure) -> None:
    """Change a figure for print: 8 pt letters, no title, the legend below the axes.

    A figure of one panel is one column wide (3.3 in) if its names fit. A figure of
    several panels, or with a heat map, has the width of the page.
    """
    panels = _list_panels(figure)
    is_narrow = _fits_column(figure)
    width = COLUMN_WIDTH if is_narrow else PAGE_WIDTH
    screen_width, screen_height = figure.get_size_inches()

    figure.suptitle("")
    legend_lines = _move_legend_below(figure, columns=2 if is_narrow else 4)
    if len(panels) == 1:
        panels[0].set_title("")

    for text in figure.findobj(Text):
        text.set_fontsize(min(text.get_fontsize(), FONT_POINTS))
    # The most lines that are added to a label by breaking it.
    label_lines = 0
    for ax in panels:
        _break_labels(ax, width)
        label_lines = max(label_lines, ax.get_xlabel().count("\n"))
        for text in ax.texts:
            text.set_fontsize(min(text.get_fontsize(), PANEL_FONT_POINTS))

    legend_lines += _fit_legends(figure, width)

    height = max(width * screen_height / screen_width, LEAST_HEIGHT)
    figure.set_size_inches(width, height + LINE_HEIGHT * (legend_lines + label_lines))

    for line in figure.findobj(Line2D):
        line.set_markersize(min(line.get_markersize(), MARKER_POINTS))
        line.set_linewidth(min(line.get_linewidth(), LINE_POINTS))
    # Names and ticks are placed last, since their places depend on the figure's size.
    for ax in panels:
        place_names(ax)
    figure.draw_without_rendering()
    for ax in panels:
        place_line_ends(ax)
    thin_ticks(figure)


def _list_panels(figure: Figure) -> list[Axes]:
    return [ax for ax in figure.axes if ax.get_visible()]


def _fits_column(figure: Figure) -> bool:
    """Return True for a single panel without an image, whose names leave room for its
    data in one column.
    """
    panels = _list_panels(figure)
    if len(panels) > 1 or figure.legends or panels[0].images:
        return False

    row_names = [label.get_text() for label in panels[0].get_yticklabels()]
    column_names = [label.get_text() for label in panels[0].get_xticklabels()]
    letters_below = 0
    for name in column_names:
        # `thin_ticks` leaves out numbers that do not fit, so only words are counted. A
        # name that ends in three letters is taken for a word.
        is_word = name[-3:].isalpha()
        if is_word:
            letters_below += max(map(len, name.splitlines()))
    longest_row_name = max(map(len, row_names), default=0)
    row_names_fit = longest_row_name <= LETTERS_OF_NAME
    return row_names_fit and letters_below <= LETTERS_OF_COLUMN


def _move_legend_below(figure: Figure, columns: int) -> int:
    """Move the legend of a panel below all axes, and return how many lines of text it has
    there.

    If the panels of a figure have no legend, or several legends, nothing is moved, and 0
    is returned. If a name is long, the legend has half as many columns.
    """
    legends = []
    for ax in _list_panels(figure):
        legend = ax.get_legend()
        if legend is not None:
            legends.append((ax, legend))
    if len(legends) != 1:
        return 0

    ax, legend = legends[0]
    handles, labels = ax.get_legend_handles_labels()
    if max(map(len, labels)) > LETTERS_OF_NAME:
        columns //= 2
    legend.remove()
    style: dict[str, Any] = {"loc": "outside lower center", "fontsize": FONT_POINTS - 1}
    figure.legend(handles, labels, ncols=columns, **style)

    lines = sum(label.count("\n") + 1 for label in labels)
    return math.ceil(lines / columns)


def _fit_legends(figure: Figure, width: float) -> int:
    """Set the legends of a figure in as many columns as fit into `width` inches.

    Returns by how many lines the legends grow.
    """
    added_lines = 0
    for legend in list(figure.legends):
        handles = [handle for handle in legend.legend_handles if handle is not None]
        labels = [text.get_text() for text in legend.get_texts()]
        title = legend.get_title().get_text() or None
        columns = legend._ncols  # type: ignore[attr-defined]
        lines = math.ceil(len(labels) / columns)
        while columns > 1 and legend.get_window_extent().width > width * figure.dpi:
            columns -= 1
            legend.remove()
            style: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
            style |= {"fontsize": FONT_POINTS - 1, "title": title}
            legend = figure.legend(handles, labels, **style)
            legend.get_title().set_fontsize(FONT_POINTS - 1)
        added_lines += math.ceil(len(labels) / columns) - lines
    return added_lines


def _break_labels(ax: Axes, width: float) -> None:
    """Break the labels of the axes of a panel into lines that fit a figure of `width`
    inches.
    """
    cell = ax.get_subplotspec()
    panels_in_row = cell.get_gridspec().ncols if cell else 1
    letters_of_panel = int(LETTERS_OF_COLUMN * width / COLUMN_WIDTH / panels_in_row)
    row_names = [label.get_text() for label in ax.get_yticklabels()]
    longest_name = max(map(len, row_names), default=0)
    if panels_in_row == 1 and longest_name > LETTERS_OF_NUMBER:
        # The label is below the panel, which is narrow beside long names.
        letters_of_panel = max(letters_of_panel - longest_name, LETTERS_OF_NAME)
    broken_lines = []
    for line in ax.get_xlabel().splitlines():
        broken_lines.append(textwrap.fill(line, letters_of_panel))
    ax.set_xlabel("\n".join(broken_lines))
    ax.set_ylabel(textwrap.fill(ax.get_ylabel(), LETTERS_OF_NAME + 4))


def thin_ticks(figure: Figure) -> None:
    """Hide numbers below the axes that would touch the number before them.

    The layout of the figure must be final.
    """
    for ax in _list_panels(figure):
        _thin_ticks(ax)


def _thin_ticks(ax: Axes) -> None:
    low, high = sorted(ax.get_xlim())
    # The x, in pixels, where the next number may begin.
    next_free = -math.inf
    gap = 0.06 * ax.figure.dpi
    for tick in ax.xaxis.get_major_ticks():
        label = tick.label1
        extent = label.get_window_extent()
        is_outside = not low <= tick.get_loc() <= high
        is_empty = not extent.width
        # Rotated labels do not run into each other.
        if is_outside or is_empty or label.get_rotation():
            continue

        if extent.x0 < next_free:
            label.set_visible(False)
        else:
            next_free = extent.x1 + gap
