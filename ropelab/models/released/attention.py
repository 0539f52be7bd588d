"""Methods that change attention itself, put into a model through transformers' own interface.

A method of frequencies needs no more than other frequencies. Sharper logits (log n) need queries
multiplied by their position's factor, which holds for any architecture that calls the interface.
Other distances for far keys (ReRoPE, Self-Extend) need queries and keys that are not rotated yet:
the model's own rotation is made the identity, and ours takes its place, for which it must be known
which features form a pair (`ropelab.models.released.capabilities`).
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ropelab.math.rotary import Pairing
from ropelab.models.encoding.extended import SelfExtend
from ropelab.models.lm.model import QUERIES_PER_BLOCK, SCORES_PER_BLOCK
from ropelab.models.released.facts import FULL
from ropelab.models.released.loading import import_transformers


@dataclass(frozen=True)
class Layout:
    """The features of queries and keys that rotate, as a model's layers hand them to attention.

    Attributes:
        pairing: which of them form a pair.
        last: whether they are the last features of a head (latent attention), not the first.
    """

    pairing: Pairing
    last: bool = False

    def __str__(self) -> str:
        return f"{self.pairing}, last" if self.last else self.pairing


class Attention:
    """Attention of a model while a patch is in it.

    Args:
        far: distances by an encoding that turns the first features; None: the model's own.
        sharpened_from: see `Patch`.
        by_layer_type: whether layers with a window keep the model's own rotation.
        last: see `Layout`.
    """

    def __init__(
        self,
        sharpened_from: int | None,
        far: SelfExtend | None = None,
        by_layer_type: bool = False,
        last: bool = False,
    ) -> None:
        self.sharpened_from, self.far, self.by_layer_type = sharpened_from, far, by_layer_type
        self.last = last
        self.first, self.called = 0, False

    def __call__(
        self, original: Any, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **more: Any
    ) -> Any:
        """Return the attention of one layer, for queries from position `first` on."""
        self.called = True
        at = torch.arange(self.first, self.first + q.shape[2], device=q.device)
        if self.sharpened_from is not None:
            q = q * self._sharper(at, _window(module, more))[:, None].to(q.dtype)
        if self.far is None or (self.by_layer_type and _layer_type(module) != FULL):
            return original(module, q, k, v, mask, **more)
        if self.last:
            q, k = (x.roll(self.far.rope.rotary_dim, dims=-1) for x in (q, k))
        return distant_attention(self.far, q, k, v, mask, at, **more)

    def _sharper(self, at: Tensor, window: int | None) -> Tensor:
        """max(1, ln n / ln L) for the number n of tokens that each query sees."""
        assert self.sharpened_from is not None
        seen = (at + 1).clamp(max=window) if window else at + 1
        return (seen.float().log() / math.log(self.sharpened_from)).clamp(min=1.0)


CURRENT: ContextVar[Attention] = ContextVar("CURRENT")


def distant_attention(
    encoding: SelfExtend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    at: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of queries and keys that are not rotated yet, some queries at a time.

    Args:
        q, k, v: [batch, heads, tokens, head_dim], keys and values perhaps of fewer heads.
        mask: [batch, 1, queries, keys], True or 0 where a query may look; None: at all before it.
        at: positions of the queries; those of the keys end with the last of them.
    Returns:
        [batch, queries, heads, head_dim], and nothing in the place of weights.
    """
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    width = q.shape[-1]
    q = q * ((scaling or width**-0.5) * width**0.5)  # scores() divides by sqrt(head_dim)
    keys = torch.arange(int(at[-1]) + 1 - k.shape[2], int(at[-1]) + 1, device=q.device)
    per_query = q.shape[0] * q.shape[1] * len(keys)
    size = min(QUERIES_PER_BLOCK, max(1, SCORES_PER_BLOCK // per_query))
    out = []
    for start in range(0, q.shape[2], size):
        rows = slice(start, min(start + size, q.shape[2]))
        scores = encoding.scores(q[:, :, rows], k, at[rows], keys).float()
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = _masked(scores, mask, at, keys, rows)
        out.append(scores.softmax(dim=-1).to(v.dtype) @ v)
    return torch.cat(out, dim=2).transpose(1, 2).contiguous(), None


def _masked(scores: Tensor, mask: Tensor | None, at: Tensor, keys: Tensor, rows: slice) -> Tensor:
    if mask is None:
        return scores.masked_fill(keys[None, :] > at[rows, None], -math.inf)
    part = mask[:, :, rows, : len(keys)]
    return scores.masked_fill(~part, -math.inf) if part.dtype == torch.bool else scores + part


@contextmanager
def attending(model: Any, attention: Attention) -> Iterator[None]:
    """Let a model's layers attend by `attention` while the block runs."""
    before = model.config._attn_implementation
    model.config._attn_implementation = _registered(before)
    token = CURRENT.set(attention)
    try:
        yield
    finally:
        CURRENT.reset(token)
        model.config._attn_implementation = before


def _registered(implementation: str) -> str:
    """Return the name under which transformers finds our function, with its own masks."""
    import_transformers()
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = f"ropelab_{implementation}"
    if name not in ALL_ATTENTION_FUNCTIONS:
        masks = ALL_MASK_ATTENTION_FUNCTIONS[implementation]

        def attend(module: Any, q: Any, k: Any, v: Any, mask: Any = None, **more: Any) -> Any:
            own = sys.modules[type(module).__module__]
            original = (
                own.eager_attention_forward
                if implementation == "eager"
                else ALL_ATTENTION_FUNCTIONS[implementation]
            )
            return CURRENT.get()(original, module, q, k, v, mask, **more)

        ALL_ATTENTION_FUNCTIONS.register(name, attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, masks)
    return name


def _window(module: Any, more: dict[str, Any]) -> int | None:
    window = more.get("sliding_window") or getattr(module, "sliding_window", None)
    return window if isinstance(window, int) and window > 0 else None


def _layer_type(module: Any) -> str:
    kind = getattr(module, "layer_type", None) or getattr(module, "attention_type", None)
    if isinstance(kind, str):
        return kind
    return "sliding_attention" if _window(module, {}) else FULL
