"""xPos: RoPE whose pairs also decay with the distance (Sun et al. 2022, arXiv:2212.10554)."""

from typing import ClassVar

import torch
from torch import Tensor

from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Heads, Positions
from ropelab.models.encoding.rope import Rope

GAMMA = 0.4
SCALE_BASE = 512
"""Tokens over which pair i decays by zeta_i."""
FARTHEST = 32767
"""From here on zeta_0^(position / 512) leaves the range of float32 soon."""


class XPos(Rope):
    """q_n = R(n) q zeta^(n/512), k_m = R(m) k zeta^(-m/512), so a score has zeta^((n-m)/512).

    zeta_i = (i / (d/2) + 0.4) / 1.4 is least for the fastest pair; pairs are neighbours, as in the
    authors' code. The factors of query and key alone shrink and grow exponentially with the
    position, so it is the range of float32 that ends the encoding, not its definition.
    """

    name: ClassVar[str] = "xpos"

    def __init__(self, plan: RopePlan) -> None:
        super().__init__(plan, "interleaved")
        self.max_position = FARTHEST
        pairs = torch.arange(self.rotary_dim // 2, dtype=torch.float64) / (self.rotary_dim // 2)
        self.log_zeta = ((pairs + GAMMA) / (1 + GAMMA)).log().repeat_interleave(2)

    def query(self, q: Heads, positions: Positions) -> Heads:
        return self._decayed(super().query(q, positions), positions / SCALE_BASE)

    def key(self, k: Heads, positions: Positions) -> Heads:
        return self._decayed(super().key(k, positions), -positions / SCALE_BASE)

    def _decayed(self, x: Heads, power: Tensor) -> Heads:
        factor = torch.exp(power.double()[:, None] * self.log_zeta.to(power.device))
        return (x.float() * factor.float()).to(x.dtype)
