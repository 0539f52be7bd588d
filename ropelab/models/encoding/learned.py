"""A learned vector per position, added to the embeddings (arXiv:1705.03122, BERT, GPT-2)."""

from typing import ClassVar

from torch import nn

from ropelab.models.encoding.base import Embeddings, Encoding, Positions


class Learned(Encoding):
    """x + P[position], with a row of P for each of `positions` positions and for none beyond.

    Rows start as N(0, 1), like the embeddings of tokens (section 3.5 of the paper draws both from
    the same distribution). Past the table it is undefined, and an `IndexError`.
    """

    name: ClassVar[str] = "learned"

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(positions, width)
        self.max_position = positions - 1

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return x + self.table(positions)
