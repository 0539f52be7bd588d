"""Encodings whose scores depend on the text between query and key.

Each layer computes numbers for every token from the layer's input, x. `extend_key`
appends these numbers to the features of the key, so that a cache keeps them. `scores`
takes them off again.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn
from torch.linalg import solve_triangular
from torch.nn.functional import logsigmoid, normalize, pad, silu

from ropelab.models.encoding.base import (
    Embeddings,
    Encoding,
    EncodingWrapper,
    Heads,
    Positions,
    Scores,
    encoding,
)


@encoding("fox")
class Forget(EncodingWrapper):
    """Adds log f_(j+1) + ... + log f_i to the score of query i and key j.

    f = sigmoid(w x + b) is the gate of a token in a head: a gate below 1 lowers the
    scores of all tokens before it. This is the Forgetting Transformer (FoX, Lin et al.
    2025, arXiv:2503.02130), here around any encoding. The output gate of FoX, its norms
    and its shifted keys and values are left out.
    """

    def __init__(self, inner: Encoding, width: int, heads: int) -> None:
        super().__init__(inner)
        # The fused kernel cannot add the gates to the scores.
        self.fused = False
        self.gate = nn.Linear(width, heads)
        # Gates start around 1/2, as in the authors' code.
        nn.init.zeros_(self.gate.bias)

    @classmethod
    def constructor(cls) -> Callable[..., Encoding]:
        # The encoding `fox` is the gates alone. With another encoding, `forget(...)` in
        # composed.py calls the class itself.
        return cls.build_alone

    @classmethod
    def build_alone(cls, width: int, heads: int) -> Self:
        """Return the gates without any other encoding."""
        return cls(Encoding(), width, heads)

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        # From [batch, tokens, heads] to [batch, heads, tokens, 1].
        logits = self.gate(x).mT[..., None]
        log_gates = logsigmoid(_to_float32_at_least(logits))
        extended = super().extend_key(k, x)
        return torch.cat((extended, log_gates), dim=-1)

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        keys = k[..., :-1]
        log_gates = k[..., -1]
        scores = super().scores(q, keys.to(q.dtype), q_positions, k_positions)

        # The sum from j + 1 to i is the difference of two sums from the first token on.
        # Sums from the first token on are large, and the sums of neighbours differ
        # little. These sums are therefore computed in float64, and made smaller by
        # subtracting the sum of the first query from all of them.
        first_query = int(q_positions[0] - k_positions[0])
        sums = log_gates.double().cumsum(dim=-1)
        sums = sums - sums[..., first_query : first_query + 1]
        sums = sums.to(k.dtype)

        stop = first_query + len(q_positions)
        sums_of_queries = sums[..., first_query:stop, None]
        sums_of_keys = sums[..., None, :]
        return scores + (sums_of_queries - sums_of_keys)


@encoding("path")
class Path(Encoding):
    """scores_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(head_dim).

    PaTH (Yang et al. 2025, arXiv:2505.16381, section 2.2). Each token t has a matrix
    H_t = I - beta_t w_t w_t^T with beta = 2 sigmoid(u x + b); u x + b is called strength
    here. The vector w comes from two linear layers with RANK features between them,
    then a causal convolution over TAPS tokens and SiLU, and is scaled to length 1.
    """

    RANK = 32
    TAPS = 3
    # The number of tokens whose matrices are multiplied at once.
    CHUNK = 128
    # The fused kernel cannot multiply queries by matrices between keys.
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
        # convolution. The paper stores other keys instead: each new token multiplies
        # all keys in the cache by its matrix H.
        w = self.up(self.down(x))
        # [batch, heads, tokens, head_dim] and [batch, heads, tokens, 1]
        w_of_heads = w.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        strength = self.strength(x).mT[..., None]
        return torch.cat((k, w_of_heads, strength), dim=-1)

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        # Products of many matrices are not rounded to 16 bits.
        with torch.autocast(q.device.type, enabled=False):
            width = q.shape[-1]
            q = _to_float32_at_least(q) * width**-0.5
            extended = k.to(q.dtype)
            k, w, strength = extended.split((width, width, 1), dim=-1)
            w = self._convolve(w)
            beta = 2 * strength.sigmoid()

            # Chunks of keys are taken from the last to the first. One chunk has all
            # keys from the first query on, and each earlier chunk has CHUNK keys. After
            # each chunk the queries are multiplied by the matrices H of the chunk. With
            # 310 keys and a first query at 300, the borders are 310, 300, 172, 44, 0.
            first_query = int(q_positions[0] - k_positions[0])
            borders = [len(k_positions), *range(first_query, 0, -self.CHUNK), 0]
            scores_of_chunks: list[Tensor] = []
            for stop, start in pairwise(borders):
                chunk = slice(start, stop)
                scores, q = self._pass_chunk(
                    q,
                    k[:, :, chunk],
                    w[:, :, chunk],
                    beta[:, :, chunk],
                    is_later=k_positions[chunk] > q_positions[:, None],
                )
                # The scores are joined in the order of the keys.
                scores_of_chunks.insert(0, scores)
        return torch.cat(scores_of_chunks, dim=-1)

    def _convolve(self, w: Tensor) -> Tensor:
        """Return w after the causal convolution and SiLU, of length 1."""
        tokens = w.shape[2]
        # Zeros stand before the first token.
        padded = pad(w, (0, 0, self.TAPS - 1, 0))

        convolved = torch.zeros_like(w)
        for offset, tap in enumerate(self.taps):
            earlier = padded[:, :, offset : offset + tokens]
            convolved = convolved + tap * earlier
        return normalize(silu(convolved), dim=-1)

    @staticmethod
    def _pass_chunk(
        q: Tensor,
        k: Tensor,
        w: Tensor,
        beta: Tensor,
        is_later: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of the keys in a chunk, and q times all H of the chunk.

        Args:
            q: [batch, heads, queries, head_dim].
            k: [batch, heads, keys, head_dim], the keys of the chunk.
            w: the same shape as `k`.
            beta: [batch, heads, keys, 1].
            is_later: [queries, keys], True at keys after the query.
        """
        # The rows of the matrix W are the vectors w of the tokens of the chunk, and B
        # is the diagonal matrix of their beta. L is the part of B W W^T below the
        # diagonal. By the UT transform of the paper, the product of all H, the last
        # token first, is
        #     I - W^T M W  with  M = (I + L)^-1 B.
        #
        # Both results are q times this product, the scores also times the keys k:
        #     scores = q k^T - (q W^T) M (W k^T)
        #     multiplied q = q - (q W^T) M W
        #
        # For the score of query i and key j only the tokens from j + 1 to i count. So
        # q W^T is set to 0 at tokens after the query, and W k^T at tokens up to the
        # key.
        q_along_w = (q @ w.mT).masked_fill(is_later, 0.0)
        lower_triangle = (beta * (w @ w.mT)).tril(-1)
        w_along_k = (w @ k.mT).tril(-1)

        # M (W k^T) and M W are the solutions of two systems of equations with the same
        # left side, I + L. They are solved as one system, whose right sides are beside
        # each other.
        right_sides = beta * torch.cat((w_along_k, w), dim=-1)
        # `unitriangular` takes the diagonal as 1, which adds the identity I.
        solved = solve_triangular(
            lower_triangle,
            right_sides,
            upper=False,
            unitriangular=True,
        )

        plain_scores = q @ k.mT
        changes = q_along_w @ solved
        scores_and_q = torch.cat((plain_scores, q), dim=-1) - changes
        keys = k.shape[2]
        scores = scores_and_q[..., :keys]
        multiplied_q = scores_and_q[..., keys:]
        return scores, multiplied_q


def _to_float32_at_least(x: Tensor) -> Tensor:
    """Cast 16-bit numbers to float32; wider numbers stay as they are."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.to(dtype)
