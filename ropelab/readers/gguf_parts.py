"""A GGUF model in several files, as `llama-gguf-split` writes it.

The first file has the keys of the model. Its tensors, also the tensors about rotation,
may be in any of the files: with `--no-tensor-first-split` the first has none. Source:
llama_model_loader in src/llama-model-loader.cpp of llama.cpp, which refuses every file
that is refused here.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ropelab.readers.gguf import INT32, UINT16, Header, read_header
from ropelab.runs.errors import InputError
from ropelab.runs.files import check_regular

# The key of the number of files.
COUNT = "split.count"
# The key of the place of a file among them, counted from 0.
PLACE = "split.no"
# The key of the number of tensors in all files.
TENSORS = "split.tensors.count"


def read_model(path: Path) -> Header:
    """Return the header of a model, with the tensors about rotation of all its files.

    InputError: another file of the model is missing or does not belong to it, or the
    path is not the path of the first file.
    """
    first = read_header(path)
    count = _read_number(path, first, COUNT, UINT16, default=1)
    if count < 2:
        return first

    place = _read_number(path, first, PLACE, UINT16)
    if place != 0:
        raise InputError(
            f"{path} is file {place + 1} of the {count} of a model; give the first"
        )

    tensors = dict(first.tensors)
    names = set(first.tensor_names)
    for number, other in enumerate(_list_others(path, count), start=1):
        header = _read_other(path, other, number, count)
        twice = names & header.tensor_names
        if twice:
            raise InputError(f"{other} has a tensor of an earlier file: {min(twice)}")
        names |= header.tensor_names
        tensors |= header.tensors

    expected = _read_number(path, first, TENSORS, INT32)
    if expected != len(names):
        raise InputError(
            f"{path} belongs to {expected} tensors, and its {count} files have"
            f" {len(names)}"
        )
    return replace(first, tensors=tensors, tensor_names=frozenset(names))


def is_later_file(name: str) -> bool:
    """Return True for a name that llama.cpp gives to a file after the first."""
    # Such a name is `model-00002-of-00003.gguf`, with a number of five digits.
    stem, _, count = name.removesuffix(".gguf").rpartition("-of-")
    number = stem[-5:]
    has_dash = stem[-6:-5] == "-"
    is_numbered = count.isdecimal() and number.isdecimal() and has_dash
    return is_numbered and int(number) > 1


def _list_others(path: Path, count: int) -> Iterator[Path]:
    """Yield the paths of all files but the first, which llama.cpp finds by their names."""
    ending = f"-00001-of-{count:05d}.gguf"
    if not path.name.endswith(ending):
        raise InputError(
            f"{path} is the first of {count} files, and its name does not end in"
            f" {ending}, by which the others are found"
        )
    stem = path.name.removesuffix(ending)
    for number in range(2, count + 1):
        yield path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf")


def _read_other(path: Path, other: Path, place: int, count: int) -> Header:
    """Read the header of another file than the first."""
    if not other.exists():
        raise InputError(
            f"{path} is the first of {count} files, which may have its frequency"
            f" factors, and {other.name} is not beside it"
        )
    try:
        check_regular(other)
        header = read_header(other)
    except OSError as error:
        raise InputError(f"cannot read {other}: {error.strerror or error}") from None

    own_place = _read_number(other, header, PLACE, UINT16)
    if own_place != place:
        raise InputError(
            f"{other} is file {own_place + 1} of a model by its keys, and {place + 1} by"
            " its name"
        )
    return header


def _read_number(
    path: Path, header: Header, key: str, value_type: int, default: int | None = None
) -> int:
    """Return the value of a key; InputError: it has another type, or is not there and
    has no default.
    """
    if key not in header.fields and default is not None:
        return default
    if header.kinds.get(key) != (value_type,):
        raise InputError(
            f"{path} is refused by llama.cpp: {key} is missing or of another type"
        )
    return int(header.fields[key])
