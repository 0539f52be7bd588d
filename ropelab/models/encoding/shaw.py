"""Relative position representations in keys and values (Shaw et al. 2018, arXiv:1803.02155)."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ropelab.models.encoding.base import (
    Encoding,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    Scores,
)
from ropelab.models.encoding.layers import PerLayer
from ropelab.models.encoding.relative import distances, relative_shift, relative_unshift

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
        q: Queries,
        k: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Scores:
        q = q * q.shape[-1] ** -0.5
        by_row = q @ self.keys.T.to(q.dtype)
        relative = relative_shift(
            rows_to_columns(by_row, distances(q_positions, k_positions)), len(k_positions)
        )
        return q @ k.transpose(-1, -2) + relative

    def mix(
        self,
        weights: Scores,
        v: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Queries:
        columns = relative_unshift(weights)
        by_row = columns_to_rows(columns, distances(q_positions, k_positions))
        return weights @ v + by_row @ self.values.to(weights.dtype)


def rows_to_columns(
    by_row: Float[Tensor, "*batch queries rows"], falling: Int[Tensor, " columns"]
) -> Float[Tensor, "*batch queries columns"]:
    """Row min(distance, CLIP) at every distance; later keys get row 0, which is masked."""
    far, near = _far_and_near(falling)
    later = len(falling) - far - near
    return torch.cat(
        (
            by_row[..., CLIP:].expand(*by_row.shape[:-1], far),
            by_row[..., :near].flip(-1),
            by_row[..., :1].expand(*by_row.shape[:-1], later),
        ),
        dim=-1,
    )


def columns_to_rows(
    by_column: Float[Tensor, "*batch queries columns"], falling: Int[Tensor, " columns"]
) -> Float[Tensor, "*batch queries rows"]:
    """The sum of all distances that share a row, the transpose of `rows_to_columns`."""
    far, near = _far_and_near(falling)
    beyond = by_column[..., :far].sum(dim=-1, keepdim=True)
    return torch.cat(
        (pad(by_column[..., far : far + near].flip(-1), (0, CLIP - near)), beyond), dim=-1
    )


def _far_and_near(falling: Int[Tensor, " columns"]) -> tuple[int, int]:
    """How many of the distances are clipped, and how many have a row of their own."""
    first = int(falling[0])
    return max(0, first - CLIP + 1), min(first + 1, CLIP)


class Shaw(PerLayer):
    """Shaw's encoding with a `ShawLayer` for every layer."""

    name: ClassVar[str] = "shaw"

    def __init__(self, layers: int, head_dim: int) -> None:
        super().__init__(ShawLayer(head_dim) for _ in range(layers))
