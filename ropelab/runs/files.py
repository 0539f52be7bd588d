"""Reading files: regular files of bounded size, JSON of bounded depth, and the TOML
tables that come with the package.
"""

import errno
import json
import math
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from ropelab.runs.errors import InputError

# The most bytes of a configuration.
MOST_BYTES = 16 * 2**20
# The lines that git leaves where a merge met two changes.
CONFLICT = re.compile(rb"^(<<<<<<< |>>>>>>> )", re.MULTILINE)
# The most dicts and lists inside each other. Real files have fewer than ten.
DEEPEST = 64


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes (None: of any size).

    OSError: the file does not exist, is not regular, or is too large.
    """
    # Reading would wait for a pipe, and never end for a device such as /dev/zero.
    check_regular(path)
    if most is not None and path.stat().st_size > most:
        raise OSError(errno.EFBIG, f"Larger than {most} bytes", str(path))
    return path.read_bytes()


def read_table_beside(module: str, name: str = "") -> dict[str, Any]:
    """Read the TOML file beside a module.

    Args:
        module: the `__file__` of the module.
        name: the name of the file without its suffix; empty if the file has the
            module's name.
    """
    path = Path(module)
    table = path.with_name(f"{name or path.stem}.toml")
    return tomllib.loads(table.read_text(encoding="utf-8"))


def check_regular(path: Path, follow_links: bool = True) -> None:
    """Raise OSError unless the path is a regular file, or a link to one."""
    try:
        mode = path.stat(follow_symlinks=follow_links).st_mode
    except ValueError as error:
        # A path with a zero byte is not the name of any file.
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def check_name(name: object) -> None:
    """Raise InputError for the name of a file that is not UTF-8, which no table, page or
    manifest could hold, or that has a zero byte, which no system allows.
    """
    text = str(name)
    if "\0" in text:
        raise InputError(f"{text!r} is no name of a file: it has a zero byte")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{text} is not a name in UTF-8; rename it") from None


def parse(name: str, raw: bytes, finite: bool = True) -> dict[str, Any]:
    """Return the JSON object in the content of a file.

    Args:
        name: the name of the file, for errors.
        raw: the content of the file.
        finite: False allows Infinity and -Infinity, which are not part of JSON.

    InputError: the bytes are not a JSON object, or the object is too large or too deep.
    """

    def read_constant(text: str) -> float:
        if finite or text == "NaN":
            raise ValueError(f"{text} is not a JSON number")
        return float(text)

    if len(raw) > MOST_BYTES:
        raise InputError(f"{name} is larger than 16 MB, which no configuration is")

    try:
        value = json.loads(
            raw, parse_constant=read_constant, parse_float=_read_finite_float
        )
    except RecursionError:
        raise InputError(f"{name} is nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        why = explain_content(raw) or str(error)
        raise InputError(f"{name} is not valid JSON: {why}") from None

    if not isinstance(value, dict):
        raise InputError(
            f"{name} must hold a JSON object, not a {type(value).__name__}"
        )
    if is_deep(value):
        raise InputError(f"{name} is nested too deeply")
    return value


def is_deep(value: dict[str, Any]) -> bool:
    """Return True if more than DEEPEST dicts and lists are inside each other."""
    # A recursive function would itself end in a RecursionError, so the containers are
    # listed level by level.
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        next_level: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            next_level += [item for item in items if isinstance(item, dict | list)]
        level = next_level
    return bool(level)


def explain_content(raw: bytes) -> str:
    """Say what a file holds in place of a configuration, such as a pointer of Git LFS;
    return an empty text if the file holds nothing that is known here.
    """
    start = raw[:1000].lstrip()
    if start.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS; type: git lfs pull"
    if start[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page; fetch the file itself"
    if CONFLICT.search(raw):
        return "it has the marks of a merge (<<<<<<<, >>>>>>>) that was not finished"
    return ""


def find_repeated_keys(raw: bytes) -> list[str]:
    """Return the keys that an object of a JSON text has more than once, in the order of
    the text. json.loads would silently use the last value of each.
    """
    # A dict is used as a set that keeps the order.
    repeated: dict[str, None] = {}

    # json calls this for each object.
    def note_repeated(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(names) == len(set(names)):
            return
        for name in names:
            if names.count(name) > 1:
                repeated.setdefault(name)

    json.loads(raw, object_pairs_hook=note_repeated)
    return list(repeated)


def _read_finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value
