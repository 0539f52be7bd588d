"""Write vectors for tests of engines: the right numbers, and the numbers of common
mistakes.

A folder of vectors is called a kit. It holds the same arrays in three formats, a
README, and a file of facts from which `check` reads what the arrays were written for.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance.axes_positions import GRID
from ropelab.conformance.axes_sheet import make_axes_sheet, takes_prompt
from ropelab.conformance.expected import Expected, expect_config, load_config
from ropelab.conformance.mistakes import list_mistakes
from ropelab.conformance.observation import Positions, Vectors
from ropelab.conformance.pairs import expect_pairs
from ropelab.math.numerics.budget import KINDS, Kind
from ropelab.readers.axes import PromptRule, read_prompt_rule
from ropelab.readers.spec import GAINS, SHAPE, RopeSpec
from ropelab.runs.arguments import check_texts, read_path
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError
from ropelab.runs.folders import check_own, lock_users_folder, replace_file
from ropelab.runs.rows import Result, Rows

# Positions around the ends of number formats and tables. Those around the ends of the
# trained and the claimed length are added.
POSITIONS = (0, 1, 255, 256, 257, 4095, 4096, 4097, 131071, 1_000_000)
# The number of keys that are rotated to each position.
KEY_COUNT = 4
# The most features of a head, with whose square the files grow.
LARGEST_HEAD = 1024
# The file of facts.
ABOUT = "about.json"
Facts = Mapping[str, Any]


def read_template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")


README = read_template("vectors")
README_IMAGES = read_template("vectors_images")
README_AXES = read_template("vectors_axes")
README_PROMPT = read_template("vectors_prompt")
# Every README of a kit begins with these words. A file that does not is not replaced.
MARK = README.partition("{")[0].strip()
FILES = ("vectors.npz", "vectors.safetensors", "vectors.json", ABOUT)


@dataclass(frozen=True)
class Written(Result):
    """The folders that were written, with tables of layers, budgets and mistakes."""

    folders: tuple[str, ...]
    rows: Mapping[str, Rows]


def vectors(
    config: str | PathLike[str],
    out: str | PathLike[str],
    *,
    length: int | None = None,
    prompt: str = "",
) -> Written:
    """Write what an engine must compute for a configuration.

    Args:
        config: a config.json or model folder.
        out: the folder to write to; with several layer types, each has a folder in it.
        length: tokens in the context, the claimed length if None.
        prompt: parts whose position ids are written for a model of images and text, such as
            `text 5, image 8x12, text 3`; a usual prompt if empty.
    """
    config = read_path("config", config)
    out = read_path("out", out)
    check_texts(prompt=prompt)
    # An empty path is the working folder, whose README.md would be replaced.
    if not out:
        raise InputError("--out names no folder")

    whole_config = load_config(config)
    layers = expect_config(config, whole_config, length)
    _check_layers(config, layers)
    rule = read_prompt_rule(whole_config)
    if prompt and rule is None:
        raise InputError(f"{config}: nobody looked at how this model counts positions")
    if prompt and not any(takes_prompt(each.spec) for each in layers.values()):
        raise InputError(
            f"{config}: the axes of its positions are not known, so that no position ids"
            " of a prompt can be written"
        )

    layer_rows: list[dict[str, Any]] = []
    budget_rows: list[dict[str, Any]] = []
    mistake_rows: list[dict[str, Any]] = []
    kits: list[tuple[Path, Mapping[str, np.ndarray], Facts]] = []
    for name, expected in layers.items():
        folder = Path(out)
        if len(layers) > 1:
            folder = folder / name
        facts: dict[str, Any] = {
            "layer_type": name,
            "folder": str(folder),
            "length": expected.length,
        }
        arrays, says = make_arrays(expected, facts, rule, prompt)
        for key in (*SHAPE, *GAINS, "place", "backwards"):
            facts[key] = getattr(expected.spec, key)
        if expected.rotating and not all(expected.rotating):
            facts["unrotated_layers"] = list_unrotated(expected.rotating)
        kits.append((folder, arrays, {**facts, "mistakes": says}))

        layer_rows.append(facts)
        budget_rows += list_budgets(name, arrays)
        for mistake, sentence in says.items():
            row = {"layer_type": name, "name": mistake, "says": sentence}
            mistake_rows.append(row)

    # The folders of all layer types are written under one lock. So two commands that
    # write here at once leave the kit of one configuration.
    try:
        with lock_users_folder(Path(out)):
            for folder, arrays_of_kit, about in kits:
                write(folder, arrays_of_kit, about, whole_config)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror or error}") from None

    folders = tuple(row["folder"] for row in layer_rows)
    rows = {"layers": layer_rows, "budgets": budget_rows, "mistakes": mistake_rows}
    return Written(folders, rows)


def list_unrotated(rotating: Sequence[bool]) -> list[int]:
    """Return the numbers of the layers that do not rotate, counted from 0."""
    return [layer for layer, rotates in enumerate(rotating) if not rotates]


def _check_layers(config: str, layers: Mapping[str, Expected]) -> None:
    """Raise InputError for names that cannot be names of folders, and for heads that
    are too large.
    """
    # Names of layer types come from a configuration, which a stranger may have written.
    for name in layers:
        if not re.fullmatch(r"[\w.-]*\w", name):
            raise InputError(f"{config}: layer type '{name}' is no name for a folder")

    for expected in layers.values():
        size = expected.spec.head_dim
        if size > LARGEST_HEAD:
            raise InputError(f"{config}: heads of {size} features are too large")


def list_budgets(
    layer_type: str,
    arrays: Mapping[str, np.ndarray],
) -> list[dict[str, Any]]:
    """Return a row per position with the budgets of honest codes."""
    columns = {}
    for name, array in arrays.items():
        if name == "positions" or name.startswith("budget"):
            columns[name] = array.tolist()

    rows = []
    for values in zip(*columns.values(), strict=True):
        row = {"layer_type": layer_type}
        row |= dict(zip(columns, values, strict=True))
        rows.append(row)
    return rows


def choose_kit_positions(expected: Expected) -> Positions:
    """Return the usual positions and positions around the ends of both lengths."""
    positions = set(POSITIONS)
    for length in (expected.spec.trained_len, expected.length):
        positions |= {length - 1, length, length + 1}
    return np.array(sorted(positions), dtype=np.int64)


def make_vectors(spec: RopeSpec) -> dict[str, Vectors]:
    """Return unit vectors as queries, and keys whose features are eighths from -1 to 1.

    All number formats from 8 bits on hold these exactly.
    """
    key, feature = np.ogrid[1 : KEY_COUNT + 1, 1 : spec.head_dim + 1]
    # Whole numbers from -8 to 8 in no order.
    eighths = (5 * key * feature + feature * feature + key) % 17 - 8
    return {"q": np.eye(spec.head_dim), "k": eighths / 8}


def make_arrays(
    expected: Expected,
    facts: dict[str, Any],
    rule: PromptRule | None,
    prompt: str = "",
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of one layer type by name, and a sentence for each mistake.

    Args:
        expected: the rotation of the layer type.
        facts: what is known about the axes of positions is added to them.
        rule: how the model counts positions of images; None if it does not.
        prompt: a prompt as people type it; a usual one if empty.
    """
    vectors_by_name = make_vectors(expected.spec)
    arrays: dict[str, np.ndarray] = {}
    says: dict[str, str] = {}
    if expected.is_of_images:
        arrays |= vectors_by_name
    else:
        arrays, says = make_sheet(expected)
    if expected.spec.axes is None:
        return arrays, says

    axes_arrays, axes_says, axes_facts = make_axes_sheet(
        expected, vectors_by_name, rule, prompt
    )
    facts |= axes_facts
    return {**arrays, **axes_arrays}, {**says, **axes_says}


