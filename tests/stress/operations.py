"""Every file operation below a folder is counted, and one of them fails, or is the last.

Opening, reading, writing, flushing, renaming, removing, listing, asking and locking go through the
functions replaced here, those of files opened by Python's own `open` included.
"""

import builtins
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

NAMES = (
    "open",
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "scandir",
    "listdir",
    "stat",
    "lstat",
    "utime",
    "fsync",
    "sendfile",
)
Act = Callable[[str, str], None]


class Operations:
    """A counter of file operations; the one of that number is acted upon before it happens."""

    def __init__(self, root: Path, number: int = 0, act: Act | None = None) -> None:
        self._root, self._number, self._act = str(root), number, act
        self.count = 0

    def happen(self, name: str, place: object, folder: int | None = None) -> None:
        """Count an operation if its place, a path or a descriptor, lies below the root."""
        path = _path_of(place, folder)
        if not path.startswith(self._root):
            return
        self.count += 1
        if self.count == self._number and self._act:
            self._act(name, path)


def _path_of(place: object, folder: int | None) -> str:
    if isinstance(place, int):
        return _path_behind(place)
    text = os.fsdecode(os.fspath(place)) if isinstance(place, str | bytes | os.PathLike) else ""
    return f"{_path_behind(folder)}/{text}" if folder is not None else text


def _path_behind(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def failing(number: int) -> Act:
    """The operation fails with an error of that number."""

    def act(name: str, path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    return act


@contextmanager
def counted(operations: Operations) -> Iterator[Operations]:
    """Count while the block runs."""
    opened = _opener(operations)
    functions: dict[str, Any] = {name: _told(operations, name) for name in NAMES}
    with (
        patch.multiple(os, **functions),
        patch.object(io, "open", opened),
        patch.object(builtins, "open", opened),
        patch.object(fcntl, "flock", _told_lock(operations)),
    ):
        yield operations


def _told(operations: Operations, name: str) -> Callable[..., Any]:
    real = getattr(os, name)

    @wraps(real)
    def told(place: Any = ".", *arguments: Any, **named: Any) -> Any:
        folder = named.get("dir_fd", named.get("src_dir_fd"))
        operations.happen(name, place, folder)
        return real(place, *arguments, **named)

    return told


def _told_lock(operations: Operations) -> Callable[..., Any]:
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        operations.happen("flock", descriptor)
        real(descriptor, operation)

    return flock


def _opener(operations: Operations) -> Callable[..., Any]:
    real = io.open

    class File(io.FileIO):
        """A file whose reading and writing is counted."""

        def write(self, content: Any) -> int:
            operations.happen("write", self.fileno())
            return super().write(content)

        def readinto(self, buffer: Any) -> int:
            operations.happen("read", self.fileno())
            return super().readinto(buffer)

        def readall(self) -> bytes:
            operations.happen("read", self.fileno())
            return super().readall()

    def opened(file: Any, mode: str = "r", buffering: int = -1, *text: Any, **named: Any) -> Any:
        place = file if isinstance(file, str | bytes | os.PathLike) else ""
        if not _path_of(place, None).startswith(operations._root):
            return real(file, mode, buffering, *text, **named)
        operations.happen("open", place)
        raw = File(file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        kind: Any = io.BufferedRandom if "+" in mode else io.BufferedReader
        kind = io.BufferedWriter if kind is io.BufferedReader and not raw.readable() else kind
        buffered = kind(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **named)

    return opened
