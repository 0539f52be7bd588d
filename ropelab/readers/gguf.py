"""The header of a GGUF file, read within bounds: scalars, sizes of arrays, and rope
tensors.

Vocabularies are stepped over. Source: docs/gguf.md in ggml (versions 2 and 3,
little-endian). Every file that is refused here is also refused by ggml/src/gguf.cpp of
llama.cpp.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

# The codes in `struct` of the scalar types, by the number of each type in a file.
SCALARS = dict(enumerate("BbHhIif?")) | dict(enumerate("Qqd", start=10))
# The numbers of the types of strings and of arrays.
STRING, ARRAY = 8, 9
# The most bytes of a string that are kept. Templates may be longer and are cut.
LONGEST_STRING = 2**16
# The most keys and the most tensors of a file.
MOST_KEYS = 2**16
MOST_TENSORS = 2**16
# The most strings in all arrays of a file. They are stepped over one by one; a
# vocabulary has up to 2^18.
MOST_ENTRIES = 2**22
# The end of the name of the only array whose numbers are kept: the number of heads,
# which can differ from layer to layer.
PER_LAYER = ".attention.head_count"
# The most numbers of this array that are kept.
MOST_LAYERS = 2**12
# The most bytes of the name of a key or a tensor that are kept.
LONGEST_NAME = 2**12
# The most numbers of a tensor about rotation, which has one for each pair of a head.
MOST_PAIRS = 2**12
# The names of the tensors about rotation.
ROPE_TENSORS = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)
# The number of the type float32 among the types of tensors.
FLOAT32 = 0
# The numbers of these types among the types of scalars.
UINT16, UINT32, INT32 = 2, 4, 5
# The alignment in bytes of a file that states none.
USUAL_ALIGNMENT = 32


@dataclass(frozen=True)
class Header:
    """The part of a GGUF file before its weights."""

    # Values by key. The number of heads of each layer is a list; other arrays are a
    # `Length`.
    fields: Mapping[str, Any]
    # The number of the type of each key, and for an array also the number of its
    # entries' type.
    kinds: Mapping[str, tuple[int, ...]]
    # The tensors about rotation, in float64.
    tensors: Mapping[str, Float[np.ndarray, " pairs"]]
    # The names of all tensors of the file.
    tensor_names: frozenset[str]


@dataclass(frozen=True)
class Length:
    """An array that was stepped over."""

    count: int


@dataclass(frozen=True)
class TensorPlace:
    """The size of a tensor, and its place in a file."""

    elements: int
    # The number of the type of the tensor.
    kind: int
    # The bytes from the beginning of the first tensor to the beginning of this tensor.
    offset: int


class _Cursor:
    """A file that refuses to be read beyond its end."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self.file = file
        self.size = size
        self.name = name
        # The number of entries of arrays that were stepped over.
        self.entries = 0

    def fail(self, problem: str) -> InputError:
        """Make an error for the file."""
        return InputError(f"{self.name} is not a readable GGUF file: {problem}")

    def require(self, count: int, problem: str) -> None:
        if count > self.size - self.file.tell():
            raise self.fail(problem)

    def take(self, count: int) -> bytes:
        self.require(count, "it ends before its header does")
        return self.file.read(count)

    def peek(self, code: str) -> Any:
        value = self.scalar(code)
        self.file.seek(-struct.calcsize(f"<{code}"), os.SEEK_CUR)
        return value

    def skip(self, count: int) -> None:
        self.require(count, "an array or a string is longer than the file")
        self.file.seek(count, os.SEEK_CUR)

    def scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self, most: int = LONGEST_STRING) -> str:
        length = self.scalar("Q")
        content = self.take(min(length, most))
        self.skip(length - len(content))
        return content.decode("utf-8", errors="replace")


def read_header(path: Path) -> Header:
    """Return the header.

    InputError: the file has another version, or counts that do not fit its size.
    """
    with path.open("rb") as file:
        cursor = _Cursor(file, path.stat().st_size, str(path))
        if cursor.take(4) != b"GGUF":
            raise cursor.fail("it does not begin with GGUF")
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise cursor.fail(
                f"version {version} or another byte order; known are 2 and 3"
            )
        tensors = cursor.scalar("Q")
        keys = cursor.scalar("Q")
        if keys > MOST_KEYS or tensors > MOST_TENSORS:
            raise cursor.fail(
                f"{keys} keys and {tensors} tensors are more than any model has"
            )

        fields, kinds = _read_fields(cursor, keys)
        alignment = _find_alignment(cursor, fields, kinds)
        places = _read_places(cursor, tensors, alignment)
        rope_tensors = _read_rope_tensors(cursor, places, alignment)
        return Header(fields, kinds, rope_tensors, frozenset(places))


