"""Colours, markers and lines of methods, formats and encodings, in figures and on the page."""

from dataclasses import dataclass
from zlib import crc32

from ropelab.runs.labels import name_in

# Okabe and Ito's palette, safe for colour-blind readers; markers and lines tell greys apart.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
AMBER, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#7F7F7F"
PALETTE = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of one name, the same in every figure."""

    color: str
    marker: str
    line: str = "-"


LOOKS = {
    # scaling methods
    "unmodified": Look(BLACK, "X", "--"),
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
    """Return the look of a name, by its letters if LOOKS has none; `yarn ×8` looks like `yarn`."""
    plain = name_in(name)
    if plain in LOOKS:
        return LOOKS[plain]
    code = crc32(plain.encode())
    return Look(PALETTE[code % 8], MARKERS[code // 8 % 8], LINES[code // 64 % 4])


def numbered(number: int) -> Look:
    """Return a look for the lines of a figure whose names have none."""
    return Look(PALETTE[number % 8], MARKERS[number % 8], LINES[number % 4])
