"""Biases by a function of the distance that somebody thought of, with learned weights per head.

Tutorials list them as ways to make R_(q-k). All are defined everywhere, except the table, which
stops where it ends.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.models.encoding.additive import DistanceBias
from ropelab.models.encoding.sinusoidal import sinusoid

DEGREE = 3
TAPS = 16


class Polynomial(DistanceBias):
    """bias = w0 + w1 r + w2 r^2 + w3 r^3 for r = distance / reach; grows without bound beyond it.

    Args:
        reach: the distance at which r is 1, in tokens.
    """

    name: ClassVar[str] = "polynomial"

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.weights = nn.Parameter(torch.randn(heads, DEGREE + 1))

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        share = distance.to(self.weights.dtype) / self.reach
        powers = torch.stack([share**power for power in range(DEGREE + 1)])
        return self.weights @ powers


class Sines(DistanceBias):
    """bias = sum_i a_i sin(w_i r) + b_i cos(w_i r), w_i the frequencies of a sinusoidal code.

    Args:
        waves: how many sines and cosines there are together; even.
    """

    name: ClassVar[str] = "sines"

    def __init__(self, heads: int, waves: int) -> None:
        super().__init__()
        self.amplitudes = nn.Parameter(torch.randn(heads, waves) * waves**-0.5)

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        code = sinusoid(distance, self.amplitudes.shape[-1])
        return self.amplitudes @ code.to(self.amplitudes.dtype).T


class Exponential(DistanceBias):
    """bias = h exp(-r / s); the scale s starts anywhere between 1 and `reach` tokens."""

    name: ClassVar[str] = "exponential"

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        self.height = nn.Parameter(torch.randn(heads))
        self.log_scale = nn.Parameter(torch.rand(heads) * math.log(reach))

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        return self.height[:, None] * torch.exp(-distance / self.log_scale.exp()[:, None])


class Gaussian(DistanceBias):
    """bias = h exp(-((r - c) / s)^2 / 2); c and s start anywhere between 1 and `reach` tokens."""

    name: ClassVar[str] = "gaussian"

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        self.height = nn.Parameter(torch.randn(heads))
        self.log_centre = nn.Parameter(torch.rand(heads) * math.log(reach))
        self.log_scale = nn.Parameter(torch.rand(heads) * math.log(reach))

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        centre, scale = self.log_centre.exp()[:, None], self.log_scale.exp()[:, None]
        return self.height[:, None] * torch.exp(-(((distance - centre) / scale) ** 2) / 2)


class LearnedDistance(DistanceBias):
    """bias = table[head, r], a number for each of `rows` distances and for none beyond.

    A text of L tokens in both directions has 2 L - 1 distances; a causal model needs L. Past the
    table it is undefined, and an `IndexError`.
    """

    name: ClassVar[str] = "learned_distance"

    def __init__(self, heads: int, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(heads, rows) * rows**-0.5)
        self.max_position = rows - 1

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        return self.table[:, distance]


class Convolution(DistanceBias):
    """bias = kernel[head, r] for the nearest TAPS tokens, 0 for all others, as a convolution has.

    Unlike a clipped distance it tells nothing of what is farther away, not even that it is far.
    """

    name: ClassVar[str] = "convolution"

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(heads, TAPS) * TAPS**-0.5)

    def by_distance(self, distance: Int[Tensor, " distances"]) -> Float[Tensor, "heads distances"]:
        near = self.kernel[:, distance.clamp(max=TAPS - 1)]
        return torch.where(distance < TAPS, near, 0)
