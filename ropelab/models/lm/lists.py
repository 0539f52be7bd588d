"""Lists of four values hidden in text, and questions for one of them: by its place or
by its key.

indexing  arr = qwcm      and later  arr 2  is answered by c, the third of the list (the
first is 0) keyed     arr = 1q2c0w3m             arr 2  is answered by c, which follows
its key

The first is the task of Du et al. 2026 (arXiv:2605.15514), with letters for their
digits; the second is its control, which content decides. Released models are asked for
digits, with brackets around them. Values are distinct: who knows the list and nothing
else is right in 1 of 4 cases.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ITEMS = 4
LISTS = ("indexing", "keyed")


class Words(NamedTuple):
    """Words that state a list and ask for its items."""

    values: str  # to draw from
    listed: str
    keyed: str
    item: str  # its key and value
    between: str  # items
    question: str


# With more around the letters small models learn neither task in 1,200 steps.
FOR_BYTES = Words(
    "abcdefghijklmnopqrstuvwxyz", "\narr = {}\n", "\narr = {}\n", "{}{}", "", "\narr {}"
)
FOR_TOKENS = Words(
    "0123",
    "\narr = [{}]\n",
    "\narr = {{{}}}\n",
    "{}: {}",
    ", ",
    "\nWhat is arr[{0}]? arr[{0}] = ",
)


class List(NamedTuple):
    stated: str
    # the question for each of its items, in any order, and the answer
    asked: list[tuple[str, str]]


def drawn_list(
    random: np.random.Generator, task: str, words: Words = FOR_BYTES
) -> List:
    """Draw the values of a list of LISTS, and the order of the questions for them."""
    values = random.permutation([*words.values])[:ITEMS].tolist()
    stated, items = words.listed, values
    if task == "keyed":
        stated = words.keyed
        items = [
            words.item.format(key, values[key]) for key in random.permutation(ITEMS)
        ]
    asked = [
        (words.question.format(key), values[key]) for key in random.permutation(ITEMS)
    ]
    return List(stated.format(words.between.join(items)), asked)


def list_row(
    random: np.random.Generator, text: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a row of training as long as its text [tokens], and True where it is
    scored.

    One list of either kind, and up to four questions at any distance behind it. Of
    these the answers are scored, and the text is.
    """
    # No item is asked for twice: the answer would be that of the earlier question.
    stated, asked = drawn_list(random, LISTS[random.integers(len(LISTS))])
    pieces = [list(piece.encode()) for piece in (stated, *(map("".join, asked)))]
    while sum(map(len, pieces)) > len(text):
        pieces.pop()
    room = len(text) - sum(map(len, pieces))
    # the list is before all of the questions
    depths = np.sort(100 * random.random(len(pieces)))
    tokens, starts = inserted(text[:room].tolist(), pieces, depths.tolist())
    scored = np.ones(len(tokens), np.bool_)
    for number, (start, piece) in enumerate(zip(starts, pieces, strict=True)):
        scored[start : start + len(piece) - (number > 0)] = False
    return np.array(tokens), scored


def inserted(
    text: Sequence[int], pieces: Sequence[Sequence[int]], depths: Sequence[float]
) -> tuple[list[int], list[int]]:
    """Insert each piece at its depth in percent; return the text, and the place of each
    piece.
    """
    filled, starts, added = list(text), [0] * len(pieces), 0
    places = [round(len(text) * depth / 100) for depth in depths]
    for number in sorted(range(len(pieces)), key=places.__getitem__):
        starts[number] = start = places[number] + added
        filled[start:start] = pieces[number]
        added += len(pieces[number])
    return filled, starts
