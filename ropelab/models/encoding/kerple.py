"""Kerple: a learned kernel of the distance per head (Chi et al. 2022, arXiv:2205.09921).

Both variants need positive parameters, which are therefore kept as logarithms (r2 of the power
variant as a logit, because it is bounded). They start as the authors draw them, uniformly.
One pair per head serves all layers, as in the authors' code.
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.models.encoding.additive import DistanceBias

SMALLEST = 1e-2
"""No parameter starts below this, where the authors' code clamps."""


class KerpleLog(DistanceBias):
    """bias = -r1 ln(1 + r2 distance) with r1, r2 > 0; r1 starts in (0, 2), r2 in (0, 1)."""

    name: ClassVar[str] = "kerple_log"

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.log_r1 = nn.Parameter((2 * torch.rand(heads)).clamp(min=SMALLEST).log())
        self.log_r2 = nn.Parameter(torch.rand(heads).clamp(min=SMALLEST).log())

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        return -self.log_r1.exp()[:, None] * torch.log1p(self.log_r2.exp()[:, None] * distance)


class KerplePower(DistanceBias):
    """bias = -r1 distance^r2 with r1 > 0 and 0 < r2 < 2; r1 starts in (0, 1), r2 in (0, 2)."""

    name: ClassVar[str] = "kerple_power"

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.log_r1 = nn.Parameter(torch.rand(heads).clamp(min=SMALLEST).log())
        self.logit_r2 = nn.Parameter(torch.logit(torch.rand(heads), eps=SMALLEST))

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        # 0 ** r2 is 0, but its derivative by r2 is 0 * ln 0: distance 0 is put in by hand.
        power = distance.clamp(min=1) ** (2 * self.logit_r2.sigmoid())[:, None]
        return -self.log_r1.exp()[:, None] * torch.where(distance > 0, power, 0)
