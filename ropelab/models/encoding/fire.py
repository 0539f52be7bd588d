"""FIRE: a small network of the distance, scaled by the query's position (arXiv:2310.04418)."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ropelab.models.encoding.additive import AdditiveBias
from ropelab.models.encoding.base import KeyPositions, QueryPositions
from ropelab.models.encoding.layers import PerLayer

HIDDEN = 32
"""Width of the network."""
HIDDEN_PER_CHUNK = 2**22
"""How many hidden numbers are computed at once: 16 MiB in float32."""


class FireBias(AdditiveBias):
    """bias(i, j) = f(psi(i - j) / psi(max(L, i))), psi(x) = ln(c x + 1), f a network 1-32-heads.

    For queries beyond the threshold L distances are measured as a share of what lies before, so
    that no unseen argument reaches f at any length. c, L and f are learned.

    Args:
        threshold: L to start with. The paper takes 512 when it trains on 2048 tokens: a quarter.
    """

    name: ClassVar[str] = "fire"

    def __init__(self, heads: int, threshold: float) -> None:
        super().__init__()
        self.start = threshold
        self.c = nn.Parameter(torch.tensor(0.1))
        self.stretch = nn.Parameter(torch.tensor(1.0))
        self.network = nn.Sequential(nn.Linear(1, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, heads))

    def bias(
        self, q_positions: QueryPositions, k_positions: KeyPositions
    ) -> Float[Tensor, "heads queries keys"]:
        distance = (q_positions[:, None] - k_positions[None, :]).clamp(min=0)
        threshold = (self.stretch * self.start).abs()
        share = self.psi(distance) / self.psi(torch.maximum(q_positions, threshold))[:, None]
        rows = max(1, HIDDEN_PER_CHUNK // (HIDDEN * len(k_positions)))
        parts = [self.network(chunk[..., None]) for chunk in share.split(rows)]
        return torch.cat(parts).permute(2, 0, 1)

    def psi(self, x: Float[Tensor, "*x"]) -> Float[Tensor, "*x"]:
        """ln(c x + 1), which spreads small distances and presses large ones together."""
        return torch.log1p(self.c.abs() * x)


class Fire(PerLayer):
    """FIRE with a `FireBias` for every layer (the paper's FIRE-S shares one)."""

    name: ClassVar[str] = "fire"

    def __init__(self, layers: int, heads: int, threshold: float) -> None:
        super().__init__(FireBias(heads, threshold) for _ in range(layers))
