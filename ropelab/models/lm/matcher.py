"""Baselines without a model: predictions from the n-grams in the text before a token.

An n-gram is a sequence of n tokens. `predict_by_ngrams` repeats what followed the last
n tokens when they occurred before. A task that this solves does not need positions.
`predict_by_cache` gives probabilities from counts of n-grams. If they improve the
predictions of a model, there was something in the text that the model did not see, or
did not use.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

# This number stands for no prediction, where the last n tokens occur for the first time.
# It equals no token.
NOTHING = -1
# An n-gram together with the number of its row must fit into an int64, which has 63 bits
# for positive numbers.
BITS = 62

# The number of times that each token followed each context. A context is a tuple of
# tokens, and the inner keys are the tokens after it.
Counts = defaultdict[tuple[int, ...], dict[int, int]]


def predict_by_ngrams(
    tokens: Int[Tensor, "rows tokens"], n: int, vocabulary: int = 256
) -> Int[Tensor, "rows tokens"]:
    """Predict every token by what followed the n tokens before it at their latest earlier
    occurrence in the row, or NOTHING without one. Occurrences may overlap.
    """
    if n < 1 or len(tokens) * vocabulary**n >= 2**BITS:
        raise ValueError(f"{n}-grams of {vocabulary} tokens cannot be matched")
    predictions = torch.full_like(tokens, NOTHING)
    rows, length = tokens.shape
    if length <= n:
        return predictions

    # The n tokens before each token and the number of the row become one number, with a
    # digit for each token.
    count = length - n
    grams = torch.arange(rows, device=tokens.device)[:, None].expand(rows, count)
    for offset in range(n):
        grams = grams * vocabulary + tokens[:, offset : offset + count]

    # A stable sort puts equal numbers next to each other in the order of their places,
    # so that each comes after its latest earlier occurrence.
    sorted_grams, places = grams.flatten().sort(stable=True)
    is_repeated = sorted_grams[1:] == sorted_grams[:-1]
    earlier_places = places[:-1][is_repeated]
    later_places = places[1:][is_repeated]

    following = tokens[:, n:].flatten()
    predicted = torch.full_like(following, NOTHING)
    predicted[later_places] = following[earlier_places]
    predictions[:, n:] = predicted.view(rows, -1)
    return predictions


def predict_by_cache(
    tokens: Sequence[int],
    order: int,
    beyond: int,
    vocabulary: int,
    within: int | None = None,
) -> list[tuple[float, int]]:
    """Predict every token but the first from counts of the tokens before it.

    Args:
        tokens: the text.
        order: the most tokens of a context after which tokens are counted.
        beyond: the number of tokens just before a token that are not counted.
        vocabulary: the number of different tokens.
        within: the number of tokens that are counted, just before the tokens that
            `beyond` leaves out; None: all earlier tokens.

    Returns:
        For each token its probability, and the number of tokens in the longest context
        before it that was seen before.
    """
    row = tuple(tokens)
    counts: Counts = defaultdict(dict)
    predictions = []
    for place in range(1, len(row)):
        # Both places may be before the start of the text. Nothing is counted then.
        newest_counted = place - 1 - beyond
        _count(counts, row, newest_counted, order)
        if within is not None:
            _forget(counts, row, newest_counted - within, order)
        predictions.append(_predict(counts, row, place, order, vocabulary))
    return predictions


def _count(counts: Counts, row: tuple[int, ...], place: int, order: int) -> None:
    """Count the token at a place after each of the contexts that end before it."""
    # The range is empty for a place below 0.
    for length in range(min(order, place) + 1):
        context = row[place - length : place]
        following = counts[context]
        following[row[place]] = following.get(row[place], 0) + 1


def _forget(counts: Counts, row: tuple[int, ...], place: int, order: int) -> None:
    """Undo `_count`."""
    for length in range(min(order, place) + 1):
        context = row[place - length : place]
        following = counts[context]
        following[row[place]] -= 1
        if following[row[place]] == 0:
            del following[row[place]]
        if not following:
            del counts[context]


def _predict(
    counts: Counts, row: tuple[int, ...], place: int, order: int, vocabulary: int
) -> tuple[float, int]:
    """Return the probability of a token, and the length of the longest known context."""
    probability = 1 / vocabulary
    longest = 0

    # Each longer context corrects the probability of the shorter one.
    for length in range(min(order, place) + 1):
        context = row[place - length : place]
        following = counts.get(context)
        if following is None:
            break
        longest = length
        # Witten and Bell 1991: tokens that never followed this context get, all
        # together, as much weight as the number of different tokens that followed it.
        different = len(following)
        weight = following.get(row[place], 0) + different * probability
        probability = weight / (sum(following.values()) + different)
    return probability, longest
