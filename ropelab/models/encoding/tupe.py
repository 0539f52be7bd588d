"""TUPE: words and positions correlated apart from each other (Ke et al. 2020, arXiv:2006.15595)."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ropelab.models.encoding.additive import AdditiveBias, toeplitz
from ropelab.models.encoding.base import Heads, KeyPositions, Positions, QueryPositions
from ropelab.models.encoding.relative import distances
from ropelab.models.encoding.t5 import T5Bias


class Tupe(AdditiveBias):
    """scores = (q_i k_j + (p_i U_q)(p_j U_k)) / sqrt(2 head_dim) + b[head, bucket(i - j)].

    TUPE-R: learned absolute positions p with projections of their own, shared by all layers, and
    T5's bias. That a first token [CLS] is freed of its position is left out; a causal language
    model has none. Past the table of positions it is undefined, and an `IndexError`.
    """

    name: ClassVar[str] = "tupe"

    def __init__(self, positions: int, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.randn(positions, width))
        self.to_query = nn.Linear(width, heads * head_dim, bias=False)
        self.to_key = nn.Linear(width, heads * head_dim, bias=False)
        self.relative = T5Bias(heads, width)
        self.max_position = positions - 1

    def query(self, q: Heads, positions: Positions) -> Heads:
        """Smaller by sqrt(2): the two products share the variance of one."""
        return q * 2**-0.5

    def bias(
        self, q_positions: QueryPositions, k_positions: KeyPositions
    ) -> Float[Tensor, "heads queries keys"]:
        q = self._projected(self.to_query, q_positions)
        k = self._projected(self.to_key, k_positions)
        absolute = (q * (2 * q.shape[-1]) ** -0.5) @ k.mT
        falling = distances(q_positions, k_positions)[:-1].clamp(min=0)
        return absolute + toeplitz(self.relative.by_distance(falling), len(q_positions))

    def _projected(
        self, projection: nn.Linear, positions: Positions
    ) -> Float[Tensor, "heads positions head_dim"]:
        return projection(self.table[positions]).unflatten(-1, (self.heads, -1)).transpose(0, 1)
