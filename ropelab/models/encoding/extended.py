"""Encodings that are put into a trained model to extend its context by other attention.

LogN sharpens attention, Dropped removes positions. The subclasses of `Remapped` let no
distance occur that was not trained. They compute two scores or more for each query and
key, which torch's fused kernel cannot do.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ropelab.models.encoding.base import (
    Encoding,
    EncodingWrapper,
    Heads,
    Positions,
    Scores,
)
from ropelab.models.encoding.rope import Rope

# Three tensors: True at the queries and keys whose distance is replaced [queries, keys];
# then positions of all queries and positions of all keys, whose difference is the
# distance that replaces it.
Replacement = tuple[Tensor, Tensor, Tensor]


class LogN(EncodingWrapper):
    """Scores times max(1, ln n / ln L) for a query that sees n tokens, L = `trained_len`.

    The factor keeps the entropy of attention from growing with the context (Su 2021,
    kexue.fm/archives/8823; arXiv:2501.19399).
    """

    def __init__(self, inner: Encoding, trained_len: int) -> None:
        super().__init__(inner)
        self.trained_len = trained_len

    def query(self, q: Heads, positions: Positions) -> Heads:
        # A query sees itself and all tokens before it.
        seen = positions + 1
        growth = seen.float().log() / math.log(self.trained_len)
        scale = growth.clamp(min=1.0)[:, None]
        return super().query(q, positions) * scale.to(q.dtype)


class Dropped(Encoding):
    """No positions, and scores times a constant: DroPE (arXiv:2512.12167)."""

    def __init__(self, score_factor: float = 1.0) -> None:
        super().__init__()
        self.score_factor = score_factor

    def query(self, q: Heads, positions: Positions) -> Heads:
        return q * self.score_factor


class Remapped(Encoding, ABC):
    """RoPE in which some queries and keys have another distance than their own.

    A subclass says in `replacements` which queries and keys. Its parameters are the
    whole numbers `sizes`, in the order in which `replacements` unpacks them.
    """

    fused = False

    def __init__(self, rope: Rope, *sizes: int) -> None:
        super().__init__()
        self.rope = rope
        self.sizes = sizes
        self.rotary_dim = rope.rotary_dim

    @abstractmethod
    def replacements(
        self, q_positions: Positions, k_positions: Positions
    ) -> Iterator[Replacement]:
        """Yield one replacement after another; a later one overrides an earlier one."""

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        scores = self._score(q, k, q_positions, k_positions)
        replacements = self.replacements(q_positions, k_positions)
        for is_replaced, other_q, other_k in replacements:
            other_scores = self._score(q, k, other_q, other_k)
            scores = torch.where(is_replaced, other_scores, scores)
        return scores

    def _score(
        self,
        q: Tensor,
        k: Tensor,
        q_positions: Tensor,
        k_positions: Tensor,
    ) -> Tensor:
        rotated_q = self.rope.query(q, q_positions)
        rotated_k = self.rope.key(k, k_positions)
        return super().scores(rotated_q, rotated_k, q_positions, k_positions)


class SelfExtend(Remapped):
    """Distances from w = `window` on grow by 1 in g = `group` tokens.

    A query i and a key j at least w tokens apart have the distance
    floor(i/g) + w - floor(w/g) - floor(j/g) (arXiv:2401.01325).
    """

    def replacements(
        self, q_positions: Positions, k_positions: Positions
    ) -> Iterator[Replacement]:
        window, group = self.sizes
        is_far = q_positions[:, None] - k_positions >= window
        # The replaced distances begin where the unchanged distances end.
        start = window - window // group
        yield is_far, q_positions // group + start, k_positions // group


class ReRope(Remapped):
    """The distance of query i and key j is min(i - j, w) with w = `window`.

    Su 2023, kexue.fm/archives/9708.
    """

    def replacements(
        self, q_positions: Positions, k_positions: Positions
    ) -> Iterator[Replacement]:
        (window,) = self.sizes
        is_far = q_positions[:, None] - k_positions >= window
        # All far keys have the distance window - 0.
        other_q = torch.full_like(q_positions, window)
        other_k = torch.zeros_like(k_positions)
        yield is_far, other_q, other_k


class DualChunk(Remapped):
    """Positions restart every `chunk` tokens, so no distance reaches `trained`.

    With s = chunk and c = trained, the distance of query i and key j is

    - i - j if both are in the same chunk;
    - min(s + i mod s, c - 1) - j mod s if the key is in the chunk before, which is i - j
      again unless c - 1 is the smaller number;
    - c - 1 - j mod s if the key is further back (arXiv:2402.17463, section 3).
    """

    def replacements(
        self, q_positions: Positions, k_positions: Positions
    ) -> Iterator[Replacement]:
        chunk, trained = self.sizes
        chunks_back = q_positions[:, None] // chunk - k_positions // chunk
        k_in_chunk = k_positions % chunk
        last_trained = torch.full_like(q_positions, trained - 1)

        # The query's position, counted from the start of the chunk before.
        q_in_next_chunk = torch.minimum(q_positions % chunk + chunk, last_trained)
        yield chunks_back == 1, q_in_next_chunk, k_in_chunk
        yield chunks_back > 1, last_trained, k_in_chunk


class Shifted(Remapped):
    """A distance d of `shift` or more becomes d - shift + `window`.

    STRING (arXiv:2410.18745, eq. 5).
    """

    def replacements(
        self, q_positions: Positions, k_positions: Positions
    ) -> Iterator[Replacement]:
        shift, window = self.sizes
        is_far = q_positions[:, None] - k_positions >= shift
        # A query before position `shift` has no keys that far back. Its position here is
        # never used, but must not be below 0.
        shifted = (q_positions - shift + window).clamp(min=0)
        yield is_far, shifted, k_positions
