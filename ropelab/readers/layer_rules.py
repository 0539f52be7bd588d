"""The rules by which a runtime leaves some layers of a model unrotated.

layers.toml names the rule that each runtime follows for a model type. A rule is a
function of a LayerFile, which has the facts of a file about its layers. It returns for
each layer whether the layer rotates.
"""

from collections.abc import Callable, Mapping

from ropelab.readers.layer_file import (
    SLIDING,
    LayerFile,
    check_number_pattern,
    has_full_attention,
    list_types,
)
from ropelab.readers.spec import RefusedError

# The key of a list with a base for each layer.
BASES_KEY = "layer_rope_theta"

# For each layer whether it rotates. None: the file does not say it, or says it in a way
# that no code here reads.
Rotating = list[bool] | None
Rule = Callable[[LayerFile], Rotating]
# The rules by their names in layers.toml.
LAYER_RULES: dict[str, Rule] = {}
# The names of rules by which only the layers with a window rotate. If all layers of a
# model have a window, or none has, all layers rotate.
RULES_OF_WINDOWS: set[str] = set()


def layer_rule(name: str, windows: bool = False) -> Callable[[Rule], Rule]:
    """Let a function be the rule of that name in layers.toml.

    ``windows``: True if the rule goes into RULES_OF_WINDOWS.
    """

    def register(rule: Rule) -> Rule:
        LAYER_RULES[name] = rule
        if windows:
            RULES_OF_WINDOWS.add(name)
        return rule

    return register


# -- Rules of the types of attention. --


@layer_rule("every")
def rotate_all(file: LayerFile) -> Rotating:
    """Rotate every layer.

    The class reads none of the keys by which other classes leave layers unrotated.
    """
    return [True] * file.count


@layer_rule("sliding", windows=True)
def rotate_by_type(file: LayerFile) -> Rotating:
    """Rotate the layers with a window, listed in the file or made by the class."""
    return mark_sliding(list_types(file))


def mark_sliding(types: list[object] | None) -> Rotating:
    """Return for each layer whether it has a window, None where no types are known."""
    if types is None:
        return None
    return [layer_type == SLIDING for layer_type in types]


@layer_rule("sliding_if_listed", windows=True)
def rotate_by_type_if_listed(file: LayerFile) -> Rotating:
    """Rotate the layers with a window; without a list no layer has one.

    Source: configs/afmoe.py:90 in SGLang.
    """
    if file.listed_types is None:
        return [False] * file.count
    return rotate_by_type(file)


@layer_rule("sliding_as_listed", windows=True)
def rotate_by_listed_type(file: LayerFile) -> Rotating:
    """Rotate the layers with a window; without a list the model file stops."""
    if file.listed_types is None:
        raise RefusedError("layer_types is missing, and the model file has no default")
    return rotate_by_type(file)


@layer_rule("sliding_or_unmixed", windows=True)
def rotate_by_type_if_mixed(file: LayerFile) -> Rotating:
    """Rotate the layers with a window; every layer where none has a window."""
    rotating = rotate_by_type(file)
    if rotating is not None and not any(rotating):
        return rotate_all(file)
    return rotating


@layer_rule("sliding_or_unmixed_as_listed", windows=True)
def rotate_by_listed_type_if_mixed(file: LayerFile) -> Rotating:
    """Do as `rotate_by_type_if_mixed`; without a list the model file stops."""
    rotate_by_listed_type(file)
    return rotate_by_type_if_mixed(file)


# -- Rules that look at sliding_window, too. --


@layer_rule("windowed", windows=True)
def rotate_by_window(file: LayerFile) -> Rotating:
    """Rotate the layers with a window; the class stops if sliding_window is null."""
    rotating = rotate_by_type(file)
    if file.window is None and rotating is not None and any(rotating):
        refuse_null_window()
    return rotating


@layer_rule("windowed_or_every", windows=True)
def rotate_by_window_or_every(file: LayerFile) -> Rotating:
    """Rotate the layers with a window; every layer if sliding_window is null.

    The class stops if it is null and there are layers with a window all the same.
    """
    rotating = rotate_by_window(file)
    if file.window is None:
        return rotate_all(file)
    return rotating


@layer_rule("windowed_or_unmixed", windows=True)
def rotate_by_window_if_mixed(file: LayerFile) -> Rotating:
    """Rotate the layers with a window, or every layer where none has a window.

    No layer rotates if some layers have a window and sliding_window is null or 0.
    """
    rotating = rotate_by_type(file)
    if rotating is None or not any(rotating):
        return rotate_by_type_if_mixed(file)
    if not file.window:
        return [False] * file.count
    return rotating


def refuse_null_window() -> None:
    """Raise RefusedError: the masks of layers with a window need its tokens."""
    raise RefusedError("sliding_window is null, and layers have a window")


# -- Rules that count layers, and do not look at their types. --


@layer_rule("numbered", windows=True)
def rotate_by_number(file: LayerFile) -> Rotating:
    """Rotate all but the last layer of each group of n."""
    period = file.period
    if type(period) is not int or period < 1:
        return None
    return [(layer + 1) % period != 0 for layer in range(file.count)]


@layer_rule("windowed_by_number", windows=True)
def rotate_by_window_and_number(file: LayerFile) -> Rotating:
    """Do as `rotate_by_number`; the class stops if sliding_window is null."""
    if file.window is None:
        refuse_null_window()
    return rotate_by_number(file)


