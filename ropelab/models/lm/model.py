"""The small language model that the experiments train: one file, to be read from top to
bottom.

A decoder-only transformer. Unusual about it:

- no positions of its own: an `Encoding` is given and may be exchanged after training
  (`model.encoding = ...`), which extends a context without fine-tuning;
- the width of a head is free (`heads * head_dim` need not be `width`), to stay as in real models;
- norms without parameters, relu(x)^2 in the feed-forward part, untied embedding and output;
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

# Scores that an encoding without a fused kernel may hold at once (32 MiB in float32),
# and queries: in short blocks fewer scores of later keys are made to be masked.
SCORES_PER_BLOCK = 2**23
QUERIES_PER_BLOCK = 128
# Queries that share a mask: the fused kernel multiplies with masked keys, too.
QUERIES_PER_MASK = 512


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    vocabulary: int
    layers: int
    width: int
    heads: int
    head_dim: int

    @property
    def matrices(self) -> int:
        """The number of weights of all layers."""
        inner = self.heads * self.head_dim
        return self.layers * (4 * inner * self.width + 8 * self.width**2)

    @property
    def weights(self) -> int:
        """The number of all weights, the encoding left aside."""
        return self.matrices + 2 * self.vocabulary * self.width


@dataclass
class Cache:
    """Keys and values of the tokens seen so far, per layer, and the number of these
    tokens.
    """

    tokens: int = 0
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens to one layer, and return all of that
        layer.
        """
        if layer in self.layers:
            old_k, old_v = self.layers[layer]
            k, v = torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)
        self.layers[layer] = (k, v)
        return k, v


