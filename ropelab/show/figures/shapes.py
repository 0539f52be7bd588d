"""Functions that all figures use: axes of tokens and bases, lines, dots, heat maps, words
about intervals, and legends.

A panel is one pair of axes of a figure (matplotlib's `Axes`). A look is the colour,
marker and line style of a method or format, the same in every figure.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from ropelab.show.looks import GREY, ORANGE, Look

# The lower ends of the intervals of some values, and the upper ends; None if the values
# have no intervals.
Band = tuple[Any, Any] | None
# The least distance between two labelled ticks, in octaves.
LEAST_APART = 0.35
# The height of a row of a legend at the size of its letters.
INCHES_OF_LEGEND_ROW = 0.2
# The colour of notes: a dark grey.
NOTE_COLOR = "#555555"
# The colour of circles and axes that only frame the data: a light grey.
FRAME_COLOR = "#cccccc"
# The dashes of marked values: from the start, 4 points drawn and 3 left out.
DASHED = (0, (4, 3))
# A system of coordinates of matplotlib: x is a value of the data, and y is a share of the
# panel's height, where 1 is the upper edge.
DATA_AND_HEIGHT = ("data", "axes fraction")
# The sign beside the names of the rows that a title counts.
COUNTED = "*"
# The sign beside the names of rows that comparisons do not decide.
UNDECIDED = "~"


def make_figure(size: tuple[float, float] | None = None) -> Figure:
    """Return an empty figure, `size` inches wide and high.

    matplotlib.pyplot is not used. It would load the backend that the user has chosen for
    windows or notebooks, and would keep every figure in memory.
    """
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    return figure


def make_axes(size: tuple[float, float] | None = None) -> tuple[Figure, Axes]:
    """Return a figure of `size` inches with a single panel."""
    figure = make_figure(size)
    return figure, figure.subplots()


def make_panels(
    rows: int,
    columns: int,
    size: tuple[float, float],
    used: int | None = None,
    **options: Any,
) -> tuple[Figure, np.ndarray]:
    """Make panels as an array [rows, columns]. Only the first ``used`` panels are visible;
    None: all panels.

    ``options`` are further arguments of matplotlib's `subplots`.
    """
    figure = make_figure(size)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    if used:
        for ax in axes.flat[used:]:
            ax.set_visible(False)
    return figure, axes


def set_panel_distance(figure: Figure, share: float) -> None:
    """Keep panels side by side at least this share of their width apart."""
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(wspace=share)


def draw_line(
    ax: Axes,
    x: Any,
    y: Any,
    look: Look,
    label: str = "",
    band: Band = None,
    **options: Any,
) -> None:
    """Draw a line with its markers, and its intervals as a band if it has any."""
    style = {
        "color": look.color,
        "marker": look.marker,
        "linestyle": look.line,
        "label": label,
    }
    ax.plot(x, y, **{**style, **options})
    if band is not None:
        ax.fill_between(x, *band, color=look.color, alpha=0.15, linewidth=0)


def draw_dots(
    ax: Axes,
    x: Any,
    y: Any,
    look: Look,
    label: str = "",
    bars: Band = None,
    hollow: bool = False,
    **options: Any,
) -> None:
    """Draw dots at x and y, each with its interval along x as a bar.

    ``bars`` has the lower and upper ends of the intervals.
    """
    if bars is not None:
        ax.hlines(y, *bars, color=look.color, linewidth=3, alpha=0.35)
    style = {"color": look.color, "markersize": 6, "label": label}
    if hollow:
        style["markerfacecolor"] = "white"
    ax.plot(x, y, look.marker, **{**style, **options})


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Make an axis of named rows, numbered 0, 1, 2 ... from the top down."""
    ax.set_yticks(range(len(names)), names)
    # The lower limit is the larger one, so that row 0 is at the top.
    ax.set_ylim(len(names) - 0.5, -0.5)


def draw_heat_map(
    ax: Axes,
    shades: pd.DataFrame,
    texts: pd.DataFrame,
    *,
    colors: str = "cividis",
    dark_until: float = 0.5,
    size: float = 9,
) -> None:
    """Draw a table as a panel of shaded rectangles with a text in each.

    Args:
        ax: the panel.
        shades: the shade of each rectangle, from 0 (dark) to 1 (light). A rectangle
            without a shade (nan) stays white.
        texts: the texts, with as many rows and columns as `shades`.
        colors: matplotlib's name of the range of colours.
        dark_until: the shade up to which texts are white. On lighter shades they are
            black.
        size: the size of the texts in points.
    """
    ax.set_facecolor("white")
    values = shades.to_numpy(dtype=float)
    ax.imshow(np.ma.masked_invalid(values), cmap=colors, vmin=0, vmax=1, aspect="auto")

    for (row, column), shade in np.ndenumerate(values):
        if np.isnan(shade):
            color = GREY
        elif shade > dark_until:
            color = "black"
        else:
            color = "white"
        text = str(texts.iat[row, column])
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=size)

    ax.set_xticks(range(len(shades.columns)), [str(name) for name in shades.columns])
    ax.set_yticks(range(len(shades)), [str(name) for name in shades.index])
    ax.grid(visible=False)


