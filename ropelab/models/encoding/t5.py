"""T5: a learned bias per bucket of distances (Raffel et al. 2019, arXiv:1910.10683)."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.models.encoding.additive import DistanceBias

BUCKETS = 32
FARTHEST = 128
"""Where the buckets end; the last one begins before, at 113, and holds all that is farther."""


def bucket(distance: Int[Tensor, "*distances"]) -> Int[Tensor, "*distances"]:
    """The bucket of a distance of 0 or more, for a decoder.

    The first half of the BUCKETS are distances 0..15 themselves; the others grow as powers up to
    FARTHEST: 16 + floor(16 ln(distance / 16) / ln(128 / 16)), at most 31.
    """
    exact = BUCKETS // 2
    growth = torch.log(distance.clamp(min=exact).double() / exact) / math.log(FARTHEST / exact)
    coarse = exact + (growth * (BUCKETS - exact)).long()
    return torch.where(distance < exact, distance, coarse.clamp(max=BUCKETS - 1))


class T5Bias(DistanceBias):
    """scores = q k^T / sqrt(head_dim) + bias[head, bucket(distance)].

    T5 leaves the division out and starts its query weights smaller by the same factor instead.
    Here all encodings share the initial weights, so the division stays: without it a softmax over
    random keys starts out nearly one-hot, and the model does not learn.

    One table serves all layers. It starts as N(0, 1 / width), as in the authors' code.
    """

    name: ClassVar[str] = "t5"

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(heads, BUCKETS) * width**-0.5)

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        return self.table[:, bucket(distance)]
