"""Checkpoints of a training run: one safetensors file, there whole or not at all.

It holds everything the rest of the run depends on (weights, optimizer state, the losses so far;
their number is the step), because batches and learning rates are functions of the step. A run that
was killed at any moment therefore continues to the same weights, bit for bit.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from ropelab.errors import MachineError

FILE = "checkpoint.safetensors"


def save_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], losses: list[float]
) -> None:
    """Write the state after `len(losses)` steps, replacing the previous one in a single rename.

    A finished run needs its optimizers no longer: none are given, none are stored.

    Raises:
        MachineError: the disk did not take it; the previous checkpoint is then untouched.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for place, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{index}.{name}": state[name] for name in state}
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    write_atomically(folder / FILE, save({k: v.contiguous().cpu() for k, v in tensors.items()}))


def load_checkpoint(folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> list[float]:
    """Restore the state of the last checkpoint in place; the losses so far, empty without one.

    Raises:
        MachineError: the file is damaged or belongs to another model.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        tensors = load_file(path)
        model.load_state_dict(_below(tensors, "model."))
        for place, optimizer in enumerate(optimizers):
            _restore(optimizer, _below(tensors, f"optimizer.{place}."))
    except (SafetensorError, RuntimeError, KeyError) as error:
        message = f"cannot continue from {path} (delete it to start over): {error}"
        raise MachineError(message) from None
    return tensors["losses"].tolist()


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _restore(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Hand the optimizer its moments back; hyperparameters stay as the caller built them."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".")
        states.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: written beside it, flushed to the disk, renamed."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise MachineError(f"cannot write {path}: {error.strerror}") from None
