"""Names beside points and at the ends of lines, placed so that no name covers another.

A panel is one pair of axes of a figure (matplotlib's `Axes`). Names are placed when they are
written, and again when the figure gets another size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from ropelab.show.figures.shapes import NOTE_COLOR

# Two kinds of texts are found again by a mark, matplotlib's `gid`: the names of points, and
# the names at the right ends of lines.
NAME_OF_POINT = "name"
LINE_END = "line end"
# The name of a point is written near it. Distances between the name and its point are in
# points of print, 72 to the inch. A name that is farther up or down than this gets a thin
# line to its point.
MOST_WITHOUT_LINE = 12
# The distance of a name to the left or right of its point.
DISTANCE_BESIDE = 8
# The distances of a name above its point, in three groups; a negative distance is below
# the point. All distances of a group are tried to the right of the point and then to its
# left, before the next group is tried.
HEIGHTS = ((3, -10), (14, -21, 25, -32), (36, -43, 47, -54, 58, -65))
# The least distance of two names at ends of lines, in heights of their letters. Before the
# layout is known it is larger: titles and labels will make the panel lower.
LETTERS_APART = 1.15
LETTERS_APART_BEFORE_LAYOUT = 1.4


def _list_offsets() -> list[tuple[tuple[int, int], str]]:
    """Return where a name may be written, the best first: its offset from the point, and
    which end of the name is at this offset.
    """
    offsets = []
    for heights in HEIGHTS:
        offsets += [((DISTANCE_BESIDE, up), "left") for up in heights]
        offsets += [((-DISTANCE_BESIDE, up), "right") for up in heights]
    return offsets


OFFSETS_OF_NAMES = _list_offsets()


def name_line_ends(ax: Axes) -> None:
    """Name every line of a panel at its right end, in its colour, instead of a legend.

    Names that would touch are moved apart, within the limits of the axis, so the limits
    must be set before. Lines without a label get no name.

    The layout is not computed here, as this takes as long as to draw the figure. `fix_layout`
    in ropelab/show/drawn.py places the names again once it is known.
    """
    for line in ax.get_lines():
        label = str(line.get_label())
        # matplotlib labels a line without a label with an underscore and a number.
        if label.startswith("_"):
            continue

        # A thin line leads from the last point to the name, which may be higher or lower.
        leader = {
            "arrowstyle": "-",
            "color": line.get_color(),
            "linewidth": 0.6,
            "relpos": (0, 0.5),
            "shrinkA": 1,
            "shrinkB": 4,
        }
        ax.annotate(
            label,
            xy=_find_visible_end(ax, line),
            xytext=(1.02, 0),
            textcoords="axes fraction",
            arrowprops=leader,
            color=line.get_color(),
            fontsize=9,
            va="center",
            annotation_clip=False,
            gid=LINE_END,
        )

    place_line_ends(ax, LETTERS_APART_BEFORE_LAYOUT)


def _find_visible_end(ax: Axes, line: Line2D) -> tuple[float, float]:
    """Return the last point of a line. If the line leaves the panel, the point is moved
    to the edge, so that its name is beside the edge.
    """
    x, y = np.asarray(line.get_xydata(), dtype=float)[-1]
    low, high = sorted(ax.get_ylim())
    return float(x), float(np.clip(y, low, high))


def place_line_ends(ax: Axes, letters_apart: float = LETTERS_APART) -> None:
    """Move the name of each line to the end of the line, and move names apart that would
    touch.

    This is called again when the figure gets another size or layout.
    """
    names = [text for text in ax.texts if text.get_gid() == LINE_END]
    if not names:
        return

    # The height of the end of each line in pixels, by the name of the line.
    ends = {}
    for line in ax.get_lines():
        _, height_of_end = ax.transData.transform(_find_visible_end(ax, line))
        ends[str(line.get_label())] = height_of_end
    names.sort(key=lambda name: ends[name.get_text()])

    # The least distance of two names in pixels.
    gap = letters_apart * Text.get_window_extent(names[0]).height
    heights: list[float] = []
    for name in names:
        height = ends[name.get_text()]
        if heights:
            height = max(height, heights[-1] + gap)
        heights.append(height)
    # Some names may now be above the upper edge of the panel. From the highest name on,
    # they move down again, and push down the names below them.
    ceiling = ax.bbox.y1
    for number in reversed(range(len(heights))):
        heights[number] = min(heights[number], ceiling)
        ceiling = heights[number] - gap

    for name, height in zip(names, heights, strict=True):
        name.set_y((height - ax.bbox.y0) / ax.bbox.height)


def label_points(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write the names of points (x, y, name) such that a name covers no other name and no
    point.
    """
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 9,
        "gid": NAME_OF_POINT,
    }
    leader = {"arrowstyle": "-", "color": NOTE_COLOR, "linewidth": 0.6, "shrinkB": 5}
    for x, y, label in points:
        ax.annotate(label, (x, y), (0, 0), arrowprops=leader, **style)
    place_names(ax)


def place_names(ax: Axes) -> None:
    """Move the names of points to where they cover nothing.

    This is called again when the figure gets another size.
    """
    names = []
    for text in ax.texts:
        if isinstance(text, Annotation) and text.get_gid() == NAME_OF_POINT:
            names.append(text)
    if not names:
        return

    figure = ax.get_figure(root=True)
    assert figure is not None
    # Positions in pixels are known only after the layout.
    figure.draw_without_rendering()

    # The boxes that names must not cover: points (1/20 inch around them), other texts, and
    # the numbers of the axes.
    boxes = []
    margin = figure.dpi / 20
    for name in names:
        x, y = ax.transData.transform(name.xy)
        box = Bbox.from_bounds(x - margin, y - margin, 2 * margin, 2 * margin)
        boxes.append(box)
    boxes += [Text.get_window_extent(text) for text in ax.texts if text not in names]
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        boxes.append(label.get_window_extent())

    for name in names:
        _place_name(name, boxes)
        boxes.append(Text.get_window_extent(name))


def _place_name(name: Annotation, boxes: Sequence[Bbox]) -> None:
    """Move a name to the first offset at which it covers none of the boxes; if there is
    no such offset, to the last offset.
    """
    for offset, side in OFFSETS_OF_NAMES:
        name.set(position=offset, ha=side)
        # The extent of the text, without the line to its point.
        extent = Text.get_window_extent(name)
        if not any(extent.overlaps(box) for box in boxes):
            break

    if name.arrow_patch is not None:
        distance_up = abs(offset[1])
        name.arrow_patch.set_visible(distance_up > MOST_WITHOUT_LINE)
