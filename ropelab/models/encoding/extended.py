"""Longer contexts by changing attention itself, not the frequencies.

ReRope and SelfExtend let no distance occur that was not trained: near keys keep theirs, far ones
get a bounded one, which needs two scores per pair of tokens and hence no fused kernel.
"""

import math

import torch
from torch import Tensor

from ropelab.models.encoding.base import Embeddings, Encoding, Heads, Positions, Scores
from ropelab.models.encoding.rope import Rope


class LogN(Encoding):
    """Logits times max(1, ln n / ln L) for n tokens that a query sees and L = `trained_len`.

    Keeps attention's entropy from growing (Su 2021, kexue.fm/archives/8823; arXiv:2501.19399).
    """

    def __init__(self, inner: Encoding, trained_len: int) -> None:
        super().__init__()
        self.inner, self.trained_len = inner, trained_len
        self.fused, self.max_position = inner.fused, inner.max_position

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return self.inner.embed(x, positions)

    def query(self, q: Heads, positions: Positions) -> Heads:
        seen = (positions + 1).float()
        scale = (seen.log() / math.log(self.trained_len)).clamp(min=1.0)
        return self.inner.query(q, positions) * scale[:, None].to(q.dtype)

    def key(self, k: Heads, positions: Positions) -> Heads:
        return self.inner.key(k, positions)

    def scores(self, q: Heads, k: Heads, at_q: Positions, at_k: Positions) -> Scores:
        return self.inner.scores(q, k, at_q, at_k)


class Dropped(Encoding):
    """No positions, logits times the constant `sharper`: DroPE (arXiv:2512.12167)."""

    def __init__(self, sharper: float = 1.0) -> None:
        super().__init__()
        self.sharper = sharper

    def query(self, q: Heads, positions: Positions) -> Heads:
        return q * self.sharper


class SelfExtend(Encoding):
    """Exact distances below `window`; beyond it those of positions divided by `group`.

    Far pairs (i, j) have the distance floor(i/g) + w - floor(w/g) - floor(j/g) (arXiv:2401.01325).
    """

    fused = False

    def __init__(self, rope: Rope, window: int, group: int) -> None:
        super().__init__()
        self.rope, self.window, self.group = rope, window, group

    def scores(self, q: Heads, k: Heads, at_q: Positions, at_k: Positions) -> Scores:
        near = self._rotated_scores(q, k, at_q, at_k)
        shift = self.window - self.window // self.group
        far = self._rotated_scores(q, k, at_q // self.group + shift, at_k // self.group)
        return torch.where(at_q[:, None] - at_k[None, :] < self.window, near, far)

    def _rotated_scores(self, q: Tensor, k: Tensor, at_q: Tensor, at_k: Tensor) -> Tensor:
        return super().scores(self.rope.query(q, at_q), self.rope.key(k, at_k), at_q, at_k)


class ReRope(SelfExtend):
    """The distance of a pair is min(i - j, w), w = `window` (Su 2023, kexue.fm/archives/9708)."""

    def __init__(self, rope: Rope, window: int) -> None:
        # The limit of SelfExtend where all far keys are in one group.
        super().__init__(rope, window, group=2**40)
