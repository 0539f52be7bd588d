"""Encodings from data: what lies between two tokens decides, not how many tokens these
are.

Each layer reads numbers for every token from its input and stores them behind the key.
"""

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
)


class Forget(Around):
    """scores_ij + log f_(j+1) + ... + log f_i, with a gate f = sigmoid(w x + b) for
    each head.

    The Forgetting Transformer (FoX, Lin et al. 2025, arXiv:2503.02130) around any
    encoding, without its output gate, norms and shifted keys and values.
    """

    def __init__(self, inner: Encoding, width: int, heads: int) -> None:
        super().__init__(inner)
        self.fused = False
        self.gate = nn.Linear(width, heads)
        # As in the authors' code: gates start around 1/2.
        nn.init.zeros_(self.gate.bias)

    @classmethod
    def alone(cls, width: int, heads: int) -> Self:
        """Return the gates as the only positions."""
        return cls(Encoding(), width, heads)

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        gates = self.gate(x).mT[..., None]
        gates = logsigmoid(gates.to(torch.promote_types(gates.dtype, torch.float32)))
        return torch.cat((super().extend_key(k, x), gates), dim=-1)

    def scores(self, q: Heads, k: Heads, at_q: Positions, at_k: Positions) -> Scores:
        scores = super().scores(q, k[..., :-1].to(q.dtype), at_q, at_k)
        first = int(at_q[0] - at_k[0])
        # float64, and relative to the first query: sums over thousands of tokens are
        # large, and their differences between neighbours small.
        total = k[..., -1].double().cumsum(dim=-1)
        total = (total - total[..., first : first + 1]).to(k.dtype)
        return scores + (
            total[..., first : first + len(at_q), None] - total[..., None, :]
        )


class Path(Encoding):
    """scores_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(head_dim), H_t = I - beta_t
    w_t w_t^T.

    PaTH (Yang et al. 2025, arXiv:2505.16381, section 2.2): beta = 2 sigmoid(u x + b),
    and w of length 1 from two linear layers of RANK features between, a causal
    convolution and SiLU.
    """

    RANK = 32
    TAPS = 3
    CHUNK = 128  # tokens whose products are made at once
    fused: bool = False

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.down = nn.Linear(width, self.RANK, bias=False)
        self.up = nn.Linear(self.RANK, heads * head_dim, bias=False)
        bound = self.TAPS**-0.5
        self.taps = nn.Parameter(
            torch.empty(self.TAPS, heads, 1, head_dim).uniform_(-bound, bound)
        )
        self.strength = nn.Linear(width, heads)

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        # Before the convolution, which needs earlier tokens; the paper changes cached
        # keys instead.
        w = self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return torch.cat((k, w, self.strength(x).mT[..., None]), dim=-1)

    def scores(self, q: Heads, k: Heads, at_q: Positions, at_k: Positions) -> Scores:
        width, tokens, parts = q.shape[-1], len(at_k), list[Tensor]()
        # Products of many matrices are not rounded to 16 bits.
        with torch.autocast(q.device.type, enabled=False):
            q = q.to(torch.promote_types(q.dtype, torch.float32)) * width**-0.5
            k, w, strength = k.to(q.dtype).split((width, width, 1), dim=-1)
            w, beta = pad(w, (0, 0, self.TAPS - 1, 0)), 2 * strength.sigmoid()
            mixed = sum(
                tap * w[:, :, n : n + tokens] for n, tap in enumerate(self.taps)
            )
            w = normalize(silu(mixed), dim=-1)
            # From the queries back: the product of each chunk is applied to q on the
            # way.
            ends = tokens, *range(int(at_q[0] - at_k[0]), 0, -self.CHUNK), 0
            for stop, start in pairwise(ends):
                k_here, w_here, beta_here = (
                    each[:, :, start:stop] for each in (k, w, beta)
                )
                # The UT transform: with L the part of beta w w^T below the diagonal,
                # all H together are I - w^T (I + L)^-1 beta w; rows up to the query,
                # columns behind the key.
                along = (q @ w_here.mT).masked_fill(
                    at_k[start:stop] > at_q[:, None], 0.0
                )
                below = (beta_here * (w_here @ w_here.mT)).tril(-1)
                right = beta_here * torch.cat(
                    ((w_here @ k_here.mT).tril(-1), w_here), dim=-1
                )
                solved = solve_triangular(below, right, upper=False, unitriangular=True)
                both = torch.cat((q @ k_here.mT, q), dim=-1) - along @ solved
                parts.insert(0, both[..., :-width])
                q = both[..., -width:]
        return torch.cat(parts, dim=-1)
