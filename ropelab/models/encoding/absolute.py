"""Encodings of absolute positions, which act only on the token embeddings x.

A vector of the position, PE, is added to the embedding, multiplied with it, or
concatenated to it.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ropelab.models.encoding.base import Embeddings, Encoding, Positions, encoding

BASE = 10000.0


def sinusoid(
    positions: Shaped[Tensor, " tokens"],
    width: int,
) -> Float[Tensor, "tokens width"]:
    """Return PE[p, 2i] = sin(a) and PE[p, 2i+1] = cos(a) with a = p / 10000^(2i/width).

    The result is float64 (arXiv:1706.03762, section 3.5). Negative positions are
    allowed; `width` must be even.
    """
    # The numbers 2i of the formula.
    even_numbers = torch.arange(
        0, width, 2, dtype=torch.float64, device=positions.device
    )
    frequencies = BASE ** -(even_numbers / width)
    angles = positions.double()[:, None] * frequencies
    # [tokens, width / 2, 2], whose last two dimensions become sin, cos, sin, cos, ...
    pairs = torch.stack((angles.sin(), angles.cos()), dim=-1)
    return pairs.flatten(-2)


@encoding("sinusoidal", "multiplied")
class Sinusoidal(Encoding):
    """x + PE (Vaswani et al. 2017, arXiv:1706.03762).

    With `times`, x * PE instead, feature by feature.
    """

    def __init__(self, times: bool = False) -> None:
        super().__init__()
        self.times = times

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        width = x.shape[-1]
        encoded = sinusoid(positions, width).to(x.dtype)
        if self.times:
            # A feature is lost where its sine is 0. At position 0 these are all even
            # features.
            return x * encoded
        # The paper first multiplies embeddings by sqrt(width). Here they have unit
        # variance without this factor.
        return x + encoded


@encoding("learned")
class Learned(Encoding):
    """x + P[position], with a learned row of P for each trained position.

    Gehring et al. 2017, arXiv:1705.03122; BERT, GPT-2. IndexError: a position from
    `trained_len` on.
    """

    def __init__(self, trained_len: int, width: int) -> None:
        super().__init__()
        # nn.Embedding draws N(0, 1), as the model does for its tokens: section 3.5 of the
        # paper draws both from one distribution.
        self.table = nn.Embedding(trained_len, width)
        self.max_position = trained_len - 1

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return x + self.table(positions)


@encoding("concatenated")
class Concatenated(Encoding):
    """W (x, PE): embedding and encoding concatenated, projected to the model's width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(2 * width, width, bias=False)
        bound = (3 / width) ** 0.5
        with torch.no_grad():
            # The part of W for x starts as the identity. The part for PE is drawn
            # uniformly, with variance 1/width.
            self.project.weight.uniform_(-bound, bound)
            self.project.weight[:, :width] = torch.eye(width)

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        width = x.shape[-1]
        encoded = sinusoid(positions, width).to(x.dtype)
        concatenated = torch.cat((x, encoded.expand_as(x)), dim=-1)
        return self.project(concatenated)
