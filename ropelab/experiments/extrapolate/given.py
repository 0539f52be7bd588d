"""One's own model in the place of a trained one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropelab.context import Context
from ropelab.lm.huggingface import HuggingFaceModel, fingerprint_of
from ropelab.lm.tasks import SYMBOLS, Batch, copy_trials


@dataclass(frozen=True)
class GivenTask:
    """A task of which only the name is needed: nothing is trained."""

    name: str


@dataclass(frozen=True)
class Given:
    """A Hugging Face model with the face of a training, so that it is measured like one."""

    path: Path
    task: GivenTask
    seed: int = 0

    @property
    def key(self) -> dict[str, Any]:
        """What identifies the model."""
        return {"hf": fingerprint_of(self.path)}

    def model(self, context: Context, device: str = "cpu") -> HuggingFaceModel:
        """The model, loaded."""
        return HuggingFaceModel(self.path, device)


def symbols_of(vocabulary: int) -> Tensor:
    """As many tokens of a vocabulary as copying has symbols, drawn once."""
    return torch.from_numpy(np.random.default_rng(0).permutation(vocabulary)[:SYMBOLS])


def copy_trials_in(vocabulary: int) -> Callable[[int, int, int, int], Batch]:
    """Copy trials in tokens of a vocabulary."""
    symbols = symbols_of(vocabulary)

    def trials(seed: int, distance: int, length: int, rows: int) -> Batch:
        batch = copy_trials(seed, distance, length, rows)
        return Batch(symbols[batch.tokens % len(symbols)], batch.scored)

    return trials
