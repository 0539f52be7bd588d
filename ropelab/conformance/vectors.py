"""Vectors for tests of engines: what they must compute, and what the commonest mistakes
give.
"""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance.expected import Expected, expect_file
from ropelab.conformance.mistakes import list_mistakes
from ropelab.conformance.rotations import Positions, Vectors, expect_pairs
from ropelab.math.numerics.budget import KINDS, Kind
from ropelab.readers.document import load
from ropelab.readers.spec import GAINS, SHAPE, RopeSpec
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError
from ropelab.runs.folders import check_own, replaced_file
from ropelab.runs.rows import Result, Rows

# Ends of formats and tables; the trained and the claimed length come on top.
PLACES = (0, 1, 255, 256, 257, 4095, 4096, 4097, 131071, 1_000_000)
KEYS = 4  # of each position
LARGEST_HEAD = 1024  # features; the files grow with their square
ABOUT = "about.json"
Facts = Mapping[str, Any]
README = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
# The first words of every README of vectors.
MARK = README.partition("{")[0].strip()
FILES = ("vectors.npz", "vectors.safetensors", "vectors.json", ABOUT)


@dataclass(frozen=True)
class Written(Result):
    """The folders that were written; ``tables`` has layer types, budgets and
    mistakes.
    """

    folders: tuple[str, ...]
    rows: Mapping[str, Rows]


def vectors(config: str, out: str, *, length: int | None = None) -> Written:
    """Write what an engine must compute for a configuration.

    Args:
        config: a config.json or model folder.
        out: the folder to write to; with several layer types, each has a folder in it.
        length: tokens in the context, the claimed length if None.
    """
    if not out:
        raise InputError("--out names no folder")  # README.md here would be replaced
    layers = expect_file(config, length)
    whole = load(config).config
    # A file from elsewhere may have chosen the names.
    if odd := [name for name in layers if not re.fullmatch(r"[\w.-]*\w", name)]:
        raise InputError(f"{config}: layer type '{odd[0]}' is no name for a folder")
    for expected in layers.values():
        if (size := expected.spec.head_dim) > LARGEST_HEAD:
            raise InputError(f"{config}: heads of {size} features are too large")

    rows: dict[str, list[dict[str, Any]]] = {
        "layers": [],
        "budgets": [],
        "mistakes": [],
    }
    for name, expected in layers.items():
        folder = Path(out)
        if len(layers) > 1:
            folder = folder / name
        arrays, says = make_sheet(expected)
        facts = {"layer_type": name, "folder": str(folder), "length": expected.length}
        for key in (*SHAPE, *GAINS, "place", "backwards"):
            facts[key] = getattr(expected.spec, key)
        write(folder, arrays, {**facts, "mistakes": says}, whole)

        rows["layers"].append(facts)
        rows["budgets"] += list_budgets(name, arrays)
        for mistake, sentence in says.items():
            row = {"layer_type": name, "name": mistake, "says": sentence}
            rows["mistakes"].append(row)
    return Written(tuple(row["folder"] for row in rows["layers"]), rows)


def list_budgets(
    layer_type: str,
    arrays: Mapping[str, np.ndarray],
) -> list[dict[str, Any]]:
    """Return a row per position with the budgets of honest codes."""
    columns = [name for name in arrays if name.startswith(("budget", "posi"))]
    rows = []
    for values in zip(*(arrays[name].tolist() for name in columns), strict=True):
        row = {"layer_type": layer_type}
        row |= dict(zip(columns, values, strict=True))
        rows.append(row)
    return rows


def choose_places(expected: Expected) -> Positions:
    lengths = (expected.spec.trained_len, expected.length)
    ends = {length + side for length in lengths for side in (-1, 0, 1)}
    return np.array(sorted({*PLACES, *ends}), dtype=np.int64)


