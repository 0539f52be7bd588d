"""Read and write the keys and values in a cache of code that is no model of transformers.

A cache can be read if it is a DynamicCache, or a list or tuple of (keys, values), a pair a
layer. Tokens may be the axis before the last, as in [rows, heads, tokens, head_dim], or
the one after the rows, as in [rows, tokens, heads, head_dim].
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

# Keys and values of a layer [rows, heads, tokens, head_dim]; None where it keeps none.
Entry = tuple[Tensor, Tensor] | None
# The reason why keys of another cache cannot be read.
CLOSED = "its cache is neither a DynamicCache nor a list of (keys, values) by layer"


class UnaskedError(Exception):
    """The model has no means to be asked this; the message is the reason."""


def list_entries(cache: dict[str, Any]) -> list[Entry]:
    """Return keys and values of each layer.

    Args:
        cache: a dictionary of `held`, the cache as the code made it; `read`, the number
            of tokens in it; and `layout`, the axis of tokens once it is known.
    """
    entries: list[Entry] = []
    for keys, values in list_pairs(cache["held"]):
        axis = find_token_axis(cache, keys)
        entries.append((bring_forward(keys, axis), bring_forward(values, axis)))
    return entries


def set_entry(cache: dict[str, Any], layer: int, entry: tuple[Tensor, Tensor]) -> None:
    """Put keys and values [rows, heads, tokens, head_dim] of a layer into a cache."""
    held = cache["held"]
    old_keys, _ = list_pairs(held)[layer]
    axis = find_token_axis(cache, old_keys)
    keys, values = (take_back(part, axis, old_keys.ndim) for part in entry)

    if hasattr(held, "layers"):
        held.layers[layer].keys = keys
        held.layers[layer].values = values
    elif isinstance(held, list):
        held[layer] = type(held[layer])((keys, values))
    else:
        pairs = list(held)
        pairs[layer] = (keys, values)
        cache["held"] = tuple(pairs)


def list_pairs(held: Any) -> Sequence[tuple[Tensor, Tensor]]:
    """Return the pairs of a cache, as they are stored.

    UnaskedError: the cache is no such pairs.
    """
    pairs = held
    if hasattr(held, "layers"):
        pairs = [
            (getattr(layer, "keys", None), getattr(layer, "values", None))
            for layer in held.layers
        ]
    if not isinstance(pairs, list | tuple) or not pairs:
        raise UnaskedError(CLOSED)
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not all(isinstance(part, Tensor) for part in pair):
            raise UnaskedError(CLOSED)
    return pairs


def find_token_axis(cache: dict[str, Any], keys: Tensor) -> int:
    """Return the axis of tokens, which has as many places as tokens were read.

    The axis is remembered for all caches of the code. A cache of one token does not show
    it, nor does one after an eviction that left a wrong number of keys.
    """
    layout = cache["layout"]
    if "token_axis" not in layout:
        axes = range(1, keys.ndim - 1)
        fitting = [axis for axis in axes if keys.shape[axis] == cache["read"]]
        if keys.ndim not in (3, 4) or len(fitting) != 1:
            raise UnaskedError(
                f"its keys have the shape {list(keys.shape)}, in which the axis of"
                f" {cache['read']} tokens is not known"
            )
        layout["token_axis"] = fitting[0]
    axis: int = layout["token_axis"]
    return axis


def bring_forward(part: Tensor, axis: int) -> Tensor:
    """Return keys or values as [rows, heads, tokens, head_dim].

    ``axis``: the axis of tokens. Without an axis of heads there is one head.
    """
    if part.ndim == 3:
        return part[:, None]
    return part if axis == 2 else part.transpose(1, 2)


def take_back(part: Tensor, axis: int, ndim: int) -> Tensor:
    """Return keys or values in the shape that the cache has: undo `bring_forward`."""
    if ndim == 3:
        return part[:, 0]
    return part if axis == 2 else part.transpose(1, 2)
