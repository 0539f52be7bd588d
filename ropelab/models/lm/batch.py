"""What a model is shown at once, and the first words of the random seeds behind it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

TRAINING, EVALUATION = 0, 1
"""First word of every random seed: what is learned from is never what is measured."""


@dataclass(frozen=True)
class Batch:
    """Sequences and which of their tokens are to be predicted from those before."""

    tokens: Int[Tensor, "batch tokens"]
    scored: Bool[Tensor, "batch tokens"]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(self.tokens.to(device), self.scored.to(device))
