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

# Texts on which caches and shuffled orders are tried.
TEXTS = 4
# Different orders of the earlier tokens that are tried per text.
SHUFFLES = 8
# Tokens that are decoded one by one.
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
    return pd.DataFrame(
        [cached(model, tokens) | shuffled(model, tokens) | moved(model, tokens)]
    )


def cached(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Decode the last tokens one by one from a cache and compare with one full pass."""
    limit = defined_length(model.encoding, tokens.shape[1])
    tokens = tokens[:, :limit]
    cache, full = Cache(), model(tokens)[:, -DECODED:]
    model(tokens[:, :-DECODED], cache)
    steps = [model(token, cache) for token in tokens[:, -DECODED:].split(1, dim=1)]
    decoded = torch.cat(steps, dim=1)
    kept = sum(k.nbytes + v.nbytes for k, v in cache.layers.values())
    return {
        "cache_bytes_per_token": kept / tokens.numel(),
        "cache_logit_error": _relative(decoded - full, full),
        "cache_same_choice": (decoded.argmax(-1) == full.argmax(-1))
        .double()
        .mean()
        .item(),
    }


def shuffled(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Shuffle all tokens but the last, and compare the predictions after the last."""
    # `order_output`: mean total variation distance of the two (0: order is not
    # noticed); `order_first_layer`: relative change of the first layer's attention.
    before, attended = model(tokens)[:, -1].softmax(-1), _first_attention(model, tokens)
    distances, changes = [], []
    for seed in range(SHUFFLES):
        order = torch.randperm(
            tokens.shape[1] - 1, generator=torch.Generator().manual_seed(seed)
        )
        other = torch.cat([tokens[:, order.to(tokens.device)], tokens[:, -1:]], dim=1)
        after = model(other)[:, -1].softmax(-1)
        distances.append((after - before).abs().sum(-1).double().mean().item() / 2)
        changes.append(_relative(_first_attention(model, other) - attended, attended))
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
    return _attention(model)(norm(x), positions, model.encoding.for_layer(0), 0, None)[
        :, -1
    ]


def moved(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Move all positions on by half the window and compare the first layer's scores."""
    # 0 (up to rounding): a score depends on the distance of two tokens alone.
    half = tokens.shape[1] // 2
    here, there = (_first_scores(model, tokens[:, :half], start) for start in (0, half))
    return {"moved_scores": _relative(there - here, here)}


def _first_scores(model: LanguageModel, tokens: Tensor, start: int) -> Tensor:
    """Return the first layer's scores of earlier keys, the text starting at position
    `start`.
    """
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
    x = norm(model.encoding.embed(norm(model.embedding(tokens)), positions))
    encoding = model.encoding.for_layer(0)
    q, k, _ = _attention(model).encode(x, positions, encoding)
    scores = encoding.scores(q, k, positions, positions)[
        ..., causal_mask(positions, positions)
    ]
    # hidden by a window, here and there
    return scores.masked_fill(scores.isneginf(), 0.0)


def _attention(model: LanguageModel) -> Attention:
    first = model.layers[0]
    assert isinstance(first, Layer)
    return first.attention


def _relative(change: Tensor, reference: Tensor) -> float:
    """Return the root mean square of a change as a share of that of its reference."""
    return (
        (change.double().square().mean() / reference.double().square().mean())
        .sqrt()
        .item()
    )
