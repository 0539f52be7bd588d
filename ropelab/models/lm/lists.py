"""Lists of four values hidden in text, and questions for one of the values.

indexing
    The text has `arr = qwcm`, and later the question `arr 2`. The answer is c, the value
    at index 2 (the first index is 0).
keyed
    The text has `arr = 1q2c0w3m`, and later the question `arr 2`. The answer is c, the
    value after the key 2.

`indexing` is the task of Du et al. 2026 (arXiv:2605.15514), with letters in the place
of their digits. `keyed` is its control: there the content of the list, not a position
in it, decides the answer. Released models get digits, in the notation of a programming
language. The four values of a list are distinct, so a model that knows only which
values occur is right in 1 of 4 cases.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# The number of values in a list.
ITEMS = 4
# The names of the tasks. Each task has its own kind of list.
LISTS = ("indexing", "keyed")


class Words(NamedTuple):
    """The words that state a list and ask for its items; {} is a place to fill in."""

    # Values are drawn from these characters.
    values: str
    # The list of the task `indexing`.
    indexed_list: str
    # The list of the task `keyed`.
    keyed_list: str
    # An item of the task `keyed`: a key and its value.
    keyed_item: str
    # The text between two items.
    separator: str
    question: str


# For small models, whose tokens are bytes. With more characters around the letters,
# models of this size learn neither task in 1,200 steps.
FOR_BYTES = Words(
    values="abcdefghijklmnopqrstuvwxyz",
    indexed_list="\narr = {}\n",
    keyed_list="\narr = {}\n",
    keyed_item="{}{}",
    separator="",
    question="\narr {}",
)
# For released models with their tokenizers.
FOR_TOKENS = Words(
    values="0123",
    indexed_list="\narr = [{}]\n",
    keyed_list="\narr = {{{}}}\n",
    keyed_item="{}: {}",
    separator=", ",
    question="\nWhat is arr[{0}]? arr[{0}] = ",
)


class List(NamedTuple):
    """A list in words, and what is asked about it."""

    # The text that states the list.
    statement: str
    # A question for each item with the answer, in random order.
    questions: list[tuple[str, str]]


def draw_list(random: np.random.Generator, task: str, words: Words = FOR_BYTES) -> List:
    """Draw a list and the order of its questions; `task` is one of LISTS."""
    values = random.permutation([*words.values])[:ITEMS].tolist()
    if task == "keyed":
        form = words.keyed_list
        order = random.permutation(ITEMS)
        items = [words.keyed_item.format(key, values[key]) for key in order]
    else:
        form = words.indexed_list
        items = values

    questions = []
    # A number from 0 to 3 is the index or the key of a value.
    for number in random.permutation(ITEMS):
        questions.append((words.question.format(number), values[number]))
    return List(form.format(words.separator.join(items)), questions)


def hide_list(
    random: np.random.Generator, text: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Hide a list and questions for its items in a text, for training.

    The task is drawn, too. Up to four questions follow the list at random distances.
    Each item is asked for at most once: a second question could be answered by copying
    the answer to the first.

    Args:
        random: the generator of random numbers.
        text: a row of tokens. Its end is left out to make room for the list and the
            questions.

    Returns: A row of tokens as long as the text, and for each token True if it is
        scored: tokens of the text and of the answers are scored.
    """
    task = LISTS[random.integers(len(LISTS))]
    statement, questions = draw_list(random, task)
    pieces = [list(statement.encode())]
    for question, answer in questions:
        pieces.append(list((question + answer).encode()))
    # In a short text the last questions have no room.
    while sum(map(len, pieces)) > len(text):
        pieces.pop()

    # The depths are sorted, so that the list comes before all of the questions.
    remaining_length = len(text) - sum(map(len, pieces))
    remaining_text = text[:remaining_length].tolist()
    depths = np.sort(100 * random.random(len(pieces)))
    tokens, starts = insert_pieces(remaining_text, pieces, depths.tolist())

    scored = np.ones(len(tokens), np.bool_)
    for number, (start, piece) in enumerate(zip(starts, pieces, strict=True)):
        stop = start + len(piece)
        is_list = number == 0
        if is_list:
            scored[start:stop] = False
        else:
            # The last token of a question is its answer.
            scored[start : stop - 1] = False
    return np.array(tokens), scored


def insert_pieces(
    text: Sequence[int], pieces: Sequence[Sequence[int]], depths: Sequence[float]
) -> tuple[list[int], list[int]]:
    """Insert each piece into a text at its depth, in percent of the text.

    Return the resulting text, and the index in it at which each piece begins.
    """
    places = [round(len(text) * depth / 100) for depth in depths]
    order = sorted(range(len(pieces)), key=lambda number: places[number])

    result = list(text)
    starts = [0] * len(pieces)
    inserted_tokens = 0
    for number in order:
        # The pieces inserted so far have moved this place back in the text.
        start = places[number] + inserted_tokens
        result[start:start] = pieces[number]
        starts[number] = start
        inserted_tokens += len(pieces[number])
    return result, starts