@layer_rule("fourth")
def rotate_by_fourth(file: LayerFile) -> Rotating:
    """Rotate all but the last layer of each group of four."""
    return [(layer + 1) % 4 != 0 for layer in range(file.count)]


# -- Rules of EXAONE's sliding_window_pattern, which can be a word such as LLLG. --


@layer_rule("lettered", windows=True)
def rotate_by_letter(file: LayerFile) -> Rotating:
    """Rotate the layers with an L in the word; every layer if the word is empty."""
    if "sliding_window_pattern" not in file.language_part:
        raise RefusedError("sliding_window_pattern is missing, and has no default")
    pattern = file.language_part["sliding_window_pattern"]
    if not pattern:
        return rotate_all(file)
    check_word(pattern)
    # The word is repeated to the last layer.
    return [pattern[layer % len(pattern)] == "L" for layer in range(file.count)]


@layer_rule("by_length_of_word", windows=True)
def rotate_by_length_of_word(file: LayerFile) -> Rotating:
    """Rotate all but the last layer of each group of n, the length of the word.

    Every layer rotates if the word is empty, or sliding_window null. Listed types are not
    read, but spare the class the use of the pattern, at which it may stop.
    """
    if file.listed_types is None:
        check_number_pattern(file)
    pattern = file.period
    if not pattern or file.window is None:
        return rotate_all(file)
    check_word(pattern)
    return [(layer + 1) % len(pattern) != 0 for layer in range(file.count)]


def check_word(pattern: object) -> None:
    """Raise RefusedError for a pattern that is not a word."""
    if not isinstance(pattern, str):
        raise RefusedError("sliding_window_pattern must be a word such as LLLG")


# -- Rules of lists with an entry for each layer, or for each layer that is left out. --


@layer_rule("flags")
def rotate_by_flags(file: LayerFile) -> Rotating:
    """Rotate the layers whose flag is set in a list of the file.

    Without a list all but the last layer of each group of n rotate, or all layers where
    the class has no n.
    """
    flags = file.language_part.get(file.defaults.flags_key)
    if flags:
        if not isinstance(flags, list):
            return None
        return [bool(flag) for flag in flags]
    if not file.defaults.period_key:
        return rotate_all(file)
    return rotate_by_number(file)


@layer_rule("flags_needed")
def rotate_by_needed_flags(file: LayerFile) -> Rotating:
    """Do as `rotate_by_flags`; without a list the model file stops."""
    flags_key = file.defaults.flags_key
    if not isinstance(file.language_part.get(flags_key), list):
        raise RefusedError(f"{flags_key} is missing, and the model file has no default")
    return rotate_by_flags(file)


@layer_rule("numbers")
def rotate_by_numbers(file: LayerFile) -> Rotating:
    """Rotate all layers but the layers whose numbers are in a list of the file."""
    unrotated = file.language_part.get(file.defaults.unrotated_key)
    if unrotated is None:
        unrotated = list(file.defaults.unrotated)
    if not isinstance(unrotated, list):
        return None
    return [layer not in unrotated for layer in range(file.count)]


@layer_rule("bases")
def rotate_by_base(file: LayerFile) -> Rotating:
    """Rotate the layers whose base in a list is not 0."""
    bases = file.language_part.get(BASES_KEY)
    if bases is not None:
        if not isinstance(bases, list):
            return None
        return [bool(base) for base in bases]
    if not file.defaults.full_has_no_base:
        return rotate_all(file)

    # The class makes a list by itself, in which it does not look at layer_types.
    assert file.defaults.period is not None
    rotating = []
    for layer in range(file.count):
        is_full = has_full_attention(file, layer, file.defaults.period)
        rotating.append(not is_full)
    return rotating


@layer_rule("attention_blocks")
def rotate_by_attention_block(file: LayerFile) -> Rotating:
    """Rotate the layers whose block of Nemotron-NAS has attention."""
    blocks = file.language_part.get("block_configs")
    if not isinstance(blocks, list):
        return None

    rotating = []
    for block in blocks:
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(attention, Mapping):
            return None
        is_replaced = attention.get("no_op") or attention.get("replace_with_linear")
        rotating.append(not is_replaced)
    return rotating


# -- Rules of llama.cpp for the file that its converter writes from EXAONE's. --


@layer_rule("exaone_moe_file", windows=True)
def rotate_by_exaone_moe_file(file: LayerFile) -> Rotating:
    """Rotate the layers with a window."""
    return read_converted_pattern(file)


@layer_rule("exaone4_file", windows=True)
def rotate_by_exaone4_file(file: LayerFile) -> Rotating:
    """Rotate the layers with a window in a model of 64 layers, else all layers.

    In llama.cpp, models with another number of layers have no windows (exaone4.cpp:4).
    """
    if file.count != 64:
        return rotate_all(file)
    return read_converted_pattern(file)


def read_converted_pattern(file: LayerFile) -> Rotating:
    """Return for each layer whether it has a window after the conversion.

    The converter writes no pattern for some files. Then every fourth layer has no window
    in llama.cpp.
    """
    # Of the arrays in a GGUF file only their length is known here.
    if "attention.sliding_window_pattern" in file.language_part:
        return None
    if file.language_part.get("sliding_window") is None:
        return rotate_by_fourth(file)
    if file.listed_types is not None:
        return mark_sliding(file.listed_types)

    pattern = file.language_part.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return rotate_by_letter(file)
    if type(pattern) is int:
        return rotate_by_number(file)
    return rotate_by_fourth(file)
