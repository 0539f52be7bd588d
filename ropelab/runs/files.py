"""Reading files: any by others, if regular, JSON of bounded size and depth; our own
tables.
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

MOST_BYTES = 16 * 2**20
# The lines that a merge leaves where both sides changed.
CONFLICT = re.compile(rb"^(<<<<<<< |>>>>>>> )", re.MULTILINE)
DEEPEST = 64  # dicts and lists inside each other; real files have fewer than ten


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file of at most so many bytes; OSError for
    anything else.
    """
    # A pipe would be waited for and a device such as /dev/zero read without end.
    check_regular(path)
    if most is not None and path.stat().st_size > most:
        raise OSError(errno.EFBIG, f"Larger than {most} bytes", str(path))
    return path.read_bytes()


def table_beside(module: str, name: str = "") -> dict[str, Any]:
    """Read the TOML file of a module's own name, or of another one, beside it
    (`__file__`).
    """
    path = Path(module)
    return tomllib.loads(
        path.with_name(f"{name or path.stem}.toml").read_text(encoding="utf-8")
    )


def check_regular(path: Path, follow_links: bool = True) -> None:
    """Raise OSError unless there is a regular file, or a link to one."""
    try:
        kind = path.stat(follow_symlinks=follow_links).st_mode
    except ValueError as error:  # no name of a file has a zero byte
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def check_name(name: object) -> None:
    """Raise InputError for a name that is not UTF-8: no table, page or manifest could
    hold it.
    """
    try:
        str(name).encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} is not a name in UTF-8; rename it") from None


def parse(name: str, raw: bytes, finite: bool = True) -> dict[str, Any]:
    """Return a JSON object from bytes; anything else is an InputError, as is Infinity
    if finite.
    """

    def constant(text: str) -> float:
        if finite or text == "NaN":
            raise ValueError(f"{text} is not a JSON number")
        return float(text)

    if len(raw) > MOST_BYTES:
        raise InputError(f"{name} is larger than 16 MB, which no configuration is")
    try:
        value = json.loads(raw, parse_constant=constant, parse_float=_finite)
    except RecursionError:
        raise InputError(f"{name} is nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        why = explain_content(raw) or str(error)
        raise InputError(f"{name} is not valid JSON: {why}") from None
    if not isinstance(value, dict):
        raise InputError(
            f"{name} must hold a JSON object, not a {type(value).__name__}"
        )
    # Level by level: a recursion would itself end in a RecursionError.
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        items = [
            v
            for each in level
            for v in (each.values() if isinstance(each, dict) else each)
        ]
        level = [item for item in items if isinstance(item, dict | list)]
    if level:
        raise InputError(f"{name} is nested too deeply")
    return value


def explain_content(raw: bytes) -> str:
    """Return what a file holds in the place of its own text; empty: none of what is
    known.
    """
    start = raw[:1000].lstrip()
    if start.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS; type: git lfs pull"
    if start[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page; fetch the file itself"
    if CONFLICT.search(raw):
        return "it has the marks of a merge (<<<<<<<, >>>>>>>) that was not finished"
    return ""


def repeated_keys(raw: bytes) -> list[str]:
    """Return the keys that an object of a JSON text has twice, in the order of the
    text; of each json.loads keeps the last value.
    """
    repeated: dict[str, None] = {}

    def note(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(names) == len(set(names)):
            return
        for name in names:
            if names.count(name) > 1:
                repeated.setdefault(name)

    json.loads(raw, object_pairs_hook=note)
    return list(repeated)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value
