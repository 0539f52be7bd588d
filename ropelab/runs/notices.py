"""Sentences for the user from rooms that know no terminal, and text that is safe to show in one."""

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
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter != "\n" and unicodedata.category(letter) in UNSEEN
        else letter
        for letter in text
    )


def say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


say_once = cache(say)
