"""What identifies a model: a hash over the whole of every file in its folder.

Hashing ten gigabytes takes a while, so a process remembers the hash of a file for as long as its
place, size and times of change stay the same.
"""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from ropelab.errors import InputError
from ropelab.models.released.folder import files, located

SETTLED_NS = 2_000_000_000
"""A file that changed so recently could change again within one tick of its time of change."""


def fingerprint_of(folder: Path) -> str:
    """A hash of the names and of all bytes of the files of a model; subfolders are not read.

    Raises:
        InputError: one of them cannot be read, or changed meanwhile.
    """
    found = files(located(folder))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, found))
    whole = hashlib.sha256()
    for path, digest in zip(found, digests, strict=True):
        whole.update(path.name.encode(errors="surrogateescape") + b"\0" + digest)
    return whole.hexdigest()


def _digest(path: Path) -> bytes:
    try:
        before = _identity(path)
        settled = time.time_ns() - max(before[-2:]) > SETTLED_NS
        digest = _remembered(path, before) if settled else _read(path)
        after = _identity(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if after != before:
        raise InputError(f"{path} changed while it was read; start again")
    return digest


def _identity(path: Path) -> tuple[int, ...]:
    """What does not stay the same when the content of a file changes."""
    status = path.stat()
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


@lru_cache(maxsize=4096)
def _remembered(path: Path, identity: tuple[int, ...]) -> bytes:
    return _read(path)


def _read(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()
