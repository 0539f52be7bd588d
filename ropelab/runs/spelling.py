"""Values as they are typed and shown: numbers, lists, flags and commands.

This file imports nothing heavy.
"""

import math
import re
import shlex
from collections.abc import Container, Mapping, Sequence
from enum import StrEnum
from typing import Any

# Names that engines and people give to number formats.
FORMAT_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "single": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
}
# `2^20`; the group is the exponent.
POWER_OF_TWO = re.compile(r"\s*2\^(\d{1,3})\s*")
# The suffixes in powers of 1024, as they are read here.
SUFFIXES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
# The suffixes in powers of 1000, as other programs read them.
DECIMAL_SUFFIXES = {"k": 1000, "m": 1000**2, "g": 1000**3}
# `32,768`: either one number with commas between its thousands, or a list of two numbers.
THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+\s*")
# A number, with an exponent or a suffix such as `k`; the groups are the number and the
# suffix.
NUMBER = re.compile(
    r"""
    \s*
    (
        [+-]?
        (?: \d+ (?:_\d+)* (?:\.\d*)?  # digits: 4096, 500_000, 0.5
        | \.\d+ )                      # or only decimals: .5
        (?: e [+-]? \d+ )?             # an exponent
    )
    \s*
    ( [kmg]? )                         # a suffix
    \s*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def read_number(value: object) -> object:
    """Read a number as people write it: `1e6`, `500_000`, `2^40`, `128k` (= 131072, k
    is 1024). A value that is not a text is returned as it is, but true and false are
    refused.

    >>> read_number("128k"), read_number("1e6"), read_number("0.5"), read_number("2^20")
    (131072, 1000000, 0.5, 1048576)
    """
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if not isinstance(value, str):
        return value

    power = POWER_OF_TWO.fullmatch(value)
    if power:
        (exponent,) = power.groups()
        return 2 ** int(exponent)

    if THOUSANDS.fullmatch(value):
        joined = value.replace(",", "").strip()
        raise ValueError(f"must be a number without commas; type {joined}")
    match = NUMBER.fullmatch(value)
    if match is None:
        raise ValueError("must be a number such as 4096, 1e6 or 128k")

    number_text, suffix_text = match.groups()
    text = number_text.replace("_", "")
    suffix = suffix_text.lower()
    if suffix and "e" in text.lower():
        raise ValueError(f"must have either an exponent or '{suffix}', not both")

    unit = SUFFIXES[suffix]
    number = float(text) * unit
    digits = text.lower().partition("e")[0]
    if number == 0 and float(digits) != 0:
        raise ValueError("is too close to 0 for a float64")

    if not math.isfinite(number) or number != int(number):
        return number
    # A float64 does not hold all whole numbers beyond 2^53. A text of nothing but digits
    # is therefore read without a detour through a float64.
    if text.lstrip("+-").isdecimal():
        return int(text) * unit
    return int(number)


def read_plain_number(value: object) -> object:
    """Read a number that is not a length, such as a base, and refuse suffixes: `500k`
    could mean 500,000 or 512,000.

    >>> read_plain_number("5e5")
    500000
    """
    # `read_number` comes first, since its error explains what is wrong with a text that
    # is not a number.
    number = read_number(value)
    match = NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return number
    number_text, suffix_text = match.groups()
    suffix = suffix_text.lower()
    if not suffix:
        return number

    # The user probably means powers of 1000.
    likely_number = float(number_text.replace("_", "")) * DECIMAL_SUFFIXES[suffix]
    raise ValueError(
        f"must be a number without '{suffix}', which is {SUFFIXES[suffix]} and for"
        f" lengths alone; type {likely_number:.15g}"
    )


def split_list(text: str) -> list[str]:
    """Split at the commas outside brackets, and drop empty parts.

    >>> split_list("yarn(factor=4, beta_fast=8), longrope(factors=[1, 2]), pi,")
    ['yarn(factor=4, beta_fast=8)', 'longrope(factors=[1, 2])', 'pi']
    """
    parts = []
    start = 0
    depth = 0
    for index, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def read_lengths(value: object) -> object:
    """Read a list of lengths, and refuse `32,768`, which could be one length or two."""
    if isinstance(value, str) and _may_be_one_number(value):
        joined = value.replace(",", "").strip()
        with_blanks = ", ".join(value.strip().split(","))
        raise ValueError(
            f"could be one number or several; type {joined}, or '{with_blanks}' with"
            " blanks"
        )
    return read_list(value)


def _may_be_one_number(text: str) -> bool:
    """Return True for a list that a person may have written for one number.

    >>> [_may_be_one_number(text) for text in ("32,768", "10,000", "10,010", "64,256,512")]
    [True, True, True, False]
    """
    if not THOUSANDS.fullmatch(text):
        return False
    number = int(text.replace(",", ""))
    is_round = number % 1024 == 0 or number % 1000 == 0
    # A number in a list does not begin with 0, so `10,010` is hardly a list.
    return is_round or ",0" in text


def split_named(text: str) -> list[str]:
    """Split a list as `split_list` does, and refuse text of only blanks and commas.

    Such text is a mistake. For example, it is what a shell makes of "$A,$B" if neither
    variable is set. The text without any character stands for the empty list.

    >>> split_named("pi,"), split_named("")
    (['pi'], [])
    """
    parts = split_list(text)
    if text and not parts:
        raise ValueError("names nothing; give a value, or leave it out")
    return parts


def read_list(value: object) -> object:
    """Read a list: text such as `a,b(c=1,d=2)`, a list of TOML or Python, or one
    number. Any other value is returned as it is, for the config to refuse.
    """
    if isinstance(value, str):
        return tuple(split_named(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, list):
        return tuple(value)
    return value


def read_format(value: object) -> object:
    """Return the full name of a number format, also for `bf16` or `torch.bfloat16`.

    >>> read_format("FP16"), read_format("torch.bfloat16"), read_format("tf32")
    ('float16', 'bfloat16', 'tf32')
    """
    if not isinstance(value, str):
        return value
    name = value.strip().lower().removeprefix("torch.")
    return FORMAT_NAMES.get(name, name)


def read_formats(value: object) -> object:
    """Read a list of number formats."""
    names = read_list(value)
    if not isinstance(names, tuple):
        return names
    return tuple(map(read_format, names))


# Our names of fields, each with the name in the config.json of a Hugging Face model,
# which is accepted as well.
SPELLINGS = {
    "base": "rope_theta",
    "train_len": "original_max_position_embeddings",
    "test_len": "max_position_embeddings",
}
# Hugging Face's key for our field rotary_dim. Its value is not the number of features that
# rotate, but their share of head_dim, so that it is no mere spelling.
ROTARY_SHARE = "partial_rotary_factor"


class FieldGroup(StrEnum):
    """The part of a run that a field sets. Help lists the options of each part
    together.
    """

    ASKED = "What is asked"
    MODEL = "Model and training"
    EVALUATION = "Evaluation"


def list_spellings(fields: Container[str]) -> dict[str, str]:
    """Return Hugging Face's name of each field that has one, by our name of the field."""
    return {ours: theirs for ours, theirs in SPELLINGS.items() if ours in fields}


def make_flag(name: str) -> str:
    """Return the flag of a config field: `head_dim` is `--head-dim`."""
    return f"--{name.replace('_', '-')}"


def write_command(name: str, values: Mapping[str, Any], argument: str = "") -> str:
    """Return a command with a flag for each value, quoted for a shell. The value of the
    key `argument` is written without a flag.

    >>> write_command("emit", {"model": "qwen3-8b", "context": 65536})
    'ropelab emit --model qwen3-8b --context 65536'
    """
    words = ["ropelab", name]
    for key, value in values.items():
        if key == argument:
            words.append(str(value))
        elif value is True:
            words.append(make_flag(key))
        elif value is False:
            words.append(make_flag(f"no_{key}"))
        elif isinstance(value, list):
            words += [make_flag(key), _join_list(value)]
        else:
            words += [make_flag(key), str(value)]
    return shlex.join(words)


def _join_list(values: Sequence[object]) -> str:
    text = ",".join(map(str, values))
    # Without a blank the list 32, 768 would be read as one number.
    if _may_be_one_number(text):
        return text.replace(",", ", ")
    return text


def quote_words(words: Sequence[str]) -> str:
    """Return words as they are typed into a shell, where `>` is a redirection.

    >>> quote_words(["ropelab", "audit", "a b.json", ">", "out.json"])
    "ropelab audit 'a b.json' > out.json"
    """
    return shlex.join(words).replace(" '>' ", " > ")


def write_plainly(value: object) -> str:
    """Write a value of a config as one word.

    >>> write_plainly(1e6), write_plainly((1, 2)), write_plainly(0.5), write_plainly("pi")
    ('1e6', '1+2', '0.5', 'pi')
    """
    if isinstance(value, list | tuple):
        return "+".join(map(write_plainly, value))
    if isinstance(value, float):
        return re.sub(r"e\+0?", "e", f"{value:g}")
    return str(value)
