"""Arrays that an engine wrote: tables, or rotated queries and keys."""

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from ropelab.conformance.expected import Expected
from ropelab.conformance.rotations import (
    Observed,
    Positions,
    Rotated,
    Vectors,
    bounded,
    from_tables,
)
from ropelab.conformance.vectors import places_of, unrotated
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError
from ropelab.runs.files import check_regular

SUFFIXES = (".npz", ".safetensors")
# Over all arrays of a file: each takes 8 bytes once it is read.
MOST_NUMBERS = 2**28
# Of damaged files; a RuntimeError also for an encrypted one, and for an unknown
# compression.
UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, MemoryError)
LARGEST_POSITION = 2**53  # positions beyond are not exact in float64
Arrays = Mapping[str, np.ndarray]


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an .npz or .safetensors file as float64; InputError if it is
    neither.
    """
    try:
        check_regular(path)
        return tensors(path) if path.suffix == ".safetensors" else archive(path)
    except (*UNREADABLE, zipfile.BadZipFile, zlib.error) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {problem}") from None


def archive(path: Path) -> Arrays:
    with zipfile.ZipFile(path) as parts:
        check_shapes(
            {part.filename: declared_shape(parts, part) for part in parts.infolist()}
        )
    arrays = {}
    with path.open("rb") as file, NpzFile(file, allow_pickle=False) as stored:
        for name in stored.files:
            array = np.asarray(stored[name])  # bytes, if it is no array
            if array.dtype.kind not in "fiub":
                raise ValueError(f"{name} holds {array.dtype}, not real numbers")
            arrays[name] = np.asarray(array, np.float64)
    return arrays


def declared_shape(parts: zipfile.ZipFile, part: zipfile.ZipInfo) -> tuple[int, ...]:
    """Return the shape in the header of an array, of which nothing else is read."""
    with parts.open(part) as file:
        try:
            version = npy.read_magic(file)
        except ValueError:  # no array, which is refused by its kind
            return (part.file_size,)
        if version == (1, 0):
            shape, _, kind = npy.read_array_header_1_0(file)
        else:
            shape, _, kind = npy.read_array_header_2_0(file)
    if any(isinstance(size, bool) or size < 0 for size in shape):
        raise ValueError(f"{part.filename} has the shape {shape}")
    if math.prod(shape) * kind.itemsize > part.file_size:
        raise ValueError(
            f"{part.filename} has the shape {shape}, for which its"
            f" {part.file_size} bytes are too few"
        )
    return shape


def check_shapes(shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse arrays that would fill the memory, before any is read."""
    count = sum(math.prod(shape) for shape in shapes.values())
    if count > MOST_NUMBERS:
        raise ValueError(
            f"its arrays hold {count} numbers, and at most {MOST_NUMBERS} are read"
        )


def tensors(path: Path) -> Arrays:
    # By way of torch: numpy has no bfloat16.
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            check_shapes({name: file.get_slice(name).get_shape() for name in names})
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise ValueError(error) from None
    if wrong := [name for name, tensor in tensors.items() if tensor.is_complex()]:
        raise ValueError(f"{wrong[0]} holds complex numbers, not real ones")
    return {name: tensor.double().numpy() for name, tensor in tensors.items()}


def positions_of(path: Path, arrays: Arrays, count: int) -> Positions:
    """Return the array `positions`, or 0, 1, 2, ... without one."""
    places = arrays.get("positions", np.arange(count, dtype=np.float64))
    exact = (places >= 0) & (places <= LARGEST_POSITION) & (np.floor(places) == places)
    if places.ndim != 1 or not exact.all():
        raise InputError(
            f"{path}: positions must be a list of whole numbers from 0 to 2^53"
        )
    if len(places) != count:
        raise InputError(f"{path}: {len(places)} positions for {count} rows")
    return places.astype(np.int64)


def rotated_of(
    path: Path, arrays: Arrays, name: str, expected: Expected
) -> tuple[Vectors, Rotated, Positions]:
    """Return vectors, their rotations and the positions; without vectors, those of
    `vectors`.
    """
    after, head = arrays[f"{name}_rotated"], expected.spec.head_dim
    before = arrays.get(name, unrotated(expected.spec)[name])
    # one at each position
    if before.shape == after.shape and before.shape[1:] == (head,):
        before, after = before[:, None], after[:, None]
    shapes = (after.shape, after.shape[1:])
    if after.ndim != 3 or before.shape not in shapes or before.shape[-1] != head:
        wanted = (
            f"[positions, heads, {head}], beside {name} likewise or [heads, {head}]"
        )
        problem = f"{name}_rotated has shape {after.shape} instead of {wanted}"
        raise InputError(f"{path}: {problem}; {name} has {before.shape}")
    if not (bounded(before) and before.reshape(-1, head).any(axis=0).all()):
        raise InputError(
            f"{path}: {name} needs finite numbers, and none of its columns only zeros"
        )
    places = places_of(expected)
    if "positions" in arrays or len(after) != len(places):
        places = positions_of(path, arrays, len(after))
    if not places.any():
        raise InputError(f"{path} has no position above 0")
    return before, after, places


def tables_of(path: Path, arrays: Arrays, spec: RopeSpec) -> Observed:
    """Return arrays `cos` and `sin`, a row per position."""
    if "cos" not in arrays or "sin" not in arrays:
        raise InputError(
            f"{path} needs arrays cos and sin, it has {', '.join(arrays) or 'none'}"
        )
    positions = positions_of(path, arrays, len(np.atleast_1d(arrays["cos"])))
    if 1 not in positions:
        raise InputError(f"{path} has no row for position 1")
    return from_tables(positions, arrays["cos"], arrays["sin"], spec)
