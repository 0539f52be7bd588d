"""Colours, markers and lines of methods, formats and encodings, in figures and on the
page.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

from ropelab.runs.files import read_table_beside
from ropelab.runs.labels import extract_method

# Okabe and Ito's palette, safe for colour-blind readers.
BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
PINK = "#CC79A7"
AMBER = "#E69F00"
SKY = "#56B4E9"
BLACK = "#000000"
GREY = "#7F7F7F"
COLORS = {
    "BLUE": BLUE,
    "ORANGE": ORANGE,
    "GREEN": GREEN,
    "PINK": PINK,
    "AMBER": AMBER,
    "SKY": SKY,
    "BLACK": BLACK,
    "GREY": GREY,
}
PALETTE = tuple(COLORS.values())
# Markers and lines distinguish names where print is grey.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
# The words of figures, and the looks of names that only one figure has.
FIGURES = read_table_beside(__file__, "figures")


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one name, the same in every figure."""

    color: str
    marker: str
    line: str = "-"


def _read_all_looks() -> dict[str, Look]:
    looks: dict[str, Look] = {}
    for group in read_table_beside(__file__).values():
        for name, (color, marker, line) in group.items():
            looks[name] = Look(COLORS[color], marker, line)
    return looks


LOOKS = _read_all_looks()


def read_looks(rows: Mapping[str, Iterable[str]]) -> dict[str, tuple[Look, str]]:
    """Return the look and the label of each name.

    A row of `rows` has the colour, the marker, the line and the label of its name.
    """
    looks = {}
    for name, (color, marker, line, label) in rows.items():
        looks[name] = (Look(COLORS[color], marker, line), label)
    return looks


def find_look(name: str) -> Look:
    """Return the look of a name; `yarn ×8` looks like `yarn`.

    A name that LOOKS does not have gets a look from a checksum of its letters, so that
    it has the same look each time.
    """
    method = extract_method(name)
    if method in LOOKS:
        return LOOKS[method]
    # 8 colours, 8 markers and 4 lines make 256 looks.
    checksum = crc32(method.encode())
    color = PALETTE[checksum % 8]
    marker = MARKERS[checksum // 8 % 8]
    line = LINES[checksum // 64 % 4]
    return Look(color, marker, line)


def pick_look(number: int) -> Look:
    """Return a look for the line with this number, if its name has no look of its own.

    Up to 32 lines look different.
    """
    # After eight lines the colours begin again, each with the next marker and line.
    shifted_number = number + number // 8
    marker = MARKERS[shifted_number % 8]
    return Look(PALETTE[number % 8], marker, LINES[shifted_number % 4])


def list_looks_for_script() -> dict[str, list[int | str]]:
    """Return every look by its name: the number of its colour, its marker, its line."""
    looks: dict[str, list[int | str]] = {}
    for name, look in LOOKS.items():
        looks[name] = [PALETTE.index(look.color), look.marker, look.line]
    return looks
