"""A model's folder before transformers opens it, and the hash that identifies it.

It comes from elsewhere: a pipe could be read forever, a configuration ask for too large
a machine.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from ropelab.runs.errors import InputError
from ropelab.runs.files import parse

# Bytes; the largest tokenizers and indices of weights in use have some 30 MB.
MOST_CONFIG_BYTES, MOST_JSON_BYTES = 2**20, 2**28
# No number in a configuration is larger, by a part of its name.
LARGEST = {"layer": 10_000, "expert": 100_000, "": 2**40}
# Names a model elsewhere, which would be loaded in the place of this one.
ADAPTER = "adapter_config.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
# A file that changed so recently could change again within one tick of its time of
# change.
SETTLED_NS = 2_000_000_000


def located(path: Path) -> Path:
    """Return the folder of a model: the path itself, or that of an id in the Hub's
    local cache.
    """
    if os.path.lexists(path) or len(path.parts) != 2 or path.is_absolute():
        return path
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path.as_posix(), local_files_only=True))
    except (ImportError, OSError, ValueError):
        raise InputError(
            f"there is no folder {path}, and no model of that name in the local cache"
            f" of the Hub (hf download {path} puts it there)"
        ) from None


def checked_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a folder in which every file is a plain one and every size
    possible.
    """
    path = folder / "config.json"
    if not os.path.lexists(path):
        raise InputError(
            f"no readable {path}; give a folder that save_pretrained wrote"
        )
    for file in files(folder):
        most = MOST_CONFIG_BYTES if file == path else MOST_JSON_BYTES
        if file.suffix == ".json" and file.stat().st_size > most:
            raise InputError(
                f"{file} is larger than {most >> 20} MiB, which no such file is"
            )
    with _reading(path):
        config = parse(str(path), path.read_bytes())
    if "configuration_files" in config:
        # One of those would be used in its place, unseen.
        raise InputError(f"{path} names other configurations (configuration_files)")
    tokenizer = folder / "tokenizer_config.json"
    if tokenizer.exists():
        named = parse(str(tokenizer), tokenizer.read_bytes()).get(
            "fast_tokenizer_files"
        )
        _check_beside(tokenizer, named if isinstance(named, list) else ())
    for name, value in _values(config):
        if name == "transformers_weights" and value is not None:
            _check_beside(path, [value])
        most = next(most for part, most in LARGEST.items() if part in name)
        if isinstance(value, int | float) and value > most:
            raise InputError(
                f"{path}: {name} is {value:,}, above any model's (at most {most:,})"
            )
    return config


def files(folder: Path) -> list[Path]:
    """Return the files of a folder by name, no subfolders; InputError for pipes and
    devices.
    """
    with _reading(folder):
        modes = {path: path.stat().st_mode for path in sorted(folder.iterdir())}
    found = [path for path, mode in modes.items() if not stat.S_ISDIR(mode)]
    for path in found:
        if not stat.S_ISREG(modes[path]):
            raise InputError(
                f"{path} is not a plain file, so nothing in its folder is read"
            )
        if not os.access(path, os.R_OK):
            raise InputError(f"cannot read {path}: Permission denied")
    return found


def stamp(folder: Path) -> tuple[object, ...]:
    """Return a value that changes when a file of the folder does, to keep what was read
    by.
    """
    return tuple((path.name, _identity(path)) for path in files(folder))


def weight_bytes(folder: Path) -> int:
    """Return the size of the weights; InputError if they are not all that a model is
    made of.
    """
    found = [path for path in files(folder) if path.name.endswith(WEIGHTS)]
    if not found:
        raise InputError(
            f"no weights in {folder}: there is no file *.safetensors or *.bin"
        )
    if (folder / ADAPTER).exists():
        raise InputError(
            f"{folder} holds an adapter ({ADAPTER}); merge it into its model first"
        )
    for index in folder.glob("*.index.json"):
        try:
            named = json.loads(index.read_bytes()).get("weight_map", {}).values()
        except (OSError, ValueError, AttributeError, RecursionError):
            raise InputError(f"{index} is no index of weights") from None
        _check_beside(index, named)
    return sum(path.stat().st_size for path in found)


def fingerprint_of(folder: Path) -> str:
    """Hash the names and all bytes of the files of a model, without subfolders."""
    found = files(located(folder))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, found))
    whole = hashlib.sha256()
    for path, digest in zip(found, digests, strict=True):
        whole.update(path.name.encode(errors="surrogateescape") + b"\0" + digest)
    return whole.hexdigest()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot read {error.filename or path}: {error.strerror}"
        ) from None


def _values(config: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield every value of a configuration under its nearest name."""
    waiting: list[tuple[str, Any]] = list(config.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, item) for item in value]
        else:
            yield name, value


def _check_beside(path: Path, named: Iterable[object]) -> None:
    """Refuse names that lead out of the folder: those files would not be
    fingerprinted.
    """
    beside = {file.name for file in files(path.parent)}
    for name in named:
        if str(name) not in beside:
            raise InputError(
                f"{path} names {str(name)[:80]!r}, which is not a file beside it"
            )


def _digest(path: Path) -> bytes:
    with _reading(path):
        before = _identity(path)
        settled = time.time_ns() - max(before[-2:]) > SETTLED_NS
        digest = _remembered(path, before) if settled else _read(path)
        if _identity(path) != before:
            raise InputError(f"{path} changed while it was read; start again")
    return digest


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _read(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


_remembered = lru_cache(maxsize=4096)(lambda path, identity: _read(path))
