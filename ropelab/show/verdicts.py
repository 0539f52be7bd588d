"""Verdicts in a terminal: a sign that needs no colour, and a colour."""

import sys

from ropelab.runs.files import table_beside

# Signs of the meanings, and what stands for them where a terminal has ASCII alone.
SIGNS = {"good": "✓", "fair": "!", "bad": "✗", "open": "?"}
IN_ASCII = {"good": "+", "fair": "!", "bad": "x", "open": "?"}
COLOURS = {"good": "green", "fair": "yellow", "bad": "red", "open": "bright_black"}
MEANINGS: dict[str, str] = {
    word: meaning for meaning, words in table_beside(__file__).items() for word in words
}


def mark_verdict(text: str) -> str:
    """Return a verdict behind the sign of its meaning; another text as it is."""
    meaning = MEANINGS.get(text)
    if meaning is None:
        return text
    return f"{sign_of(meaning)} {text}"


def sign_of(meaning: str) -> str:
    """Return the sign of a meaning in the letters that standard output has."""
    encoding = sys.stdout.encoding or ""
    in_unicode = encoding.lower().startswith("utf")
    return SIGNS[meaning] if in_unicode else IN_ASCII[meaning]


def colour_of(text: str) -> str:
    """Return the colour of a verdict behind its sign; empty for a text that is none.

    >>> colour_of(mark_verdict("wrong")), colour_of("what is wrong")
    ('red', '')
    """
    word = text.partition(" ")[2]
    meaning = MEANINGS.get(word)
    if meaning is None or text != mark_verdict(word):
        return ""
    return COLOURS[meaning]
