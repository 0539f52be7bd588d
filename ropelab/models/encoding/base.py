"""The hooks behind which every position encoding sits, and the one that acts at none of them.

A transformer without positions has three places where a position can enter: the embeddings, the
queries and keys, and the scores. An `Encoding` may act at each of them, and the model calls all
three without knowing which encoding it carries. The base class acts nowhere, which is itself an
encoding: NoPE, a causal transformer without positions (arXiv:2305.19466).
"""

from collections.abc import Iterable

from jaxtyping import Float, Int
from torch import Tensor, nn

Positions = Int[Tensor, "tokens"]
QueryPositions = Int[Tensor, "queries"]
KeyPositions = Int[Tensor, "keys"]
Embeddings = Float[Tensor, "batch tokens width"]
# The queries or the keys of all tokens; below, those of a block, which may differ in number.
Heads = Float[Tensor, "batch heads tokens head_dim"]
Queries = Float[Tensor, "batch heads queries head_dim"]
Keys = Float[Tensor, "batch heads keys head_dim"]
Scores = Float[Tensor, "batch heads queries keys"]


class Encoding(nn.Module):
    """No position encoding; the base of all the others.

    An encoding is a module because some have parameters. One object serves the whole model unless
    `for_layer` hands out others. Positions are whole numbers from 0, counted from the start of
    the context, also when decoding with a key-value cache: keys are cached after `key()`, and a
    query is rotated by `query()` when it arrives.

    Attributes:
        max_position: the largest position for which it is defined; None means any. The caller
            checks; a result beyond it is reported as undefined, never as a number.
        fused: True promises that softmax(q k^T / sqrt(head_dim)) is the whole attention after
            `query()` and `key()`, so that a fused kernel may be used and `scores()` is not called.
            False: the model calls `scores()` and `mix()` for a block of queries at a time; in one
            call the positions of the queries are consecutive, and so are those of the keys.
    """

    max_position: int | None = None
    fused: bool = True

    @property
    def name(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    def for_layer(self, layer: int) -> "Encoding":
        """Return the encoding of layer number `layer` (from 0); the same object by default."""
        return self

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        """Act on the token embeddings, once, before the first layer."""
        return x

    def query(self, q: Heads, positions: Positions) -> Heads:
        """Act on the queries of one layer."""
        return q

    def key(self, k: Heads, positions: Positions) -> Heads:
        """Act on the keys of one layer; a cache keeps the result."""
        return k

    def scores(self, q: Queries, k: Keys, at_q: QueryPositions, at_k: KeyPositions) -> Scores:
        """Return the attention scores before masking and softmax.

        The whole score, its division by sqrt(head_dim) included where the encoding has one. Where
        a key is later than the query the value is masked by the model and may be anything finite.

        Args:
            q, k: as returned by `query` and `key`.
        """
        return q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5

    def mix(self, weights: Scores, v: Keys, at_q: QueryPositions, at_k: KeyPositions) -> Queries:
        """Return the sum of the values under the softmax weights (0 at later keys)."""
        return weights @ v


class PerLayer(Encoding):
    """An encoding whose layers have parameters of their own; none may act on the embeddings."""

    def __init__(self, layers: Iterable[Encoding]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.fused = all(self.for_layer(i).fused for i in range(len(self.layers)))

    def for_layer(self, layer: int) -> Encoding:
        mine = self.layers[layer]
        assert isinstance(mine, Encoding)
        return mine


def unfused(encoding: Encoding) -> Encoding:
    """Make an encoding ask for attention in separate products, and return it."""
    # With narrow heads (32 features) torch's fused kernel for CPUs takes two to ten times as long
    # as these at windows below 256 tokens, forward and backward in bfloat16.
    for module in encoding.modules():
        if isinstance(module, Encoding):
            module.fused = False
    return encoding
