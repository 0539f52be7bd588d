"""Refuse the values that the configuration classes of transformers 5 refuse."""

from collections.abc import Mapping
from typing import Any

from ropelab.readers.families import RELEASE, RELEASES, read_table
from ropelab.readers.layer_file import SLIDING
from ropelab.readers.spec import RefusedError, require_whole, shorten_value
from ropelab.readers.trace import (
    ABSENT,
    BANDS,
    BLOCKS,
    LISTS,
    MAXIMUM,
    ORIGINAL,
    TYPES_WITH_ORIGINAL,
    Trace,
    find_value,
)

NAMES = read_table("names")["declared"]
# The type of layers that attend within chunks of the text.
CHUNKED = "chunked_attention"
# The keys that a block has to have, by its scaling type, where nothing fills them in
# (modeling_rope_utils.py:932 to :1130).
REQUIRED: Mapping[str | None, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", ORIGINAL),
    "longrope": (*LISTS, ORIGINAL),
    "llama3": (*BANDS, ORIGINAL, "rope_theta"),
    "proportional": ("rope_theta",),
}


def check_values(trace: Trace) -> None:
    """Raise RefusedError for a value that the class of the model type does not take."""
    family = trace.family
    language_part = trace.language_part
    for key, kinds in family.key_types.items():
        value = find_value(language_part, key)
        type_name = "null" if value is None else type(value).__name__
        if kinds and value is not ABSENT and type_name not in kinds.split():
            raise RefusedError(
                f"{key} must be of type {kinds}, not {shorten_value(value)}"
            )

    check_beside(trace)
    hidden = language_part.get("hidden_size", family.hidden_size)
    heads = language_part.get("num_attention_heads", family.num_attention_heads)
    if family.needs_divisible_size and heads and hidden % heads:
        raise RefusedError(f"hidden_size {hidden} is not a multiple of {heads} heads")

    # A class without such types was not asked what it takes.
    if not family.key_types:
        return
    check_layer_types(language_part, family.name)
    for part in (language_part, trace.whole):
        dtype = part.get("dtype") or part.get("torch_dtype")
        if isinstance(dtype, str) and dtype not in NAMES["dtypes"].split():
            raise RefusedError(
                f"dtype '{shorten_value(dtype)}' is no number format of torch"
            )


def check_beside(trace: Trace) -> None:
    """Raise RefusedError for a scaling beside the part of the language model.

    The class of a model with several parts declares no keys about rotation. It takes
    the keys of the file one after another, so that the later of two blocks counts. This
    block has to be complete, and some scalings need a length beside the block
    (modeling_rope_utils.py:868 to :1130).
    """
    whole = trace.whole
    if not trace.prefix or trace.outer_type not in RELEASES[RELEASE]:
        return

    part_name = trace.prefix.removesuffix(".")
    names = [name for name in whole if name in BLOCKS]
    scaling = whole.get("rope_scaling")
    theta = whole.get("rope_theta")
    class_has_length = trace.outer_type in NAMES["wholes_with_length"]
    # If the file also has a base, rope_scaling is moved into rope_parameters before any
    # other key is set, a length included (configuration_utils.py:474,
    # modeling_rope_utils.py:843).
    is_moved_first = False
    if isinstance(scaling, Mapping) and scaling and theta:
        is_moved_first = True
        needs_length = find_scaling_type(scaling) in TYPES_WITH_ORIGINAL
        if needs_length and not class_has_length:
            raise RefusedError(
                f"rope_scaling is beside {part_name}, without a length for it"
            )
        # False sorts before True, so that rope_scaling comes first.
        names.sort(key=lambda name: name != "rope_scaling")
    block = whole[names[-1]] if names else None
    if not isinstance(block, Mapping) or not block:
        return

    scaling_type = find_scaling_type(block)
    complete_block = {**block, "rope_theta": theta} if is_moved_first else block
    missing = [
        key for key in REQUIRED.get(scaling_type, ()) if key not in complete_block
    ]
    if missing:
        keys = ", ".join(missing)
        raise RefusedError(f"{names[-1]} is beside {part_name}, without {keys}")
    has_length = class_has_length or whole.get(MAXIMUM) is not None
    if scaling_type in ("yarn", "llama3") and not has_length:
        raise RefusedError(
            f"{names[-1]} is beside {part_name}, without a length for it"
        )