def norm(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Layer normalisation without parameters (arXiv:1607.06450, arXiv:1911.07013)."""
    # Not the root-mean-square norm of today's models, which takes three times as long
    # on a CPU.
    return layer_norm(x, (x.shape[-1],))


class SquaredRelu(Function):
    """relu(x)^2 (arXiv:2109.08668), which keeps one tensor for the backward pass, not
    two.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = relu(x)
        ctx.save_for_backward(positive)
        return positive * positive  # square() is a power, at three times the cost

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
    """Causal softmax(q k^T / sqrt(head_dim)) v; the queries are the last ones of the
    keys.
    """
    if q.shape[2] == k.shape[2]:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    if q.shape[2] == 1:
        # one token, which may look at all keys
        return scaled_dot_product_attention(q, k, v)
    keys = torch.arange(k.shape[2], device=q.device)
    rows, out = keys[-q.shape[2] :].split(QUERIES_PER_MASK), []
    for at, part in zip(rows, q.split(QUERIES_PER_MASK, dim=2), strict=True):
        seen = slice(int(at[-1]) + 1)
        # is_causal=True would align the first query with the first key, not the last
        # with the last.
        mask = causal_mask(at, keys[seen])
        out.append(
            scaled_dot_product_attention(
                part, k[:, :, seen], v[:, :, seen], attn_mask=mask
            )
        )
    return torch.cat(out, dim=2)


def blocked_attention(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention through `scores` and `mix`, for a block of queries at a time."""
    batch, heads, queries, _ = q.shape
    keys = torch.arange(k.shape[2], device=q.device)
    seen = k.shape[2] - queries
    size = min(
        QUERIES_PER_BLOCK, max(1, SCORES_PER_BLOCK // (batch * heads * k.shape[2]))
    )
    out = []
    for start in range(0, queries, size):
        rows = keys[seen + start : seen + min(start + size, queries)]
        visible = keys[: seen + start + len(rows)]
        block = q[:, :, start : start + len(rows)]
        scores = encoding.scores(block, k[:, :, : len(visible)], rows, visible)
        # float32, whatever the autocast: a bfloat16 score of 20 has steps of 0.125, so
        # that keys tie, and a softmax over thousands of them loses the small weights in
        # its sum.
        scores = scores.float().masked_fill(~causal_mask(rows, visible), float("-inf"))
        weights = scores.softmax(dim=-1).to(v.dtype)
        out.append(encoding.mix(weights, v[:, :, : len(visible)], rows, visible))
    return torch.cat(out, dim=2)


class Attention(nn.Module):
    """Causal self-attention of one layer, with the encoding's hooks around it."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.heads, self.head_dim = size.heads, size.head_dim
        inner = size.heads * size.head_dim
        self.qkv = nn.Linear(size.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, size.width, bias=False)

    def projected(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [batch, heads, tokens, head_dim]."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        return q, k, v

    def encoded(
        self, x: Tensor, positions: Tensor, encoding: Encoding, last: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (of the `last` tokens; 0: of all), keys and values under an
        encoding.
        """
        q, k, v = self.projected(x)
        k = encoding.extend_key(encoding.key(k, positions), x)
        return encoding.query(q[:, :, -last:], positions[-last:]), k, v

    def forward(
        self,
        x: Tensor,
        at: Tensor,
        encoding: Encoding,
        layer: int,
        cache: Cache | None,
        last: int = 0,
    ) -> Float[Tensor, "batch last width"]:
        # Keys are cached with their positions, so none is ever rotated twice.
        q, k, v = self.encoded(x, at, encoding, last)
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        out = (
            fused_attention(q, k, v)
            if encoding.fused
            else blocked_attention(encoding, q, k, v)
        )
        return self.out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """relu(x W1)^2 W2 with four times the width inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        # Without a backward pass in place: the system takes as long to hand out more
        # memory.
        squared = (
            SquaredRelu.apply(inner)
            if inner.requires_grad
            else inner.relu_().mul_(inner)
        )
        return self.down(squared)


class Layer(nn.Module):
    """Attention, then feed-forward, each on the normalised stream and added to it."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.feed_forward = FeedForward(size.width)

    def forward(
        self,
        x: Tensor,
        at: Tensor,
        encoding: Encoding,
        layer: int,
        cache: Cache | None,
        last: int,
    ) -> Float[Tensor, "batch last width"]:
        x = x[:, -last:] + self.attention(norm(x), at, encoding, layer, cache, last)
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
        """Draw all weights but the encoding's own: embedding N(0, 1), matrices
        uniform.
        """
        # On the CPU, so that every device starts the same.
        generator = torch.Generator().manual_seed(seed)
        self.embedding.weight.normal_(generator=generator)
        # all logits are 0: the first loss is exactly ln(vocabulary)
        self.head.weight.zero_()
        for layer in self.matrices_by_layer():
            for name, weight in layer.items():
                # Uniform in (-b, b) has variance b^2/3 = 1/fan-in. The writers into the
                # stream start at 0, so that every layer starts as the identity.
                bound = (
                    0.0 if name in ("out", "down") else (3.0 / weight.shape[1]) ** 0.5
                )
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

    def hidden(
        self,
        tokens: Int[Tensor, "batch tokens"],
        cache: Cache | None = None,
        last: int = 0,
    ) -> Float[Tensor, "batch last width"]:
        """Return the normalised stream of the `last` tokens (0: of all); all extend
        `cache`.
        """
        first = 0 if cache is None else cache.tokens
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        # Unit variance, as added encodings have, however the embedding grows in
        # training.
        x = self.encoding.embed(norm(self.embedding(tokens)), positions)
        for index, layer in enumerate(self.layers):
            # Of the other tokens the final layer needs keys and values only.
            asked = last if index + 1 == len(self.layers) else 0
            x = layer(x, positions, self.encoding.for_layer(index), index, cache, asked)
        if cache is not None:
            cache.tokens += tokens.shape[1]
        return norm(x)

    def forward(
        self, tokens: Int[Tensor, "batch tokens"], cache: Cache | None = None
    ) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return logits of the next token at every position. With a `cache`, tokens
        continue it.
        """
        return self.head(self.hidden(tokens, cache))
