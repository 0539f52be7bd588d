"""Verdicts in a terminal: each has a sign, and a colour if the terminal shows colours.

verdicts.toml gives each verdict, such as `holds` or `wrong`, one of four meanings.
"""

import sys

from ropelab.runs.files import read_table_beside

# The sign of each meaning, and the sign for terminals that have only ASCII.
SIGNS = {"good": "✓", "fair": "!", "bad": "✗", "open": "?"}
ASCII_SIGNS = {"good": "+", "fair": "!", "bad": "x", "open": "?"}
COLOURS = {"good": "green", "fair": "yellow", "bad": "red", "open": "bright_black"}


def _read_meanings() -> dict[str, str]:
    """Return the meaning of each verdict."""
    meanings = {}
    for meaning, verdicts in read_table_beside(__file__).items():
        for verdict in verdicts:
            meanings[verdict] = meaning
    return meanings


MEANINGS = _read_meanings()


def mark_verdict(text: str) -> str:
    """Return a verdict with the sign of its meaning before it. A text that is no verdict
    is returned unchanged.
    """
    meaning = MEANINGS.get(text)
    if meaning is None:
        return text
    return f"{choose_sign(meaning)} {text}"


def choose_sign(meaning: str) -> str:
    """Return the sign of a meaning, in ASCII if standard output has no other letters."""
    encoding = sys.stdout.encoding or ""
    has_unicode = encoding.lower().startswith("utf")
    return SIGNS[meaning] if has_unicode else ASCII_SIGNS[meaning]


def choose_colour(text: str) -> str:
    """Return the colour of a verdict that has its sign before it; empty for any other
    text.

    >>> choose_colour(mark_verdict("wrong")), choose_colour("what is wrong")
    ('red', '')
    """
    _, _, word = text.partition(" ")
    meaning = MEANINGS.get(word)
    if meaning is None or text != mark_verdict(word):
        return ""
    return COLOURS[meaning]
