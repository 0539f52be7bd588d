"""The small language model that the experiments train: one file, read top to bottom.

A decoder-only transformer. Unusual about it:

- no positions of its own: an `Encoding` is given and may be exchanged after training
  (`model.encoding = ...`), which extends a context without fine-tuning;
- the width of a head is free (`heads * head_dim` need not be `width`), to stay as in
  real models;
- norms without parameters, relu(x)^2 in the feed-forward part, untied embedding and
  output;
- parameters are float32; callers open `torch.autocast` for bfloat16.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import layer_norm, relu, scaled_dot_product_attention

from ropelab.models.encoding.base import Encoding

# An encoding without a fused kernel computes its scores in blocks of queries. A block has
# at most this many scores, which bounds the memory (32 MiB in float32).
SCORES_PER_BLOCK = 2**23
# A block has at most this many queries. Each query of a block gets scores with all keys
# that the last query of the block may see. Scores with keys after the query itself are
# then masked, so that a shorter block computes fewer scores in vain.
QUERIES_PER_BLOCK = 128
# With a mask, the fused kernel takes this many queries at a time. It multiplies with masked
# keys, too, so that shorter blocks waste less here as well.
QUERIES_PER_MASK = 512


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    vocabulary: int
    layers: int
    width: int
    heads: int
    head_dim: int

    @property
    def weights_in_matrices(self) -> int:
        """The number of weights in the matrices of all layers."""
        attention = 4 * self.heads * self.head_dim * self.width
        feed_forward = 8 * self.width**2
        return self.layers * (attention + feed_forward)

    @property
    def weights(self) -> int:
        """The number of all weights, without those of the encoding."""
        return self.weights_in_matrices + 2 * self.vocabulary * self.width


@dataclass
class Cache:
    """Keys and values of the tokens seen so far, per layer, and how many tokens."""

    tokens: int = 0
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new tokens to a layer, and return all it has."""
        if layer in self.layers:
            old_k, old_v = self.layers[layer]
            k = torch.cat([old_k, k], dim=2)
            v = torch.cat([old_v, v], dim=2)
        self.layers[layer] = (k, v)
        return k, v


def norm(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Layer normalisation without parameters (arXiv:1607.06450, arXiv:1911.07013)."""
    # Today's models use the root-mean-square norm, which takes three times as long on a
    # CPU.
    return layer_norm(x, (x.shape[-1],))


class SquaredRelu(Function):
    """relu(x)^2 (arXiv:2109.08668), which keeps one tensor for the backward pass, where
    autograd would keep two.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = relu(x)
        ctx.save_for_backward(positive)
        # The product costs a third of `positive.square()`, which computes a power.
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return (grads[0] * positive).mul_(2)


def causal_mask(
    q_positions: Int[Tensor, " queries"], k_positions: Int[Tensor, " keys"]
) -> Tensor:
    """Return True at keys up to the query's own position, [queries, keys]."""
    return k_positions[None, :] <= q_positions[:, None]


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax(q k^T / sqrt(head_dim)) v.

    The queries are those of the last keys: with a cache there are fewer of them.
    """
    if q.shape[2] == k.shape[2]:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    if q.shape[2] == 1:
        # The last token may look at all keys.
        return scaled_dot_product_attention(q, k, v)

    # With is_causal=True, the kernel would take the first query for that of the first
    # key. Here the last query is that of the last key.
    keys = torch.arange(k.shape[2], device=q.device)
    at_q = keys[-q.shape[2] :]
    out = []
    for start in range(0, q.shape[2], QUERIES_PER_MASK):
        block = slice(start, start + QUERIES_PER_MASK)
        rows = at_q[block]
        visible = keys[: int(rows[-1]) + 1]
        k_visible = k[:, :, : len(visible)]
        v_visible = v[:, :, : len(visible)]
        mask = causal_mask(rows, visible)
        out.append(
            scaled_dot_product_attention(
                q[:, :, block], k_visible, v_visible, attn_mask=mask
            )
        )
    return torch.cat(out, dim=2)


def blocked_attention(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention through `scores` and `mix`, for a block of queries at a time."""
    batch, heads, queries, _ = q.shape
    keys = torch.arange(k.shape[2], device=q.device)
    earlier = len(keys) - queries
    affordable = SCORES_PER_BLOCK // (batch * heads * len(keys))
    size = min(QUERIES_PER_BLOCK, max(1, affordable))

    out = []
    for start in range(0, queries, size):
        block = slice(start, min(start + size, queries))
        rows = keys[earlier + block.start : earlier + block.stop]
        visible = keys[: earlier + block.stop]
        k_visible = k[:, :, : len(visible)]
        v_visible = v[:, :, : len(visible)]

        scores = encoding.scores(q[:, :, block], k_visible, rows, visible)
        # The softmax is computed in float32 even under an autocast to bfloat16. Scores of
        # 20 have steps of 0.125 in bfloat16, so that keys tie, and a sum over thousands
        # of keys loses the small weights.
        scores = scores.float().masked_fill(~causal_mask(rows, visible), float("-inf"))
        weights = scores.softmax(dim=-1).to(v.dtype)
        out.append(encoding.mix(weights, v_visible, rows, visible))
    return torch.cat(out, dim=2)


class Attention(nn.Module):
    """Causal self-attention of one layer, with the encoding's hooks around it."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.head_dim = size.head_dim
        inner = size.heads * size.head_dim
        self.qkv = nn.Linear(size.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, size.width, bias=False)

    def project(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [batch, heads, tokens, head_dim]."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.unbind(2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def encode(
        self, x: Tensor, positions: Tensor, encoding: Encoding, last: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values under an encoding.

        The queries are those of the `last` tokens (0: of all).
        """
        q, k, v = self.project(x)
        # With `last` = 0 the slices start at -0, which is the start: all queries are kept.
        k = encoding.extend_key(encoding.key(k, positions), x)
        q = encoding.query(q[:, :, -last:], positions[-last:])
        return q, k, v

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoding: Encoding,
        layer: int,
        cache: Cache | None,
        last: int = 0,
    ) -> Float[Tensor, "batch last width"]:
        # Keys are cached with their positions, so none is ever rotated twice.
        q, k, v = self.encode(x, positions, encoding, last)
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        if encoding.fused:
            out = fused_attention(q, k, v)
        else:
            out = blocked_attention(encoding, q, k, v)
        return self.out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """relu(x W1)^2 W2 with four times the width inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if inner.requires_grad:
            return self.down(SquaredRelu.apply(inner))
        # No backward pass will need the values, so they are overwritten. New memory for
        # the result would cost as much time as the arithmetic.
        return self.down(inner.relu_().mul_(inner))


class Layer(nn.Module):
    """Attention, then feed-forward, each on the normalised stream and added to it."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.feed_forward = FeedForward(size.width)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoding: Encoding,
        layer: int,
        cache: Cache | None,
        last: int,
    ) -> Float[Tensor, "batch last width"]:
        attended = self.attention(norm(x), positions, encoding, layer, cache, last)
        # With `last` = 0 the slice starts at -0, which is the start: all tokens are kept.
        x = x[:, -last:] + attended
        return x + self.feed_forward(norm(x))


