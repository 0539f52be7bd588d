"""Every file operation below a folder is counted, and something may happen in its
place.

Opening, reading, writing, flushing, renaming, removing, listing, asking and locking go
through the functions replaced here, those of files opened by Python's own `open`
included.
"""

import builtins
import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

READING = ("scandir", "listdir", "stat", "lstat")
WRITING = (
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "utime",
    "fsync",
    "sendfile",
)
CHANGING = {*WRITING, "write", "open to write", "flock"}
"""Operations that a file system refuses that can only be read."""
GROWING = {"mkdir", "write", "open to write", "fsync", "sendfile"}
"""Operations that a full file system refuses."""

Act = Callable[[int, str, str], None]
"""Takes the number of an operation, its name and its path, before it happens; may raise."""


@dataclass
class Operations:
    """A counter of the file operations below `root`."""

    root: Path
    act: Act | None = None
    count: int = 0
    errors: set[int | None] = field(default_factory=set)
    """Numbers of the errors that the system itself gave."""

    def happen(self, name: str, place: object, folder: int | None = None) -> bool:
        """Count an operation if its place, a path or a descriptor, lies below the
        root.
        """
        path = _path_of(place, folder)
        if not path.startswith(str(self.root)):
            return False
        self.count += 1
        if self.act:
            self.act(self.count, name, path)
        return True

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep the number of an error that the block ends with."""
        try:
            yield
        except OSError as error:
            self.errors.add(error.errno)
            raise


def _path_of(place: object, folder: int | None) -> str:
    if isinstance(place, int):
        return _path_behind(place)
    text = (
        os.fsdecode(os.fspath(place))
        if isinstance(place, str | bytes | os.PathLike)
        else ""
    )
    return f"{_path_behind(folder)}/{text}" if folder is not None else text


def _path_behind(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def fail(error: int, path: str) -> None:
    """Raise what the system raises with an error of that number."""
    raise OSError(error, os.strerror(error), path)


@contextmanager
def counted(operations: Operations) -> Iterator[Operations]:
    """Count while the block runs."""
    opened = _opener(operations)
    functions: dict[str, Any] = {
        name: _told(operations, name) for name in (*READING, *WRITING)
    }
    with (
        patch.multiple(os, **functions, open=_told(operations, "open")),
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
        writes = (
            name == "open" and arguments and arguments[0] & (os.O_WRONLY | os.O_RDWR)
        )
        if not operations.happen("open to write" if writes else name, place, folder):
            return real(place, *arguments, **named)
        with operations.noted():
            return real(place, *arguments, **named)

    return told


def _told_lock(operations: Operations) -> Callable[..., Any]:
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        # which needs no disk, and happens at the end anyway
        if operation != fcntl.LOCK_UN:
            operations.happen("flock", descriptor)
        real(descriptor, operation)

    return flock


def _opener(operations: Operations) -> Callable[..., Any]:
    real = io.open

    class File(io.FileIO):
        """A file whose reading and writing is counted."""

        def write(self, content: Any) -> int:
            operations.happen("write", self.fileno())
            with operations.noted():
                written = super().write(content)
            if written < len(content):  # what a limit leaves of a write
                operations.errors.add(errno.EFBIG)
            return written

        def readinto(self, buffer: Any) -> int:
            operations.happen("read", self.fileno())
            return super().readinto(buffer)

        def readall(self) -> bytes:
            operations.happen("read", self.fileno())
            return super().readall()

    def opened(
        file: Any, mode: str = "r", buffering: int = -1, *text: Any, **named: Any
    ) -> Any:
        place = file if isinstance(file, str | bytes | os.PathLike) else ""
        if not _path_of(place, None).startswith(str(operations.root)):
            return real(file, mode, buffering, *text, **named)
        operations.happen("open" if set(mode) <= set("rbt") else "open to write", place)
        plain_mode = mode.replace("b", "").replace("t", "")
        with operations.noted():
            # `tempfile` opens a folder, with an opener that makes a file there.
            raw = File(file, plain_mode, opener=named.pop("opener", None))
        if buffering == 0:
            return raw
        kind: Any = io.BufferedRandom if "+" in mode else io.BufferedReader
        kind = (
            io.BufferedWriter
            if kind is io.BufferedReader and not raw.readable()
            else kind
        )
        buffered = kind(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **named)

    return opened
