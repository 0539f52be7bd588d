"""The flags about rotation in the command line of a server."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ropelab.readers.families import CLASSES, read_table
from ropelab.readers.llamacpp import FLAGS as LLAMACPP
from ropelab.readers.spec import NotModelledError, RefusedError, is_context
from ropelab.readers.trace import BLOCKS, LANGUAGE_PARTS, find_language_part
from ropelab.readers.trainers import FLAGS, SWITCHES
from ropelab.readers.transformers import load_block
from ropelab.runs.errors import InputError, cut_text, make_name_error
from ropelab.runs.files import parse
from ropelab.runs.spelling import DECIMAL_SUFFIXES, SUFFIXES, read_number

# The flags that replace keys of the configuration, with the runtime of each.
OVERRIDES = read_table("trainers")["overrides"]
# The flags that set the length of a server, with the runtime of each.
LENGTH_FLAGS = read_table("trainers")["lengths"]
# The flags that set a value, with the name of the value.
SETTINGS = {**LLAMACPP, **FLAGS}
# The settings that are lengths in tokens. llama.cpp's 0 stands for the model's own length,
# so that its flag is checked where it is used.
LENGTHS = ("length", "cutoff_len", "max_seq_length")
# The flags of llama.cpp for a factor, and for its inverse.
SCALE_FLAGS = ("--rope-scale", "--rope-freq-scale")
# The flag of koboldcpp for a scale and a base.
KOBOLD_FLAG = "--ropeconfig"
KNOWN_FLAGS = (*SETTINGS, *SWITCHES, *OVERRIDES, KOBOLD_FLAG)
# Only vLLM reads a suffix (engine/arg_utils.py, human_readable_int); llama.cpp's
# std::stof takes 500k for 500, and Python's int and float stop at one.
VLLM_LENGTH = "--max-model-len"
SUFFIXED = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([kmgKMG])")


@dataclass(frozen=True)
class Flags:
    """The values that the flags of a server set."""

    # Values by the names that readers give them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # For each runtime, keys that replace keys of the configuration.
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # True if the keys belong to a part of the configuration, such as text_config.
    nested: bool = False
    # The length in tokens that a server is started with, by runtime.
    lengths: Mapping[str, int] = field(default_factory=dict)

    def apply(self, runtime: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration as a runtime reads it after its flags."""
        changes = self.overrides.get(runtime)
        if not isinstance(changes, Mapping):
            return config
        if is_moved_into_part(config) and not self.nested:
            inside = {runtime: changes.get("text_config", {})}
            return Flags(overrides=inside, nested=True).apply(runtime, config)
        if runtime == "axolotl":
            return set_on_loaded(config, changes)

        result = {**config, **changes}
        if "rope_parameters" in changes and "rope_scaling" not in changes:
            result.pop("rope_scaling", None)
        # SGLang merges the block of the whole configuration and replaces the block of a
        # part. vLLM does the reverse.
        merges_block = self.nested
        if runtime == "sglang":
            merges_block = not self.nested
        for name in BLOCKS:
            if merges_block and isinstance(changes.get(name), Mapping):
                result[name] = merge_block(config, changes[name])

        for part in LANGUAGE_PARTS:
            part_of_file = config.get(part)
            change = changes.get(part)
            if isinstance(part_of_file, Mapping) and isinstance(change, Mapping):
                inner = Flags(overrides={runtime: change}, nested=True)
                result[part] = inner.apply(runtime, part_of_file)
        return result

    def name_scaling(self, runtime: str) -> str:
        """Return the flag that gives a runtime its factor; empty: the file gives it."""
        changes = self.overrides.get(runtime)
        if isinstance(changes, Mapping):
            parts = [changes, *(changes.get(part) for part in LANGUAGE_PARTS)]
            for part in parts:
                if isinstance(part, Mapping) and any(part.get(name) for name in BLOCKS):
                    (flag,) = [
                        name for name, owner in OVERRIDES.items() if owner == runtime
                    ]
                    return flag

        if runtime == "llama.cpp":
            for flag in SCALE_FLAGS:
                if SETTINGS[flag] in self.settings:
                    return flag
        return ""


def is_moved_into_part(config: Mapping[str, Any]) -> bool:
    """Return True for a flat file whose keys its class moves into text_config."""
    return (
        config.get("model_type") in CLASSES["flat"]
        and not find_language_part(config)[0]
    )


