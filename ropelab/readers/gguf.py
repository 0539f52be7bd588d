"""The header of a GGUF file, read within bounds: scalars, sizes of arrays, and rope
tensors.
"""
# Vocabularies are stepped over. Source: docs/gguf.md in ggml (versions 2 and 3,
# little-endian).

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

# struct codes of the scalar types, by their number in the file.
SCALARS = dict(enumerate("BbHhIif?")) | dict(enumerate("Qqd", start=10))
STRING, ARRAY = 8, 9
# Bytes of a string that are kept (templates may be longer and are cut); keys, and
# tensors.
LONGEST_STRING = MOST_KEYS = MOST_TENSORS = 2**16
# Strings and arrays inside arrays, which are stepped over one by one; vocabularies have
# 2^18.
MOST_ENTRIES = 2**22
MOST_DEPTH = 4
# The array of numbers that is kept: models differ in it from layer to layer.
PER_LAYER, MOST_LAYERS = ".attention.head_count", 2**12
LONGEST_NAME = 2**12
ROPE_TENSORS = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)
FLOAT32 = 0


@dataclass(frozen=True)
class Header:
    """The part of a GGUF file before its weights."""

    # Scalars and strings by key; heads per layer are a list, of other arrays there is a
    # `Length`.
    fields: Mapping[str, Any]
    tensors: Mapping[str, Float[np.ndarray, " pairs"]]  # the rope tensors, float64


@dataclass(frozen=True)
class Length:
    """An array that was stepped over."""

    count: int


class _Cursor:
    """A file that refuses to be read beyond its end."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self.file = file
        self.size = size
        self.name = name
        self.entries = 0  # of arrays that are stepped over

    def fail(self, problem: str) -> InputError:
        return InputError(f"{self.name} is not a readable GGUF file: {problem}")

    def require(self, count: int, problem: str) -> None:
        if count > self.size - self.file.tell():
            raise self.fail(problem)

    def take(self, count: int) -> bytes:
        self.require(count, "it ends before its header does")
        return self.file.read(count)

    def skip(self, count: int) -> None:
        self.require(count, "an array or a string is longer than the file")
        self.file.seek(count, os.SEEK_CUR)

    def scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self, most: int = LONGEST_STRING) -> str:
        length = self.scalar("Q")
        kept = self.take(min(length, most))
        self.skip(length - len(kept))
        return kept.decode("utf-8", errors="replace")


def read_header(path: Path) -> Header:
    """Return the header; InputError for other versions and for counts that do not
    fit.
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

        fields: dict[str, Any] = {}
        for _ in range(keys):
            name = cursor.text(LONGEST_NAME)
            fields[name] = _value(cursor, cursor.scalar("I"), name.endswith(PER_LAYER))

        places = {}
        for _ in range(tensors):
            name = cursor.text(LONGEST_NAME)
            dimensions = cursor.scalar("I")
            elements = 1
            if dimensions > 4:
                raise cursor.fail(f"a tensor with {dimensions} dimensions")
            for _ in range(dimensions):
                elements *= cursor.scalar("Q")
            # with type and offset
            places[name] = elements, cursor.scalar("I"), cursor.scalar("Q")

        alignment = fields.get("general.alignment")
        if not isinstance(alignment, int):
            alignment = 32
        return Header(fields, _rope_tensors(cursor, places, alignment))


def _value(cursor: _Cursor, kind: int, kept: bool = False, depth: int = 0) -> Any:
    """Read a value; of an array only the length, unless it is to be kept and has
    numbers.
    """
    if kind in SCALARS:
        return cursor.scalar(SCALARS[kind])
    if kind == STRING:
        return cursor.text()
    if kind != ARRAY or depth > MOST_DEPTH:
        raise cursor.fail(f"unknown value type {kind}")

    inner = cursor.scalar("I")
    count = cursor.scalar("Q")
    if inner in SCALARS:
        if kept and count <= MOST_LAYERS:
            return [cursor.scalar(SCALARS[inner]) for _ in range(count)]
        cursor.skip(count * struct.calcsize(SCALARS[inner]))
        return Length(count)

    # A string begins with its length, an array with a type and a length.
    least = 8 if inner == STRING else 12
    cursor.require(count * least, "an array is longer than the file")
    cursor.entries += count
    if cursor.entries > MOST_ENTRIES:
        raise cursor.fail(
            f"arrays of {cursor.entries} entries are more than any model has"
        )
    for _ in range(count):
        if inner == STRING:
            cursor.skip(cursor.scalar("Q"))
        else:
            _value(cursor, inner, depth=depth + 1)
    return Length(count)


def _rope_tensors(
    cursor: _Cursor, places: Mapping[str, tuple[int, int, int]], alignment: int
) -> dict[str, Float[np.ndarray, " pairs"]]:
    if not 1 <= alignment <= 2**20:
        raise cursor.fail(f"an alignment of {alignment}")
    start = -(-cursor.file.tell() // alignment) * alignment

    tensors = {}
    for name in ROPE_TENSORS:
        if name not in places:
            continue
        elements, kind, offset = places[name]
        if kind != FLOAT32 or not 1 <= elements <= 2**12:
            raise cursor.fail(f"{name} is not a short list of float32")
        if start + offset > cursor.size:
            raise cursor.fail(f"{name} begins beyond the end")

        cursor.file.seek(start + offset)
        raw = np.frombuffer(cursor.take(4 * elements), "<f4")
        tensors[name] = raw.astype(np.float64)
    return tensors
