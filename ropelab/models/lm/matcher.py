"""Baselines without a model: predictions from the n-grams in the text before a token.

An n-gram is a sequence of n tokens. `predict_by_ngrams` predicts the token that
followed the last n tokens when they occurred before. A task that this baseline solves
does not need positions. `predict_by_cache` gives probabilities from counts of n-grams.
If they improve the predictions of a model, there was something in the text that the
model did not see, or did not use.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

# This number stands for no prediction, where the last n tokens occur for the first time.
# It equals no token.
NOTHING = -1
# The most bits of the number that stands for an n-gram together with the number of its
# row. An int64 has 63 bits for positive numbers.
MOST_BITS = 62

# The number of times that each token followed each context. A context is a tuple of
# tokens, and the inner keys are the tokens after it.
Counts = defaultdict[tuple[int, ...], dict[int, int]]


def predict_by_ngrams(
    tokens: Int[Tensor, "rows tokens"], n: int, vocabulary: int = 256
) -> Int[Tensor, "rows tokens"]:
    """Predict each token from the n tokens before it.

    The prediction is the token that followed their latest earlier occurrence in the
    row, or NOTHING if they did not occur before. Occurrences may overlap.
    """
    if n < 1 or len(tokens) * vocabulary**n >= 2**MOST_BITS:
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
    # so that each occurrence of an n-gram comes right after its latest earlier
    # occurrence.
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
        order: the most tokens in a context, the tokens before a counted token.
        beyond: the number of tokens directly before the predicted token that are not
            counted.
        vocabulary: the number of different tokens.
        within: the number of tokens, directly before those that `beyond` leaves out,
            that are counted; None: all earlier tokens.

    Returns:
        For each token its probability, and the number of tokens in the longest context
        before it that was seen before.
    """
    row = tuple(tokens)
    counts: Counts = defaultdict(dict)
    predictions = []
    for place in range(1, len(row)):
        # The two places may be before the start of the text. There is then nothing to
        # count or to forget.
        newest_counted = place - 1 - beyond
        _count(counts, row, newest_counted, order)
        if within is not None:
            newest_forgotten = newest_counted - within
            _forget(counts, row, newest_forgotten, order)
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
    """Undo what `_count` did for the token at a place."""
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

    # Each longer context corrects the probability that the shorter contexts gave.
    for length in range(min(order, place) + 1):
        context = row[place - length : place]
        following = counts.get(context)
        if following is None:
            break
        longest = length
        # Witten and Bell 1991: tokens that never followed this context get, all
        # together, as much weight as the number of different tokens that followed it.
        different_tokens = len(following)
        weight = following.get(row[place], 0) + different_tokens * probability
        probability = weight / (sum(following.values()) + different_tokens)
    return probability, longest
