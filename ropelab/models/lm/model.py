"""The small language model that the experiments train: one file, read top to bottom.

A decoder-only transformer. It is unusual in these points:

- Positions come from an `Encoding`, a module with hooks for embeddings, queries, keys
  and scores (`ropelab.models.encoding.base`). The encoding may be exchanged after
  training (`model.encoding = ...`), which extends a context without fine-tuning.
- `heads * head_dim` need not be `width`, so that a small model can have heads as wide
  as the heads of real models.
- Norms have no parameters, the feed-forward part computes relu(x)^2, and embedding and
  output have separate weights.
- Parameters are float32. A caller that wants products in bfloat16 opens
  `torch.autocast`.

The file goes from the inside to the outside: attention, a layer, the model.
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

# torch's fused kernel for attention never holds all scores. An encoding that changes
# scores cannot use the kernel, and computes them in blocks of queries. A block has at
# most this many scores, which bounds the memory (32 MiB in float32).
SCORES_PER_BLOCK = 2**23
# A block has at most this many queries. Each query of a block gets scores with all keys
# that the last query of the block may see. Scores with keys after the query itself are
# then masked, so that a shorter block computes fewer scores in vain.
QUERIES_PER_BLOCK = 128
# The number of queries in one call of the fused kernel, where it needs a mask. The
# kernel multiplies with masked keys, too, so that shorter blocks compute less in vain.
QUERIES_PER_MASK = 512


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    # The number of different tokens.
    vocabulary: int
    layers: int
    # The number of features of a token between the layers.
    width: int
    heads: int
    # The number of features of a query, key or value in one head.
    head_dim: int

    @property
    def weights_in_matrices(self) -> int:
        """The number of weights in the matrices of all layers."""
        # Four matrices make queries, keys, values and the output of attention.
        attention = 4 * self.heads * self.head_dim * self.width
        # Two matrices lead to four times the width and back.
        feed_forward = 2 * 4 * self.width**2
        return self.layers * (attention + feed_forward)

    @property
    def weights(self) -> int:
        """The number of all weights, without the weights of the encoding."""
        embedding_and_head = 2 * self.vocabulary * self.width
        return self.weights_in_matrices + embedding_and_head


@dataclass
class Cache:
    """Keys and values of the tokens seen so far."""

    # The number of tokens seen so far.
    tokens: int = 0
    # Keys and values [batch, heads, tokens, head_dim] by the number of the layer.
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of new tokens; return the keys and values of all
        tokens.
        """
        if layer in self.layers:
            old_k, old_v = self.layers[layer]
            k = torch.cat([old_k, k], dim=2)
            v = torch.cat([old_v, v], dim=2)
        self.layers[layer] = (k, v)
        return k, v


def start_of_last(length: int, last: int | None) -> int:
    """Return the index at which the `last` entries begin; None: all entries."""
    if last is None:
        return 0
    return max(0, length - last)


