"""RoPE beside the content instead of in it: DeepSeek's separate rotary key (arXiv:2405.04434)."""

from typing import ClassVar

import torch
from torch import Tensor

from ropelab.models.encoding.base import Encoding, Heads, Positions
from ropelab.models.encoding.rope import Rope


class Decoupled(Encoding):
    """scores = (q^C k^C + q^R k^R) / sqrt(head_dim): only the last features of a head turn.

    Equations 14 to 19 of the paper. The turning key k^R is one for all heads: here the last
    features of the first head's key, those of the other heads are not used. Compressing keys and
    values, which the separate key makes possible, is no position encoding and is left out.

    Args:
        rope: what turns the last `rope.rotary_dim` features, fewer than a head has.
    """

    name: ClassVar[str] = "mla"

    def __init__(self, rope: Rope) -> None:
        super().__init__()
        self.rope = rope

    def query(self, q: Heads, positions: Positions) -> Heads:
        content, rotary = self._parts(q)
        return torch.cat((content, self.rope.query(rotary, positions)), dim=-1)

    def key(self, k: Heads, positions: Positions) -> Heads:
        content, rotary = self._parts(k)
        shared = self.rope.key(rotary[:, :1], positions).expand_as(rotary)
        return torch.cat((content, shared), dim=-1)

    def _parts(self, x: Heads) -> tuple[Tensor, Tensor]:
        """The features that carry content, and those that turn."""
        return x[..., : -self.rope.rotary_dim], x[..., -self.rope.rotary_dim :]
