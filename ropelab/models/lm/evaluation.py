"""The losses of tokens, and which tokens were the most probable.

A row is read in one pass, except for the sliding-window baseline, which reads it in
overlapping windows. Results are on the CPU. Matrix products are in the format of the
weights, or of the caller's autocast (`ropelab.runs.machine.computing_in`).

Where a function takes `last`, only the last so many predictions of each row are
computed; 0 stands for all of them.
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

# The most tokens of rows that are read together. More would need more memory and would
# not be faster on a CPU.
TOKENS_PER_PASS = 8192
# The most logits that are in memory at once (16 MiB in float32).
LOGITS_PER_CHUNK = 2**22


class Readable(Protocol):
    """A model that can be evaluated: `LanguageModel`, or a released one."""

    encoding: Encoding
    # A module with a `weight`, from hidden states to logits.
    head: Any
    # An object with a `vocabulary`, the number of different tokens.
    size: Any

    def hidden_states(self, tokens: Tensor, *, last: int = 0) -> Tensor:
        """Return the input of `head` for the `last` tokens of each row."""


@torch.inference_mode()
def _score_predictions(
    model: Readable,
    score: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    tokens: Int[Tensor, "rows tokens"],
    last: int,
) -> Tensor:
    """Return `score(logits, targets)` of the `last` predictions of each row."""
    results = []
    rows_per_pass = max(1, TOKENS_PER_PASS // tokens.shape[1])
    for block in tokens.split(rows_per_pass):
        block = block.to(model.head.weight.device)
        hidden = model.hidden_states(block[:, :-1], last=last)
        # With `last` = 0 the slice starts at -0, which is the start: all are kept.
        targets = block[:, 1:][:, -last:]
        # The result is allocated before the logits. Small results between freed logits
        # would keep the memory of these from being returned to the system.
        values = torch.empty(targets.shape, dtype=dtype, device=targets.device)

        logits_per_place = len(block) * model.size.vocabulary
        size = max(1, LOGITS_PER_CHUNK // logits_per_place)
        for start in range(0, targets.shape[1], size):
            chunk = slice(start, start + size)
            logits = model.head(hidden[:, chunk])
            values[:, chunk] = score(logits, targets[:, chunk])
        results.append(values.cpu())
    return torch.cat(results)


def token_losses(
    model: Readable, tokens: Int[Tensor, "rows tokens"], last: int = 0
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of the `last` tokens in nats, each predicted from all tokens
    before it in its row.
    """

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        # The loss is computed in float32 even if the products are in bfloat16, whose
        # logits have steps of 0.06 between 8 and 16.
        flat_logits = logits.flatten(0, 1).float()
        flat = cross_entropy(flat_logits, targets.flatten(), reduction="none")
        return flat.view(targets.shape)

    return _score_predictions(model, loss, torch.float32, tokens, last)


def sliding_losses(
    model: Readable, tokens: Int[Tensor, "rows tokens"], window: int, stride: int
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of each token in nats, given at most `window` tokens before it."""
    # The window moves on by `stride`, and its last `stride` predictions count. Each has
    # at least window - stride + 1 tokens of context. No earlier token reaches it, not
    # even through lower layers, since each window is a pass of its own.
    return _slide(partial(token_losses, model), tokens, window, stride)


def correct(
    model: Readable, batch: Batch, window: int | None = None, stride: int = 1
) -> Bool[Tensor, "rows scored"]:
    """Return True for each scored token that is the most probable one.

    All rows have the same number of scored tokens. If `window` is None, they are
    predicted in one pass, else in those windows of `sliding_losses` that have a scored
    token.
    """

    def is_most_probable(logits: Tensor, targets: Tensor) -> Tensor:
        return logits.argmax(-1) == targets

    score = partial(_score_predictions, model, is_most_probable, torch.bool)
    hits = _slide(score, batch.tokens, window, stride, batch.last_scored)
    return hits[batch.scored[:, 1:]].view(len(hits), -1)


def _slide(
    score: Callable[[Tensor, int], Tensor],
    tokens: Tensor,
    window: int | None,
    stride: int,
    last: int = 0,
) -> Tensor:
    """Return the score of every prediction in windows; predictions before the `last`
    ones are not computed, and their scores are 0.
    """
    total = tokens.shape[1] - 1
    if window is None or window > total:
        window = total
    first_wanted = total - last if last else 0

    # The start of each window, and the number of its last predictions that count. All
    # predictions of the first window count.
    counted_windows = [(0, window)]
    for start in range(stride, total - window + stride, stride):
        counted_windows.append((min(start, total - window), stride))

    scores: Tensor | None = None
    for start, count in counted_windows:
        end = start + window
        wanted = min(count, end - first_wanted)
        if wanted <= 0:
            continue
        values = score(tokens[:, start : end + 1], wanted)
        if scores is None:
            scores = values.new_zeros(len(tokens), total)
        scores[:, end - wanted : end] = values
    return torch.empty(0) if scores is None else scores
