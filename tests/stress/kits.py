"""What `ropelab vectors` writes, given to `ropelab check`: whole, and damaged.

The three formats hold the same numbers, and right numbers are found right. With one
number changed, a column exchanged or a row repeated they are found wrong, as are the
mistakes that a kit holds. Damaged files of facts are used or refused in one line.
"""

import contextlib
import copy
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tests.stress.arrays import ANY, MODEL, REFUSED, RIGHT, WRONG
from tests.stress.bench import told
from tests.stress.promise import Trial, type_command

SMALL = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}
WINDOW = {"max_position_embeddings": 2048}
MODELS: Mapping[str, Mapping[str, object]] = {
    "plain": MODEL,
    "yarn": {
        **MODEL,
        "model_type": "qwen2",
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 4096,
        },
        "max_position_embeddings": 16384,
    },
    "llama3": {
        **MODEL,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 4096,
        },
        "max_position_embeddings": 32768,
    },
    "adjacent": {
        "model_type": "gptj",
        "n_embd": 256,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 2048,
        "rotary_dim": 32,
    },
    "partial": {**SMALL, **WINDOW, "model_type": "gpt_neox", "rotary_pct": 0.25},
    "cohere": {**SMALL, **WINDOW, "model_type": "cohere"},
}
PARTS = (
    ("q_rotated",),
    ("k_rotated",),
    ("q_rotated", "k_rotated"),
    ("cos", "sin", "positions"),
    ("q_rotated", "k_rotated", "cos", "sin"),
)
"""Arrays that an engine may write."""
DAMAGES, FEW = 600, 12
VALUES: tuple[object, ...] = (
    None,
    [],
    {},
    "x",
    -1,
    0,
    True,
    "\x1b[31m",
    10**30,
    [[1]],
    0.5,
)
"""What is written in the place of each fact."""
Arrays = dict[str, np.ndarray]


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Kits of all models, then damages by chance; the same ones every time."""
    chance = random.Random(3)
    with contextlib.chdir(folder):
        kits = {}
        for name, model in MODELS.items():
            Path(f"{name}.json").write_text(json.dumps(model))
            told("vectors", "--config", f"{name}.json", "--out", name)
            with np.load(f"{name}/vectors.npz") as stored:
                kits[name] = dict(stored)

        for name, arrays in kits.items():
            yield compare_formats(name, arrays)
            yield from check_whole(name, arrays, few)
        for _ in range(FEW if few else DAMAGES):
            name = chance.choice(list(kits))
            yield damage(name, kits[name], chance)
        yield from check_facts("plain", few)


def compare_formats(name: str, arrays: Arrays) -> Trial:
    """Compare the numbers of a kit in its three formats."""
    problems = []
    tensors = load_file(f"{name}/vectors.safetensors")
    text = json.loads(Path(name, "vectors.json").read_text())["arrays"]
    for key, array in arrays.items():
        numbers = [
            float.fromhex(each) if isinstance(each, str) else each
            for each in np.ravel(np.array(text[key]["data"], object))
        ]
        as_text = np.array(numbers, array.dtype).reshape(text[key]["shape"])
        if not np.array_equal(array, tensors[key].numpy()):
            problems.append(f"{key} differs in safetensors")
        if not np.array_equal(array, as_text):
            problems.append(f"{key} differs in JSON")
    return Trial(f"{name}: formats", "; ".join(problems))


def check_whole(name: str, arrays: Arrays, few: bool) -> Iterator[Trial]:
    """Give right arrays to the command, and those of each mistake."""
    for parts in PARTS[:1] if few else PARTS:
        for dtype in (np.float64, np.float32):
            for suffix in ("npz", "safetensors"):
                chosen = {part: arrays[part].astype(dtype) for part in parts}
                write_arrays(name, suffix, chosen)
                what = f"{name}: {parts} in {np.dtype(dtype)}"
                yield check(f"{what}, {suffix}", f"{name}/mine.{suffix}", RIGHT)

    mistakes = [key for key in arrays if key.startswith("mistake_")]
    for mistake in mistakes[:1] if few else mistakes:
        write_arrays(name, "npz", {"k_rotated": arrays[mistake]})
        yield check(f"{name}: {mistake}", f"{name}/mine.npz", (3,))


def damage(name: str, arrays: Arrays, chance: random.Random) -> Trial:
    """Change something in one array, far beyond what is allowed."""
    parts = chance.choice(PARTS)
    changed = {part: arrays[part].copy() for part in parts}
    part = chance.choice([part for part in parts if part != "positions"])
    array = changed[part]
    place = tuple(chance.randrange(size) for size in array.shape)
    column = place[-1]
    kind = chance.choice(
        ("number", "NaN", "infinity", "rows", "scale", "last row", "columns", "width")
    )

    if kind == "number":
        array[place] += chance.choice((-1, 1)) * chance.uniform(0.1, 2)
    elif kind == "NaN":
        array[place] = np.nan
    elif kind == "infinity":
        array[place] = np.inf
    elif kind == "rows":
        array[:] = np.roll(array, 1, axis=0)
    elif kind == "scale":
        array *= chance.choice((1.05, 0.9, 1.2, -1))
    elif kind == "last row":
        array[-1] = array[-2]
    elif kind == "columns":
        array[..., column] = 0.5
    else:
        changed[part] = array[..., :-1]

    suffix = chance.choice(("npz", "safetensors"))
    write_arrays(name, suffix, changed)
    what = f"{name}: {kind} of {part} at {place} among {parts}, {suffix}"
    return check(what, f"{name}/mine.{suffix}", WRONG)


def check_facts(name: str, few: bool) -> Iterator[Trial]:
    """Write other values in the place of each fact about a kit."""
    path = Path(name, "about.json")
    right = json.loads(path.read_text())
    for key in list(right)[: 2 if few else None]:
        for value in VALUES:
            facts = {**copy.deepcopy(right), key: value}
            path.write_text(json.dumps(facts))
            statuses = REFUSED if key == "config" else ANY
            yield check(f"{key} = {value!r}", f"{name}/vectors.npz", statuses)
    path.write_text(json.dumps(right))


def write_arrays(name: str, suffix: str, arrays: Arrays) -> None:
    path = Path(name, f"mine.{suffix}")
    if suffix == "npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    else:
        tensors = {key: torch.tensor(array) for key, array in arrays.items()}
        save_file(tensors, path)


def check(what: str, file: str, statuses: tuple[int, ...]) -> Trial:
    """Give a file to the command; its status must be one of these."""
    return type_command(what, statuses, "check", file)
