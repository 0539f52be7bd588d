"""Grids of places: buckets of positions, growing contexts, distances of retrieved
tokens.
"""
# All follow from the trained length L and the tested length T, so runs of any length
# are alike.

from collections.abc import Iterable, Sequence
from itertools import count, pairwise, takewhile
from typing import NamedTuple

# The final tokens on which growing contexts are compared (a quarter of L, if that is
# less).
LAST_WINDOW = 512


class Place(NamedTuple):
    """The distance of something to be retrieved, and the length of the context."""

    distance: int
    context: int


def _upto(train_len: int, limit: float) -> list[int]:
    """Return L times 1, 1.5, 2, 3, 4, 6, 8, 12, 16 ... up to `limit` tokens."""
    multiples = (step * 2**power for power in count() for step in (1, 1.5))
    return [
        int(m * train_len)
        for m in takewhile(lambda m: m * train_len <= limit, multiples)
    ]


def buckets(train_len: int, test_len: int) -> list[tuple[int, int]]:
    """Return ranges [start, end) of positions: halves of L, then 1.5 L, 2 L, 3 L, 4 L
    ... to T.
    """
    # Position p is the prediction after p + 1 tokens: `end` is the longest context in a
    # bucket.
    edges = [0, train_len // 2, *_upto(train_len, test_len)]
    return list(pairwise(edges if edges[-1] == test_len else [*edges, test_len]))


def contexts(train_len: int, test_len: int) -> list[int]:
    """Return lengths of context before the end of a text: L/4, L/2, L, 2 L, 4 L ... and
    T.
    """
    doubled = takewhile(
        lambda length: length < test_len, (train_len << power for power in count())
    )
    return [train_len // 4, train_len // 2, *doubled, test_len]


def last_window(train_len: int) -> int:
    return min(LAST_WINDOW, train_len // 4)


def distances(train_len: int, test_len: int) -> list[int]:
    """Return distances of the copied segment: from L/8 to 3/4 of T."""
    short = [train_len // 8, train_len // 4, train_len // 2, train_len * 3 // 4]
    return [*short, *_upto(train_len, 3 / 4 * test_len)]


def retrieval_contexts(train_len: int, test_len: int) -> list[int]:
    """Return lengths of context in which something is retrieved: L, 2 L, 4 L ... and
    T.
    """
    return contexts(train_len, test_len)[2:]


def inner_buckets(train_len: int) -> list[tuple[int, int]]:
    """Return ranges [start, end) inside the trained length: up to L/16, L/8, L/4, L/2,
    L.
    """
    return list(pairwise([0, *(train_len >> shift for shift in (4, 3, 2, 1, 0))]))


def inner_distances(train_len: int) -> list[int]:
    """Return distances inside L: L/32, L/16, L/8, L/4, L/2, 3 L/4."""
    return [*(train_len >> shift for shift in (5, 4, 3, 2, 1)), train_len * 3 // 4]


def places(distances: Iterable[int], contexts: Sequence[int]) -> tuple[Place, ...]:
    """Pair contexts with distances of at most three quarters of each: a question fits
    too.
    """
    tried = list(distances)
    return tuple(Place(d, c) for c in contexts for d in tried if 4 * d <= 3 * c)
