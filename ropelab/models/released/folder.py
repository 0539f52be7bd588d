"""The folder of a released model: checks before transformers opens it, and its hash.

The files come from elsewhere and may hold anything. Reading a pipe would never end, and
a configuration could ask for more memory than any machine has. Such files are refused.
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

# The most bytes of config.json.
MOST_CONFIG_BYTES = 2**20
# The most bytes of any other JSON file. The largest tokenizers and indices of weights in
# use have some 30 MB.
MOST_JSON_BYTES = 2**28
# The largest number that a key of a configuration may have. The entries are tried in this
# order. The first entry applies whose text is in the name of the key. The empty text is
# in every name.
LARGEST_NUMBERS = {"layer": 10_000, "expert": 100_000, "": 2**40}
# A file of this name refers to another model, which transformers would load instead of
# the model in the folder.
ADAPTER = "adapter_config.json"
# The endings of the names of files with weights.
WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth")
# The time since the last change of a file, in nanoseconds, after which the hash of the
# file is kept and not computed again. A file that has just changed could change again
# within the resolution of its time of change, which would then stay the same.
SETTLED_NS = 2_000_000_000


def locate(path: Path) -> Path:
    """Return the folder of a model.

    It is the path itself or, for an id such as `owner/name`, a folder in the local
    cache of the Hugging Face Hub.
    """
    is_id = len(path.parts) == 2 and not path.is_absolute()
    if os.path.lexists(path) or not is_id:
        return path
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path.as_posix(), local_files_only=True))
    except (ImportError, OSError, ValueError):
        raise InputError(
            f"there is no folder {path}, and no model of that name in the local cache"
            f" of the Hub (hf download {path} puts it there)"
        ) from None


def read_checked_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a folder, and check everything that transformers will read.

    InputError: a file of the folder is a pipe or a device or refers to other files, or a
    number in the configuration is impossible.
    """
    path = folder / "config.json"
    if not os.path.lexists(path):
        raise InputError(
            f"no readable {path}; give a folder that save_pretrained wrote"
        )
    for file in list_files(folder):
        most_bytes = MOST_CONFIG_BYTES if file == path else MOST_JSON_BYTES
        if file.suffix == ".json" and file.stat().st_size > most_bytes:
            raise InputError(
                f"{file} is larger than {most_bytes >> 20} MiB, which no such file is"
            )

    with _naming_unreadable(path):
        config = parse(str(path), path.read_bytes())
    if "configuration_files" in config:
        # transformers would use one of these other configurations, and nothing would
        # check it.
        raise InputError(f"{path} names other configurations (configuration_files)")
    _check_tokenizer(folder / "tokenizer_config.json")
    for name, value in _list_values(config):
        if name == "transformers_weights" and value is not None:
            _check_beside(path, [value])
        _check_size(path, name, value)
    return config


def _check_tokenizer(path: Path) -> None:
    """Refuse a tokenizer that is made of files in other folders."""
    if path.exists():
        names = parse(str(path), path.read_bytes()).get("fast_tokenizer_files")
        if isinstance(names, list):
            _check_beside(path, names)


def _check_size(path: Path, name: str, value: object) -> None:
    """Refuse a number that no model has."""
    largest = next(limit for text, limit in LARGEST_NUMBERS.items() if text in name)
    if isinstance(value, int | float) and value > largest:
        raise InputError(
            f"{path}: {name} is {value:,}, above any model's (at most {largest:,})"
        )


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of their names, without subfolders.

    InputError: a file is a pipe or a device, or cannot be read.
    """
    with _naming_unreadable(folder):
        modes = {path: path.stat().st_mode for path in sorted(folder.iterdir())}
    files = [path for path, mode in modes.items() if not stat.S_ISDIR(mode)]
    for path in files:
        if not stat.S_ISREG(modes[path]):
            raise InputError(
                f"{path} is not a plain file, so nothing in its folder is read"
            )
        if not os.access(path, os.R_OK):
            raise InputError(f"cannot read {path}: Permission denied")
    return files


def identify_files(folder: Path) -> tuple[object, ...]:
    """Return a value that changes when a file of the folder changes."""
    return tuple((path.name, _identify(path)) for path in list_files(folder))


def count_weight_bytes(folder: Path) -> int:
    """Return the number of bytes of the files with weights.

    InputError: there are no such files, or the model has weights in other folders.
    """
    files = [path for path in list_files(folder) if path.name.endswith(WEIGHT_ENDINGS)]
    if not files:
        raise InputError(
            f"no weights in {folder}: there is no file *.safetensors or *.bin"
        )
    if (folder / ADAPTER).exists():
        raise InputError(
            f"{folder} holds an adapter ({ADAPTER}); merge it into its model first"
        )

    for index in folder.glob("*.index.json"):
        try:
            names = json.loads(index.read_bytes()).get("weight_map", {}).values()
        except (OSError, ValueError, AttributeError, RecursionError):
            raise InputError(f"{index} is no index of weights") from None
        _check_beside(index, names)

    return sum(path.stat().st_size for path in files)


def hash_model_files(folder: Path) -> str:
    """Hash the names and all bytes of the files of a model, without subfolders."""
    files = list_files(locate(folder))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, files))
    folder_hash = hashlib.sha256()
    for path, digest in zip(files, digests, strict=True):
        folder_hash.update(path.name.encode(errors="surrogateescape") + b"\0" + digest)
    return folder_hash.hexdigest()


@contextmanager
def _naming_unreadable(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into an InputError that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot read {error.filename or path}: {error.strerror}"
        ) from None


def _list_values(config: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield every value of a configuration that is no dictionary or list, with its key.

    The key of a value in a list is the key of the list.
    """
    remaining: list[tuple[str, Any]] = list(config.items())
    while remaining:
        name, value = remaining.pop()
        if isinstance(value, dict):
            remaining += value.items()
        elif isinstance(value, list):
            remaining += [(name, item) for item in value]
        else:
            yield name, value


def _check_beside(path: Path, names: Iterable[object]) -> None:
    """Raise InputError if `names`, which stand in a file, name files in other folders.

    The hash of the model does not cover files in other folders.
    """
    files_in_folder = {file.name for file in list_files(path.parent)}
    for name in names:
        if str(name) not in files_in_folder:
            raise InputError(
                f"{path} names {str(name)[:80]!r}, which is not a file beside it"
            )


def _digest(path: Path) -> bytes:
    """Return the sha256 of a file; InputError if it changes meanwhile."""
    with _naming_unreadable(path):
        identity = _identify(path)
        *_, content_changed_ns, status_changed_ns = identity
        changed_ns = max(content_changed_ns, status_changed_ns)
        is_settled = time.time_ns() - changed_ns > SETTLED_NS
        if is_settled:
            digest = _hash_once(path, identity)
        else:
            digest = _hash(path)
        if _identify(path) != identity:
            raise InputError(f"{path} changed while it was read; start again")
    return digest


def _identify(path: Path) -> tuple[int, ...]:
    """Return numbers of which at least one changes when the file changes."""
    status = path.stat()
    # The device, the file's number on it, the file's size, and the times at which
    # content and status were last changed.
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _hash(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


@lru_cache(maxsize=4096)
def _hash_once(path: Path, identity: tuple[int, ...]) -> bytes:
    """Return the sha256 of a file, computed again only if its identity has changed."""
    return _hash(path)
