"""Baselines without a model, made of the n-grams of the text before.

A model that only matches n-grams finds an earlier passage, but need not know its
position. If counts of n-grams improve a model, there was something in the text that it
did not see, or did not use.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

# The prediction where the last n tokens occur for the first time; no token equals it.
NOTHING = -1
# An n-gram and its row must fit into an int64, which has 63 bits for positive numbers.
BITS = 62

# How often each token followed each context.
Counts = defaultdict[tuple[int, ...], dict[int, int]]


def ngram_predictions(
    tokens: Int[Tensor, "rows tokens"], n: int, vocabulary: int = 256
) -> Int[Tensor, "rows tokens"]:
    """Predict every token by the latest earlier occurrence of the n tokens before it.

    Without one it is NOTHING. Occurrences may overlap.
    """
    if n < 1 or len(tokens) * vocabulary**n >= 2**BITS:
        raise ValueError(f"{n}-grams of {vocabulary} tokens cannot be matched")
    predictions = torch.full_like(tokens, NOTHING)
    rows, length = tokens.shape
    if length <= n:
        return predictions

    # The gram before token t, together with its row, as one number; a stable sort then
    # puts each next to its most recent earlier occurrence.
    grams = torch.arange(rows, device=tokens.device)[:, None].expand(rows, length - n)
    for offset in range(n):
        grams = grams * vocabulary + tokens[:, offset : length - n + offset]
    ordered, places = grams.flatten().sort(stable=True)
    repeated = (ordered[1:] == ordered[:-1]).nonzero().flatten()

    following = tokens[:, n:].flatten()
    predicted = torch.full_like(following, NOTHING)
    predicted[places[repeated + 1]] = following[places[repeated]]
    predictions[:, n:] = predicted.view(rows, -1)
    return predictions


def cached_predictions(
    tokens: Sequence[int],
    order: int,
    beyond: int,
    vocabulary: int,
    within: int | None = None,
) -> list[tuple[float, int]]:
    """Predict every token but the first from n-grams more than `beyond` tokens before.

    With `within` only those count that end at most so many tokens before it.

    Returns:
        Its probability, and the tokens of the longest context that was counted: at most `order`.
    """
    row = tuple(tokens)
    counts: Counts = defaultdict(dict)
    predictions = []
    for place in range(1, len(row)):
        entering = place - 1 - beyond
        _count(counts, row, entering, order)
        if within is not None:
            _forget(counts, row, entering - within, order)
        predictions.append(_predict(counts, row, place, order, vocabulary))
    return predictions


def _count(counts: Counts, row: tuple[int, ...], place: int, order: int) -> None:
    """Count the token at a place behind each of the contexts that end before it."""
    for length in range(min(order, place) + 1):
        following = counts[row[place - length : place]]
        following[row[place]] = following.get(row[place], 0) + 1


def _forget(counts: Counts, row: tuple[int, ...], place: int, order: int) -> None:
    """Undo `_count`."""
    for length in range(min(order, place) + 1):
        context = row[place - length : place]
        following = counts[context]
        following[row[place]] -= 1
        if not following[row[place]]:
            del following[row[place]]
        if not following:
            del counts[context]


def _predict(
    counts: Counts, row: tuple[int, ...], place: int, order: int, vocabulary: int
) -> tuple[float, int]:
    """Return the probability of a token, and the length of the longest known context."""
    probability = 1 / vocabulary
    longest = 0
    for length in range(min(order, place) + 1):
        following = counts.get(row[place - length : place])
        if following is None:
            break
        longest = length
        # Witten and Bell 1991: tokens that are new here get as much weight as there were
        # different continuations.
        new = len(following)
        weight = following.get(row[place], 0) + new * probability
        probability = weight / (sum(following.values()) + new)
    return probability, longest