def merge_block(config: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block of a file as transformers 5 loads it, with the values of another
    block laid over it.
    """
    try:
        old = load_block(config)
    except (RefusedError, NotModelledError, ArithmeticError, ValueError):
        return dict(block)
    # `type` is read when the file is loaded, and not later.
    old.pop("type", None)

    both = {**old, **block}
    for key in old.keys() & block.keys():
        if isinstance(old[key], dict) and isinstance(block[key], dict):
            both[key] = {**old[key], **block[key]}
    return both


def set_on_loaded(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a configuration of transformers 5 on which keys were set after loading."""
    blocks = [changes[name] for name in BLOCKS if name in changes]
    # The base is in the block by then, and a key outside of the block is not read.
    if not blocks:
        further_changes = dict(changes)
        further_changes.pop("rope_theta", None)
        return {**config, **further_changes}

    keys_outside_block = {**config, **changes}
    for name in (*BLOCKS, "rope_theta"):
        keys_outside_block.pop(name, None)
    last_block = blocks[-1] if isinstance(blocks[-1], Mapping) else {}
    # The base of the file went with its block, and nothing fills in a type.
    base = changes.get("rope_theta")
    return {
        **keys_outside_block,
        "rope_parameters": {"rope_theta": base, "rope_type": None, **last_block},
    }


def parse_flags(text: str) -> Flags:
    """Return the settings in a server's flags, `--flag value` or `--flag=value`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--flags cannot be read: {error}") from None
    settings: dict[str, Any] = {}
    overrides: dict[str, Mapping[str, Any]] = {}
    lengths: dict[str, int] = {}
    known_flags, unknown_words = take_known(words)
    if unknown_words:
        raise make_name_error("flag", unknown_words[0].partition("=")[0], KNOWN_FLAGS)

    for name, value in known_flags:
        if name in OVERRIDES:
            overrides[OVERRIDES[name]] = parse(name, value.encode())
        elif name == KOBOLD_FLAG:
            scale, _, base = value.partition(" ")
            settings["rope_freq_scale"] = read_setting(name, scale)
            if base:
                settings["rope_freq_base"] = read_setting(name, base)
        elif name in SWITCHES:
            settings[SWITCHES[name]] = True
        else:
            number = read_setting(name, value)
            is_length = SETTINGS[name] in LENGTHS
            if is_length and not is_context(number):
                raise InputError(
                    f"{name} must be a whole number of tokens from 2 to 2^40, got"
                    f" '{cut_text(value)}'"
                )
            settings[SETTINGS[name]] = number
            # llama.cpp's 0 stands for the length of the model.
            if name in LENGTH_FLAGS and number:
                lengths[LENGTH_FLAGS[name]] = number

    if settings.get("rope_scale", 1) <= 0:
        raise InputError("--rope-scale must be above 0: frequencies are divided by it")
    return Flags(settings, overrides, lengths=lengths)


def take_known(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the known flags among some words with their values, and all remaining
    words.
    """
    known_flags = []
    unknown_words = []
    words_left = list(words)
    while words_left:
        word = words_left.pop(0)
        name, equals, value = word.partition("=")
        if name not in KNOWN_FLAGS:
            unknown_words.append(word)
            continue

        if not equals and name not in SWITCHES:
            if not words_left:
                raise InputError(f"{name} needs a value")
            value = words_left.pop(0)
            if name == KOBOLD_FLAG and words_left and not words_left[0].startswith("-"):
                value = f"{value} {words_left.pop(0)}"
        known_flags.append((name, value))
    return known_flags, unknown_words


def read_setting(name: str, value: str) -> Any:
    """Return the value that a server's flag sets.

    vLLM reads suffixes such as 128k, and other servers stop at them.
    """
    if name == "--rope-scaling":
        return value
    suffixed = SUFFIXED.fullmatch(value)
    if suffixed is None:
        return read_option(name, value)

    digits, suffix = suffixed.groups()
    thousands = float(digits) * DECIMAL_SUFFIXES[suffix.lower()]
    if name != VLLM_LENGTH:
        typed = f"{thousands:.15g}"
        raise InputError(f"{name} takes digits alone; type {typed}, got '{value}'")
    # Small letters are thousands there, and capitals powers of two.
    if suffix.islower():
        return int(thousands)
    return int(float(digits) * SUFFIXES[suffix.lower()])


def read_option(name: str, value: str) -> Any:
    """Return the number in the value of an option of this program; InputError if the
    value is not a number.
    """
    try:
        return read_number(value)
    except ValueError as error:
        raise InputError(f"{name} {error}, got '{value}'") from None
