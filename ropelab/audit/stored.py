"""Arrays that an engine wrote: tables, or rotated queries and keys."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from ropelab.audit.expected import Expected
from ropelab.audit.rotations import Observed, Positions, Rotated, Vectors, bounded, from_tables
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.vectors import places_of, unrotated
from ropelab.runs.errors import InputError
from ropelab.runs.files import check_regular

SUFFIXES = (".npz", ".safetensors")
MOST_BYTES = 2**32
LARGEST_POSITION = 2**53  # positions beyond are not exact in float64
# numpy and zipfile raise these for damaged files; NotImplementedError for a compression that Python
# does not know, RuntimeError for an encrypted file.
UNREADABLE = (
    *(OSError, ValueError, EOFError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, MemoryError),
)
Arrays = Mapping[str, np.ndarray]


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an .npz or .safetensors file as float64; InputError if it is neither."""
    try:
        check_regular(path)
        return tensors(path) if path.suffix == ".safetensors" else archive(path)
    except UNREADABLE as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {problem}") from None


def archive(path: Path) -> Arrays:
    found = {}
    with zipfile.ZipFile(path) as parts:
        if sum(part.file_size for part in parts.infolist()) > MOST_BYTES:
            raise ValueError(f"it unpacks to more than {MOST_BYTES >> 30} GiB")
    with path.open("rb") as file, NpzFile(file, allow_pickle=False) as stored:
        for name in stored.files:
            array = np.asarray(stored[name])  # bytes, if it is no array
            if array.dtype.kind not in "fiub":
                raise ValueError(f"{name} holds {array.dtype}, not real numbers")
            found[name] = np.asarray(array, np.float64)
    return found


def tensors(path: Path) -> Arrays:
    # By way of torch: numpy has no bfloat16.
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)
    except SafetensorError as error:
        raise ValueError(error) from None
    if wrong := [name for name, tensor in found.items() if tensor.is_complex()]:
        raise ValueError(f"{wrong[0]} holds complex numbers, not real ones")
    return {name: tensor.double().numpy() for name, tensor in found.items()}


def positions_of(path: Path, arrays: Arrays, count: int) -> Positions:
    """Return the array `positions`, or 0, 1, 2, ... without one."""
    places = arrays.get("positions", np.arange(count, dtype=np.float64))
    exact = (places >= 0) & (places <= LARGEST_POSITION) & (np.floor(places) == places)
    if places.ndim != 1 or not exact.all():
        raise InputError(f"{path}: positions must be a list of whole numbers from 0 to 2^53")
    if 1 not in places:
        raise InputError(f"{path} has no row for position 1")
    return places.astype(np.int64)


def rotated_of(
    path: Path, arrays: Arrays, name: str, expected: Expected
) -> tuple[Vectors, Rotated, Positions] | None:
    """Return vectors, their rotations and the positions; without vectors, those of `vectors`."""
    after = arrays.get(f"{name}_rotated")
    if after is None:
        return None
    if after.ndim != 3:
        shape = f"[positions, vectors, {expected.spec.head_dim}]"
        raise InputError(f"{path}: {name}_rotated has shape {after.shape} instead of {shape}")
    before = arrays.get(name, unrotated(expected.spec)[name])
    places = places_of(expected)
    if "positions" in arrays or len(after) != len(places):
        places = positions_of(path, arrays, len(after))
    wanted = (len(places), *before.shape)
    if before.shape[1:] != (expected.spec.head_dim,) or after.shape != wanted:
        raise InputError(f"{path}: {name}_rotated has shape {after.shape} instead of {wanted}")
    if not (bounded(before) and before.any(axis=0).all()):
        raise InputError(f"{path}: {name} needs finite numbers, and none of its columns only zeros")
    return before, after, places


def tables_of(path: Path, arrays: Arrays, spec: RopeSpec) -> Observed:
    """Return arrays `cos` and `sin`, a row per position."""
    if "cos" not in arrays or "sin" not in arrays:
        raise InputError(f"{path} needs arrays cos and sin, it has {', '.join(arrays) or 'none'}")
    positions = positions_of(path, arrays, len(np.atleast_1d(arrays["cos"])))
    if 1 not in positions:
        raise InputError(f"{path} has no row for position 1")
    return from_tables(positions, arrays["cos"], arrays["sin"], spec)
