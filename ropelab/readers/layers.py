"""Which layers of a model rotate in a runtime, and how many tokens these layers see.

In some models only the layers with a sliding window rotate, and the layers that see the
whole context do not. Which layers these are follows from a rule for the model type and
the runtime (layers.toml names it, layer_rules.py has it), and from what the file says
of its layers.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.readers.families import read_table
from ropelab.readers.layer_file import (
    DEFAULTS,
    NO_DEFAULTS,
    SLIDING,
    LayerFile,
    count_layers,
    list_types,
)
from ropelab.readers.layer_rules import (
    BASES_KEY,
    LAYER_RULES,
    RULES_OF_WINDOWS,
    Rotating,
)
from ropelab.readers.spec import NotModelledError, RefusedError, require_number

# Keys that say which layers rotate. Readers of frequencies do not read them.
FLAG_KEYS = (
    "no_rope_layers",
    "no_rope_layer_interval",
    "no_rope_layer_indices",
    "use_rope_layers",
)
# For each model type the names of its rules, each with the runtimes that follow it.
RULES: dict[str, dict[str, list[str]]] = read_table("layers")["rules"]


def choose_type(runtime: str, *model_types: str) -> str:
    """Return the first of a model's types for which a runtime has a rule, else the last
    type.

    The types are the type of the whole model and the type of its language part. A whole
    model can have a separate model file, as Llama 4 has in MLX-LM.
    """
    for model_type in model_types:
        if find_rule(model_type, runtime):
            return model_type
    return model_types[-1]


def find_rule(model_type: str, runtime: str) -> str:
    """Return the name of the rule by which a runtime leaves layers unrotated.

    It is empty if there is none: then all layers rotate.
    """
    for rule, runtimes in RULES.get(model_type, {}).items():
        if runtime in runtimes:
            return rule
    return ""


def list_rotating(
    model_type: str, runtime: str, language_part: Mapping[str, Any]
) -> Rotating:
    """Return for each layer whether it rotates, None where it is not known.

    RefusedError: the runtime's class stops at what the file says of its layers.

    ``language_part``: the language part of the configuration.
    """
    rule = find_rule(model_type, runtime)
    count = count_layers(language_part)
    if not rule or count is None:
        return None

    file = LayerFile(language_part, count, DEFAULTS.get(model_type, NO_DEFAULTS))
    rotating = LAYER_RULES[rule](file)
    # A list of the file may be too short or too long for its layers.
    if rotating is None or len(rotating) != count:
        return None
    return rotating


def find_window(
    model_type: str, runtime: str, language_part: Mapping[str, Any]
) -> int | None:
    """Return the number of tokens that the rotating layers see, if all rotating layers
    have a window.

    None: a layer that sees the whole context rotates, or it is not known which layers
    rotate.
    """
    defaults = DEFAULTS.get(model_type, NO_DEFAULTS)
    window = language_part.get("sliding_window", defaults.window_tokens)
    has_windows = defaults.window_tokens is not None
    if not has_windows or type(window) is not int or window < 1:
        return None

    rule = find_rule(model_type, runtime)
    is_rule_of_windows = rule in RULES_OF_WINDOWS
    count = count_layers(language_part)
    if count is None:
        # Without a number of layers the class decides whether there are windows.
        return window if is_rule_of_windows else None

    rotating = list_rotating(model_type, runtime, language_part)
    if rotating is None or not any(rotating):
        return None
    if is_rule_of_windows and not all(rotating):
        return window

    # All layers rotate, or only the layers with a base. The types of these layers tell
    # whether they have a window.
    if not is_rule_of_windows and rule != "bases":
        return None
    file = LayerFile(language_part, count, defaults)
    if file.listed_types is None and defaults.needs_number:
        # The class may have been given a word such as LLLG, with which it has no types.
        return None
    types = list_types(file)
    if types is None or len(types) != count:
        return None
    rotating_types = {types[layer] for layer in range(count) if rotating[layer]}
    return window if rotating_types == {SLIDING} else None


def find_layer_base(
    model_type: str, runtime: str, language_part: Mapping[str, Any]
) -> float | None:
    """Return the base in a list that has a base for each layer; None if the file has no
    list.

    RefusedError: the list has another length than the number of layers.
    NotModelledError: the list has several bases, or no base except 0.
    """
    bases = language_part.get(BASES_KEY)
    if find_rule(model_type, runtime) != "bases" or not isinstance(bases, list):
        return None
    if count_layers(language_part) not in (None, len(bases)):
        raise RefusedError(
            f"{BASES_KEY} has {len(bases)} numbers, not one for each layer"
        )

    # Layers with a base of 0 do not rotate.
    different_bases = {require_number(base, BASES_KEY) for base in bases if base}
    if not different_bases:
        raise NotModelledError(f"a {BASES_KEY} of zeros, with which no layer rotates")
    if len(different_bases) > 1:
        raise NotModelledError(f"layers with bases of their own ({BASES_KEY})")
    return different_bases.pop()
