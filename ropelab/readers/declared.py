"""Refuse the values that the configuration classes of transformers 5 refuse."""

from collections.abc import Mapping
from typing import Any

from ropelab.readers.families import CLASSES, read_table
from ropelab.readers.spec import RefusedError, shorten_value
from ropelab.readers.trace import (
    ABSENT,
    BLOCKS,
    MAXIMUM,
    ORIGINAL,
    SCALED,
    Trace,
    find_value,
)

NAMES = read_table("names")["declared"]


def check_values(trace: Trace) -> None:
    """Raise RefusedError for a value that the class of the model type does not take."""
    family = trace.family
    text = trace.text
    for key, kinds in family.key_types.items():
        value = find_value(text, key)
        kind = "null" if value is None else type(value).__name__
        if kinds and value is not ABSENT and kind not in kinds.split():
            raise RefusedError(
                f"{key} must be of type {kinds}, not {shorten_value(value)}"
            )

    check_beside(trace)
    hidden = text.get("hidden_size", family.hidden_size)
    heads = text.get("num_attention_heads", family.num_attention_heads)
    if family.needs_divisible_size and heads and hidden % heads:
        raise RefusedError(f"hidden_size {hidden} is not a multiple of {heads} heads")

    if not family.key_types:
        return
    if family.name not in NAMES["own_layer_types"]:
        check_layer_types(text)
    for part in (text, trace.whole):
        name = part.get("dtype") or part.get("torch_dtype")
        if isinstance(name, str) and name not in NAMES["dtypes"].split():
            raise RefusedError(
                f"dtype '{shorten_value(name)}' is no number format of torch"
            )


def check_beside(trace: Trace) -> None:
    """Raise RefusedError for a scaling beside the part of the language model.

    A class of several parts gives such a block its own length, which it has only if the
    file has one beside the block. With a base, too, rope_scaling is moved before any
    other key is set (configuration_utils.py:474, modeling_rope_utils.py:843).
    """
    whole = trace.whole
    if not trace.prefix or whole.get("model_type") not in CLASSES["texts"]:
        return

    has_length = MAXIMUM in whole or ORIGINAL in whole
    for name in BLOCKS:
        block = whole.get(name)
        if not isinstance(block, Mapping):
            continue
        kind = block.get("rope_type", block.get("type"))
        is_moved_first = name == "rope_scaling" and bool(whole.get("rope_theta"))
        if kind in SCALED and (is_moved_first or not has_length):
            part = trace.prefix.removesuffix(".")
            raise RefusedError(f"{name} is beside {part}, without a length for it")


def check_layer_types(text: Mapping[str, Any]) -> None:
    """Raise RefusedError for layer types that are not a list with a known name for each
    layer.
    """
    layers = text.get("layer_types")
    if layers is None:
        return
    names = {*map(str, layers)} if isinstance(layers, list) else {""}
    if not names or names - {*NAMES["layer_types"].split()}:
        given = ", ".join(sorted(names)) or layers
        raise RefusedError(
            f"layer_types must be a list of known names, not {shorten_value(given)}"
        )
    count = text.get("num_hidden_layers")
    if count not in (None, len(layers)):
        raise RefusedError(f"layer_types has {len(layers)} names for {count} layers")
