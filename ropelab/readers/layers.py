"""Which layers of a model rotate in a runtime, and how many tokens these layers see.

In some models layers that see the whole context do not rotate, and those with a sliding
window do. Which these are follows from a rule for the model type and the runtime, whose
name is in layers.toml, and from what the file says of its layers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ropelab.readers.families import read_table
from ropelab.readers.spec import NotModelledError, RefusedError, number

# The most layers of a model.
MOST_LAYERS = 4096
# Keys that say which layers rotate. Readers of frequencies do not read them.
FLAG_KEYS = (
    "no_rope_layers",
    "no_rope_layer_interval",
    "no_rope_layer_indices",
    "use_rope_layers",
)
# The key of a list with a base for each layer.
BASES_KEY = "layer_rope_theta"

_TABLE = read_table("layers")
# The rules of each model type, with the runtimes that follow them.
RULES: dict[str, dict[str, list[str]]] = _TABLE["rules"]
# What the class of a model type takes where its file says nothing of layers.
USUAL_LAYERS: dict[str, dict[str, Any]] = _TABLE["usual"]
SLIDING = "sliding_attention"


@dataclass(frozen=True)
class LayerFile:
    """What a file says of its layers, and what its class takes where it is silent."""

    text: Mapping[str, Any]
    # The number of layers.
    count: int
    # The row of the model type in USUAL_LAYERS.
    usual: Mapping[str, Any]

    @property
    def window(self) -> Any:
        """The tokens of a window; None if the file says null."""
        return self.text.get("sliding_window", self.usual.get("tokens"))

    @property
    def listed_types(self) -> list[Any] | None:
        """The types of the layers, if the file lists them."""
        types = self.text.get("layer_types")
        return types if isinstance(types, list) else None

    @property
    def every(self) -> Any:
        """The number n, where every n-th layer is of another type."""
        return self.text.get(self.usual.get("key", ""), self.usual.get("every"))


# For each layer whether it rotates. None: the file does not say it, or it does in a way
# that no code here reads.
Rotating = list[bool] | None
Rule = Callable[[LayerFile], Rotating]
LAYER_RULES: dict[str, Rule] = {}
# Rules by which layers with a window rotate and others do not, or all layers rotate.
RULES_OF_WINDOWS: set[str] = set()


def layer_rule(name: str, windows: bool = False) -> Callable[[Rule], Rule]:
    """Let a function be the rule of that name in layers.toml.

    ``windows``: True if layers with a window rotate by it, or else all layers do.
    """

    def register(rule: Rule) -> Rule:
        LAYER_RULES[name] = rule
        if windows:
            RULES_OF_WINDOWS.add(name)
        return rule

    return register


def choose_type(runtime: str, *kinds: str) -> str:
    """Return the first of a model's types that has a rule of the runtime, else the last.

    A whole can have a model file of its own, as Llama 4 has in MLX-LM.
    """
    for kind in kinds:
        if find_rule(kind, runtime):
            return kind
    return kinds[-1]


def find_rule(model_type: str, runtime: str) -> str:
    """Return the rule by which a runtime leaves layers unrotated, or nothing."""
    for rule, runtimes in RULES.get(model_type, {}).items():
        if runtime in runtimes:
            return rule

    return ""


def count_layers(text: Mapping[str, Any]) -> int | None:
    """Return the number of layers of a configuration or GGUF file, None without one."""
    count = text.get("num_hidden_layers", text.get("block_count"))
    if isinstance(count, int) and 1 <= count <= MOST_LAYERS:
        return count

    return None


def list_rotating(model_type: str, runtime: str, text: Mapping[str, Any]) -> Rotating:
    """Return for each layer whether it rotates, None where it is not known.

    RefusedError: the runtime's class stops at what the file says of its layers.
    """
    rule = find_rule(model_type, runtime)
    count = count_layers(text)
    if not rule or count is None:
        return None

    file = LayerFile(text, count, USUAL_LAYERS.get(model_type, {}))
    rotating = LAYER_RULES[rule](file)
    if rotating is None or len(rotating) != count:
        return None
    return rotating


def find_window(model_type: str, runtime: str, text: Mapping[str, Any]) -> int | None:
    """Return the tokens that the rotating layers see, where all of these have a window.

    None where a layer that sees the whole context rotates, or nothing is known.
    """
    usual = USUAL_LAYERS.get(model_type, {})
    window = text.get("sliding_window", usual.get("tokens"))
    if "tokens" not in usual or type(window) is not int or window < 1:
        return None

    rule = find_rule(model_type, runtime)
    count = count_layers(text)
    if count is None:
        # Without a number of layers the class decides whether there are windows.
        return window if rule in RULES_OF_WINDOWS else None

    rotating = list_rotating(model_type, runtime, text)
    if rotating is None or not any(rotating):
        return None
    if rule in RULES_OF_WINDOWS and not all(rotating):
        return window
    if rule not in (*RULES_OF_WINDOWS, "bases"):
        return None

    file = LayerFile(text, count, usual)
    # A class that needs a number may have been given a word, such as LLL, in its place.
    if file.listed_types is None and usual.get("needs_number"):
        return None
    types = list_types(file)
    if types is None or len(types) != count:
        return None
    seen = {types[layer] for layer in range(count) if rotating[layer]}
    return window if seen == {SLIDING} else None


def find_layer_base(
    model_type: str, runtime: str, text: Mapping[str, Any]
) -> float | None:
    """Return the base in a list that has one for each layer, None without such a list.

    RefusedError: a list of another length. NotModelledError: several bases, or none.
    """
    bases = text.get(BASES_KEY)
    if find_rule(model_type, runtime) != "bases" or not isinstance(bases, list):
        return None
    if count_layers(text) not in (None, len(bases)):
        raise RefusedError(
            f"{BASES_KEY} has {len(bases)} numbers, not one for each layer"
        )

    # Layers with a base of 0 do not rotate.
    different_bases = {number(base, BASES_KEY) for base in bases if base}
    if not different_bases:
        raise NotModelledError(f"a {BASES_KEY} of zeros, with which no layer rotates")
    if len(different_bases) > 1:
        raise NotModelledError(f"layers with bases of their own ({BASES_KEY})")
    return different_bases.pop()


def list_types(file: LayerFile) -> list[Any] | None:
    """Return the kind of attention of each layer, by the file or by its class."""
    if file.listed_types is not None:
        return file.listed_types

    is_full = FULL.get(file.usual.get("full", ""))
    every = file.every
    if is_full is None:
        return None
    if file.usual.get("needs_number"):
        every = check_pattern(file)
    if "every" in file.usual and (type(every) is not int or every < 1):
        return None

    types = []
    for layer in range(file.count):
        full = is_full(layer, file.count, every)
        types.append("full_attention" if full else SLIDING)
    return types


# Return True for a layer that sees the whole context, where a file does not list the
# types. They are named in layers.toml, and take the number of the layer, the count of
# layers, and the n of 'every n-th layer'.
FULL: dict[str, Callable[[int, int, int], bool]] = {
    "ends": lambda layer, count, every: (layer + 1) % every == 0,
    "starts": lambda layer, count, every: layer % every == 0,
    "from last": lambda layer, count, every: (count - 1 - layer) % every == 0,
    "flint": lambda layer, count, every: (
        layer < 2 or layer % 4 == 1 or layer == count - 1
    ),
    "beam": lambda layer, count, every: (layer + 1) % 6 == 0 or layer == count - 1,
}


def check_pattern(file: LayerFile) -> int:
    """Return the pattern of EXAONE's class as a number; RefusedError for any other.

    The class computes `(i + 1) % sliding_window_pattern` if the file has no layer_types,
    with 0 for a window of null.
    """
    pattern = file.every
    if file.window is None:
        pattern = 0
    if type(pattern) is not int or pattern == 0:
        raise RefusedError(
            "without layer_types its class needs a number as sliding_window_pattern,"
            " and a window"
        )
    return pattern


def mark_sliding(types: list[Any] | None) -> Rotating:
    """Return True for each layer with a window."""
    if types is None:
        return None
    return [kind == SLIDING for kind in types]


@layer_rule("every")
def rotate_all(file: LayerFile) -> Rotating:
    # The class reads none of the keys by which other classes leave layers unrotated.
    return [True] * file.count


@layer_rule("sliding", windows=True)
def rotate_by_type(file: LayerFile) -> Rotating:
    return mark_sliding(list_types(file))


@layer_rule("sliding_if_listed", windows=True)
def rotate_by_type_if_listed(file: LayerFile) -> Rotating:
    # Without a list no layer has a window (configs/afmoe.py:90).
    if file.listed_types is None:
        return [False] * file.count
    return rotate_by_type(file)


@layer_rule("sliding_as_listed", windows=True)
def rotate_by_listed_type(file: LayerFile) -> Rotating:
    if file.listed_types is None:
        raise RefusedError("layer_types is missing, and the model file has no default")
    return rotate_by_type(file)


@layer_rule("sliding_or_unmixed", windows=True)
def rotate_by_type_if_mixed(file: LayerFile) -> Rotating:
    """Rotate layers with a window; every layer where none has one."""
    rotating = rotate_by_type(file)
    if rotating is not None and not any(rotating):
        return [True] * file.count
    return rotating


@layer_rule("sliding_or_unmixed_as_listed", windows=True)
def rotate_by_listed_type_if_mixed(file: LayerFile) -> Rotating:
    rotate_by_listed_type(file)
    return rotate_by_type_if_mixed(file)


@layer_rule("windowed", windows=True)
def rotate_by_window(file: LayerFile) -> Rotating:
    """Rotate layers with a window, which their masks need."""
    rotating = rotate_by_type(file)
    if file.window is None and any(rotating or ()):
        raise RefusedError("sliding_window is null, and layers have a window")
    return rotating


@layer_rule("windowed_or_every", windows=True)
def rotate_by_window_or_every(file: LayerFile) -> Rotating:
    """Rotate layers with a window; every layer without one."""
    rotating = rotate_by_window(file)
    if file.window is None:
        return [True] * file.count
    return rotating


@layer_rule("windowed_or_unmixed", windows=True)
def rotate_by_window_if_mixed(file: LayerFile) -> Rotating:
    rotating = rotate_by_type(file)
    if rotating is None or not any(rotating):
        return rotate_by_type_if_mixed(file)
    if not file.window:
        return [False] * file.count
    return rotating


@layer_rule("numbered", windows=True)
def rotate_by_number(file: LayerFile) -> Rotating:
    every = file.every
    if type(every) is not int or every < 1:
        return None
    return [(layer + 1) % every != 0 for layer in range(file.count)]


@layer_rule("windowed_by_number", windows=True)
def rotate_by_window_and_number(file: LayerFile) -> Rotating:
    if file.window is None:
        raise RefusedError("sliding_window is null, and layers have a window")
    return rotate_by_number(file)


@layer_rule("fourth")
def rotate_by_fourth(file: LayerFile) -> Rotating:
    return [(layer + 1) % 4 != 0 for layer in range(file.count)]


@layer_rule("lettered", windows=True)
def rotate_by_letter(file: LayerFile) -> Rotating:
    """Rotate the layers with an L in a word such as LLLG, every layer without one."""
    if "sliding_window_pattern" not in file.text:
        raise RefusedError("sliding_window_pattern is missing, and has no default")
    pattern = file.text["sliding_window_pattern"]
    if not pattern:
        return [True] * file.count
    if not isinstance(pattern, str):
        raise RefusedError("sliding_window_pattern must be a word such as LLLG")
    return [pattern[layer % len(pattern)] == "L" for layer in range(file.count)]


@layer_rule("by_length_of_word", windows=True)
def rotate_by_length_of_word(file: LayerFile) -> Rotating:
    """Rotate all but every n-th layer, where n is the length of a word.

    The word is sliding_window_pattern. layer_types are not read.
    """
    if file.listed_types is None:
        check_pattern(file)
    pattern = file.every
    if file.window is None:
        pattern = 0
    if not pattern:
        return [True] * file.count
    if not isinstance(pattern, str):
        raise RefusedError("sliding_window_pattern must be a word such as LLLG")
    return [(layer + 1) % len(pattern) != 0 for layer in range(file.count)]


@layer_rule("flags")
def rotate_by_flags(file: LayerFile) -> Rotating:
    """Rotate the layers whose flag is set in a list; without one all but every n-th."""
    flags = file.text.get(file.usual["flags"])
    if flags:
        return [bool(flag) for flag in flags] if isinstance(flags, list) else None
    if "key" not in file.usual:
        return [True] * file.count
    return rotate_by_number(file)


@layer_rule("flags_needed")
def rotate_by_needed_flags(file: LayerFile) -> Rotating:
    if not isinstance(file.text.get(file.usual["flags"]), list):
        raise RefusedError(
            f"{file.usual['flags']} is missing, and the model file has no default"
        )
    return rotate_by_flags(file)


@layer_rule("numbers")
def rotate_by_numbers(file: LayerFile) -> Rotating:
    """Rotate all but the layers whose numbers are in a list."""
    unrotated = file.text.get(file.usual["numbers"]) or []
    if not isinstance(unrotated, list):
        return None
    return [layer not in unrotated for layer in range(file.count)]


@layer_rule("bases")
def rotate_by_base(file: LayerFile) -> Rotating:
    """Rotate the layers whose base in a list is not 0."""
    bases = file.text.get(BASES_KEY)
    if bases is not None:
        return [bool(base) for base in bases] if isinstance(bases, list) else None
    if not file.usual.get("unrotated_full"):
        return [True] * file.count

    # The class makes a list by itself, in which it does not look at layer_types.
    is_full = FULL[file.usual["full"]]
    layers = range(file.count)
    return [not is_full(layer, file.count, file.usual["every"]) for layer in layers]


@layer_rule("attention_blocks")
def rotate_by_attention_block(file: LayerFile) -> Rotating:
    """Rotate the layers whose block of Nemotron-NAS has attention."""
    blocks = file.text.get("block_configs")
    if not isinstance(blocks, list):
        return None

    rotating = []
    for block in blocks:
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(attention, Mapping):
            return None
        has_none = attention.get("no_op") or attention.get("replace_with_linear")
        rotating.append(not has_none)
    return rotating


def read_converted_pattern(file: LayerFile) -> Rotating:
    """Return the layers with a window in the file that EXAONE's converter writes.

    Where no pattern was written, every fourth layer has none in llama.cpp.
    """
    # Of the arrays in a GGUF file only their length is known here.
    if "attention.sliding_window_pattern" in file.text:
        return None
    if file.text.get("sliding_window") is None:
        return rotate_by_fourth(file)
    if file.listed_types is not None:
        return mark_sliding(file.listed_types)

    pattern = file.text.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return rotate_by_letter(file)
    return rotate_by_number(file) if type(pattern) is int else rotate_by_fourth(file)


@layer_rule("exaone_moe_file", windows=True)
def rotate_by_exaone_moe_file(file: LayerFile) -> Rotating:
    return read_converted_pattern(file)


@layer_rule("exaone4_file", windows=True)
def rotate_by_exaone4_file(file: LayerFile) -> Rotating:
    # Models with other numbers of layers have no windows there (exaone4.cpp:4).
    if file.count != 64:
        return [True] * file.count
    return read_converted_pattern(file)
