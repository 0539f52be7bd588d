"""The interface of every position encoding, which a transformer calls at three places.

Positions can enter at the embeddings (`embed`), at the queries and keys (`query`,
`key`, `extend_key`), and at the scores (`scores`, `mix`). The base class does nothing
at these places: it is NoPE, a causal transformer without positions (arXiv:2305.19466).
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

# The classes under `@encoding(name)`, by the names of their records in encodings.toml.
CLASSES: "dict[str, type[Encoding]]" = {}
EncodingClass = TypeVar("EncodingClass", bound="type[Encoding]")


def encoding(*names: str) -> Callable[[EncodingClass], EncodingClass]:
    """Register a class for its records in encodings.toml.

    Several records may name one class; they then differ in the options that they pass
    to it.
    """

    def register(encoding_class: EncodingClass) -> EncodingClass:
        for name in names:
            assert name not in CLASSES, f"two classes are named {name}"
            CLASSES[name] = encoding_class
        return encoding_class

    return register


@encoding("nope")
class Encoding(nn.Module):
    """No position encoding; the base class of all encodings.

    One object serves the whole model unless `for_layer` returns another object for a
    layer. Positions are whole numbers from 0, counted from the start of the context,
    with a key-value cache, too. The cache stores each key after `key` and `extend_key`
    have acted on it.
    """

    # The largest position that the encoding defines; None if it defines every position.
    # Callers compare their positions with it. The encoding itself does not check.
    max_position: int | None = None
    # True promises that attention is softmax(q k^T / sqrt(head_dim)) v, with q as
    # `query` returns it and k as `key` returns it, so that the model may use torch's
    # fused kernel. If it is False, the model calls `scores` and `mix` for a block of
    # queries at a time.
    fused: bool = True

    @classmethod
    def constructor(cls) -> Callable[..., "Encoding"]:
        """Return the function that builds the encoding.

        Its arguments are options of the encoding, and sizes of the model, which have
        the names of the fields of `Shape` in registry.py.
        """
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
        """Act on the queries of one layer."""
        return q

    def key(self, k: Heads, positions: Positions) -> Heads:
        """Act on the keys of one layer; a cache keeps the result."""
        return k

    def extend_key(self, k: Heads, x: Embeddings) -> Heads:
        """Append features of the layer's input `x` to the result of `key`.

        Only an encoding that is not fused may add features; its `scores` removes them.
        """
        # A cache keeps the appended features, too. What an encoding computes from the
        # text is therefore computed once per token.
        return k

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        """Return the scores divided by sqrt(head_dim), without a mask.

        `q` comes from `query` and `k` from `extend_key`. The positions of the queries
        are consecutive, and so are the positions of the keys. The score of a key after
        the query may be any finite number, since the caller masks it.
        """
        return q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5

    def mix(
        self,
        weights: Scores,
        v: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Heads:
        """Return the sum of the values under the weights.

        The weights are 0 at keys after the query.
        """
        return weights @ v


class EncodingWrapper(Encoding):
    """Passes each hook on to another encoding, `inner`; subclasses change some."""

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
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        return self.inner.scores(q, k, q_positions, k_positions)

    def mix(
        self,
        weights: Scores,
        v: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Heads:
        return self.inner.mix(weights, v, q_positions, k_positions)


class PerLayer(Encoding):
    """A separate encoding for every layer; none of them may act on the embeddings."""

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
        # A type checker knows only that a ModuleList holds modules.
        assert isinstance(encoding, Encoding)
        return encoding


def disable_fused_kernel(encoding: Encoding) -> Encoding:
    """Make an encoding refuse torch's fused kernel, and return the encoding."""
    # For narrow heads (32 features), windows below 256 tokens, and forward and backward
    # passes in bfloat16, the fused kernel for CPUs takes two to ten times as long as
    # separate products.
    for nested in list_nested_encodings(encoding):
        nested.fused = False
    return encoding


def list_nested_encodings(encoding: Encoding) -> list[Encoding]:
    """Return an encoding and all encodings inside it."""
    return [module for module in encoding.modules() if isinstance(module, Encoding)]
