"""The behaviour of a trained model: with a cache, with earlier tokens shuffled, and with
all positions moved.

Tokens are tensors of numbers, [texts, length].
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
from ropelab.models.tasks.modes import Mode, find_defined_length
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
    # The task that gives the texts.
    task: EvaluationTask
    # The trained length, in tokens.
    length: int

    @property
    def version(self) -> int:
        return 2

    @property
    def key(self) -> dict[str, Any]:
        return {"task": self.task.key, "length": self.length}

    @property
    def windows(self) -> list[tuple[int, int]]:
        """The texts that are read and their length, for the estimate of the time: each
        text once with a cache, once in order and once for each shuffle.
        """
        return [(TEXTS * (2 + SHUFFLES), self.length)]

    def measure(
        self, model: LanguageModel, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        assert isinstance(self.task, Texts | Retrieval), "sequences of one length"
        advance(self.steps)
        return {
            "behaviour": measure_behaviour(
                model, self.task.examples(TEXTS, self.length)
            )
        }


@torch.inference_mode()
def measure_behaviour(model: LanguageModel, tokens: Tensor) -> pd.DataFrame:
    """Return one row with the columns of `decode_with_cache`, `shuffle_earlier` and
    `move_positions`, for tokens [texts, trained length].
    """
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
    cache_same_choice: the share of tokens after which both find the same token likeliest.
    """
    # Some encodings are not defined at all positions.
    defined_length = find_defined_length(model.encoding, tokens.shape[1])
    tokens = tokens[:, :defined_length]
    # Logits are [texts, DECODED, vocabulary].
    full_logits = model(tokens)[:, -DECODED:]

    cache = Cache()
    first_tokens = tokens[:, :-DECODED]
    model(first_tokens, cache)
    logits = []
    for position in range(first_tokens.shape[1], tokens.shape[1]):
        token = tokens[:, position : position + 1]
        logits.append(model(token, cache))
    decoded_logits = torch.cat(logits, dim=1)

    cache_bytes = 0
    for keys, values in cache.layers.values():
        cache_bytes += keys.nbytes + values.nbytes
    is_same = decoded_logits.argmax(-1) == full_logits.argmax(-1)
    return {
        "cache_bytes_per_token": cache_bytes / tokens.numel(),
        "cache_logit_error": _compare_sizes(decoded_logits - full_logits, full_logits),
        "cache_same_choice": is_same.double().mean().item(),
    }


def shuffle_earlier(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Shuffle all tokens but the last, and compare the predictions after the last.

    order_output: the mean total variation distance of the predictions; 0 if the model
        does not notice the order.
    order_first_layer: the relative change of the first layer's attention.
    """
    # The probabilities of the token after the last, [texts, vocabulary].
    probabilities = model(tokens)[:, -1].softmax(-1)
    attention = _compute_first_attention(model, tokens)
    distances = []
    attention_changes = []
    for seed in range(SHUFFLES):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(tokens.shape[1] - 1, generator=generator)
        earlier_tokens = tokens[:, order.to(tokens.device)]
        last_token = tokens[:, -1:]
        shuffled = torch.cat([earlier_tokens, last_token], dim=1)

        shuffled_probabilities = model(shuffled)[:, -1].softmax(-1)
        differences = (shuffled_probabilities - probabilities).abs().sum(-1)
        # The total variation distance is half of the sum of differences.
        distances.append(differences.double().mean().item() / 2)
        attention_change = _compute_first_attention(model, shuffled) - attention
        attention_changes.append(_compare_sizes(attention_change, attention))
    return {
        "order_output": sum(distances) / SHUFFLES,
        "order_first_layer": sum(attention_changes) / SHUFFLES,
    }


def _compute_first_attention(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return what the first layer's attention adds to the last token, [texts, width]."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    embedded = model.encoding.embed(norm(model.embedding(tokens)), positions)
    encoding = model.encoding.for_layer(0)
    attention = _get_first_attention(model)
    # [texts, length, width]
    updates = attention(norm(embedded), positions, encoding, layer=0, cache=None)
    return updates[:, -1]


def move_positions(model: LanguageModel, tokens: Tensor) -> dict[str, float]:
    """Move all positions on by half the trained length, and compare the first layer's
    scores.

    moved_scores: the relative change of the scores; 0, up to rounding, if a score
        depends only on the distance of two tokens.
    """
    half = tokens.shape[1] // 2
    first_half = tokens[:, :half]
    scores = _compute_first_scores(model, first_half, start=0)
    moved_scores = _compute_first_scores(model, first_half, start=half)
    return {"moved_scores": _compare_sizes(moved_scores - scores, scores)}


def _compute_first_scores(model: LanguageModel, tokens: Tensor, start: int) -> Tensor:
    """Return the first layer's scores of texts that begin at position `start`.

    A query has a score for each key that it may see: [texts, heads, pairs of a query
    and a key].
    """
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
    embedded = model.encoding.embed(norm(model.embedding(tokens)), positions)
    encoding = model.encoding.for_layer(0)
    attention = _get_first_attention(model)
    queries, keys, _ = attention.encode(norm(embedded), positions, encoding)
    scores = encoding.scores(queries, keys, positions, positions)
    visible = scores[..., causal_mask(positions, positions)]
    # The window of an encoding hides keys by the score -inf. It hides the same keys
    # wherever a text begins, so that these scores may count as unchanged.
    return visible.masked_fill(visible.isneginf(), 0.0)


def _get_first_attention(model: LanguageModel) -> Attention:
    first_layer = model.layers[0]
    assert isinstance(first_layer, Layer)
    return first_layer.attention


def _compare_sizes(change: Tensor, reference: Tensor) -> float:
    """Return the root mean square of a change, divided by the root mean square of its
    reference.
    """
    change_square = change.double().square().mean()
    reference_square = reference.double().square().mean()
    return (change_square / reference_square).sqrt().item()
