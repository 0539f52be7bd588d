"""The places at which tasks measure: buckets of positions, contexts, and distances.

A bucket is a range [start, end) of positions. A context is the number of tokens before
the measured tokens. A distance is the number of tokens between a passage that is to be
found and its repetition. Buckets, contexts and distances follow from the trained length
L and the tested length T, so that runs of different lengths ask for the same multiples
of L.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

# The number of final tokens whose loss is compared in contexts of different lengths.
# `choose_last_window` takes a quarter of L instead if that is less.
LAST_WINDOW = 512


class RetrievalPlace(NamedTuple):
    """A distance at which something is retrieved, and the length of the context."""

    distance: int
    context: int


def _list_multiples(train_len: int, limit: float) -> list[int]:
    """Return L times 1, 1.5, 2, 3, 4, 6, 8, 12, 16 ... up to `limit` tokens."""
    lengths = []
    length = train_len
    while length <= limit:
        lengths.append(length)
        if 1.5 * length <= limit:
            lengths.append(int(1.5 * length))
        length *= 2
    return lengths


def list_buckets(train_len: int, test_len: int) -> list[tuple[int, int]]:
    """Return the buckets that end at L/2, L, 1.5 L, 2 L ... and T.

    The prediction at position p is made after p + 1 tokens. The last prediction of a
    bucket, at position end - 1, is thus made after `end` tokens.
    """
    edges = [0, train_len // 2, *_list_multiples(train_len, test_len)]
    if edges[-1] != test_len:
        edges.append(test_len)
    return list(pairwise(edges))


def list_context_lengths(train_len: int, test_len: int) -> list[int]:
    """Return lengths of context before the end of a text: L/4, L/2, L, 2 L ... and T."""
    lengths = [train_len // 4, train_len // 2]
    length = train_len
    while length < test_len:
        lengths.append(length)
        length *= 2
    return [*lengths, test_len]


def choose_last_window(train_len: int) -> int:
    """Return the number of final tokens whose loss is compared in different contexts."""
    return min(LAST_WINDOW, train_len // 4)


def list_retrieval_distances(train_len: int, test_len: int) -> list[int]:
    """Return the distances of retrieval: from L/8 to 3/4 of T."""
    short = [train_len // 8, train_len // 4, train_len // 2, train_len * 3 // 4]
    return short + _list_multiples(train_len, 3 / 4 * test_len)


def list_retrieval_contexts(train_len: int, test_len: int) -> list[int]:
    """Return lengths of context in which something is retrieved: L, 2 L ... and T."""
    # The first two contexts, L/4 and L/2, are too short for some of the distances.
    return list_context_lengths(train_len, test_len)[2:]


def list_inner_buckets(train_len: int) -> list[tuple[int, int]]:
    """Return the buckets inside L, which end at L/16, L/8, L/4, L/2 and L."""
    edges = [0]
    edges += [train_len // divisor for divisor in (16, 8, 4, 2, 1)]
    return list(pairwise(edges))


def list_inner_distances(train_len: int) -> list[int]:
    """Return distances inside L: L/32, L/16, L/8, L/4, L/2, 3 L/4."""
    distances = [train_len // divisor for divisor in (32, 16, 8, 4, 2)]
    return [*distances, train_len * 3 // 4]


def pair_places(
    distances: Iterable[int], contexts: Sequence[int]
) -> tuple[RetrievalPlace, ...]:
    """Pair each context with all distances up to three quarters of its length.

    The last quarter leaves room for the question.
    """
    distances = list(distances)
    pairs = []
    for context in contexts:
        for distance in distances:
            if 4 * distance <= 3 * context:
                pairs.append(RetrievalPlace(distance, context))
    return tuple(pairs)
