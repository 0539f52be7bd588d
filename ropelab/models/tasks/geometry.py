"""The places of the questions in a context.

A question is a stretch of tokens. Its source has the same tokens and begins exactly its
distance earlier. A context has a question for each distance. The rules are these:

1. Each distance is asked once in each context, in random order.
2. No stretch, question or source, shares a token with another stretch.
3. Questions are placed from the end of the context to its beginning. Each question is
   placed as late as there is room for the question and its sources, before the
   questions placed so far.
4. All stretches of a context are equally long, as long as these limits allow:
   - LONGEST_STRETCH tokens;
   - half of the nearest distance, but at least LEAST_HALF tokens;
   - the nearest distance;
   - the length of the context less the farthest distance;
   - a fair length, at which all stretches together take the share LARGEST_SHARE of the
     context (half of it if each question has two sources), but at least LEAST_FAIR
     tokens.

In a long context the questions thus fill the end, next to each other and after all
sources. In a short context questions are apart, and the source of each question is
before all questions or between two questions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ropelab.runs.errors import InputError
from ropelab.runs.sentences import join_names

# The most tokens of a stretch.
LONGEST_STRETCH = 32
# The least value of the limit by half of the nearest distance, in tokens: see rule 4.
LEAST_HALF = 8
# The least value of the fair length, in tokens: see rule 4.
LEAST_FAIR = 6
# The share of the context that all stretches may take together.
LARGEST_SHARE = 3 / 4
# The number of orders of the questions that are tried before a context is refused. A
# question with a far source has room only at the very end, so not every order fits.
ORDERS = 500


class PlacedQuestion(NamedTuple):
    """A question with its place in the context."""

    # The distance of the nearest source.
    distance: int
    # The first position of the question.
    start: int
    # The first position of each source, the nearest source first.
    sources: tuple[int, ...]


def stretch_length(length: int, sources: Sequence[tuple[int, ...]]) -> int:
    """Return the number of tokens of a stretch by rule 4.

    Args:
        length: the length of the context, in tokens.
        sources: as in `place_questions`.
    """
    nearest = min(distance for distance, *_ in sources)
    farthest = max(max(distances) for distances in sources)
    half_of_nearest = max(LEAST_HALF, nearest // 2)

    stretches = sum(1 + len(distances) for distances in sources)
    sources_per_question = len(sources[0])
    share = LARGEST_SHARE / sources_per_question
    fair_length = max(LEAST_FAIR, int(share * length) // stretches)
    return min(
        LONGEST_STRETCH, half_of_nearest, nearest, length - farthest, fair_length
    )


def place_questions(
    random: np.random.Generator,
    length: int,
    sources: Sequence[tuple[int, ...]],
    size: int,
) -> list[PlacedQuestion]:
    """Place questions in a context; return them from the last to the first.

    Args:
        random: chooses the order of the questions.
        length: the length of the context, in tokens.
        sources: for each question the distances of its sources, the nearest first.
        size: the length of a stretch, in tokens.

    InputError: no order of the questions fits into the context.
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
) -> list[PlacedQuestion] | None:
    """Place questions from the end of the context, in the order of their `sources`.

    None: they do not fit.
    """
    is_taken = np.zeros(length, np.bool_)
    questions: list[PlacedQuestion] = []
    start = length
    for distances in sources:
        # If the question begins earlier, its farthest source begins before the context.
        first_start = max(distances)
        start -= size
        while start >= first_start and not _is_free(is_taken, start, distances, size):
            start -= 1
        if start < first_start:
            return None

        question = PlacedQuestion(
            distances[0], start, tuple(start - back for back in distances)
        )
        for first in (start, *question.sources):
            is_taken[first : first + size] = True
        questions.append(question)
    return questions


def _is_free(
    is_taken: np.ndarray, start: int, distances: tuple[int, ...], size: int
) -> bool:
    """Return True if a question that begins at `start` and its sources have room."""
    for back in (0, *distances):
        first = start - back
        if is_taken[first : first + size].any():
            return False
    return True
