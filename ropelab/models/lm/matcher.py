"""A baseline without a model: the continuation of the last n tokens at their latest occurrence."""
# A model that only matches it finds an earlier passage, but need not know its position.

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
    """Predict every token by the latest earlier occurrence of the n before it, else NOTHING."""
    # Occurrences may overlap.
    if n < 1 or len(tokens) * vocabulary**n >= 2**BITS:
        raise ValueError(f"{n}-grams of {vocabulary} tokens cannot be matched")
    predictions = torch.full_like(tokens, NOTHING)
    rows, length = tokens.shape
    if length <= n:
        return predictions
    # The gram before token t, together with its row, as one number; a stable sort then puts each
    # next to its most recent earlier occurrence.
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
