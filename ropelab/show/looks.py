"""How a name is drawn, wherever it is drawn: its colour, marker and line."""

from dataclasses import dataclass
from zlib import crc32

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
    "as_shipped": Look(BLACK, "X", "--"),
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
