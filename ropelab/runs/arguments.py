"""Values that a program gives to the functions of the package: paths and texts.

The command line gives nothing but texts. A program may give anything, and an error that
is raised deep inside the package would not name the wrong argument.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from ropelab.runs.errors import InputError, cut_text
from ropelab.runs.files import check_name

# The most characters of a path. No system opens a longer one.
LONGEST_PATH = 4096
# The most dicts and lists that may be inside one another. No configuration has ten.
DEEPEST = 100


def read_path(name: str, value: Any) -> str:
    """Return a path as text; InputError if the value is not a path.

    >>> from pathlib import PurePosixPath
    >>> read_path("config", PurePosixPath("models/config.json"))
    'models/config.json'
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise InputError(f"{name} must be a path, not of type {type(value).__name__}")
    check_name(text)
    if len(text) > LONGEST_PATH:
        raise InputError(f"{name} is too long for a path: {cut_text(text)}")
    return text


def copy_mapping(name: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping as JSON would hold it: dicts with keys of text, and lists.

    InputError: a key is neither text nor a number, or values are nested more than
    DEEPEST deep, as in a dict that holds itself.

    >>> from types import MappingProxyType
    >>> copy_mapping("config", {"rope_parameters": MappingProxyType({"factor": 2})})
    {'rope_parameters': {'factor': 2}}
    """

    def copy_value(value: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise InputError(f"{name} is nested more than {DEEPEST} deep")
        if isinstance(value, Mapping):
            copied = {}
            for key, inner_value in value.items():
                if key is None or isinstance(key, int | float):
                    # Keys in JSON are texts. The keys of `id2label`, which are numbers,
                    # become texts in the way in which `json` writes them.
                    key = json.dumps(key)
                elif not isinstance(key, str):
                    raise InputError(
                        f"keys of {name} must be text, not of type {type(key).__name__}"
                    )
                copied[key] = copy_value(inner_value, depth + 1)
            return copied
        if isinstance(value, list | tuple):
            return [copy_value(item, depth + 1) for item in value]
        return value

    copied: dict[str, Any] = copy_value(value, 0)
    return copied


def check_texts(**values: Any) -> None:
    """Raise InputError for the first value that is not a text.

    >>> check_texts(dtype="float32", layer_type=None)
    Traceback (most recent call last):
    ropelab.runs.errors.InputError: layer_type must be text, not of type NoneType
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise InputError(f"{name} must be text, not of type {type(value).__name__}")