def _read_fields(
    cursor: _Cursor, count: int
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Read the keys; return their values and their types.

    InputError: a key is there twice, which llama.cpp refuses.
    """
    fields: dict[str, Any] = {}
    kinds: dict[str, tuple[int, ...]] = {}
    for _ in range(count):
        name = cursor.text(LONGEST_NAME)
        if not name:
            raise cursor.fail("a key without a name")
        if name in fields:
            raise cursor.fail(f"the key {name} is there twice")

        value_type = cursor.scalar("I")
        kinds[name] = (value_type,)
        if value_type == ARRAY:
            kinds[name] = (value_type, cursor.peek("I"))
        fields[name] = _read_value(cursor, value_type, name.endswith(PER_LAYER))
    return fields, kinds


def _find_alignment(
    cursor: _Cursor, fields: Mapping[str, Any], kinds: Mapping[str, tuple[int, ...]]
) -> int:
    """Return the alignment in bytes: every offset of a tensor is a multiple of it.

    InputError: llama.cpp refuses the alignment of the file.
    """
    name = "general.alignment"
    if name not in fields:
        return USUAL_ALIGNMENT
    alignment = fields[name]
    if kinds[name] != (UINT32,):
        raise cursor.fail(f"{name} is not a number of type uint32")
    if alignment.bit_count() != 1:
        raise cursor.fail(f"an alignment of {alignment}, which is no power of 2")
    return int(alignment)


def _read_places(cursor: _Cursor, count: int, alignment: int) -> dict[str, TensorPlace]:
    """Read the place of each tensor; InputError if tensors do not follow one another
    without a gap, as llama.cpp requires.
    """
    places: dict[str, TensorPlace] = {}
    # The offset below which no tensor may begin. Only the sizes of float32 tensors are
    # known here, so that an overlap with any other tensor is not noticed.
    least_offset = 0
    for _ in range(count):
        name = cursor.text(LONGEST_NAME)
        if name in places:
            raise cursor.fail(f"the tensor {name} is there twice")
        dimensions = cursor.scalar("I")
        if dimensions > 4:
            raise cursor.fail(f"a tensor with {dimensions} dimensions")

        elements = 1
        for _ in range(dimensions):
            elements *= cursor.scalar("Q")
        tensor_type = cursor.scalar("I")
        offset = cursor.scalar("Q")

        is_first = not places
        is_aligned = offset % alignment == 0
        if not is_aligned or offset < least_offset or (is_first and offset > 0):
            raise cursor.fail(f"{name} does not begin where the tensor before it ends")
        places[name] = TensorPlace(elements, tensor_type, offset)
        least_offset = offset
        if tensor_type == FLOAT32:
            least_offset += _round_up(4 * elements, alignment)
    return places


def _round_up(count: int, alignment: int) -> int:
    """Return the least multiple of an alignment that is not below a count."""
    return count + -count % alignment


def _read_value(cursor: _Cursor, value_type: int, is_kept: bool) -> Any:
    """Read a value. Of an array only the length is read, except of a short array of
    numbers if ``is_kept`` is True.
    """
    if value_type in SCALARS:
        return cursor.scalar(SCALARS[value_type])
    if value_type == STRING:
        return cursor.text()
    if value_type != ARRAY:
        raise cursor.fail(f"unknown value type {value_type}")

    inner = cursor.scalar("I")
    count = cursor.scalar("Q")
    if inner in SCALARS:
        if is_kept and count <= MOST_LAYERS:
            return [cursor.scalar(SCALARS[inner]) for _ in range(count)]
        cursor.skip(count * struct.calcsize(SCALARS[inner]))
        return Length(count)

    if inner != STRING:
        raise cursor.fail(f"an array of value type {inner}, which nothing reads")

    # Each string begins with its length.
    cursor.require(8 * count, "an array is longer than the file")
    cursor.entries += count
    if cursor.entries > MOST_ENTRIES:
        raise cursor.fail(
            f"arrays of {cursor.entries} entries are more than any model has"
        )
    for _ in range(count):
        cursor.skip(cursor.scalar("Q"))
    return Length(count)


def _read_rope_tensors(
    cursor: _Cursor, places: Mapping[str, TensorPlace], alignment: int
) -> dict[str, Float[np.ndarray, " pairs"]]:
    """Read the tensors about rotation, where the header has just been read."""
    start = _round_up(cursor.file.tell(), alignment)

    tensors = {}
    for name in ROPE_TENSORS:
        if name not in places:
            continue
        place = places[name]
        if place.kind != FLOAT32 or not 1 <= place.elements <= MOST_PAIRS:
            raise cursor.fail(f"{name} is not a short list of float32")
        if start + place.offset > cursor.size:
            raise cursor.fail(f"{name} begins beyond the end")

        cursor.file.seek(start + place.offset)
        raw = np.frombuffer(cursor.take(4 * place.elements), "<f4")
        tensors[name] = raw.astype(np.float64)
    return tensors
