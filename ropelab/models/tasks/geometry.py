"""Where the questions of a context stand: one for each distance, in the same context.

A question is a stretch of tokens whose source, the same tokens, begins exactly its
distance earlier. The rules, all of them here:

1. Each distance is asked once in each context, in random order.
2. No stretch shares a token with another one, question or source.
3. Questions are placed from the end of the context to its beginning. Each stands as
   late as it and its sources find room, before the questions that were placed already.
4. All stretches of a context are equally long, as long as these limits allow:
   - LONGEST tokens;
   - half of the nearest distance, or SHORTEST tokens where that is less;
   - the nearest distance, and what the farthest source leaves of the context;
   - a length at which all stretches together take MOST of the context, or half of MOST
     where each question has two sources; FEWEST tokens where that is less.

So in long contexts questions fill the last places, one beside the other, behind all
sources. In short ones they stand apart, each with its source in front of all questions
or between two of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ropelab.runs.errors import InputError
from ropelab.runs.sentences import join_names

LONGEST = 32
SHORTEST = 8
FEWEST = 6
# Of the context.
MOST = 3 / 4
# Orders of the distances that are tried before a context is refused: a far question
# has room at the very end only, so not every order fits.
ORDERS = 500


class Question(NamedTuple):
    """The first places of a stretch and of its sources, the nearest source first."""

    distance: int
    start: int
    sources: tuple[int, ...]


def stretch_length(length: int, sources: Sequence[tuple[int, ...]]) -> int:
    """Return the tokens of a stretch by rule 4; `sources` as in `place_questions`."""
    nearest = min(distance for distance, *_ in sources)
    farthest = max(max(distances) for distances in sources)
    wanted = max(SHORTEST, nearest // 2)
    stretches = sum(1 + len(distances) for distances in sources)
    most = MOST / len(sources[0])
    room = max(FEWEST, int(most * length) // stretches)
    return min(LONGEST, wanted, nearest, length - farthest, room)


def place_questions(
    random: np.random.Generator,
    length: int,
    sources: Sequence[tuple[int, ...]],
    size: int,
) -> list[Question]:
    """Place a question for each of `sources`, the last one of the context first.

    A row of `sources` says how far back the sources of a question are, the nearest one,
    its distance, first. InputError: no order of the questions fits into the context.
    """
    for _ in range(ORDERS):
        order = random.permutation(len(sources))
        questions = _place_in_order(length, [sources[number] for number in order], size)
        if questions is not None:
            return questions

    distances = [str(distance) for distance, *_ in sources]
    raise InputError(
        f"{length} tokens do not hold {join_names(distances)} as distances of stretches"
        f" of {size} tokens"
    )


def _place_in_order(
    length: int, sources: Sequence[tuple[int, ...]], size: int
) -> list[Question] | None:
    """Place questions in this order, the last one of the context first; None if it
    does not fit.
    """
    is_taken = np.zeros(length, np.bool_)
    questions: list[Question] = []
    start = length
    for distances in sources:
        start -= size
        while start >= max(distances) and not _is_free(
            is_taken, start, distances, size
        ):
            start -= 1
        if start < max(distances):
            return None

        question = Question(
            distances[0], start, tuple(start - back for back in distances)
        )
        for first in (start, *question.sources):
            is_taken[first : first + size] = True
        questions.append(question)
    return questions


def _is_free(
    is_taken: np.ndarray, start: int, distances: tuple[int, ...], size: int
) -> bool:
    """Return True if a question that starts there, and its sources, have room."""
    for back in (0, *distances):
        first = start - back
        if is_taken[first : first + size].any():
            return False
    return True
