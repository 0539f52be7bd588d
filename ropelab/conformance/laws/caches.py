"""Read and write keys and values in the cache of a model that is not from the library
`transformers`.

The laws, which check how a model treats positions, hand a cache to these functions as a
dictionary with three keys:

code_cache
    The cache as the code made it. It can be read if it is a DynamicCache, or a list or
    tuple with a pair (keys, values) for each layer.
tokens_read
    The number of tokens in the cache.
layout
    A dictionary that all caches of the code share. Its `token_axis` is the axis of tokens
    in keys and values, once it is known: 2 in [rows, heads, tokens, head_dim], 1 in
    [rows, tokens, heads, head_dim].
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

# Keys and values of a layer [rows, heads, tokens, head_dim]. None stands for a layer
# that keeps none, in models of `transformers` only.
Entry = tuple[Tensor, Tensor] | None
# The message if a cache is of neither kind that can be read.
UNREADABLE = "its cache is neither a DynamicCache nor a list of (keys, values) by layer"


class CannotAskError(Exception):
    """The model lacks what a law needs, such as a cache; the message says what.

    The law is then reported as one that cannot be asked, and not as a broken one.
    """


def list_entries(cache: dict[str, Any]) -> list[Entry]:
    """Return keys and values [rows, heads, tokens, head_dim] of each layer."""
    entries: list[Entry] = []
    for keys, values in list_pairs(cache["code_cache"]):
        axis = find_token_axis(cache, keys)
        keys = put_heads_first(keys, axis)
        values = put_heads_first(values, axis)
        entries.append((keys, values))
    return entries


def set_entry(cache: dict[str, Any], layer: int, entry: tuple[Tensor, Tensor]) -> None:
    """Put keys and values [rows, heads, tokens, head_dim] of a layer into a cache."""
    code_cache = cache["code_cache"]
    old_keys, _ = list_pairs(code_cache)[layer]
    axis = find_token_axis(cache, old_keys)
    keys, values = (restore_axes(part, axis, old_keys.ndim) for part in entry)

    if hasattr(code_cache, "layers"):
        code_cache.layers[layer].keys = keys
        code_cache.layers[layer].values = values
    elif isinstance(code_cache, list):
        # The pair of a layer is a list or a tuple, and keeps its type.
        entry_type = type(code_cache[layer])
        code_cache[layer] = entry_type((keys, values))
    else:
        # A tuple cannot be changed in place: a new tuple takes its place in `cache`.
        pairs = list(code_cache)
        pairs[layer] = (keys, values)
        cache["code_cache"] = tuple(pairs)


def list_pairs(code_cache: Any) -> Sequence[tuple[Tensor, Tensor]]:
    """Return the keys and values of each layer, in the axes that the code gave them.

    CannotAskError: the cache cannot be read.
    """
    pairs = code_cache
    # A DynamicCache has an object for each layer, without keys while it is empty.
    if hasattr(code_cache, "layers"):
        pairs = [
            (getattr(layer, "keys", None), getattr(layer, "values", None))
            for layer in code_cache.layers
        ]
    if not isinstance(pairs, list | tuple) or not pairs:
        raise CannotAskError(UNREADABLE)
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not all(isinstance(part, Tensor) for part in pair):
            raise CannotAskError(UNREADABLE)
    return pairs


def find_token_axis(cache: dict[str, Any], keys: Tensor) -> int:
    """Return the axis of tokens: its length is the number of tokens that were read.

    The axis is remembered for all caches of the code. CannotAskError: several axes have
    this length (one token and one head), or none has it (keys were dropped wrongly).
    """
    layout = cache["layout"]
    if "token_axis" not in layout:
        axes = range(1, keys.ndim - 1)
        tokens_read = cache["tokens_read"]
        fitting = [axis for axis in axes if keys.shape[axis] == tokens_read]
        if keys.ndim not in (3, 4) or len(fitting) != 1:
            raise CannotAskError(
                f"its keys have the shape {list(keys.shape)}, in which the axis of"
                f" {tokens_read} tokens is not known"
            )
        layout["token_axis"] = fitting[0]
    axis: int = layout["token_axis"]
    return axis


def put_heads_first(part: Tensor, token_axis: int) -> Tensor:
    """Return keys or values as [rows, heads, tokens, head_dim].

    Keys or values with three axes belong to a single head: [rows, tokens, head_dim].
    """
    if part.ndim == 3:
        return part[:, None]
    if token_axis == 2:
        return part
    return part.transpose(1, 2)


def restore_axes(part: Tensor, token_axis: int, ndim: int) -> Tensor:
    """Return keys or values with the axes that the code gave them: undo
    `put_heads_first`.

    ``ndim``: the number of axes that the code gave them.
    """
    if ndim == 3:
        return part[:, 0]
    if token_axis == 2:
        return part
    return part.transpose(1, 2)
