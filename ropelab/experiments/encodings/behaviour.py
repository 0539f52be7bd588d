"""A trained model with a cache, with earlier tokens shuffled, and with positions
moved.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from ropelab.models.lm.model import (
    Attention,
    Cache,
    LanguageModel,
    Layer,
    causal_mask,
    norm,
)
from ropelab.models.tasks.modes import Mode, defined_length
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.task import EvaluationTask, Texts
from ropelab.runs.cell import Advance

# The number of texts on which caches and shuffled orders are tried.
TEXTS = 4
# The number of different orders of the earlier tokens that are tried per text.
SHUFFLES = 8
# The number of tokens that are decoded one by one.
DECODED = 16


@dataclass(frozen=True, kw_only=True)
class Behaviour(EvaluationTask):
    """Observe a model on the first texts or sequences of a task, at the trained
    length.
    """

    name: str = "behaviour"
    task: EvaluationTask
    length: int

    @property
    def version(self) -> int:
        return 2

    @property
    def key(self) -> dict[str, Any]:
        return {"task": self.task.key, "length": self.length}

    @property
    def windows(self) -> list[tuple[int, int]]:
        return [(TEXTS * (2 + SHUFFLES), self.length)]

    def measure(
        self, model: LanguageModel, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        assert isinstance(self.task, Texts | Retrieval), "sequences of one length"
        advance(self.steps)
        return {"behaviour": behaviour(model, self.task.examples(TEXTS, self.length))}


@torch.inference_mode()
def behaviour(model: LanguageModel, tokens: Tensor) -> pd.DataFrame:
    """Return one row with the observations below, on tokens [texts, trained length]."""
    tokens = tokens.to(model.head.weight.device)
    row = {
        **decode_with_cache(model, tokens),
        **shuffle_earlier(model, tokens),
        **move_positions(model, tokens),
    }
    return pd.DataFrame([row])


def decode_with_cache(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Decode the last tokens one by one with a cache, and compare with one full pass.

    cache_bytes_per_token: the size of the cache.
    cache_logit_error: the relative change of the logits.
    cache_same_choice: the share of tokens for which the likeliest token is the same.
    """
    limit = defined_length(model.encoding, tokens.shape[1])
    tokens = tokens[:, :limit]
    full = model(tokens)[:, -DECODED:]

    cache = Cache()
    model(tokens[:, :-DECODED], cache)
    steps = [model(token, cache) for token in tokens[:, -DECODED:].split(1, dim=1)]
    decoded = torch.cat(steps, dim=1)

    cache_bytes = sum(k.nbytes + v.nbytes for k, v in cache.layers.values())
    is_same = decoded.argmax(-1) == full.argmax(-1)
    return {
        "cache_bytes_per_token": cache_bytes / tokens.numel(),
        "cache_logit_error": _relative(decoded - full, full),
        "cache_same_choice": is_same.double().mean().item(),
    }


def shuffle_earlier(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Shuffle all tokens but the last, and compare the predictions after the last.

    order_output: the mean total variation distance of the predictions; 0 if the model
        does not notice the order.
    order_first_layer: the relative change of the first layer's attention.
    """
    before = model(tokens)[:, -1].softmax(-1)
    attention_before = _first_attention(model, tokens)
    distances = []
    changes = []
    for seed in range(SHUFFLES):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(tokens.shape[1] - 1, generator=generator)
        shuffled = tokens[:, order.to(tokens.device)]
        other = torch.cat([shuffled, tokens[:, -1:]], dim=1)

        after = model(other)[:, -1].softmax(-1)
        difference = (after - before).abs().sum(-1).double().mean().item()
        distances.append(difference / 2)
        attention_change = _first_attention(model, other) - attention_before
        changes.append(_relative(attention_change, attention_before))
    return {
        "order_output": sum(distances) / SHUFFLES,
        "order_first_layer": sum(changes) / SHUFFLES,
    }


def _first_attention(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return the update of the last token by the first layer's attention [texts,
    width].
    """
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    x = model.encoding.embed(norm(model.embedding(tokens)), positions)
    attention = _attention(model)
    updates = attention(norm(x), positions, model.encoding.for_layer(0), 0, None)
    return updates[:, -1]


def move_positions(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Move all positions on by half the window and compare the first layer's scores.

    moved_scores: the relative change of the scores; 0, up to rounding, if a score
        depends on the distance of two tokens alone.
    """
    half = tokens.shape[1] // 2
    at_start = _first_scores(model, tokens[:, :half], 0)
    moved = _first_scores(model, tokens[:, :half], half)
    return {"moved_scores": _relative(moved - at_start, at_start)}


def _first_scores(model: LanguageModel, tokens: Tensor, start: int) -> Tensor:
    """Return the first layer's scores of a text that begins at position `start`, for
    all keys that a query may see.
    """
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
    x = norm(model.encoding.embed(norm(model.embedding(tokens)), positions))
    encoding = model.encoding.for_layer(0)
    q, k, _ = _attention(model).encode(x, positions, encoding)
    scores = encoding.scores(q, k, positions, positions)
    visible = scores[..., causal_mask(positions, positions)]
    # The window of an encoding hides keys by the score -inf, wherever the text begins.
    return visible.masked_fill(visible.isneginf(), 0.0)


def _attention(model: LanguageModel) -> Attention:
    first = model.layers[0]
    assert isinstance(first, Layer)
    return first.attention


def _relative(change: Tensor, reference: Tensor) -> float:
    """Return the root mean square of a change as a share of that of its reference."""
    change_square = change.double().square().mean()
    reference_square = reference.double().square().mean()
    return (change_square / reference_square).sqrt().item()
