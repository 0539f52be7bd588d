"""A model's folder before transformers opens it, and the hash that identifies it; light.

A folder comes from somewhere else. Anything in it that is not a plain file could be read for ever
(a pipe, a device), and a configuration may ask for more than any machine has.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from ropelab.runs.errors import InputError

MOST_CONFIG_BYTES = 2**20
# Of a tokenizer or an index of weights; the largest in use have some 30 MB.
MOST_JSON_BYTES = 2**28
MOST_LAYERS = 10_000
MOST_EXPERTS = 100_000
# No size in a configuration is larger.
MOST = 2**40
# Names a model elsewhere, which would be loaded in the place of this one.
ADAPTER = "adapter_config.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")


def located(path: Path) -> Path:
    """Return the folder of a model: the path itself, or that of an id in the Hub's local cache.

    Raises:
        InputError: neither is there.
    """
    if path.exists() or path.is_symlink() or len(path.parts) != 2 or path.is_absolute():
        return path
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path.as_posix(), local_files_only=True))
    except (ImportError, OSError, ValueError):
        raise InputError(
            f"there is no folder {path}, and no model of that name in the local cache of the Hub "
            f"(hf download {path} puts it there)"
        ) from None


def checked_config(folder: Path) -> dict[str, Any]:
    """config.json of a folder in which every file is a plain one and every size is possible.

    Raises:
        InputError: there is none, or something in the folder must not be read.
    """
    from ropelab.runs.files import parse

    path = folder / "config.json"
    if not path.is_file() and not (path.exists() or path.is_symlink()):
        raise InputError(f"no readable {path}; give a folder that save_pretrained wrote")
    for file in files(folder):
        _check_size(file)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    config = parse(str(path), raw)
    for name, size in numbers(config):
        _check_number(path, name, size)
    return config


def files(folder: Path) -> list[Path]:
    """Return the files of a folder by name, subfolders left out.

    Raises:
        InputError: one is a pipe, a device, a socket or a broken link, or cannot be looked at.
    """
    try:
        found = sorted(folder.iterdir())
        modes = [path.stat().st_mode for path in found]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
    for path, mode in zip(found, modes, strict=True):
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path} is not a plain file, so nothing in its folder is read")
        if stat.S_ISREG(mode) and not os.access(path, os.R_OK):
            raise InputError(f"cannot read {path}: Permission denied")
    return [path for path, mode in zip(found, modes, strict=True) if stat.S_ISREG(mode)]


def stamp(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return a value that changes when a file of the folder does, so that readings may be kept."""
    stats = [(path, path.stat()) for path in files(folder)]
    return tuple((path.name, s.st_size, s.st_mtime_ns, s.st_ino) for path, s in stats)


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold weights.

    Raises:
        InputError: there are none, or they are not all that a model is made of.
    """
    found = [path for path in files(folder) if path.name.endswith(WEIGHTS)]
    if not found:
        raise InputError(f"no weights in {folder}: there is no file *.safetensors or *.bin")
    if (folder / ADAPTER).exists():
        raise InputError(f"{folder} holds an adapter ({ADAPTER}); merge it into its model first")
    for index in folder.glob("*.index.json"):
        _check_index(index)
    return found


def numbers(config: dict[str, Any]) -> Iterator[tuple[str, int | float]]:
    """Every number of a configuration under its nearest name."""
    waiting: list[tuple[str, Any]] = list(config.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, item) for item in value]
        elif isinstance(value, int | float):
            yield name, value


def _check_size(path: Path) -> None:
    most = MOST_CONFIG_BYTES if path.name == "config.json" else MOST_JSON_BYTES
    if path.suffix == ".json" and path.stat().st_size > most:
        raise InputError(f"{path} is larger than {most >> 20} MiB, which no such file is")


def _check_number(path: Path, name: str, size: float) -> None:
    most = MOST
    if "layer" in name:
        most = MOST_LAYERS
    elif "expert" in name:
        most = MOST_EXPERTS
    if size > most:
        raise InputError(f"{path}: {name} is {size:,}, more than any model has (at most {most:,})")


def _check_index(path: Path) -> None:
    """Refuse an index that leads out of the folder: what it names would not be fingerprinted."""
    try:
        named = json.loads(path.read_bytes()).get("weight_map", {}).values()
        beside = {file.name for file in files(path.parent)}
        elsewhere = [name for name in named if name not in beside]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        raise InputError(f"{path} is no index of weights") from None
    if elsewhere:
        raise InputError(f"{path} names {str(elsewhere[0])[:80]!r}, which is not a file beside it")


# A file that changed so recently could change again within one tick of its time of change.
SETTLED_NS = 2_000_000_000


def fingerprint_of(folder: Path) -> str:
    """Hash the names and all bytes of the files of a model; subfolders are not read.

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
    """Facts of a file that change with its content."""
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
