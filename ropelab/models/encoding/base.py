"""The interface of every position encoding, which a transformer calls at three places.

Positions can enter at the embeddings, at the queries and keys, and at the scores. The
base class acts nowhere: NoPE, a causal transformer without positions
(arXiv:2305.19466).
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

Positions = Int[Tensor, "tokens"]
Embeddings = Float[Tensor, "batch tokens width"]
# Queries, keys or values; in blocks of attention there may be fewer queries than keys.
Heads = Float[Tensor, "batch heads tokens head_dim"]
Scores = Float[Tensor, "batch heads queries keys"]

# The classes that `@encoding` names, by the names of their records in encodings.toml.
CLASSES: "dict[str, type[Encoding]]" = {}
EncodingClass = TypeVar("EncodingClass", bound="type[Encoding]")


def encoding(*names: str) -> Callable[[EncodingClass], EncodingClass]:
    """Say of which records in encodings.toml a class is; they differ in its options."""

    def register(encoding_class: EncodingClass) -> EncodingClass:
        for name in names:
            assert name not in CLASSES, f"two classes are named {name}"
            CLASSES[name] = encoding_class
        return encoding_class

    return register


@encoding("nope")
class Encoding(nn.Module):
    """No position encoding; the base of all the others.

    One object serves the whole model unless `for_layer` returns others. Positions are
    whole numbers from 0, counted from the start of the context, also with a key-value
    cache: keys are cached after `key()`. `fused` promises that softmax(q k^T /
    sqrt(head_dim)) is the whole attention after `query()` and `key()`. Otherwise the
    model calls `scores()` and `mix()` for a block of queries at a time; in one call
    positions are consecutive, of queries and of keys.
    """

    # The largest position that the encoding defines; None if it defines every position.
    # Callers compare their positions with it; the encoding does not.
    max_position: int | None = None
    fused: bool = True

    @classmethod
    def constructor(cls) -> Callable[..., "Encoding"]:
        """Return what builds the encoding from fields of `Shape` and its options."""
        return cls

    @property
    def name(self) -> str:
        return type(self).__name__

    def for_layer(self, layer: int) -> "Encoding":
        """Return the encoding of one layer, counted from 0."""
        return self

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        """Act on the token embeddings, once, before the first layer."""
        return x

    def query(self, q: Heads, positions: Positions) -> Heads:
        return q

    def key(self, k: Heads, positions: Positions) -> Heads:
        """Act on the keys of one layer; a cache keeps the result."""
        return k

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        """Append features of the layer's input `x` to the result of `key`.

        Only an encoding that is not fused may do so; its `scores` removes them.
        """
        # A cache keeps these features, too, so that what an encoding computes from the
        # text is computed once per token.
        return k

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        """Return the unmasked scores, over sqrt(head_dim).

        `q` comes from `query` and `k` from `extend_key`. At later keys any finite value
        will do.
        """
        return q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5

    def mix(
        self,
        weights: Scores,
        v: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Heads:
        """Return the sum of the values under the weights, which are 0 at later keys."""
        return weights @ v


class Around(Encoding):
    """Another encoding, which a subclass changes at one of the three places."""

    def __init__(self, inner: Encoding) -> None:
        super().__init__()
        self.inner = inner
        self.fused = inner.fused
        self.max_position = inner.max_position

    def embed(self, x: Embeddings, positions: Positions) -> Embeddings:
        return self.inner.embed(x, positions)

    def query(self, q: Heads, positions: Positions) -> Heads:
        return self.inner.query(q, positions)

    def key(self, k: Heads, positions: Positions) -> Heads:
        return self.inner.key(k, positions)

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        return self.inner.extend_key(k, x)

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        return self.inner.scores(q, k, at_q, at_k)

    def mix(
        self,
        weights: Scores,
        v: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Heads:
        return self.inner.mix(weights, v, at_q, at_k)


class PerLayer(Encoding):
    """An encoding of its own for every layer; none may act on the embeddings."""

    def __init__(self, layers: Iterable[Encoding]) -> None:
        super().__init__()
        encodings = list(layers)
        self.layers = nn.ModuleList(encodings)
        self.fused = all(encoding.fused for encoding in encodings)

        limits = []
        for encoding in encodings:
            if encoding.max_position is not None:
                limits.append(encoding.max_position)
        self.max_position = min(limits, default=None)

    def for_layer(self, layer: int) -> Encoding:
        encoding = self.layers[layer]
        assert isinstance(encoding, Encoding)
        return encoding


def disable_fused_kernel(encoding: Encoding) -> Encoding:
    """Make an encoding ask for attention in separate products, and return it."""
    # torch's fused kernel for CPUs takes two to ten times as long as these for narrow
    # heads (32 features) at windows below 256 tokens, forward and backward in bfloat16.
    for part in list_parts(encoding):
        part.fused = False
    return encoding


def list_parts(encoding: Encoding) -> list[Encoding]:
    """Return an encoding and all encodings inside it."""
    return [module for module in encoding.modules() if isinstance(module, Encoding)]
