"""The hooks behind which every position encoding of the laboratory sits.

A transformer without positions has three places where a position can enter: the embeddings, the
queries and keys, and the scores. An `Encoding` may act at each of them, and the model calls all
three without knowing which encoding it carries. The base class acts nowhere, which is itself an
encoding: NoPE, a causal transformer without positions (arXiv:2305.19466).
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

Positions = Int[Tensor, "tokens"]
QueryPositions = Int[Tensor, "queries"]
KeyPositions = Int[Tensor, "keys"]
Embeddings = Float[Tensor, "batch tokens width"]
Heads = Float[Tensor, "batch heads tokens head_dim"]
"""The queries or the keys of all tokens; below, those of a block, which may differ in number."""
Queries = Float[Tensor, "batch heads queries head_dim"]
Keys = Float[Tensor, "batch heads keys head_dim"]
Scores = Float[Tensor, "batch heads queries keys"]


class Encoding(nn.Module):
    """No position encoding; the base of all the others.

    An encoding is a module because some have parameters. One object serves the whole model unless
    `for_layer` hands out others. Positions are whole numbers from 0, counted from the start of
    the context, also when decoding with a key-value cache: keys are cached after `key()`, and a
    query is turned by `query()` when it arrives.

    Attributes:
        name: how tables and command lines call it.
        max_position: the largest position for which it is defined; None means any. The caller
            checks; a result beyond it is reported as undefined, never as a number.
        fused: True promises that softmax(q k^T / sqrt(head_dim)) is the whole attention after
            `query()` and `key()`, so that a fused kernel may be used and `scores()` is not called.
            False: the model calls `scores()` and `mix()` for a block of queries at a time; in one
            call the positions of the queries are consecutive, and so are those of the keys.
    """

    name: ClassVar[str] = "nope"
    max_position: int | None = None
    fused: bool = True

    def for_layer(self, layer: int) -> "Encoding":
        """The encoding that layer number `layer` (from 0) uses; the same object by default."""
        return self

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        """Act on the token embeddings, once, before the first layer."""
        return x

    def query(self, q: Heads, positions: Positions) -> Heads:
        """Act on the queries of one layer."""
        return q

    def key(self, k: Heads, positions: Positions) -> Heads:
        """Act on the keys of one layer; what it returns is what a cache keeps."""
        return k

    def scores(
        self,
        q: Queries,
        k: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Scores:
        """The attention scores before masking and softmax, from what `query` and `key` returned.

        The whole score, its division by sqrt(head_dim) included where the encoding has one. Where
        a key lies after the query the value is masked by the model and may be anything finite.
        """
        return q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5

    def mix(
        self,
        weights: Scores,
        v: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Queries:
        """What the queries receive: the values under the softmax weights (0 at later keys)."""
        return weights @ v


def unfused(encoding: Encoding) -> Encoding:
    """The same encoding, which now asks for attention in separate products.

    With narrow heads (32 features) torch's fused kernel for CPUs takes two to ten times as long as
    these at windows below 256 tokens, forward and backward in bfloat16.
    """
    for module in encoding.modules():
        if isinstance(module, Encoding):
            module.fused = False
    return encoding
