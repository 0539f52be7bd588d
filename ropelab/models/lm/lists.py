"""Lists of four values hidden in text, and questions for one of them.

indexing
    arr = qwcm, and later "arr 2" is answered by c, the third of the list (the first has
    the number 0)
keyed
    arr = 1q2c0w3m, and later "arr 2" is answered by c, which follows its key

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

    # Values are drawn from these characters.
    values: str
    # A list without keys, and one with keys.
    listed: str
    keyed: str
    # A key and its value, and the text between two items.
    item: str
    between: str
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
    statement: str
    # The question for each item and its answer, in any order.
    questions: list[tuple[str, str]]


def draw_list(random: np.random.Generator, task: str, words: Words = FOR_BYTES) -> List:
    """Draw the values of a list of LISTS, and the order of the questions for them."""
    values = random.permutation([*words.values])[:ITEMS].tolist()
    if task == "keyed":
        form = words.keyed
        order = random.permutation(ITEMS)
        items = [words.item.format(key, values[key]) for key in order]
    else:
        form = words.listed
        items = values

    questions = []
    for key in random.permutation(ITEMS):
        questions.append((words.question.format(key), values[key]))
    return List(form.format(words.between.join(items)), questions)


def list_row(
    random: np.random.Generator, text: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a row of training as long as its text, and True where it is scored.

    It has one list of either kind, and up to four questions at any distance behind it.
    The text and the answers are scored.
    """
    # No item is asked for twice: the answer would be that of the earlier question.
    statement, questions = draw_list(random, LISTS[random.integers(len(LISTS))])
    pieces = [list(statement.encode())]
    for question, answer in questions:
        pieces.append(list((question + answer).encode()))
    while sum(map(len, pieces)) > len(text):
        pieces.pop()

    # The list is before all of the questions.
    room = len(text) - sum(map(len, pieces))
    depths = np.sort(100 * random.random(len(pieces)))
    tokens, starts = insert(text[:room].tolist(), pieces, depths.tolist())

    scored = np.ones(len(tokens), np.bool_)
    for number, (start, piece) in enumerate(zip(starts, pieces, strict=True)):
        # The answer is the last token of a question.
        stop = start + len(piece)
        is_question = number > 0
        scored[start : stop - 1 if is_question else stop] = False
    return np.array(tokens), scored


def insert(
    text: Sequence[int], pieces: Sequence[Sequence[int]], depths: Sequence[float]
) -> tuple[list[int], list[int]]:
    """Insert each piece at its depth in percent.

    Return the text with them, and the place of each piece in it.
    """
    places = [round(len(text) * depth / 100) for depth in depths]
    order = sorted(range(len(pieces)), key=lambda number: places[number])

    filled = list(text)
    starts = [0] * len(pieces)
    added = 0
    for number in order:
        start = places[number] + added
        filled[start:start] = pieces[number]
        starts[number] = start
        added += len(pieces[number])
    return filled, starts
