"""The shapes figures are made of: axes of tokens and bases, lines, dots, heat maps,
legends.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from ropelab.show.looks import GREY, Look

# The lower and upper ends of intervals.
Band = tuple[Any, Any] | None
# Octaves between two labelled ticks.
LEAST_APART = 0.35
FAINT = "#555555"
DASHED = (0, (4, 3))
# The coordinates of a place at an x of the data, and a share of the panel's height.
ABOVE = ("data", "axes fraction")
# Marks the names of points among other texts.
NAME = "name"
# Marks the names at the right ends of lines.
LINE_END = "line end"
# A name further up or down than so many points has a line to its point.
NEAR = 12
# Points to the left and right of a point, and up from it, where its name may be; the
# nearest heights first.
BESIDE = 8
HEIGHTS = ((3, -10), (14, -21, 25, -32), (36, -43, 47, -54, 58, -65))


def _list_places() -> list[tuple[tuple[int, int], str]]:
    """Return offsets from a point with the end of the name that is there, the best
    first.
    """
    places = []
    for heights in HEIGHTS:
        places += [((BESIDE, up), "left") for up in heights]
        places += [((-BESIDE, up), "right") for up in heights]
    return places


PLACES = _list_places()
# Places of a name of one or two letters, which needs no more room than a point.
SHORTEST = 2
TIGHT = [
    ((0, 6), "center"),
    ((0, -12), "center"),
    ((6, -3), "left"),
    ((-6, -3), "right"),
]


def make_figure(size: tuple[float, float] | None = None) -> Figure:
    """Return an empty figure, `size` inches wide and high.

    Pyplot is not asked: it would load the backend that the user has chosen for windows
    or notebooks, and keep every figure.
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
    """Make panels, always in an array of two dimensions; those beyond the used ones are
    hidden.
    """
    figure = make_figure(size)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    if used:
        for ax in axes.flat[used:]:
            ax.set_visible(False)
    return figure, axes


def draw_line(
    ax: Axes,
    x: Any,
    y: Any,
    look: Look,
    label: str = "",
    band: Band = None,
    **options: Any,
) -> None:
    """Draw a line with its markers, and an interval around it as a band."""
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
    """Draw a dot for each row, at its value along the axis, with its interval as a
    bar.
    """
    if bars is not None:
        ax.hlines(y, *bars, color=look.color, linewidth=3, alpha=0.35)
    style = {"color": look.color, "markersize": 6, "label": label}
    if hollow:
        style["markerfacecolor"] = "white"
    ax.plot(x, y, look.marker, **{**style, **options})


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a figure from the top down."""
    ax.set_yticks(range(len(names)), names)
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
    """Draw cells shaded from 0 to 1 with a text in each; a missing shade stays
    white.
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
    """Write the numbers of a table as texts; `missing` stands for those that are not
    known.
    """

    def write(value: float) -> str:
        if np.isnan(value):
            return missing
        return format(value, digits)

    return table.map(write)


def average_over_seeds(rows: pd.DataFrame, x: str, value: str) -> pd.DataFrame:
    """Average over seeds at every x: columns x, value, low, high.

    The band is the range of the seeds if there are several, the interval over documents
    for one.
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
    """Yield every value of a column, in its order, with its rows."""
    for name, rows in table.groupby(column, sort=False):
        yield str(name), rows


def iterate_rows(table: pd.DataFrame) -> Iterable[Any]:
    """Return the rows of a table, their values as attributes, the first one `Index`."""
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
    around = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(around), np.sin(around), color="#cccccc", linewidth=1)
    ax.set(aspect="equal", **limits)
    ax.spines[:].set_visible(False)
    ax.grid(False)


def set_headline(figure: FigureBase, text: str) -> None:
    """Give a figure, or a part of one, of several panels its title."""
    figure.suptitle(text, x=0.01, ha="left", wrap=True)


def format_tokens(tokens: float) -> str:
    """Write a number of tokens as people say it.

    >>> [format_tokens(tokens) for tokens in (2048, 1048576, 1536, 100)]
    ['2k', '1M', '1.5k', '100']
    """
    for size, suffix in ((1024**2, "M"), (1024, "k")):
        # Eighths are the finest parts that are still short to read: 1.125k.
        has_few_digits = (tokens * 8 / size) % 1 == 0
        if tokens >= size and has_few_digits:
            return f"{tokens / size:g}{suffix}"
    return f"{tokens:g}"


class PowersAndLast(LogLocator):
    """Ticks at powers, and one at the last point drawn if none of them is near."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        ticks = np.asarray(super().tick_values(vmin, vmax))
        assert self.axis is not None
        last = self.axis.get_data_interval()[1]
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
    axis.set_minor_locator(LogLocator(base=2, numticks=1))


def set_base_axis(axis: Axis, limits: tuple[float, float]) -> None:
    """Make an axis of bases: powers of ten, and on a short axis those between: 1e6,
    3e6.
    """
    low, high = limits
    multiples: tuple[float, ...] = (1.0,)
    if high < 100 * low:
        multiples = (1.0, 2.0, 3.0, 5.0)
    axis.set_major_locator(LogLocator(subs=multiples))
    axis.set_major_formatter(FuncFormatter(lambda base, _: _format_base(base)))
    axis.set_minor_locator(NullLocator())


def _format_base(base: float) -> str:
    # Plain text (3e6): to typeset exponents takes a third of the time of a figure.
    return f"{base:.0e}".replace("e+0", "e").replace("e+", "e")