def format_shares(
    table: pd.DataFrame, digits: str = ".2f", missing: str = ""
) -> pd.DataFrame:
    """Write the numbers of a table as texts, and `missing` for nan."""

    def write_share(value: float) -> str:
        if np.isnan(value):
            return missing
        return write_signed(value, digits)

    return table.map(write_share)


def write_signed(value: float, digits: str) -> str:
    """Write a number with a real minus sign, as matplotlib writes those of the axes.

    >>> write_signed(-0.5, ".2f"), write_signed(0.5, "+.2f")
    ('−0.50', '+0.50')
    """
    return format(value, digits).replace("-", "−")


def write_intervals(seeds: int, *, marks: str = "bars") -> str:
    """Say what the bars or bands of a figure are, in the same words in all figures.

    >>> write_intervals(5), write_intervals(1, marks="bands")
    ('bars: 95 %, 5 models', 'bands: 95 %, one model')
    """
    return f"{marks}: 95 %, {_count_models(seeds)}"


def write_range(seeds: int) -> str:
    """Say what the bands of `average_over_seeds` are.

    >>> write_range(5), write_range(1)
    ('bands: lowest to highest of 5 models', 'bands: 95 %, one model')
    """
    if seeds == 1:
        return write_intervals(seeds, marks="bands")
    return f"bands: lowest to highest of {_count_models(seeds)}"


def _count_models(seeds: int) -> str:
    return "one model" if seeds == 1 else f"{seeds} models"


def frame_column(ax: Axes, column: int) -> None:
    """Draw a frame around the column of a heat map that the title is about."""
    low, high = ax.get_ylim()
    frame = Rectangle(
        (column - 0.5, low), 1, high - low, fill=False, linewidth=2.5, clip_on=False
    )
    frame.set_edgecolor(ORANGE)
    ax.add_patch(frame)


def average_over_seeds(rows: pd.DataFrame, x: str, value: str) -> pd.DataFrame:
    """Average a value over the seeds at every x.

    The result has the columns that `x` and `value` name, and the columns low and high. If
    there are several seeds, low and high are the range of their values. For a single seed
    they are its interval over documents, from the columns `ci_low` and `ci_high`.
    """
    by_x = rows.groupby(x)
    if rows["seed"].nunique() > 1:
        low = by_x[value].min()
        high = by_x[value].max()
    else:
        low = by_x["ci_low"].mean()
        high = by_x["ci_high"].mean()
    columns = {value: by_x[value].mean(), "low": low, "high": high}
    return pd.DataFrame(columns).reset_index()