def find_scaling_type(block: Mapping[str, Any]) -> Any:
    """Return the scaling type of a block, under its newer or its older name."""
    scaling_type = block.get("rope_type", block.get("type", "default"))
    return scaling_type if isinstance(scaling_type, str) else None


def check_layer_types(language_part: Mapping[str, Any], model_type: str) -> None:
    """Raise RefusedError for layer types that are not a list with a name for each layer
    that the class of a model type knows.
    """
    if "layer_types" in language_part and model_type in NAMES["without_layer_types"]:
        raise RefusedError(f"the class of '{model_type}' has no place for layer_types")

    key = NAMES["layer_types_key"].get(model_type, "layer_types")
    layers = language_part.get(key)
    if layers is None:
        return
    known = NAMES["own_layer_types"].get(model_type, NAMES["layer_types"]).split()
    # A value that is not a list has no names, and is refused like an empty list.
    names = set()
    if isinstance(layers, list):
        names = {str(layer) for layer in layers}
    if not names or names - set(known):
        stated_names = ", ".join(sorted(names)) or layers
        raise RefusedError(
            f"{key} must be a list of known names, not {shorten_value(stated_names)}"
        )
    needed = NAMES["needed_layer_types"].get(model_type)
    if needed and needed not in names:
        raise RefusedError(f"{key} must have a '{needed}'")
    if names == {NAMES["insufficient_layer_types"].get(model_type)}:
        raise RefusedError(f"{key} has a '{names.pop()}' alone")
    count = count_passes(language_part, model_type)
    if count not in (None, len(layers)):
        raise RefusedError(f"{key} has {len(layers)} names for {count} layers")


def count_passes(language_part: Mapping[str, Any], model_type: str) -> Any:
    """Return the number of layers that a token passes, as the class counts them.

    None: the file does not state it.
    """
    count = language_part.get("num_hidden_layers")
    cycles = NAMES["cycles"].get(model_type)
    if count is None or cycles is None:
        return count
    # Such a file has the number of all passes already.
    if language_part.get(cycles["stack_key"]) is not None:
        return count

    high = require_whole(language_part.get("H_cycles", cycles["H_cycles"]), "H_cycles")
    low = require_whole(language_part.get("L_cycles", cycles["L_cycles"]), "L_cycles")
    return require_whole(count, "num_hidden_layers") * high * (low + 1)


def check_window(language_part: Mapping[str, Any], model_type: str) -> None:
    """Raise RefusedError for layers with a window or chunks of which no size is known.

    The class is built, and its first forward pass with a cache stops.
    """
    layers = language_part.get("layer_types")
    windows = NAMES["windows"]
    makes_cache = model_type not in windows["types_without_cache"].split()
    if not isinstance(layers, list) or not makes_cache:
        return

    chunk_key = "attention_chunk_size"
    has_size = language_part.get(chunk_key) is not None
    if chunk_key not in language_part:
        has_size = model_type == windows["type_with_chunk_size"]
    if CHUNKED in layers and not has_size:
        raise RefusedError(f"layers attend in chunks, and {chunk_key} is missing")
    if SLIDING not in layers:
        return
    if model_type in windows["types_without_windows"].split():
        raise RefusedError(f"the class of '{model_type}' has no layers with a window")

    is_switched = model_type in windows["types_with_switch"].split()
    if is_switched and not language_part.get("use_sliding_window"):
        raise RefusedError("layers have a window, and use_sliding_window is not true")
    has_default = is_switched or model_type in windows["types_with_size"].split()
    if "sliding_window" not in language_part and not has_default:
        raise RefusedError("layers have a window, and sliding_window is missing")
    if "sliding_window" in language_part and language_part["sliding_window"] is None:
        raise RefusedError("sliding_window is null, and layers have a window")
