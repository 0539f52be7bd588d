"""One look for all figures: each method, format or encoding has its colour, marker and line."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Literal
from zlib import crc32

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

matplotlib.use("Agg")

# Okabe and Ito's palette, safe for colour-blind readers; markers and lines tell greys apart.
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#7F7F7F",
)
PALETTE = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Look:
    """How one name is drawn, in every figure."""

    color: str
    marker: str
    line: str = "-"


LOOKS = {
    # scaling methods
    "unscaled": Look(BLACK, "o"),
    "pi": Look(GREY, "s", "--"),
    "ntk": Look(AMBER, "^"),
    "dynamic_ntk": Look(AMBER, "v", "--"),
    "ntk_by_parts": Look(GREEN, "D"),
    "yarn": Look(BLUE, "o"),
    "yarn_paper": Look(BLUE, "s", "--"),
    "dynamic_yarn": Look(SKY, "v", "--"),
    "llama3": Look(PINK, "P"),
    "longrope": Look(ORANGE, "X"),
    "sliding_window": Look(ORANGE, "*", ":"),
    "trained_at_test_len": Look(GREY, "*", "-."),
    "drope": Look(GREEN, "X", "--"),
    "resonance": Look(GREY, "P", ":"),
    "log_n": Look(SKY, "^"),
    "rerope": Look(PINK, "s"),
    "self_extend": Look(PINK, "D", "--"),
    # number formats
    "float64": Look(BLACK, "o"),
    "float32": Look(BLUE, "s"),
    "tf32": Look(SKY, "v", "--"),
    "float16": Look(AMBER, "^"),
    "bfloat16": Look(ORANGE, "D"),
    "float8_e4m3fn": Look(PINK, "P", "--"),
    "float8_e5m2": Look(GREY, "X", ":"),
    # encodings
    "rope": Look(BLUE, "o"),
    "nope": Look(BLACK, "s", "--"),
    "sinusoidal": Look(AMBER, "^"),
    "learned": Look(GREY, "v", ":"),
    "shaw": Look(PINK, "D"),
    "t5": Look(GREEN, "P"),
    "transformer_xl": Look(SKY, "X"),
    "deberta": Look(SKY, "*", "--"),
    "alibi": Look(ORANGE, "o"),
    "kerple_log": Look(ORANGE, "s", "--"),
    "kerple_power": Look(AMBER, "D", ":"),
    "fire": Look(GREEN, "^", "--"),
    "rope_interleaved": Look(SKY, "v", "--"),
    "rope_partial": Look(PINK, "P", ":"),
}


def look(name: str) -> Look:
    """The look of a name; `yarn(factor=8)` looks like `yarn`, unknown names get a stable one."""
    plain = name.split("(")[0]
    if plain in LOOKS:
        return LOOKS[plain]
    code = crc32(plain.encode())
    return Look(PALETTE[code % 8], MARKERS[code // 8 % 8], LINES[code // 64 % 4])


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
