"""Measuring a model: the loss of every token in one pass, and which were the most
probable.

Only the sliding-window baseline slides. Results are on the CPU. Products are in the
format of the weights, or of the caller's autocast
(`ropelab.runs.machine.computing_in`).
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

# Rows are put together up to so many tokens; more needs memory and is not faster on a
# CPU.
TOKENS_PER_PASS = 8192
# Logits held at once (16 MiB in float32).
LOGITS_PER_CHUNK = 2**22


class Readable(Protocol):
    """A model as evaluation sees it: `LanguageModel`, or a released one."""

    encoding: Encoding
    head: Any
    size: Any  # with a `vocabulary`, the number of different tokens

    def hidden(self, tokens: Tensor, *, last: int = 0) -> Tensor:
        """Return the input of `head` for the `last` tokens of each row; 0: for all."""


@torch.inference_mode()
def _each_prediction(
    model: Readable,
    score: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    tokens: Int[Tensor, "rows tokens"],
    last: int,
) -> Tensor:
    """Return `score(logits, tokens)` for the `last` predictions of each row; 0: for
    all.
    """
    found = []
    for block in tokens.split(max(1, TOKENS_PER_PASS // tokens.shape[1])):
        block = block.to(model.head.weight.device)
        hidden, targets = (
            model.hidden(block[:, :-1], last=last),
            block[:, 1:][:, -last:],
        )
        # Allocated first: results between freed logits would keep those from being
        # given back.
        values = torch.empty(targets.shape, dtype=dtype, device=targets.device)
        size = max(1, LOGITS_PER_CHUNK // (len(block) * model.size.vocabulary))
        parts = (whole.split(size, dim=1) for whole in (hidden, targets, values))
        for h, t, out in zip(*parts, strict=True):
            out.copy_(score(model.head(h), t))
        found.append(values.cpu())
    return torch.cat(found)


def token_losses(
    model: Readable, tokens: Int[Tensor, "rows tokens"], last: int = 0
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of the `last` tokens (0: all) given all before each in its row,
    in nats.
    """

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        # float32, whatever the autocast: bfloat16 logits have steps of 0.06 at 8 to 16.
        flat = cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction="none"
        )
        return flat.view(targets.shape)

    return _each_prediction(model, loss, torch.float32, tokens, last)


def sliding_losses(
    model: Readable, tokens: Int[Tensor, "rows tokens"], window: int, stride: int
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of each token given at most `window` tokens before it, in
    nats.
    """
    # The window moves on by `stride` and its last `stride` predictions count, so each
    # has at least window - stride + 1 tokens of context and none beyond, not even
    # through lower layers.
    return _sliding(partial(token_losses, model), tokens, window, stride)


def correct(
    model: Readable, batch: Batch, window: int | None = None, stride: int = 1
) -> Bool[Tensor, "rows scored"]:
    """Return True where a scored token is the most probable one; each row scores as
    many.

    With a window in those of `sliding_losses` that have a scored token, else in one
    pass.
    """
    read = partial(
        _each_prediction, model, lambda x, token: x.argmax(-1) == token, torch.bool
    )
    hits = _sliding(read, batch.tokens, window, stride, batch.asked)
    return hits[batch.scored[:, 1:]].view(len(hits), -1)


def _sliding(
    read: Callable[[Tensor, int], Tensor],
    tokens: Tensor,
    window: int | None,
    stride: int,
    last: int = 0,
) -> Tensor:
    """Return `read`'s value of every prediction; those before the `last` ones are
    zeros.
    """
    total = tokens.shape[1] - 1
    window, first = min(window or total, total), total - (last or total)
    starts = [
        min(s, total - window) for s in range(stride, total - window + stride, stride)
    ]
    found = torch.empty(0)
    for start, count in [(0, window), *((start, stride) for start in starts)]:
        end = start + window
        if (asked := min(count, end - first)) > 0:
            values = read(tokens[:, start : end + 1], asked)
            found = found if len(found) else values.new_zeros(len(tokens), total)
            found[:, end - asked : end] = values
    return found