def norm(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Layer normalisation without parameters (arXiv:1607.06450, arXiv:1911.07013)."""
    # Most models use the root-mean-square norm, which takes three times as long on a
    # CPU.
    width = x.shape[-1]
    return layer_norm(x, (width,))


class SquaredRelu(Function):
    """relu(x)^2 (arXiv:2109.08668).

    It keeps one tensor for the backward pass. Without a gradient written here, autograd
    would keep two.
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
        # The derivative of relu(x)^2 is 2 relu(x).
        grad_of_output = grads[0]
        return (grad_of_output * positive).mul_(2)


def causal_mask(
    q_positions: Int[Tensor, " queries"], k_positions: Int[Tensor, " keys"]
) -> Tensor:
    """Return True at keys up to the query's own position, [queries, keys]."""
    return k_positions[None, :] <= q_positions[:, None]


# In the next two functions q is [batch, heads, queries, head_dim], k and v are [batch,
# heads, keys, head_dim], and the result has the shape of q. With a cache there are
# fewer queries than keys. The queries then belong to the same tokens as the last keys.


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax(q k^T / sqrt(head_dim)) v, by torch's fused kernel."""
    queries = q.shape[2]
    keys = k.shape[2]
    if queries == keys:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    if queries == 1:
        # The last token may look at all keys.
        return scaled_dot_product_attention(q, k, v)

    # With is_causal=True, the kernel would assume that the first query and the first
    # key belong to the same token. Here the last query and the last key do, and masks
    # say so.
    k_positions = torch.arange(keys, device=q.device)
    q_positions = k_positions[keys - queries :]
    outputs = []
    for start in range(0, queries, QUERIES_PER_MASK):
        block = slice(start, start + QUERIES_PER_MASK)
        positions = q_positions[block]
        # No query of the block sees a key after the last query.
        visible = k_positions[: int(positions[-1]) + 1]
        k_visible = k[:, :, : len(visible)]
        v_visible = v[:, :, : len(visible)]
        mask = causal_mask(positions, visible)
        outputs.append(
            scaled_dot_product_attention(
                q[:, :, block], k_visible, v_visible, attn_mask=mask
            )
        )
    return torch.cat(outputs, dim=2)


def blocked_attention(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention by an encoding's own `scores` and `mix`, in blocks of queries."""
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    k_positions = torch.arange(keys, device=q.device)
    first_query = keys - queries
    queries_in_memory = SCORES_PER_BLOCK // (batch * heads * keys)
    queries_per_block = min(QUERIES_PER_BLOCK, max(1, queries_in_memory))

    outputs = []
    for start in range(0, queries, queries_per_block):
        stop = min(start + queries_per_block, queries)
        positions = k_positions[first_query + start : first_query + stop]
        # No query of the block sees a key after the last query.
        visible = k_positions[: first_query + stop]
        k_visible = k[:, :, : len(visible)]
        v_visible = v[:, :, : len(visible)]

        scores = encoding.scores(q[:, :, start:stop], k_visible, positions, visible)
        is_later = ~causal_mask(positions, visible)
        # The softmax is computed in float32 even under an autocast to bfloat16. Scores of
        # 20 have steps of 0.125 in bfloat16, so that keys tie, and a sum over thousands
        # of keys loses the small weights.
        scores = scores.float().masked_fill(is_later, float("-inf"))
        weights = scores.softmax(dim=-1).to(v.dtype)
        outputs.append(encoding.mix(weights, v_visible, positions, visible))
    return torch.cat(outputs, dim=2)


class Attention(nn.Module):
    """Causal self-attention of one layer, with the encoding's hooks around it.

    Where a method takes `last`, queries and the result are computed for this many final
    tokens only; None: for all tokens. Keys and values are always computed for all
    tokens.
    """

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.head_dim = size.head_dim
        width_of_heads = size.heads * size.head_dim
        self.qkv = nn.Linear(size.width, 3 * width_of_heads, bias=False)
        self.out = nn.Linear(width_of_heads, size.width, bias=False)

    def project(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [batch, heads, tokens, head_dim]."""
        # qkv is [batch, tokens, 3, heads, head_dim].
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.unbind(2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def encode(
        self,
        x: Tensor,
        positions: Tensor,
        encoding: Encoding,
        last: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values under an encoding."""
        q, k, v = self.project(x)
        k = encoding.extend_key(encoding.key(k, positions), x)
        start = start_of_last(len(positions), last)
        q = encoding.query(q[:, :, start:], positions[start:])
        return q, k, v

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoding: Encoding,
        layer: int,
        cache: Cache | None,
        last: int | None = None,
    ) -> Float[Tensor, "batch last width"]:
        q, k, v = self.encode(x, positions, encoding, last)
        if cache is not None:
            # Keys are cached after the encoding has acted on them, so none is ever
            # rotated twice.
            k, v = cache.extend(layer, k, v)
        if encoding.fused:
            output = fused_attention(q, k, v)
        else:
            output = blocked_attention(encoding, q, k, v)

        # From [batch, heads, last, head_dim] to [batch, last, heads * head_dim].
        joined_heads = output.transpose(1, 2).flatten(2)
        return self.out(joined_heads)


class FeedForward(nn.Module):
    """relu(x W1)^2 W2 with four times the width inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        features = self.up(x)
        if features.requires_grad:
            return self.down(SquaredRelu.apply(features))
        # No backward pass will need these features, so they are overwritten. New memory
        # for the result would cost as much time as the arithmetic.
        return self.down(features.relu_().mul_(features))


class Layer(nn.Module):
    """Attention, then feed-forward, each added to the residual stream.

    Both take the normalised stream.
    """

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
        last: int | None,
    ) -> Float[Tensor, "batch last width"]:
        """Return the stream of the `last` tokens (None: of all) after this layer."""
        attended = self.attention(norm(x), positions, encoding, layer, cache, last)
        start = start_of_last(x.shape[1], last)
        x = x[:, start:] + attended
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
        """Draw all weights except the weights of the encoding."""
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
            # A type checker knows only that a ModuleList holds modules.
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
        last: int | None = None,
    ) -> Float[Tensor, "batch last width"]:
        """Return the normalised stream of the `last` tokens (None: of all).

        All tokens extend the `cache`.
        """
        first = 0
        if cache is not None:
            first = cache.tokens
        stop = first + tokens.shape[1]
        positions = torch.arange(first, stop, device=tokens.device)
        # The norm keeps the embeddings at unit variance, however the embedding grows in
        # training. They thus stay on the scale of the encodings that are added to them.
        x = self.encoding.embed(norm(self.embedding(tokens)), positions)

        final_layer = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            # Only the final layer may leave out tokens. The layer above any other layer
            # makes keys and values of all tokens.
            last_of_layer = last if number == final_layer else None
            encoding = self.encoding.for_layer(number)
            x = layer(x, positions, encoding, number, cache, last_of_layer)

        if cache is not None:
            cache.tokens = stop
        return norm(x)

    def forward(
        self, tokens: Int[Tensor, "batch tokens"], cache: Cache | None = None
    ) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return logits of the next token at every position.

        With a `cache`, the tokens continue the tokens in the cache.
        """
        return self.head(self.hidden_states(tokens, cache))
