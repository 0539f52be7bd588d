"""Which layers of a model rotate, and how many tokens these layers see."""

from collections.abc import Mapping
from typing import Any

from ropelab.runs.files import table_beside

MOST_LAYERS = 4096
RULES = table_beside(__file__, "beside")
# Rules for layers without rotation, each a table of model types.
UNROTATED = ("listed", "windowed", "fourth")
# The keys of the first rule.
LAYER_KEYS = ("no_rope_layers", "no_rope_layer_interval")


def find_rule(model_type: str, runtime: str) -> str:
    """Return the rule by which a runtime leaves layers unrotated, or nothing."""
    for rule in UNROTATED:
        if runtime in RULES[rule].get(model_type, ()):
            return rule

    return ""


def count_layers(text: Mapping[str, Any]) -> int | None:
    """Return the number of layers of a configuration or GGUF file, None without one."""
    count = text.get("num_hidden_layers", text.get("block_count"))
    if isinstance(count, int) and 1 <= count <= MOST_LAYERS:
        return count

    return None


def list_rotating(
    rule: str, model_type: str, text: Mapping[str, Any]
) -> list[bool] | None:
    """Return for each layer whether it rotates, None where the file does not say."""
    count = count_layers(text)
    if count is None:
        return None

    if rule == "fourth":
        return [(layer + 1) % 4 != 0 for layer in range(count)]

    if rule == "listed":
        step = text.get("no_rope_layer_interval", 4)
        flags = text.get("no_rope_layers")
        if not flags and isinstance(step, int) and step >= 1:
            flags = [(layer + 1) % step for layer in range(count)]
    else:
        flags = list_windowed(model_type, text, count)

    if not isinstance(flags, list) or len(flags) != count:
        return None
    return [bool(flag) for flag in flags]


def list_windowed(
    model_type: str, text: Mapping[str, Any], count: int
) -> list[bool] | None:
    """Return for each layer whether its class gives it a window and a rotation."""
    usual = RULES["windows"].get(model_type)
    if usual is None:
        return None
    if text.get("sliding_window", usual["tokens"]) is None:
        # Some classes then rotate every layer; the others were not read for it.
        return [True] * count if usual.get("all_without_window") else None

    types = text.get("layer_types")
    if isinstance(types, list):
        return [one == "sliding_attention" for one in types]

    every = text.get(usual.get("key", ""), usual.get("every"))
    if not isinstance(every, int) or every < 1:
        return None
    return [(layer + 1) % every != 0 for layer in range(count)]


def find_window(model_type: str, text: Mapping[str, Any]) -> int | None:
    """Return the tokens that the rotating layers see, where only windowed ones rotate.

    None where a layer that sees the whole context rotates, or nothing is known.
    """
    usual = RULES["windows"].get(model_type)
    if usual is None:
        return None

    window = text.get("sliding_window", usual["tokens"])
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        return None

    # A file without a number of layers says nothing of them; its class has windows.
    rotating = list_rotating("windowed", model_type, text)
    if rotating is not None and not any(rotating):
        return None
    return window
