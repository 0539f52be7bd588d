"""Read arrays that an engine wrote: tables, or rotated queries and keys.

Files may be damaged or hostile, so that shapes are read and checked before any array is.
"""

import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile

from ropelab.conformance.expected import Expected, choose_positions
from ropelab.conformance.observation import (
    LARGEST_POSITION,
    Observed,
    Positions,
    Rotated,
    Vectors,
    are_bounded,
)
from ropelab.conformance.rotations import observe_tables
from ropelab.conformance.vectors import choose_kit_positions, make_vectors
from ropelab.runs.errors import InputError
from ropelab.runs.files import check_regular

SUFFIXES = (".npz", ".safetensors")
# The most numbers in all arrays of a file. Each takes 8 bytes once it is read.
MOST_NUMBERS = 2**28
# The errors that damaged files raise. An archive that is encrypted, or has an unknown
# compression, raises a RuntimeError.
READ_ERRORS = (OSError, ValueError, EOFError, RuntimeError, MemoryError)
# The most rows of a table that are all compared with every way of rounding. Of a longer
# table only a few rows are, and the whole table is compared with the right numbers.
LONG_TABLE = 4096
# The last parts of the names of arrays that are read as tables, or as their positions.
TABLE_NAMES = {"cos", "sin", "cos_sin_cache", "freqs_cis", "inv_freq", "positions"}
Arrays = Mapping[str, np.ndarray]


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of an .npz or .safetensors file as float64.

    InputError: the file is neither, or cannot be read.
    """
    try:
        check_regular(path)
        if path.suffix == ".safetensors":
            return read_tensors(path)
        return read_archive(path)
    except (*READ_ERRORS, zipfile.BadZipFile, zlib.error) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {problem}") from None


def read_archive(path: Path) -> Arrays:
    """Return the arrays of an .npz file."""
    with zipfile.ZipFile(path) as parts:
        shapes = {}
        refuse_repeated([name.removesuffix(".npy") for name in parts.namelist()])
        for part in parts.infolist():
            shapes[part.filename] = read_declared_shape(parts, part)
        check_shapes(shapes)

    arrays = {}
    with path.open("rb") as file, NpzFile(file, allow_pickle=False) as stored:
        for name in stored.files:
            # NpzFile returns a member that is not an array as bytes.
            array = np.asarray(stored[name])
            if array.dtype.kind == "c" and name.endswith("freqs_cis"):
                arrays[name] = array.astype(np.complex128)
                continue
            if array.dtype.kind not in "fiub":
                raise ValueError(f"{name} holds {array.dtype}, not real numbers")
            arrays[name] = np.asarray(array, np.float64)
    return arrays


def read_declared_shape(
    parts: zipfile.ZipFile,
    part: zipfile.ZipInfo,
) -> tuple[int, ...]:
    """Return the shape in the header of an array, without reading the array."""
    with parts.open(part) as file:
        try:
            version = npy.read_magic(file)
        # A member that is not an array is refused later, by its kind.
        except ValueError:
            return (part.file_size,)
        if version == (1, 0):
            shape, _, dtype = npy.read_array_header_1_0(file)
        else:
            shape, _, dtype = npy.read_array_header_2_0(file)

    if any(isinstance(size, bool) or size < 0 for size in shape):
        raise ValueError(f"{part.filename} has the shape {shape}")
    if math.prod(shape) * dtype.itemsize > part.file_size:
        raise ValueError(
            f"{part.filename} has the shape {shape}, for which its"
            f" {part.file_size} bytes are too few"
        )
    return shape


def refuse_repeated(names: Sequence[str]) -> None:
    """Refuse two arrays of one name, of which only the last would be read."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"it has {count} arrays with the name {name}")


