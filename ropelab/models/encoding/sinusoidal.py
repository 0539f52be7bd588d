"""Sines and cosines added to the embeddings, once (Vaswani et al. 2017, arXiv:1706.03762)."""

from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ropelab.models.encoding.base import Embeddings, Encoding, Positions

BASE = 10000.0


def sinusoid(positions: Shaped[Tensor, " tokens"], width: int) -> Float[Tensor, "tokens width"]:
    """PE[p, 2i] = sin(p / 10000^(2i/width)) and PE[p, 2i+1] = cos of the same, in float64.

    Section 3.5 of arXiv:1706.03762. Negative positions are allowed; `width` must be even.
    """
    exponent = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    angle = positions.double()[:, None] * BASE**-exponent
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class Sinusoidal(Encoding):
    """x + PE, for embeddings of unit variance (the paper's factor sqrt(width) sees to that)."""

    name: ClassVar[str] = "sinusoidal"

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return x + sinusoid(positions, x.shape[-1]).to(x.dtype)