def mark_value(
    ax: Axes,
    value: float,
    text: str,
    which: Literal["x", "y"] = "y",
    up: int = 3,
    end: Literal["left", "right"] = "left",
) -> None:
    """Mark a value of an axis with a dashed line that is named beside it, at an `end`
    of it.
    """
    line: dict[str, Any] = {"color": GREY, "linestyle": DASHED, "linewidth": 1}
    if which == "x":
        ax.axvline(value, **line)
        beside: dict[str, Any] = {"xycoords": ABOVE, "va": "top", "color": FAINT}
        offset = (3, -3)
        if _is_near_right_edge(ax, value):
            # The text would leave the panel on the right.
            beside["ha"] = "right"
            offset = (-3, -3)
        write_note(ax, text, (value, 1), offset, **beside)
        return

    ax.axhline(value, **line)
    place, offset = (0.01, value), (2, up)
    if end == "right":
        place, offset = (0.99, value), (-2, up)
    beside = {"xycoords": ("axes fraction", "data"), "ha": end, "color": FAINT}
    write_note(ax, text, place, offset, **beside)


def _is_near_right_edge(ax: Axes, x: float) -> bool:
    """Return True for an x in the last quarter of a panel, with its limits of now."""
    pixels = ax.transData.transform((x, 0))[0]
    share = ax.transAxes.inverted().transform((pixels, 0))[0]
    return bool(share > 0.75)


def write_note(
    ax: Axes,
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float],
    **style: Any,
) -> None:
    """Write a small text beside a point, as many points from it as the offset says."""
    style = {"fontsize": 8, **style}
    ax.annotate(text, place, xytext=offset, textcoords="offset points", **style)


def put_legend_outside(ax: Axes) -> None:
    """Put the legend to the right of the axes, where it covers no data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)


def label_last_panels(axes: np.ndarray, label: str) -> None:
    """Give the last visible panel of each column its numbers and a label below.

    Panels that share an axis have them in the last row alone, which may be incomplete.
    """
    for column in axes.T:
        visible = [ax for ax in column if ax.get_visible()]
        if visible:
            visible[-1].tick_params(labelbottom=True)
            visible[-1].set_xlabel(label)


def put_legend_below(figure: Figure, axes: Sequence[Axes], columns: int) -> None:
    """Put one legend for all panels below them; a name in several panels is listed
    once.
    """
    handles: dict[str, Artist] = {}
    for ax in axes:
        own_handles, labels = ax.get_legend_handles_labels()
        handles.update(zip(labels, own_handles, strict=True))

    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(columns, len(handles)),
    )


def name_line_ends(ax: Axes) -> None:
    """Name every line of a panel at its right end, in its colour, instead of a legend.

    Names whose ends lie close together are moved apart, within the limits of the axis,
    which are to be set before. Lines without a name (those that matplotlib numbers)
    stay without one.
    """
    for line in ax.get_lines():
        label = str(line.get_label())
        if label.startswith("_"):
            continue
        ax.annotate(
            label,
            (1.015, 0),
            xycoords="axes fraction",
            color=line.get_color(),
            fontsize=9,
            va="center",
            annotation_clip=False,
            gid=LINE_END,
        )
    place_line_ends(ax)


def place_line_ends(ax: Axes) -> None:
    """Move the names of lines apart, again if the figure has another size."""
    names = [text for text in ax.texts if text.get_gid() == LINE_END]
    if not names:
        return

    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    ends = {}
    for line in ax.get_lines():
        last = line.get_xydata()[-1]  # type: ignore[index]
        ends[str(line.get_label())] = ax.transData.transform(last)[1]
    names.sort(key=lambda name: ends[name.get_text()])

    # Pixels; capitals and tails of letters leave this much between two lines.
    gap = 1.05 * Text.get_window_extent(names[0]).height
    heights: list[float] = []
    for name in names:
        height = ends[name.get_text()]
        if heights:
            height = max(height, heights[-1] + gap)
        heights.append(height)
    # Names that were pushed beyond the upper limit move down again, from the top.
    ceiling = ax.bbox.y1
    for number in reversed(range(len(heights))):
        heights[number] = min(heights[number], ceiling)
        ceiling = heights[number] - gap

    for name, height in zip(names, heights, strict=True):
        name.set_y((height - ax.bbox.y0) / ax.bbox.height)


def label_points(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Name points beside them, each where it covers no other name and no other
    point.
    """
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 9,
        "gid": NAME,
    }
    leader = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.6, "shrinkB": 5}
    for x, y, label in points:
        ax.annotate(label, (x, y), (0, 0), arrowprops=leader, **style)
    place_names(ax)


def place_names(ax: Axes) -> None:
    """Find places for the names of points, again if the figure has another size."""
    names = []
    for text in ax.texts:
        if isinstance(text, Annotation) and text.get_gid() == NAME:
            names.append(text)
    if not names:
        return

    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    taken = []
    room = figure.dpi / 20
    for name in names:
        x, y = ax.transData.transform(name.xy)
        taken.append(Bbox.from_bounds(x - room, y - room, 2 * room, 2 * room))
    taken += [Text.get_window_extent(text) for text in ax.texts if text not in names]
    # Names may reach beyond the panel, where the numbers of its axes stand.
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        taken.append(label.get_window_extent())

    for name in names:
        _place_name(name, taken)
        taken.append(Text.get_window_extent(name))


def _place_name(name: Annotation, taken: Sequence[Bbox]) -> None:
    """Move a name to the first place that is free, or to the last of all."""
    places = PLACES
    if len(name.get_text()) <= SHORTEST:
        places = [*TIGHT, *PLACES]
    for offset, side in places:
        name.set(position=offset, ha=side)
        extent = Text.get_window_extent(name)  # without its line
        if not any(extent.overlaps(other) for other in taken):
            break

    if name.arrow_patch is not None:
        distance_up = abs(offset[1])
        name.arrow_patch.set_visible(distance_up > NEAR)
