"""Values as they are typed and shown: numbers, lists, flags and commands. Nothing
heavy.
"""

import math
import re
import shlex
from collections.abc import Container, Mapping
from typing import Any

POWER_OF_TWO = re.compile(r"\s*2\^(\d{1,3})\s*")
SUFFIXES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
NUMBER = re.compile(
    r"(?i)\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmg]?)\s*"
)


def read_number(value: object) -> object:
    """Read a number as people write it: `1e6`, `500_000`, `2^40`, `128k` (= 131072, k
    is 1024).

    >>> read_number("128k"), read_number("1e6"), read_number("0.5"), read_number("2^20")
    (131072, 1000000, 0.5, 1048576)
    """
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if not isinstance(value, str):
        return value
    if power := POWER_OF_TWO.fullmatch(value):
        return 2 ** int(power[1])
    match = NUMBER.fullmatch(value)
    if match is None:
        raise ValueError("must be a number such as 4096, 1e6 or 128k")
    text, unit = match[1].replace("_", ""), SUFFIXES[match[2].lower()]
    number = float(text) * unit
    if not math.isfinite(number) or number != int(number):
        return number
    # Beyond 2^53 a float64 would be a neighbour.
    return int(text) * unit if text.lstrip("+-").isdecimal() else int(number)


def split_list(text: str) -> list[str]:
    """Split at the commas outside brackets, and drop empty parts.

    >>> split_list("yarn(factor=4, beta_fast=8), longrope(factors=[1, 2]), pi,")
    ['yarn(factor=4, beta_fast=8)', 'longrope(factors=[1, 2])', 'pi']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def read_list(value: object) -> object:
    """Read a list: text such as `a,b(c=1,d=2)`, a list of TOML or Python, or one
    number.
    """
    if isinstance(value, str):
        return tuple(split_list(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


# The names of fields in the config.json of a Hugging Face model: accepted wherever ours
# are.
SPELLINGS = {
    "base": "rope_theta",
    "train_len": "original_max_position_embeddings",
    "test_len": "max_position_embeddings",
}
# Their rotary_dim: a share of head_dim.
PARTIAL = "partial_rotary_factor"


def spellings(fields: Container[str]) -> dict[str, str]:
    """Return the other spellings of a config's fields: ours to theirs."""
    return {ours: theirs for ours, theirs in SPELLINGS.items() if ours in fields}


def flag_of(name: str) -> str:
    """Return the flag of a config field: `head_dim` is `--head-dim`."""
    return f"--{name.replace('_', '-')}"


def command_of(name: str, values: Mapping[str, Any], argument: str = "") -> str:
    """Return a command with flags for values, `argument` without one, quoted for a
    shell.

    >>> command_of("emit", {"model": "qwen3-8b", "context": 65536})
    'ropelab emit --model qwen3-8b --context 65536'
    """
    words = ["ropelab", name]
    for key, value in values.items():
        if key == argument:
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(flag_of(key if value else f"no_{key}"))
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [flag_of(key), text]
    return shlex.join(words)


def plain(value: object) -> str:
    """Write a value of a config as one word.

    >>> plain(1e6), plain((1, 2)), plain(0.5), plain("pi")
    ('1e6', '1+2', '0.5', 'pi')
    """
    if isinstance(value, list | tuple):
        return "+".join(map(plain, value))
    return (
        re.sub(r"e\+0?", "e", f"{value:g}") if isinstance(value, float) else str(value)
    )
