"""Random queries and keys that depend on a seed and nothing else."""

import torch
from jaxtyping import Float
from torch import Tensor


def gaussian(seed: int, *shape: int) -> Float[Tensor, "..."]:
    """Independent standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def largest(x: Float[Tensor, "..."]) -> float:
    """The largest absolute value."""
    return float(x.abs().max())