class LanguageModel(nn.Module):
    """Tokens to logits of the next token."""

    encoding: Encoding

    def __init__(self, size: ModelSize, encoding: Encoding, seed: int = 0) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.encoding = encoding
        self._draw_weights(seed)

    @torch.no_grad()
    def _draw_weights(self, seed: int) -> None:
        """Draw all weights except those of the encoding."""
        # The weights are drawn on the CPU, so that they are the same on every device.
        generator = torch.Generator().manual_seed(seed)
        self.embedding.weight.normal_(generator=generator)
        # All logits are 0 at the start, so that the first loss is ln(vocabulary).
        self.head.weight.zero_()
        for matrices in self.matrices_by_layer():
            for name, weight in matrices.items():
                # Numbers that are uniform in (-b, b) have the variance b^2/3, which is
                # 1/fan-in here. The matrices whose products are added to the stream
                # start at 0, so that every layer starts as the identity.
                if name in ("out", "down"):
                    bound = 0.0
                else:
                    bound = (3.0 / weight.shape[1]) ** 0.5
                weight.uniform_(-bound, bound, generator=generator)

    def matrices_by_layer(self) -> Iterator[dict[str, Tensor]]:
        """Yield the four matrices of each layer by name, in order."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield {
                "qkv": layer.attention.qkv.weight,
                "out": layer.attention.out.weight,
                "up": layer.feed_forward.up.weight,
                "down": layer.feed_forward.down.weight,
            }

    def hidden_states(
        self,
        tokens: Int[Tensor, "batch tokens"],
        cache: Cache | None = None,
        last: int = 0,
    ) -> Float[Tensor, "batch last width"]:
        """Return the normalised stream of the `last` tokens (0: of all).

        All tokens extend the `cache`.
        """
        first = 0 if cache is None else cache.tokens
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        # The norm gives embeddings unit variance, which added encodings have, too,
        # however the embedding grows in training.
        x = self.encoding.embed(norm(self.embedding(tokens)), positions)

        for index, layer in enumerate(self.layers):
            is_final = index + 1 == len(self.layers)
            # The final layer needs only keys and values of the other tokens.
            wanted = last if is_final else 0
            encoding = self.encoding.for_layer(index)
            x = layer(x, positions, encoding, index, cache, wanted)

        if cache is not None:
            cache.tokens += tokens.shape[1]
        return norm(x)

    def forward(
        self, tokens: Int[Tensor, "batch tokens"], cache: Cache | None = None
    ) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return logits of the next token at every position.

        With a `cache`, the tokens continue those in it.
        """
        return self.head(self.hidden_states(tokens, cache))