def make_sheet(expected: Expected) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays at positions of one axis, and a sentence for each mistake."""
    positions = choose_kit_positions(expected)
    vectors_by_name = make_vectors(expected.spec)
    right = expected.rotation
    cos, sin = right.tables(positions)
    arrays = {
        "positions": positions,
        "inv_freq": right.inv_freq,
        "cos": cos,
        "sin": sin,
        **vectors_by_name,
    }
    for name, x in vectors_by_name.items():
        arrays[f"{name}_rotated"] = right.apply(x, positions)

    for kind in KINDS:
        tables = expected.budget(kind).tables(positions.astype(np.float64))
        arrays[f"budget_{kind}_tables"] = tables.max(axis=1)
        bounds = []
        for x in vectors_by_name.values():
            bounds.append(bound_rotated(expected, kind, x, positions))
        arrays[f"budget_{kind}_rotated"] = np.max(bounds, axis=0)

    says = {}
    for name, sentence, wrong in list_mistakes(expected):
        says[name] = sentence
        arrays[f"mistake_{name}"] = wrong.apply(vectors_by_name["k"], positions)
    return arrays, says


def bound_rotated(
    expected: Expected,
    kind: Kind,
    before: Vectors,
    positions: Positions,
) -> Float[np.ndarray, " n"]:
    """Bound the errors of rotated vectors at each position.

    Args:
        expected: the rotation.
        kind: how a right code computes, such as float32.
        before: the vectors that are rotated.
        positions: the positions.
    """
    first, second = expect_pairs(expected.spec)
    budget = expected.budget(kind)
    exact = positions.astype(np.float64)
    return budget.features(exact, before[..., first], before[..., second])


def _refuse_foreign(folder: Path) -> None:
    """Raise InputError for a folder where a file that is not ours would be replaced."""
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
    # The README is written first, since it marks all other files as files of a kit.
    contents = {
        "README.md": write_readme(about, arrays).encode(),
        "vectors.npz": pack_as_npz(arrays),
        "vectors.safetensors": pack_as_safetensors(arrays),
        "vectors.json": json.dumps({**about, "arrays": list_as_hex(arrays)}).encode(),
        # The configuration may hold `Infinity`, at which other readers of JSON stop.
        ABOUT: json.dumps({**about, "config": config}, indent=2).encode(),
    }

    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(folder)
        # The facts are deleted until all is written. If writing stops, they must not be
        # in one folder with vectors of another configuration.
        (folder / ABOUT).unlink(missing_ok=True)
        for name, content in contents.items():
            with replace_file(folder / name) as fresh:
                fresh.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror or error}"
        ) from None


def write_readme(about: Facts, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the README for these arrays, in as many parts as they need."""
    half = about["rotary_dim"] // 2
    pairs = "2i and 2i + 1"
    if about["pairing"] == "half":
        pairs = f"i and i + {half}"
    rotated = "x1 cos - x2 sin and\n   x2 cos + x1 sin"
    if about["backwards"]:
        rotated = "x1 cos + x2 sin and\n   x2 cos - x1 sin"

    start = about["place"]
    block = f"below {2 * half}"
    if start:
        pairs = pairs.replace("2i", f"{start} + 2i")
        block = f"from {start} to {start + 2 * half - 1}"
    values = {
        **about,
        "half": half,
        "keys": KEY_COUNT,
        "pairs": pairs,
        "block": block,
        "turned": rotated,
    }
    readme = README_IMAGES.format(**values)
    if "positions" in arrays:
        readme = README.format(**values, count=len(arrays["positions"]))
    unrotated = about.get("unrotated_layers")
    if unrotated:
        numbers = ", ".join(str(layer) for layer in unrotated)
        readme += f"\nLayers that do not rotate queries and keys, counted from 0: {numbers}.\n"
    return readme + describe_axes(values, arrays)


