"""Baselines without a model, made of the n-grams of the text before."""

# A model that only matches them finds an earlier passage, but need not know its
# position. What counts of them add to a model is left in the text that it does not see,
# or does not use.

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

# Where the last n tokens occur for the first time; no token equals it.
NOTHING = -1
# An n-gram and its row must fit into an int64, which has 63 bits for positive numbers.
BITS = 62


def ngram_predictions(
    tokens: Int[Tensor, "rows tokens"], n: int, vocabulary: int = 256
) -> Int[Tensor, "rows tokens"]:
    """Predict every token by the latest earlier occurrence of the n before it, else
    NOTHING.
    """
    # Occurrences may overlap.
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
    again = (ordered[1:] == ordered[:-1]).nonzero().flatten()
    following = tokens[:, n:].flatten()
    found = torch.full_like(following, NOTHING)
    found[places[again + 1]] = following[places[again]]
    predictions[:, n:] = found.view(rows, -1)
    return predictions


def cached_predictions(
    tokens: Sequence[int],
    order: int,
    beyond: int,
    vocabulary: int,
    within: int | None = None,
) -> list[tuple[float, int]]:
    """Predict every token but the first from n-grams more than `beyond` tokens before
    it.

    With `within` only from those that end at most so many tokens before it.

    Returns:
        Its probability, and the tokens of the longest context that was counted: at most `order`.
    """
    row = tuple(tokens)
    counts: defaultdict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    found = []
    for place, token in enumerate(row[1:], 1):
        counted = place - 1 - beyond
        for length in range(min(order, counted) + 1):
            following = counts[row[counted - length : counted]]
            following[row[counted]] = following.get(row[counted], 0) + 1
        left = -1 if within is None else counted - within
        for length in range(min(order, left) + 1):
            following = counts[row[left - length : left]]
            following[row[left]] -= 1
            if not following[row[left]]:
                del following[row[left]]
            if not following:
                del counts[row[left - length : left]]
        probability, longest = 1 / vocabulary, 0
        for length in range(min(order, place) + 1):
            seen = counts.get(row[place - length : place])
            if seen is None:
                break
            # Witten and Bell 1991: as much for what is new as there were different
            # continuations.
            new, longest = len(seen), length
            probability = (seen.get(token, 0) + new * probability) / (
                sum(seen.values()) + new
            )
        found.append((probability, longest))
    return found
