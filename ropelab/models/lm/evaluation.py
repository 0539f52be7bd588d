"""Evaluation of a model on rows of tokens: losses, and which tokens it predicts.

A row of n tokens has n - 1 predictions, each of a token from all tokens before it. They
come from one pass through the model, or, for the sliding-window baseline, from a pass
for each of several overlapping windows. Results are on the CPU. Matrix products are in
the format of the weights, or of the caller's autocast
(`ropelab.runs.machine.computing_in`).

Where a function takes `last`, only this many final predictions of each row are
computed; None stands for all predictions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.model import start_of_last
from ropelab.models.lm.source import Batch

# The most tokens that pass through the model together, in as many rows as they make.
# More tokens would need more memory and would not be faster on a CPU.
TOKENS_PER_PASS = 8192
# The most logits that are in memory at once (16 MiB in float32).
LOGITS_PER_CHUNK = 2**22


class EvaluableModel(Protocol):
    """A model that can be evaluated: a `LanguageModel` or a released model."""

    encoding: Encoding
    # A module with a `weight`, from hidden states to logits.
    head: Any
    # An object with a `vocabulary`, the number of different tokens.
    size: Any

    def hidden_states(self, tokens: Tensor, *, last: int | None = None) -> Tensor:
        """Return the input of `head` for the `last` tokens of each row."""


@torch.inference_mode()
def _score_predictions(
    model: EvaluableModel,
    score: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    tokens: Int[Tensor, "rows tokens"],
    last: int | None,
) -> Tensor:
    """Return a number for each of the `last` predictions, [rows, predictions].

    Args:
        model: makes logits of hidden states by its head.
        score: computes the numbers [rows, predictions] from logits [rows, predictions,
            vocabulary] and the predicted tokens of the text [rows, predictions].
        dtype: the number format of the result.
        tokens: the rows.
        last: see the head of this file.
    """
    results = []
    rows_per_pass = max(1, TOKENS_PER_PASS // tokens.shape[1])
    for block in tokens.split(rows_per_pass):
        block = block.to(model.head.weight.device)
        hidden = model.hidden_states(block[:, :-1], last=last)
        targets = block[:, 1:]
        targets = targets[:, start_of_last(targets.shape[1], last) :]
        # The result is allocated before the logits. Small results between freed logits
        # would keep the memory of the logits from being returned to the system.
        values = torch.empty(targets.shape, dtype=dtype, device=targets.device)

        # Logits take most of the memory, so that only the logits of some columns
        # (predictions of all rows of the block) are made at once.
        logits_per_column = len(block) * model.size.vocabulary
        columns = max(1, LOGITS_PER_CHUNK // logits_per_column)
        for start in range(0, targets.shape[1], columns):
            chunk = slice(start, start + columns)
            logits = model.head(hidden[:, chunk])
            values[:, chunk] = score(logits, targets[:, chunk])
        results.append(values.cpu())
    return torch.cat(results)


def compute_token_losses(
    model: EvaluableModel, tokens: Int[Tensor, "rows tokens"], last: int | None = None
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of each prediction in nats."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        # The loss is computed in float32 even if the products are in bfloat16, whose
        # logits have steps of 0.06 between 8 and 16.
        flat_logits = logits.flatten(0, 1).float()
        flat_losses = cross_entropy(flat_logits, targets.flatten(), reduction="none")
        return flat_losses.view(targets.shape)

    return _score_predictions(model, loss, torch.float32, tokens, last)


def compute_sliding_losses(
    model: EvaluableModel, tokens: Int[Tensor, "rows tokens"], window: int, stride: int
) -> Float[Tensor, "rows predictions"]:
    """Return the loss of each prediction in nats, given at most `window` tokens."""
    # Each window begins `stride` tokens after the window before, and its last `stride`
    # predictions count. Each of these predictions has at least window - stride + 1
    # tokens of context. Tokens before the window do not influence it, not even through
    # lower layers, since each window is passed by itself.
    return _slide(partial(compute_token_losses, model), tokens, window, stride)


def find_correct(
    model: EvaluableModel, batch: Batch, window: int | None = None, stride: int = 1
) -> Bool[Tensor, "rows scored"]:
    """Return True for each scored token that the model finds most probable of all
    tokens.

    All rows have the same number of scored tokens. If `window` is None, the tokens are
    predicted in one pass, else in the windows of `compute_sliding_losses`. Windows without a
    scored token are left out.
    """

    def is_most_probable(logits: Tensor, targets: Tensor) -> Tensor:
        return logits.argmax(-1) == targets

    score = partial(_score_predictions, model, is_most_probable, torch.bool)
    # [rows, predictions]. Predictions before all scored tokens are not computed, and
    # are False.
    is_correct = _slide(score, batch.tokens, window, stride, batch.last_scored)
    # The index keeps the scored tokens of all rows, row by row.
    scored = is_correct[batch.scored[:, 1:]]
    return scored.view(len(is_correct), -1)


def _slide(
    score: Callable[[Tensor, int], Tensor],
    tokens: Tensor,
    window: int | None,
    stride: int,
    last: int | None = None,
) -> Tensor:
    """Return the scores of all predictions [rows, predictions], window by window.

    Predictions before the `last` final ones are not computed, and their scores are 0.

    Args:
        score: takes rows of tokens and a number n, and returns the scores of their n
            final predictions.
        tokens: the rows.
        window: the length of a window; None, or a length beyond that of the rows: one
            window.
        stride: the number of tokens from a window to the next.
        last: see the head of this file.
    """
    predictions = tokens.shape[1] - 1
    if window is None or window > predictions:
        window = predictions
    first_wanted = start_of_last(predictions, last)

    # The start of each window, and the number of its final predictions that count. All
    # predictions of the first window count. The last window ends with the row.
    last_start = predictions - window
    counted_windows = [(0, window)]
    for start in range(stride, last_start + stride, stride):
        counted_windows.append((min(start, last_start), stride))

    scores: Tensor | None = None
    for start, count in counted_windows:
        end = start + window
        wanted_count = min(count, end - first_wanted)
        if wanted_count <= 0:
            continue
        values = score(tokens[:, start : end + 1], wanted_count)
        if scores is None:
            scores = values.new_zeros(len(tokens), predictions)
        scores[:, end - wanted_count : end] = values
    if scores is None:
        # Rows of one token have no predictions.
        return torch.empty(0)
    return scores
