"""The trained models that come with the package, so that a first answer needs no
training.

They are five seeds of the default model of `extrapolate`, trained at 512 tokens by
`make reference-models`. A manifest says how each was trained, and has the sha256 of its
file, which is checked whenever the file is read.

Every installation has these files, so they are kept small: weights are stored in
bfloat16, half the size of float32, and compressed, which takes a fifth away. A model
that a user trains with the same options has unrounded weights, and so its results are
stored under another key.
"""

import gzip
import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from ropelab.runs.errors import InputError, MachineError
from ropelab.runs.sentences import join_names, write_count

FOLDER = Path(__file__).with_name("pretrained")
MANIFEST = "manifest.json"
# The number format of the stored weights.
STORED_DTYPE = torch.bfloat16
# The names of the tensors in a file: weights with this prefix, and the losses.
PREFIX = "model."
LOSSES = "losses"
# The options of the command line for those entries of a training's key that have
# another name.
OPTION_NAMES = {"window": "train_len"}


@dataclass(frozen=True)
class Pretrained:
    """One model of the manifest."""

    seed: int
    # The name of the file in FOLDER.
    file: str
    # The hash of the whole file.
    sha256: str
    # The entries of the training's key that do not depend on the machine
    # (`select_comparable`).
    training: dict[str, Any]
    # How the model was made, for people: the command, the day, versions, the text.
    made: dict[str, str]

    def read(self) -> tuple[dict[str, Tensor], list[float]]:
        """Return the weights by name, in float32, and the loss of each training step.

        MachineError: the file is absent, or is not the file that the manifest
        describes.
        """
        path = FOLDER / self.file
        try:
            content = path.read_bytes()
        except OSError as error:
            raise MachineError(f"cannot read {path}: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise MachineError(
                f"{path} is not the model that came with ropelab (its sha256 differs);"
                " install ropelab again"
            )

        tensors = load(gzip.decompress(content))
        losses = tensors.pop(LOSSES)
        weights = {}
        for name, value in tensors.items():
            weights[name.removeprefix(PREFIX)] = value.float()
        return weights, losses.tolist()


def select_comparable(key: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a training's key that a stored model must have, too.

    The text and the number format may differ: they depend on the machine on which the
    stored model was trained.
    """
    mixture = key["task"]["mixture"]
    entries = {name: key[name] for name in ("size", "recipe", "seed", "encoding")}
    # The way through JSON turns tuples into lists, as in the manifest.
    return json.loads(json.dumps({**entries, "mixture": mixture}))


@cache
def list_pretrained() -> dict[int, Pretrained]:
    """Return the models of the manifest by seed; empty if there is no manifest."""
    path = FOLDER / MANIFEST
    if not path.exists():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))
    return {record["seed"]: Pretrained(**record) for record in records}


def find_pretrained(key: dict[str, Any]) -> Pretrained:
    """Return the stored model of a training, given the key of the training.

    InputError: no stored model has this seed, or it was trained with other options.
    """
    stored = list_pretrained()
    seed = key["seed"]
    if seed not in stored:
        raise InputError(
            f"there is no pretrained model of seed {seed};"
            f" {write_count(len(stored), 'model')} came with ropelab, of the seeds"
            f" {join_names([str(each) for each in stored])}"
        )

    model = stored[seed]
    differing = _list_differences(model.training, select_comparable(key))
    if differing:
        raise InputError(
            f"the pretrained models differ in {join_names(differing)}; leave out"
            " --pretrained to train your own"
        )
    return model


def _list_differences(stored: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Return the names of the options in which two trainings differ."""
    differing = []
    for entry, value in expected.items():
        if stored[entry] == value:
            continue
        if not isinstance(value, dict):
            differing.append(entry)
            continue
        for name in value:
            if stored[entry].get(name) != value[name]:
                differing.append(OPTION_NAMES.get(name, str(name)))
    return differing


def write_pretrained(
    folder: Path,
    models: list[tuple[dict[str, Any], dict[str, Tensor], list[float]]],
    made: dict[str, str],
) -> None:
    """Write models and their manifest.

    Args:
        folder: where the files are written.
        models: for each model the key of its training, its weights by name, and the
            loss of each training step.
        made: how the models were made, for people.
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for key, weights, losses in models:
        tensors = {
            f"{PREFIX}{name}": value.to(STORED_DTYPE).contiguous()
            for name, value in weights.items()
        }
        tensors[LOSSES] = torch.tensor(losses, dtype=torch.float32)
        # The time in the head of the file is left out, so that the same weights make the
        # same file.
        content = gzip.compress(save(tensors), mtime=0)

        name = f"seed-{key['seed']}.safetensors.gz"
        (folder / name).write_bytes(content)
        record = Pretrained(
            seed=key["seed"],
            file=name,
            sha256=hashlib.sha256(content).hexdigest(),
            training=select_comparable(key),
            made={**made, "text": key["task"]["corpus"], "dtype": key["dtype"]},
        )
        records.append(asdict(record))
    text = json.dumps(records, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")
