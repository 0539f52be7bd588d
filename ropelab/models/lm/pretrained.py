"""The trained models that come with the package, so that a first answer needs no
training.

They are five seeds of the default model of `extrapolate`, trained at 512 tokens by
`make reference-models`. The manifest says of each how it was trained and holds the
sha256 of its file, which is checked whenever it is read. Weights are stored in
bfloat16, half the size of float32, and compressed, which takes a fifth away: every
installation has them, also those without PyTorch. A model that was trained here in
float32 is another model, by rounding, and has another name.
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
from ropelab.runs.sentences import count_of, join_names

FOLDER = Path(__file__).with_name("pretrained")
MANIFEST = "manifest.json"
# The format of the stored weights.
STORED = torch.bfloat16
PREFIX = "model."
LOSSES = "losses"
# Parts of the description that have another name as an option.
TYPED_AS = {"window": "train_len"}


@dataclass(frozen=True)
class Pretrained:
    """One model of the manifest."""

    seed: int
    file: str
    # The hash of the whole file.
    sha256: str
    # The key of the training, without what depends on the machine (`comparable`).
    training: dict[str, Any]
    # Facts about the training for people: the command, the day, versions, the text.
    made: dict[str, str]

    def read(self) -> tuple[dict[str, Tensor], list[float]]:
        """Return the weights by name, in float32, and the loss of each training step.

        MachineError: the file is absent or is not the one of the manifest.
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


def comparable(key: dict[str, Any]) -> dict[str, Any]:
    """Return what has to be equal in the key of a training and in that of a stored model.

    The text and the number format are of the machine that trained.
    """
    mixture = key["task"]["mixture"]
    kept = {name: key[name] for name in ("size", "recipe", "seed", "encoding")}
    # As JSON has it: a manifest knows lists alone, and no tuples.
    return json.loads(json.dumps({**kept, "mixture": mixture}))


@cache
def list_pretrained() -> dict[int, Pretrained]:
    """Return the models of the manifest by seed; none where there is no manifest."""
    path = FOLDER / MANIFEST
    if not path.exists():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))
    return {record["seed"]: Pretrained(**record) for record in records}


def find_pretrained(key: dict[str, Any]) -> Pretrained:
    """Return the stored model of a training.

    InputError: there is none with this seed, or it was trained otherwise.
    """
    stored = list_pretrained()
    seed = key["seed"]
    if seed not in stored:
        raise InputError(
            f"there is no pretrained model of seed {seed};"
            f" {count_of(len(stored), 'model')} came with ropelab, of the seeds"
            f" {join_names([str(each) for each in stored])}"
        )

    model = stored[seed]
    wanted = comparable(key)
    differing = []
    for part, value in wanted.items():
        if model.training[part] == value:
            continue
        if not isinstance(value, dict):
            differing.append(part)
            continue
        for name in value:
            if model.training[part].get(name) != value[name]:
                differing.append(TYPED_AS.get(name) or str(name))
    if differing:
        raise InputError(
            f"the pretrained models differ in {join_names(differing)}; leave out"
            " --pretrained to train your own"
        )
    return model


def write_pretrained(
    folder: Path,
    models: list[tuple[dict[str, Any], dict[str, Tensor], list[float]]],
    made: dict[str, str],
) -> None:
    """Write models, each given as the key of its training, weights and losses, and
    their manifest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for key, weights, losses in models:
        tensors = {
            f"{PREFIX}{name}": value.to(STORED).contiguous()
            for name, value in weights.items()
        }
        tensors[LOSSES] = torch.tensor(losses, dtype=torch.float32)
        # Without the time, so that the same weights are the same file.
        content = gzip.compress(save(tensors), mtime=0)

        name = f"seed-{key['seed']}.safetensors.gz"
        (folder / name).write_bytes(content)
        record = Pretrained(
            seed=key["seed"],
            file=name,
            sha256=hashlib.sha256(content).hexdigest(),
            training=comparable(key),
            made={**made, "text": key["task"]["corpus"], "dtype": key["dtype"]},
        )
        records.append(asdict(record))
    text = json.dumps(records, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")
