"""Relative position representations in keys and values (Shaw et al. 2018, arXiv:1803.02155)."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.encodings.base import Encoding
from ropelab.encodings.layers import PerLayer
from ropelab.encodings.relative import distances, relative_shift, relative_unshift

CLIP = 16
"""The paper's k: all keys at this distance or farther look the same."""


class ShawLayer(Encoding):
    """scores = q_i (k_j + a^K_ij) / sqrt(head_dim), output = sum_j weight_ij (v_j + a^V_ij).

    Equations 3 and 4 of the paper. a_ij is row min(i - j, CLIP) of a learned table, so what is
    clipped is the distance: it is defined everywhere and blind beyond CLIP. Of the paper's
    2 CLIP + 1 rows the CLIP that belong to later keys are left out: a causal model never uses them.
    The heads share both tables (section 3.3).
    """

    name: ClassVar[str] = "shaw"
    fused: bool = False

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(CLIP + 1, head_dim) * head_dim**-0.5)
        self.values = nn.Parameter(torch.randn(CLIP + 1, head_dim) * head_dim**-0.5)

    def scores(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch heads keys head_dim"],
        q_positions: Int[Tensor, "queries"],
        k_positions: Int[Tensor, "keys"],
    ) -> Float[Tensor, "batch heads queries keys"]:
        q = q * q.shape[-1] ** -0.5
        rows = self.keys[clipped(q_positions, k_positions)]
        relative = relative_shift(q @ rows.mT.to(q.dtype), len(k_positions))
        return q @ k.transpose(-1, -2) + relative

    def mix(
        self,
        weights: Float[Tensor, "batch heads queries keys"],
        v: Float[Tensor, "batch heads keys head_dim"],
        q_positions: Int[Tensor, "queries"],
        k_positions: Int[Tensor, "keys"],
    ) -> Float[Tensor, "batch heads queries head_dim"]:
        rows = self.values[clipped(q_positions, k_positions)]
        return weights @ v + relative_unshift(weights) @ rows.to(weights.dtype)


def clipped(
    q_positions: Int[Tensor, "queries"], k_positions: Int[Tensor, "keys"]
) -> Int[Tensor, "columns"]:
    """The rows of a table for the `distances` of these queries and keys."""
    return distances(q_positions, k_positions).clamp(0, CLIP)


class Shaw(PerLayer):
    """Shaw's encoding with a `ShawLayer` for every layer."""

    name: ClassVar[str] = "shaw"

    def __init__(self, layers: int, head_dim: int) -> None:
        super().__init__(ShawLayer(head_dim) for _ in range(layers))