def check_shapes(shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse arrays that would fill the memory, before any is read."""
    count = sum(math.prod(shape) for shape in shapes.values())
    if count > MOST_NUMBERS:
        raise ValueError(
            f"its arrays hold {count} numbers, and at most {MOST_NUMBERS} are read"
        )


def read_tensors(path: Path) -> Arrays:
    """Return the arrays of a .safetensors file."""
    # torch reads the tensors, since numpy has no bfloat16.
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            check_shapes({name: file.get_slice(name).get_shape() for name in names})
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise ValueError(error) from None

    arrays = {}
    for name, tensor in tensors.items():
        if not tensor.is_complex():
            arrays[name] = tensor.double().numpy()
        elif name.endswith("freqs_cis"):
            arrays[name] = tensor.numpy().astype(np.complex128)
        else:
            raise ValueError(f"{name} holds complex numbers, not real ones")
    return arrays


def read_positions(path: Path, arrays: Arrays, count: int) -> Positions:
    """Return the array `positions`, or 0, 1, 2, ... without one."""
    positions = arrays.get("positions", np.arange(count, dtype=np.float64))
    is_in_range = (positions >= 0) & (positions <= LARGEST_POSITION)
    is_whole = is_in_range & (np.floor(positions) == positions)
    if positions.ndim != 1 or not is_whole.all():
        raise InputError(
            f"{path}: positions must be a list of whole numbers from 0 to 2^53"
        )
    if len(positions) != count:
        raise InputError(f"{path}: {len(positions)} positions for {count} rows")
    return positions.astype(np.int64)


def read_rotated(
    path: Path,
    arrays: Arrays,
    name: str,
    expected: Expected,
) -> tuple[Vectors, Rotated, Positions]:
    """Return vectors, their rotations and the positions.

    If vectors or positions are not in the file, those that `ropelab vectors` writes are
    used.

    Args:
        path: the file, to be named in errors.
        arrays: the arrays in the file.
        name: q or k.
        expected: the rotation.
    """
    head = expected.spec.head_dim
    after = arrays[f"{name}_rotated"]
    before = arrays.get(name, make_vectors(expected.spec)[name])
    if before.shape == after.shape and before.shape[1:] == (head,):
        # The file has one vector at each position: an axis of one vector is added.
        before = before[:, None]
        after = after[:, None]
    fitting_shapes = (after.shape, after.shape[1:])
    has_fitting_shapes = after.ndim == 3 and before.shape in fitting_shapes
    if not has_fitting_shapes or before.shape[-1] != head:
        right_shape = (
            f"[positions, heads, {head}], beside {name} likewise or [heads, {head}]"
        )
        problem = f"{name}_rotated has shape {after.shape} instead of {right_shape}"
        raise InputError(f"{path}: {problem}; {name} has {before.shape}")

    has_all_columns = before.reshape(-1, head).any(axis=0).all()
    if not (are_bounded(before) and has_all_columns):
        raise InputError(
            f"{path}: {name} needs finite numbers, and none of its columns only zeros"
        )
    positions = choose_kit_positions(expected)
    if "positions" in arrays or len(after) != len(positions):
        positions = read_positions(path, arrays, len(after))
    if not positions.any():
        raise InputError(f"{path} has no position above 0")
    return before, after, positions


def read_tables(path: Path, arrays: Arrays, expected: Expected) -> Observed:
    """Return cos and sin, a row per position.

    Engines write them as `cos` and `sin`; as `cos_sin_cache` with both in one row
    (vLLM); or as `freqs_cis`, cos + i sin. If the file has only `inv_freq`, cos and sin
    are computed from it.
    """
    spec = expected.spec
    by_name = name_by_last_part(path, arrays)
    note = ""

    if {"cos", "sin"} <= by_name.keys():
        cos = by_name["cos"]
        sin = by_name["sin"]
    elif "cos_sin_cache" in by_name:
        cos, sin = split_cache(path, by_name["cos_sin_cache"])
    elif "freqs_cis" in by_name:
        cos, sin = split_complex(path, by_name["freqs_cis"])
    elif "inv_freq" in by_name:
        by_name["positions"] = choose_positions(expected).astype(np.float64)
        cos, sin = make_tables(path, by_name["inv_freq"], by_name["positions"])
        cos = spec.attention_factor * cos
        sin = spec.attention_factor * sin
        note = "inv_freq alone: tables, pairs and factors were not judged"
    else:
        raise InputError(
            f"{path} needs arrays cos and sin, cos_sin_cache, freqs_cis or inv_freq, it"
            f" has {', '.join(arrays) or 'none'}"
        )

    positions = read_positions(path, by_name, len(np.atleast_1d(cos)))
    if 1 not in positions:
        raise InputError(f"{path} has no row for position 1")
    observed = observe_tables(positions, cos, sin, spec)
    return replace(thin_out(observed, expected), note=note or observed.note)


def name_by_last_part(path: Path, arrays: Arrays) -> dict[str, np.ndarray]:
    """Return arrays by the last part of their names, `cos` for `layers.0.rotary.cos`.

    InputError: different arrays would get the same name, so that only one of them would
    be judged.
    """
    by_name: dict[str, np.ndarray] = {}
    full_names: dict[str, str] = {}
    for full_name, array in arrays.items():
        name = full_name.rsplit(".", 1)[-1]
        first = full_names.setdefault(name, full_name)
        known = by_name.setdefault(name, array)
        is_read = name in TABLE_NAMES
        if is_read and not np.array_equal(known, array, equal_nan=True):
            raise InputError(
                f"{path}: {first} and {full_name} differ; give a file with one of them"
            )
    return by_name


def split_cache(path: Path, cache: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of a table whose rows hold cos and then sin."""
    if cache.ndim != 2 or cache.shape[1] % 2:
        raise InputError(
            f"{path}: cos_sin_cache has shape {cache.shape} instead of"
            " [positions, features]"
        )
    cos, sin = np.split(cache, 2, axis=1)
    return cos, sin


def split_complex(path: Path, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of a table of cos + i sin, complex or with an axis of two."""
    if table.ndim == 2 and np.iscomplexobj(table):
        return table.real, table.imag
    if table.ndim == 3 and table.shape[-1] == 2:
        return table[..., 0], table[..., 1]
    raise InputError(
        f"{path}: freqs_cis has shape {table.shape} instead of [positions, pairs],"
        " complex, or [positions, pairs, 2]"
    )


def make_tables(
    path: Path,
    inv_freq: np.ndarray,
    positions: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of frequencies, computed in float64."""
    if inv_freq.ndim != 1:
        raise InputError(f"{path}: inv_freq has shape {inv_freq.shape}, not [pairs]")
    angles = positions[:, None] * inv_freq
    return np.cos(angles), np.sin(angles)


def thin_out(observed: Observed, expected: Expected) -> Observed:
    """Return the usual rows of a long table, with the whole table as further rows."""
    if len(observed.positions) <= LONG_TABLE or observed.fault:
        return observed
    usual_positions = choose_positions(expected)
    last = observed.positions.max()
    rows = np.flatnonzero(np.isin(observed.positions, np.append(usual_positions, last)))
    return replace(
        observed,
        positions=observed.positions[rows],
        cos=observed.cos[rows],
        sin=observed.sin[rows],
        further=observed,
    )
