"""The sinusoidal code joined to the embeddings in other ways than by adding it."""

from typing import ClassVar

import torch
from torch import nn

from ropelab.models.encoding.base import Embeddings, Encoding, Positions
from ropelab.models.encoding.sinusoidal import sinusoid


class Multiplied(Encoding):
    """x * PE, feature by feature.

    Where a sine is 0 the feature is lost: at position 0 that is every other one.
    """

    name: ClassVar[str] = "multiplied"

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return x * sinusoid(positions, x.shape[-1]).to(x.dtype)


class Concatenated(Encoding):
    """W (x, PE): the code beside the embedding, and a layer of twice the width behind it.

    The stream keeps its width, so that all models have the same layers. The half of W that sees
    the embedding starts as the identity, the other one uniform of variance 1/width.
    """

    name: ClassVar[str] = "concatenated"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(2 * width, width, bias=False)
        with torch.no_grad():
            self.project.weight.uniform_(-((3 / width) ** 0.5), (3 / width) ** 0.5)
            self.project.weight[:, :width] = torch.eye(width)

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        code = sinusoid(positions, x.shape[-1]).to(x.dtype)
        return self.project(torch.cat((x, code.expand_as(x)), dim=-1))