def split_by(table: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every value of a column with its rows, in the order of the table."""
    for name, rows in table.groupby(column, sort=False):
        yield str(name), rows


def iterate_rows(table: pd.DataFrame) -> Iterable[Any]:
    """Return the rows of a table, with their values as attributes.

    The attribute `Index` has the index of the row. pandas gives no type to these rows.
    """
    return table.itertuples()


def draw_arrow(ax: Axes, x: float, y: float, look: Look) -> None:
    """Draw an arrow from the origin."""
    style = {
        "arrowstyle": "-|>",
        "color": look.color,
        "linewidth": 2,
        "linestyle": look.line,
        "shrinkA": 0,
    }
    ax.annotate("", (x, y), (0, 0), arrowprops=style)


def draw_unit_circle(ax: Axes, **limits: Any) -> None:
    """Draw the unit circle on axes without a frame."""
    angles = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(angles), np.sin(angles), color=FRAME_COLOR, linewidth=1)
    ax.set(aspect="equal", **limits)
    ax.spines[:].set_visible(False)
    ax.grid(False)


def set_headline(figure: FigureBase, text: str) -> None:
    """Give a figure of several panels, or a part of a figure, its title."""
    figure.suptitle(text, x=0.01, ha="left", wrap=True)


def format_tokens(tokens: float) -> str:
    """Write a number of tokens as people say it.

    >>> [format_tokens(tokens) for tokens in (2048, 1048576, 1536, 100)]
    ['2k', '1M', '1.5k', '100']
    """
    for size, suffix in ((1024**2, "M"), (1024, "k")):
        # Eighths are written, since 1.125k is still quick to read.
        has_few_digits = (tokens * 8 / size) % 1 == 0
        if tokens >= size and has_few_digits:
            return f"{tokens / size:g}{suffix}"
    return f"{tokens:g}"


class PowersAndLast(LogLocator):
    """Ticks at powers of a base, and a tick at the last drawn point if no other tick is
    near it.
    """

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks for an axis from vmin to vmax, as matplotlib asks."""
        ticks = np.asarray(super().tick_values(vmin, vmax))
        assert self.axis is not None
        _, last = self.axis.get_data_interval()
        if not 0 < last <= vmax:
            return list(ticks)

        visible = ticks[(ticks >= vmin) & (ticks <= vmax)]
        octaves_apart = np.abs(np.log2(visible / last))
        if (octaves_apart > LEAST_APART).all():
            return [*ticks, last]
        return list(ticks)


def set_token_axis(ax: Axes, which: Literal["x", "y"] = "x") -> None:
    """Make an axis of tokens: powers of two, with labels 2k, 4k, 8k."""
    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(PowersAndLast(base=2, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda tokens, _: format_tokens(tokens)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def set_base_axis(axis: Axis, limits: tuple[float, float]) -> None:
    """Make an axis of bases, with ticks at powers of ten. A short axis also has ticks at
    2, 3 and 5 times a power of ten.
    """
    low, high = limits
    multiples: tuple[float, ...] = (1.0,)
    if high < 100 * low:
        multiples = (1.0, 2.0, 3.0, 5.0)
    axis.set_major_locator(LogLocator(subs=multiples))
    axis.set_major_formatter(FuncFormatter(lambda base, _: _format_base(base)))
    axis.set_minor_locator(NullLocator())


def _format_base(base: float) -> str:
    # The base is written as plain text, 3e6. Typesetting exponents would take a third of
    # the time of a figure.
    return f"{base:.0e}".replace("e+0", "e").replace("e+", "e")


def mark_value(
    ax: Axes,
    value: float,
    text: str,
    which: Literal["x", "y"] = "y",
    up: int = 3,
    end: Literal["left", "right"] = "left",
) -> None:
    """Mark a value of an axis with a dashed line and its name.

    The name of a vertical line (`which` is x) is at the upper end of the line. The name
    of a horizontal line is at its left or right `end`, and `up` points above the line.
    """
    line: dict[str, Any] = {"color": GREY, "linestyle": DASHED, "linewidth": 1}
    if which == "x":
        ax.axvline(value, **line)
        style: dict[str, Any] = {
            "xycoords": DATA_AND_HEIGHT,
            "va": "top",
            "color": NOTE_COLOR,
        }
        offset = (3, -3)
        if _is_near_right_edge(ax, value):
            # To the right of the line the text would leave the panel.
            style["ha"] = "right"
            offset = (-3, -3)
        write_note(ax, text, (value, 1), offset, **style)
        return

    ax.axhline(value, **line)
    if end == "left":
        point = (0.01, value)
        offset = (2, up)
    else:
        point = (0.99, value)
        offset = (-2, up)
    style = {"xycoords": ("axes fraction", "data"), "ha": end, "color": NOTE_COLOR}
    write_note(ax, text, point, offset, **style)


def _is_near_right_edge(ax: Axes, x: float) -> bool:
    """Return True if x is in the right quarter of a panel with its present limits."""
    # The value is converted to pixels, and then to a share of the panel's width.
    pixels, _ = ax.transData.transform((x, 0))
    share, _ = ax.transAxes.inverted().transform((pixels, 0))
    return bool(share > 0.75)


def write_note(
    ax: Axes,
    text: str,
    point: tuple[float, float],
    offset: tuple[float, float],
    **style: Any,
) -> None:
    """Write a small text beside a point of a panel.

    The offset of the text from the point is in points of print, to the right and up.
    """
    style = {"fontsize": 8, **style}
    ax.annotate(text, point, xytext=offset, textcoords="offset points", **style)


def put_legend_outside(ax: Axes) -> None:
    """Put the legend to the right of the axes, where it covers no data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)


def label_last_panels(axes: np.ndarray, label: str) -> None:
    """Write the numbers of the axis and a label below the last visible panel of each
    column.

    If panels share an axis, matplotlib writes numbers only below the last row, in which
    panels may be hidden.
    """
    for column in axes.T:
        visible = [ax for ax in column if ax.get_visible()]
        if visible:
            visible[-1].tick_params(labelbottom=True)
            visible[-1].set_xlabel(label)


def put_legend_below(
    figure: Figure, axes: Sequence[Axes], columns: int, title: str = ""
) -> None:
    """Put one legend for all panels below the panels. A name in several panels is listed
    once. The title of the legend is for words about all panels.

    ``columns`` is the most columns of the legend; it has fewer if names are long, and then
    the figure grows.
    """
    handles: dict[str, Artist] = {}
    for ax in axes:
        handles_of_panel, labels = ax.get_legend_handles_labels()
        handles.update(zip(labels, handles_of_panel, strict=True))

    most = min(columns, len(handles))
    for number in range(most, 0, -1):
        legend = figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=number,
            title=title or None,
        )
        if number == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()

    added_rows = math.ceil(len(handles) / number) - math.ceil(len(handles) / most)
    height = figure.get_figheight() + INCHES_OF_LEGEND_ROW * added_rows
    figure.set_figheight(height)