def describe_axes(values: Facts, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the part of a README about positions of several axes, if there is one."""
    positions = arrays.get("axes_positions")
    if positions is None:
        return ""
    # Centred axes have the patches of a whole image.
    centred = ""
    if positions.shape[1] == np.prod(GRID):
        rows, columns = positions.max(axis=1) + 1
        centred = f" They are the patches of an image of {rows} x {columns}."
    text = README_AXES.format(
        **values,
        axes_words=", ".join(values["axes"]),
        axes_count=len(positions),
        axes_positions=positions.shape[1],
        centred=centred,
    )

    prompt = arrays.get("prompt_positions")
    if prompt is None:
        return text
    words = []
    for part in values["prompt"]:
        word = f"{part['tokens']} of {part['kind']}"
        if "grid_thw" in part:
            word += f" (grid_thw {part['grid_thw']})"
        words.append(word)
    return text + README_PROMPT.format(
        prompt_tokens=prompt.shape[1],
        prompt_words=", ".join(words),
    )


def pack_as_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of an .npz file."""
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **arrays)
    return archive.getvalue()


def pack_as_safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of a .safetensors file."""
    from safetensors.numpy import save

    contiguous = {}
    for name, array in arrays.items():
        contiguous[name] = np.ascontiguousarray(array)
    return bytes(save(contiguous))


def list_as_hex(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Return the shape and the numbers of each array, as JSON holds them exactly."""
    plain_arrays = {}
    for name, array in arrays.items():
        numbers = array.ravel().tolist()
        data = [x if isinstance(x, int) else x.hex() for x in numbers]
        plain_arrays[name] = {"shape": array.shape, "data": data}
    return plain_arrays
