"""The relative encoding of Transformer-XL (Dai et al. 2019, arXiv:1901.02860, section 3.3)."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.models.encoding.base import (
    Encoding,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    Scores,
)
from ropelab.models.encoding.layers import PerLayer
from ropelab.models.encoding.relative import DistanceTable, distances, relative_shift
from ropelab.models.encoding.sinusoidal import sinusoid


class TransformerXLLayer(Encoding):
    """scores = ((q_i + u) k_j + (q_i + v) W R_(i-j)) / sqrt(head_dim).

    R is the fixed sinusoid of the distance; W, and u and v per head, are learned (u and v start at
    0). Keys carry no position, so a cache of them stays valid as the context moves; the projected
    W R is the same for every query and is kept while decoding. The recurrence over segments, the
    paper's other idea, is not a position encoding and is left out.
    """

    name: ClassVar[str] = "transformer_xl"
    fused: bool = False

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.project = nn.Linear(width, heads * head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, 1, head_dim))
        self.v = nn.Parameter(torch.zeros(heads, 1, head_dim))
        self.rows = DistanceTable(self.projected, self.project.parameters())

    def projected(self, distance: Int[Tensor, " rows"]) -> Float[Tensor, "heads rows head_dim"]:
        """W R for every distance, split into heads."""
        rows = self.project(sinusoid(distance, self.width).to(self.project.weight.dtype))
        return rows.unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def scores(
        self,
        q: Queries,
        k: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Scores:
        scale = q.shape[-1] ** -0.5
        rows = self.rows(distances(q_positions, k_positions))
        content = ((q + self.u) * scale).to(k.dtype) @ k.transpose(-1, -2)
        position = ((q + self.v) * scale).to(k.dtype) @ rows.mT.to(k.dtype)
        return content + relative_shift(position, len(k_positions))


class TransformerXL(PerLayer):
    """Transformer-XL's encoding with W, u and v of their own for every layer (`untie_r`)."""

    name: ClassVar[str] = "transformer_xl"

    def __init__(self, layers: int, width: int, heads: int, head_dim: int) -> None:
        super().__init__(TransformerXLLayer(width, heads, head_dim) for _ in range(layers))
