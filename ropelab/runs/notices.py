"""Sentences for the user from rooms that know no terminal, and text that is safe to show in one.

That a damaged file is made again, or a folder left out, is no error but worth a line on stderr.
"""

import sys
import unicodedata
from functools import cache

# Unicode's categories of what steers a terminal or cannot be seen; line ends are let through.
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    r"""Write out control characters, which names and errors may hold.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(map(_written_out, text))


def _written_out(character: str) -> str:
    hidden = character != "\n" and unicodedata.category(character) in UNSEEN
    return character.encode("unicode_escape").decode() if hidden else character


def say(text: str) -> None:
    """Print one line on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


@cache
def say_once(text: str) -> None:
    """Print one line on stderr, unless it has been said."""
    say(text)
