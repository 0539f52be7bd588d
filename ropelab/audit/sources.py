"""Read what a user names as a configuration, or say why it is none."""

import os
import re
from pathlib import Path

from ropelab.math.models import is_known
from ropelab.readers.document import Document, load
from ropelab.runs.errors import InputError

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# A repository of the Hub: an owner and a name.
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# The endings of files. A name with one of them is not taken for a repository.
FILE_ENDINGS = (
    ".json",
    ".gguf",
    ".safetensors",
    ".npz",
    ".npy",
    ".pt",
    ".bin",
    ".toml",
)
# The first bytes of files that hold arrays or weights, with the words for each.
ARRAY_FILES = {
    b"PK\x03\x04": "an archive of arrays",
    b"\x93NUMPY": "an array of NumPy",
    b"\x80\x02": "a pickle",
}


def read_source(name: str) -> Document:
    """Return the configuration at a path, a folder or standard input (`-`).

    InputError says what to type instead, where the name is an address, a repository of
    the Hub, a known model, or a file of arrays.
    """
    if name != "-" and not os.path.exists(name):  # noqa: PTH110 (a name may be too long)
        refuse_missing(name)
    elif name != "-" and os.path.isfile(name):  # noqa: PTH113
        refuse_arrays(name)
    return load(name)


def refuse_missing(name: str) -> None:
    """Raise InputError for a name that is not a path, and say what else it looks like."""
    save = "save its config.json, then type: ropelab audit config.json"
    if URL.match(name):
        raise InputError(f"{name} is an address, and nothing is downloaded; {save}")

    if is_known(name):
        command = f"ropelab freqs --model {name.lower()}"
        raise InputError(
            f"{name} is a known model, and audit wants its file; {save}, or: {command}"
        )

    owner = name.partition("/")[0]
    if (
        REPOSITORY.fullmatch(name)
        and not name.lower().endswith(FILE_ENDINGS)
        and not Path(owner).exists()
    ):
        raise InputError(
            f"there is no folder {name}; a repository of the Hub is not downloaded;"
            f" {save}"
        )


def refuse_arrays(name: str) -> None:
    """Raise InputError for a file of arrays, which another command reads."""
    try:
        with Path(name).open("rb") as file:
            start = file.read(6)
    except OSError:
        # `load` reads the file next, and its error says why the file cannot be read.
        return

    content = "tensors" if name.endswith(".safetensors") else ""
    for first_bytes, words in ARRAY_FILES.items():
        if start.startswith(first_bytes):
            content = words
    if content:
        command = f"ropelab check {name} --config config.json"
        raise InputError(
            f"{name} holds {content}, no configuration; to compare it with one: {command}"
        )