def make_vectors(spec: RopeSpec) -> dict[str, Vectors]:
    """Return unit vectors as queries, and keys in eighths, which all formats from 8
    bits hold.
    """
    one, other = np.ogrid[1 : KEYS + 1, 1 : spec.head_dim + 1]
    return {
        "q": np.eye(spec.head_dim),
        "k": ((5 * one * other + other * other + one) % 17 - 8) / 8,
    }


def make_sheet(expected: Expected) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of one layer type, and a sentence for each mistake."""
    places = choose_places(expected)
    given = make_vectors(expected.spec)
    good = expected.rotation
    cos, sin = good.tables(places)
    arrays = {
        "positions": places,
        "inv_freq": good.inv_freq,
        "cos": cos,
        "sin": sin,
        **given,
    }
    for name, x in given.items():
        arrays[f"{name}_rotated"] = good.apply(x, places)

    for kind in KINDS:
        tables = expected.budget(kind).tables(places.astype(np.float64))
        bounds = [bound_rotated(expected, kind, x, places) for x in given.values()]
        arrays[f"budget_{kind}_tables"] = tables.max(axis=1)
        arrays[f"budget_{kind}_rotated"] = np.max(bounds, axis=0)

    says = {}
    for name, sentence, wrong in list_mistakes(expected):
        says[name] = sentence
        arrays[f"mistake_{name}"] = wrong.apply(given["k"], places)
    return arrays, says


def bound_rotated(
    expected: Expected,
    kind: Kind,
    before: Vectors,
    places: Positions,
) -> Float[np.ndarray, " n"]:
    """Bound the errors of these vectors' rotations, which have the right pairs."""
    first, second = expect_pairs(expected.spec)
    budget = expected.budget(kind)
    exact = places.astype(np.float64)
    return budget.features(exact, before[..., first], before[..., second])


def _refuse_foreign(folder: Path) -> None:
    """Raise InputError for a folder in which a file that is not ours would be
    replaced.
    """
    readme = folder / "README.md"
    check_own(readme, MARK)
    if not readme.exists():
        for name in FILES:
            check_own(folder / name)


def write(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    about: Facts,
    config: Facts,
) -> None:
    """Write the arrays in three formats, the facts about them, and a README."""
    from safetensors.numpy import save

    half = about["rotary_dim"] // 2
    count = len(arrays["positions"])
    start = about["place"]
    pairs = f"i and i + {half}" if about["pairing"] == "half" else "2i and 2i + 1"
    block = f"below {2 * half}"
    turned = "x1 cos - x2 sin and\n   x2 cos + x1 sin"
    if about["backwards"]:
        turned = "x1 cos + x2 sin and\n   x2 cos - x1 sin"
    if start:
        pairs = pairs.replace("2i", f"{start} + 2i")
        block = f"from {start} to {start + 2 * half - 1}"
    flat = {n: a.ravel().tolist() for n, a in arrays.items()}
    data = {
        n: [x if isinstance(x, int) else x.hex() for x in values]
        for n, values in flat.items()
    }
    plain = {n: {"shape": a.shape, "data": data[n]} for n, a in arrays.items()}
    packed = save({n: np.ascontiguousarray(a) for n, a in arrays.items()})
    words = {"half": half, "count": count, "keys": KEYS, "pairs": pairs}
    readme = README.format(**about, **words, block=block, turned=turned)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(folder)
        # Gone until all are written: it must not stand beside vectors of another
        # configuration.
        (folder / ABOUT).unlink(missing_ok=True)
        np.savez(archive := io.BytesIO(), allow_pickle=False, **arrays)
        # The README is first: it is what marks the others as ours.
        for name, content in {
            "README.md": readme.encode(),
            "vectors.npz": archive.getvalue(),
            "vectors.safetensors": packed,
            "vectors.json": json.dumps({**about, "arrays": plain}).encode(),
            # The configuration may hold `Infinity`, at which other readers of JSON
            # stop.
            ABOUT: json.dumps({**about, "config": config}, indent=2).encode(),
        }.items():
            with replaced_file(folder / name) as fresh:
                fresh.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror or error}"
        ) from None
