"""Files of arrays given to `ropelab check`: right ones in odd formats, and odd ones.

Right tables are right in whatever format they are stored. A file that holds a wrong
number, or two tables where one is judged, is found wrong or refused in one line.
"""

import contextlib
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tests.stress.promise import Trial, type_command

MODEL = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
RIGHT = (0,)
REFUSED = (2,)
# A file with a wrong number is found wrong, or refused.
WRONG = (2, 3)
ANY = (0, 2, 3)
EVERY = 9
"""Of the small part each so many is tried."""
PLACES = np.arange(4096)
INV_FREQ = 1e4 ** -(np.arange(32) / 32)
COS = np.cos(PLACES[:, None] * INV_FREQ)
SIN = np.sin(PLACES[:, None] * INV_FREQ)

Arrays = Mapping[str, object]
Case = tuple[str, Arrays, tuple[int, ...]]


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Arrays of NumPy, archives that no library writes, and headers of safetensors."""
    (folder / "config.json").write_text(json.dumps(MODEL))
    step = EVERY if few else 1
    with contextlib.chdir(folder):
        for what, arrays, statuses in list_arrays()[::step]:
            np.savez("tables.npz", **arrays)  # type: ignore[arg-type]
            yield check(f"npz: {what}", "tables.npz", statuses)

        for what, entries, statuses in list_archives()[::step]:
            write_archive(Path("tables.npz"), entries)
            yield check(f"archive: {what}", "tables.npz", statuses)

        for what, content in list_damages()[::step]:
            Path("tables.npz").write_bytes(content)
            yield check(f"archive: {what}", "tables.npz", REFUSED)

        for what, header in list_headers()[::step]:
            write_tensors(Path("tables.safetensors"), header)
            statuses = RIGHT if what == "right" else REFUSED
            yield check(f"safetensors: {what}", "tables.safetensors", statuses)


def check(what: str, file: str, statuses: tuple[int, ...]) -> Trial:
    """Give a file to the command; its status must be one of these."""
    return type_command(what, statuses, "check", file, "--config", "config.json")


def list_arrays() -> list[Case]:
    """Return arrays by name, with the statuses that are right for them."""
    again = np.append(PLACES, 5)
    other_row = {"cos": np.vstack([COS, COS[7:8]]), "sin": np.vstack([SIN, SIN[7:8]])}
    one_nan = np.where(PLACES[:, None] == 3001, np.nan, COS)
    tables = {"cos": COS, "sin": SIN}
    two_rows = {"cos": COS[:2], "sin": SIN[:2]}
    return [
        ("plain", tables, RIGHT),
        (
            "backwards",
            {"cos": COS[::-1], "sin": SIN[::-1], "positions": PLACES[::-1]},
            RIGHT,
        ),
        ("in Fortran's order", {"cos": np.asfortranarray(COS), "sin": SIN}, RIGHT),
        ("big-endian", {"cos": COS.astype(">f8"), "sin": SIN.astype(">f4")}, RIGHT),
        ("in long doubles", {"cos": COS.astype(np.longdouble), "sin": SIN}, RIGHT),
        ("complex", {"freqs_cis": COS + 1j * SIN}, RIGHT),
        ("frequencies", {"inv_freq": INV_FREQ}, RIGHT),
        (
            "frequencies of layers",
            {"a.inv_freq": INV_FREQ, "b.inv_freq": INV_FREQ},
            RIGHT,
        ),
        ("in float16", {"cos": COS.astype(np.float16), "sin": SIN}, ANY),
        ("a position twice", {**other_row, "positions": again}, WRONG),
        ("two tables", {"a.cos": COS[::-1], "b.cos": COS, "sin": SIN}, WRONG),
        (
            "two tables, the other first",
            {"a.cos": COS, "b.cos": COS[::-1], "sin": SIN},
            WRONG,
        ),
        ("in whole numbers", {"cos": COS.astype(int), "sin": SIN.astype(int)}, WRONG),
        ("one NaN", {"cos": one_nan, "sin": SIN}, WRONG),
        ("near infinity", {"cos": COS * 1e308, "sin": SIN * 1e308}, WRONG),
        ("near zero", {"cos": COS * 1e-320, "sin": SIN}, WRONG),
        ("frequencies of NaN", {"inv_freq": np.full(32, np.nan)}, WRONG),
        ("frequencies near infinity", {"inv_freq": np.full(32, 1e308)}, WRONG),
        ("no frequencies", {"inv_freq": np.zeros(0)}, WRONG),
        ("positions below 0", {**tables, "positions": PLACES - 1}, REFUSED),
        (
            "positions of 2^64",
            {**tables, "positions": np.full(4096, 2**64 - 1, np.uint64)},
            REFUSED,
        ),
        ("positions between", {**tables, "positions": PLACES + 0.25}, REFUSED),
        ("positions of NaN", {**tables, "positions": np.full(4096, np.nan)}, REFUSED),
        ("positions in a column", {**tables, "positions": PLACES[:, None]}, REFUSED),
        ("positions of truth", {**two_rows, "positions": np.array([False, True])}, ANY),
        ("no rows", {"cos": COS[:0], "sin": SIN[:0]}, REFUSED),
        ("one row", {"cos": COS[:1], "sin": SIN[:1]}, REFUSED),
        ("one number", {"cos": np.float64(1), "sin": np.float64(0)}, REFUSED),
        (
            "too wide",
            {"cos": np.zeros((4, 100_000)), "sin": np.zeros((4, 100_000))},
            WRONG,
        ),
        ("text", {"cos": COS.astype(str), "sin": SIN}, REFUSED),
        ("objects", {"cos": np.array([object()]), "sin": SIN}, REFUSED),
        ("records", {"cos": np.zeros(3, dtype=[("a", "f8")]), "sin": SIN}, REFUSED),
        ("infinite vectors", {"q_rotated": np.full((3, 64, 64), np.inf)}, WRONG),
        ("vectors of another shape", {"q_rotated": np.zeros((4096, 64))}, REFUSED),
        ("nothing", {}, REFUSED),
    ]


def list_archives() -> list[tuple[str, list[tuple[str, object]], tuple[int, ...]]]:
    """Return the entries of archives that NumPy does not write."""
    wrong = ("cos.npy", COS[::-1])
    right = ("cos.npy", COS)
    sin = ("sin.npy", SIN)
    return [
        ("a name twice", [wrong, right, sin], REFUSED),
        ("a name twice, right first", [right, wrong, sin], REFUSED),
        ("a name with and without its ending", [right, ("cos", b"x"), sin], REFUSED),
        ("folders", [("a/cos.npy", COS), ("b/cos.npy", COS), sin], REFUSED),
        ("folders outside", [("../../cos.npy", COS), ("../sin.npy", SIN)], REFUSED),
        ("names that steer", [("\x1b[2Jcos.npy", COS), ("s\nin.npy", SIN)], REFUSED),
    ]


def list_damages() -> list[tuple[str, bytes]]:
    whole = io.BytesIO()
    np.savez(whole, cos=COS, sin=SIN)
    content = whole.getvalue()
    alone = io.BytesIO()
    np.save(alone, COS)
    damages = [("one array, no archive", alone.getvalue())]
    for length in (0, 10, 1000, len(content) // 2, len(content) - 5):
        damages.append((f"cut at {length} bytes", content[:length]))
    return damages


def list_headers() -> list[tuple[str, bytes]]:
    """Return headers of safetensors before the bytes of two tables in float32."""
    half = COS.size * 4
    cos = {"dtype": "F32", "shape": [4096, 32], "data_offsets": [0, half]}
    sin = {**cos, "data_offsets": [half, 2 * half]}
    right = {"cos": cos, "sin": sin}
    changed: dict[str, object] = {
        "right": right,
        "bytes that overlap": {**right, "sin": {**sin, "data_offsets": [5, half + 5]}},
        "bytes before the file": {**right, "sin": {**sin, "data_offsets": [-5, half]}},
        "true for a size": {**right, "cos": {**cos, "shape": [True, 32]}},
        "2^80 numbers": {**right, "cos": {**cos, "shape": [2**40, 2**40]}},
        "a format of 8 bits": {**right, "cos": {**cos, "dtype": "F8_E4M3"}},
        "a text for a tensor": {"cos": "x"},
        "names that steer": {"\x1b[2Jcos": cos, "sin": sin},
        "a list": [],
    }
    headers = [(what, json.dumps(header).encode()) for what, header in changed.items()]
    headers.append(("nothing", b""))
    headers.append(("lists in lists", b"[" * 100_000))
    headers.append(("UTF-16", json.dumps(right).encode("utf-16")))
    headers.append(("a constant that JSON lacks", b'{"cos": NaN}'))
    return headers


def write_archive(path: Path, entries: list[tuple[str, object]]) -> None:
    with zipfile.ZipFile(path, "w") as parts, warnings.catch_warnings():
        # A name that is there already is what is tried.
        warnings.simplefilter("ignore")
        for name, entry in entries:
            content = io.BytesIO()
            if isinstance(entry, bytes):
                content.write(entry)
            else:
                np.save(content, np.asarray(entry))
            parts.writestr(name, content.getvalue())


def write_tensors(path: Path, header: bytes) -> None:
    numbers = COS.astype("<f4").tobytes() + SIN.astype("<f4").tobytes()
    path.write_bytes(struct.pack("<Q", len(header)) + header + numbers)
