"""Absolute positions joined to the embeddings: added, multiplied, or concatenated."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ropelab.models.encoding.base import Embeddings, Encoding, Positions

BASE = 10000.0


def sinusoid(
    positions: Shaped[Tensor, " tokens"], width: int
) -> Float[Tensor, "tokens width"]:
    """PE[p, 2i] = sin(p / 10000^(2i/width)), PE[p, 2i+1] = cos of it (arXiv:1706.03762,
    3.5).
    """
    # In float64. Negative positions are allowed; `width` must be even.
    exponent = (
        torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    )
    angle = positions.double()[:, None] * BASE**-exponent
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class Sinusoidal(Encoding):
    """x + PE (Vaswani et al. 2017, arXiv:1706.03762), or x * PE, feature by feature."""

    def __init__(self, times: bool = False) -> None:
        super().__init__()
        self.times = times

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        encoded = sinusoid(positions, x.shape[-1]).to(x.dtype)
        # Times a sine of 0 the feature is lost: at position 0 every other one. The
        # paper's factor sqrt(width) is not needed: embeddings have unit variance here.
        return x * encoded if self.times else x + encoded


class Learned(Encoding):
    """x + P[position], a row of P for each trained position (arXiv:1705.03122, BERT,
    GPT-2).
    """

    # Past the table it is undefined, and an `IndexError`.

    def __init__(self, trained_len: int, width: int) -> None:
        super().__init__()
        # N(0, 1), like the embeddings of tokens: section 3.5 draws both from one
        # distribution.
        self.table = nn.Embedding(trained_len, width)
        self.max_position = trained_len - 1

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return x + self.table(positions)


class Concatenated(Encoding):
    """W (x, PE): the encoding beside the embedding, projected back to the width of the
    model.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(2 * width, width, bias=False)
        with torch.no_grad():
            # The identity for the embedding, uniform of variance 1/width for the
            # encoding.
            self.project.weight.uniform_(-((3 / width) ** 0.5), (3 / width) ** 0.5)
            self.project.weight[:, :width] = torch.eye(width)

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        encoded = sinusoid(positions, x.shape[-1]).to(x.dtype)
        return self.project(torch.cat((x, encoded.expand_as(x)), dim=-1))
