"""Checkpoints of a training run: one safetensors file, written whole or not at all.

It holds weights, optimizer state and one loss per step. Batches and learning rates are functions of
the step: a killed run continues to the same weights, bit for bit.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from ropelab.runs.errors import MachineError
from ropelab.runs.folders import remove, replaced_file
from ropelab.runs.notices import say

FILE = "checkpoint.safetensors"
# A tensor with the hash of all others: a damaged checkpoint is not used.
HASH = "sha256"


def save_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], losses: list[float]
) -> None:
    """Replace the previous checkpoint, or raise MachineError and leave it untouched."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for place, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{index}.{name}": state[name] for name in state}
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    kept = {name: value.contiguous().cpu() for name, value in tensors.items()}
    path = folder / FILE
    try:
        with replaced_file(path) as fresh:
            fresh.write_bytes(save({**kept, HASH: hash_of(kept)}))
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None


def load_checkpoint(folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> list[float]:
    """Restore the last checkpoint in place and return the losses so far, none without one.

    A damaged one is removed with a notice. MachineError: another model's, or unreadable.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return []
    try:
        tensors = load_file(path) if path.is_file() else {}
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        tensors = {}
    written = tensors.pop(HASH, None)
    if written is None or not torch.equal(written, hash_of(tensors)):
        say(f"{path} is not what was written: training begins again")
        remove(path)
        return []
    try:
        model.load_state_dict(_below(tensors, "model."))
        for place, optimizer in enumerate(optimizers):
            states: dict[int, dict[str, Tensor]] = {}
            for key, value in _below(tensors, f"optimizer.{place}.").items():
                index, name = key.split(".")
                states.setdefault(int(index), {})[name] = value
            # Moments only: hyperparameters stay as the caller built them.
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": states, "param_groups": groups})
    except (RuntimeError, KeyError) as error:
        message = f"cannot continue from {path} (delete it to start over): {error}"
        raise MachineError(message) from None
    return tensors["losses"].tolist()


def hash_of(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the sha256 over names, types, shapes and values of tensors in main memory."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
