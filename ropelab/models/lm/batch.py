"""The input of one step, and the first words of the random seeds behind it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# First word of every random seed: training data never come back as evaluation data.
TRAINING, EVALUATION = 0, 1


@dataclass(frozen=True)
class Batch:
    """Sequences and which of their tokens are to be predicted from those before."""

    tokens: Int[Tensor, "batch tokens"]
    scored: Bool[Tensor, "batch tokens"]

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.scored.to(device))
