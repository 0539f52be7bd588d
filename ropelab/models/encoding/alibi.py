"""ALiBi: a fixed penalty per token of distance (Press et al. 2021, arXiv:2108.12409)."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.models.encoding.additive import DistanceBias


def slopes(heads: int) -> Float[Tensor, " heads"]:
    """The penalty per token of each head: 2^(-8 h / heads) for h = 1..heads, in float64.

    Where `heads` is not a power of two: the slopes of the next lower power p, then every second one
    of those of 2 p, as the authors' code has it (the paper gives powers of two only).

    >>> slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    lower = 1 << (heads.bit_length() - 1)
    of_lower = 2.0 ** (-8 * torch.arange(1, lower + 1, dtype=torch.float64) / lower)
    of_double = 2.0 ** (-8 * torch.arange(1, 2 * lower + 1, dtype=torch.float64) / (2 * lower))
    return torch.cat((of_lower, of_double[::2]))[:heads]


class Alibi(DistanceBias):
    """bias = -slope * distance; the slopes are fixed, so it adds no parameters."""

    name: ClassVar[str] = "alibi"

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes: Tensor
        self.register_buffer("slopes", slopes(heads).float(), persistent=False)

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        return -self.slopes[:, None] * distance
