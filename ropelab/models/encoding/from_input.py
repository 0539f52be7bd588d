"""Encodings from data: the text between two tokens decides, not only its length.

Each layer computes numbers for every token from its input and stores them behind the
key.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn
from torch.linalg import solve_triangular
from torch.nn.functional import logsigmoid, normalize, pad, silu

from ropelab.models.encoding.base import (
    Around,
    Embeddings,
    Encoding,
    Heads,
    Positions,
    Scores,
    encoding,
)


@encoding("fox")
class Forget(Around):
    """scores_ij + log f_(j+1) + ... + log f_i, with a gate f per head and token.

    f = sigmoid(w x + b). The Forgetting Transformer (FoX, Lin et al. 2025,
    arXiv:2503.02130) around any encoding, without its output gate, norms and shifted
    keys and values.
    """

    def __init__(self, inner: Encoding, width: int, heads: int) -> None:
        super().__init__(inner)
        self.fused = False
        self.gate = nn.Linear(width, heads)
        # Gates start around 1/2, as in the authors' code.
        nn.init.zeros_(self.gate.bias)

    @classmethod
    def constructor(cls) -> Callable[..., Encoding]:
        return cls.build_alone

    @classmethod
    def build_alone(cls, width: int, heads: int) -> Self:
        """Return the gates without any other encoding."""
        return cls(Encoding(), width, heads)

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        gates = self.gate(x).mT[..., None]
        log_gates = logsigmoid(_to_float32_at_least(gates))
        extended = super().extend_key(k, x)
        return torch.cat((extended, log_gates), dim=-1)

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        keys = k[..., :-1]
        log_gates = k[..., -1]
        scores = super().scores(q, keys.to(q.dtype), at_q, at_k)

        # Sums over thousands of tokens are large, and neighbours differ little. They are
        # therefore made in float64, and less that of the first query.
        first = int(at_q[0] - at_k[0])
        total = log_gates.double().cumsum(dim=-1)
        total = total - total[..., first : first + 1]
        total = total.to(k.dtype)

        stop = first + len(at_q)
        sums_at_queries = total[..., first:stop, None]
        sums_at_keys = total[..., None, :]
        return scores + (sums_at_queries - sums_at_keys)


@encoding("path")
class Path(Encoding):
    """scores_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(head_dim).

    H_t = I - beta_t w_t w_t^T. PaTH (Yang et al. 2025, arXiv:2505.16381, section 2.2):
    beta = 2 sigmoid(u x + b), and w of length 1 from two linear layers of RANK features
    between, a causal convolution and SiLU.
    """

    RANK = 32
    TAPS = 3
    # Tokens whose products are computed at once.
    CHUNK = 128
    fused: bool = False

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.down = nn.Linear(width, self.RANK, bias=False)
        self.up = nn.Linear(self.RANK, heads * head_dim, bias=False)

        bound = self.TAPS**-0.5
        taps = torch.empty(self.TAPS, heads, 1, head_dim)
        self.taps = nn.Parameter(taps.uniform_(-bound, bound))
        self.strength = nn.Linear(width, heads)

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        # The convolution needs w of earlier tokens, so w is stored as it is before the
        # convolution. The paper changes cached keys instead.
        w = self.up(self.down(x))
        w_of_heads = w.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        strength = self.strength(x).mT[..., None]
        return torch.cat((k, w_of_heads, strength), dim=-1)

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        # Products of many matrices are not rounded to 16 bits.
        with torch.autocast(q.device.type, enabled=False):
            width = q.shape[-1]
            q = _to_float32_at_least(q) * width**-0.5
            extended = k.to(q.dtype)
            k, w, strength = extended.split((width, width, 1), dim=-1)
            w = self._convolve(w)
            beta = 2 * strength.sigmoid()

            # The walk goes back from the queries, chunk by chunk: q takes the product
            # of each chunk on to the earlier ones.
            first_query = int(at_q[0] - at_k[0])
            ends = [len(at_k), *range(first_query, 0, -self.CHUNK), 0]
            parts: list[Tensor] = []
            for stop, start in pairwise(ends):
                chunk = slice(start, stop)
                scores, q = self._pass_chunk(
                    q,
                    k[:, :, chunk],
                    w[:, :, chunk],
                    beta[:, :, chunk],
                    later=at_k[chunk] > at_q[:, None],
                )
                parts.insert(0, scores)
        return torch.cat(parts, dim=-1)

    def _convolve(self, w: Tensor) -> Tensor:
        """Return w after the causal convolution and SiLU, of length 1."""
        tokens = w.shape[2]
        padded = pad(w, (0, 0, self.TAPS - 1, 0))

        mixed = torch.zeros_like(w)
        for offset, tap in enumerate(self.taps):
            moved = padded[:, :, offset : offset + tokens]
            mixed = mixed + tap * moved
        return normalize(silu(mixed), dim=-1)

    @staticmethod
    def _pass_chunk(
        q: Tensor,
        k: Tensor,
        w: Tensor,
        beta: Tensor,
        later: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of a chunk's keys, and q times the product of its H.

        `later` is True at keys behind the query.
        """
        # The UT transform: with L the part of beta w w^T below the diagonal, all H
        # together are I - w^T (I + L)^-1 beta w; rows up to the query, columns behind
        # the key.
        along = (q @ w.mT).masked_fill(later, 0.0)
        below = beta * (w @ w.mT)
        earlier_keys = (w @ k.mT).tril(-1)
        right = beta * torch.cat((earlier_keys, w), dim=-1)
        solved = solve_triangular(
            below.tril(-1),
            right,
            upper=False,
            unitriangular=True,
        )

        plain_scores = q @ k.mT
        changes = along @ solved
        both = torch.cat((plain_scores, q), dim=-1) - changes
        keys = k.shape[2]
        return both[..., :keys], both[..., keys:]


def _to_float32_at_least(x: Tensor) -> Tensor:
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.to(dtype)
