"""Colours, markers and lines of methods, formats and encodings, in figures and on the
page.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

from ropelab.runs.files import table_beside
from ropelab.runs.labels import name_in

# Okabe and Ito's palette, safe for colour-blind readers; markers and lines tell greys
# apart.
COLORS = {"BLUE": "#0072B2", "ORANGE": "#D55E00", "GREEN": "#009E73", "PINK": "#CC79A7"}
COLORS |= {"AMBER": "#E69F00", "SKY": "#56B4E9", "BLACK": "#000000", "GREY": "#7F7F7F"}
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK, GREY = PALETTE = tuple(COLORS.values())
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one name, the same in every figure."""

    color: str
    marker: str
    line: str = "-"


LOOKS = {
    name: Look(COLORS[color], marker, line)
    for group in table_beside(__file__).values()
    for name, (color, marker, line) in group.items()
}
# Words of figures, and the looks of names in a single one.
FIGURES = table_beside(__file__, "figures")


def labelled(rows: Mapping[str, Iterable[str]]) -> dict[str, tuple[Look, str]]:
    """Return looks with their labels from rows of a colour, a marker, a line and a
    label.
    """
    return {
        name: (Look(COLORS[color], marker, line), label)
        for name, (color, marker, line, label) in rows.items()
    }


def look(name: str) -> Look:
    """Return the look of a name, by its letters if LOOKS has none; `yarn ×8` looks like
    `yarn`.
    """
    plain = name_in(name)
    if plain in LOOKS:
        return LOOKS[plain]
    code = crc32(plain.encode())
    return Look(PALETTE[code % 8], MARKERS[code // 8 % 8], LINES[code // 64 % 4])


def looks_for_script() -> dict[str, list[int | str]]:
    """Return every look by its name: the number of its colour, its marker, its line."""
    return {
        name: [PALETTE.index(own.color), own.marker, own.line]
        for name, own in LOOKS.items()
    }


def numbered(number: int) -> Look:
    """Return a look for the lines of a figure whose names have none."""
    return Look(PALETTE[number % 8], MARKERS[number % 8], LINES[number % 4])
