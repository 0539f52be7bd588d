"""Values that a program gives to the functions of the package: paths and texts.

The command line gives texts alone. A program may give anything, and an error deep inside
would not name the argument that is wrong.
"""

import os
from typing import Any

from ropelab.runs.errors import InputError, cut_text
from ropelab.runs.files import check_name

# The most characters of a path. No system opens a longer one.
LONGEST_PATH = 4096


def read_path(name: str, value: Any) -> str:
    """Return a path as text; InputError for what is no path.

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


def check_texts(**values: Any) -> None:
    """Raise InputError for the first value that is no text.

    >>> check_texts(dtype="float32", layer_type=None)
    Traceback (most recent call last):
    ropelab.runs.errors.InputError: layer_type must be text, not of type NoneType
    """
    for name, value in values.items():
        if not isinstance(value, str):
            raise InputError(f"{name} must be text, not of type {type(value).__name__}")
