"""Measuring a model: the loss of every token in one pass, and which were the most probable.

Only the sliding-window baseline slides. Results are on the CPU. Products are in the format of the
weights, or of the caller's autocast (`ropelab.runs.machine.computing_in`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.source import Batch

# Rows are put together up to so many tokens; more needs memory and is not faster on a CPU.
TOKENS_PER_PASS = 8192
# Logits held at once (16 MiB in float32).
LOGITS_PER_CHUNK = 2**22


class Readable(Protocol):
    """A model as evaluation sees it: `LanguageModel`, or a released one."""

    encoding: Encoding
    head: Any
    size: Any  # with a `vocabulary`, the number of different tokens

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the input of `head` for every token."""


@torch.inference_mode()
def _each_prediction(
    model: Readable,
    tokens: Int[Tensor, "rows tokens"],
    score: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    last: int | None = None,
) -> Tensor:
    """Return `score(logits, tokens)` for every prediction, or the `last` ones of each row."""
    found = []
    for block in tokens.split(max(1, TOKENS_PER_PASS // tokens.shape[1])):
        block = block.to(model.head.weight.device)
        keep = slice(-(last or block.shape[1] - 1), None)
        hidden, targets = model.hidden(block[:, :-1])[:, keep], block[:, 1:][:, keep]
        # Allocated first: results between freed logits would keep those from being given back.
        values = torch.empty(targets.shape, dtype=dtype, device=targets.device)
        size = max(1, LOGITS_PER_CHUNK // (len(block) * model.size.vocabulary))
        parts = (whole.split(size, dim=1) for whole in (hidden, targets, values))
        for h, t, out in zip(*parts, strict=True):
            out.copy_(score(model.head(h), t))
        found.append(values.cpu())
    return torch.cat(found)


def token_losses(
    model: Readable, tokens: Int[Tensor, "rows tokens"], last: int | None = None
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of each token given all before it in its row, in nats; of the `last` ones."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        # float32, whatever the autocast: bfloat16 logits have steps of 0.06 at 8 to 16.
        flat = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
        return flat.view(targets.shape)

    return _each_prediction(model, tokens, loss, torch.float32, last)


def _token_hits(model: Readable, tokens: Tensor, last: int | None = None) -> Tensor:
    hits = _each_prediction(model, tokens, lambda x, token: x.argmax(dim=-1) == token, torch.bool)
    return hits[:, -(last or 0) :]


def sliding_losses(
    model: Readable, tokens: Int[Tensor, "rows tokens"], window: int, stride: int
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of each token given at most `window` tokens before it, in nats."""
    # The window moves on by `stride` and its last `stride` predictions count, so each has at least
    # window - stride + 1 tokens of context and none beyond, not even through lower layers.
    return _sliding(partial(token_losses, model), tokens, window, stride)


def correct(
    model: Readable, batch: Batch, window: int | None = None, stride: int = 1
) -> Bool[Tensor, "rows scored"]:
    """Return True where a scored token is the most probable one; each row scores as many.

    With a window in those of `sliding_losses` that have a scored token, else in one pass.
    """
    asked = batch.scored[:, 1:]
    first = int(asked.any(dim=0).nonzero()[0])
    hits = _sliding(partial(_token_hits, model), batch.tokens, window, stride, first)
    return hits[asked].view(len(asked), -1)


def _sliding(
    read: Callable[[Tensor, int | None], Tensor],
    tokens: Tensor,
    window: int | None,
    stride: int,
    first: int = 0,
) -> Tensor:
    """Return `read`'s value of every prediction; those before `first` may be zeros."""
    total = tokens.shape[1] - 1
    if window is None or total <= window:
        return read(tokens, None)
    starts = [min(s, total - window) for s in range(stride, total - window + stride, stride)]
    found: Tensor | None = None
    for start, count in [(0, window), *((start, stride) for start in starts)]:
        end = start + window
        if end > first:
            values = read(tokens[:, start : end + 1], count)
            found = values.new_zeros(len(tokens), total) if found is None else found
            found[:, end - count : end] = values
    assert found is not None, "no prediction is asked for"
    return found
