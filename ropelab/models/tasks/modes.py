"""Evaluation modes: how a model is evaluated on texts of some length.

A mode sets the encoding of the model before each pass (unmodified, under a method,
rounded), and may cut texts into windows. Tasks ask the mode for losses and right
predictions, and do not know which encoding the model has.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.keys import Rounding
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import write_as_typed
from ropelab.models.encoding.base import Encoding, list_nested_encodings
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.lm import evaluation
from ropelab.models.lm.evaluation import EvaluableModel
from ropelab.models.lm.matcher import predict_by_cache
from ropelab.models.lm.model import start_of_last
from ropelab.models.lm.source import Batch
from ropelab.models.methods.method import PAIRING, FixedMethod, Method, Scaled
from ropelab.runs.labels import AS_SHIPPED
from ropelab.runs.own import make_sources_key

# The longest context of an n-gram cache, in tokens.
ORDER = 8
# The values of `WithCache.weight` that a search tries.
WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)


class Mode(ABC):
    """An evaluation mode; it sets the encoding of the model before each pass."""

    @property
    @abstractmethod
    def key(self) -> dict[str, Any]:
        """Everything that identifies the mode, json-able."""

    @abstractmethod
    def passes(self, model: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Prepare the model for several passes, one after another.

        Several lengths may have the same encoding. One pass, over the longest of these
        lengths, then serves all of them. For each pass the model's encoding is set, and
        the lengths that it serves are yielded. Lengths for which the encoding is not
        defined are left out.

        Args:
            model: the model whose encoding is set.
            lengths: the lengths of context, in rising order.
        """

    def prepare(self, model: Any, lengths: Sequence[int]) -> None:
        """Set the model's encoding to that of the first pass over these lengths.

        The encoding must be defined for one of these lengths.
        """
        next(self.passes(model, lengths))

    def losses(
        self, model: EvaluableModel, tokens: Tensor, last: int | None = None
    ) -> Tensor:
        """Return the loss of the `last` predictions (None: of all) of each row."""
        return evaluation.compute_token_losses(model, tokens, last)

    def find_correct(self, model: EvaluableModel, batch: Batch) -> Tensor:
        """Return True where a scored token is the most probable one, [rows, scored]."""
        return evaluation.find_correct(model, batch)

    def cut_to_visible(self, tokens: Tensor) -> Tensor:
        """Return the part of each row from which its last token is predicted."""
        return tokens

    @property
    def moves_keys(self) -> bool:
        """True if stored keys are rotated again, down to lower positions."""
        return False

    @property
    def evaluations(self) -> int:
        """The number of losses that `search` will ask for; 0: nothing is searched."""
        return 0

    def search(
        self, loss: Callable[[EvaluableModel, "Mode"], float], model: EvaluableModel
    ) -> tuple["Mode", dict[str, Any]]:
        """Choose the parameters that are left open, so that the `loss` is low.

        Return the mode with these parameters, and a row of a table about the choice,
        which is empty if nothing was searched.
        """
        return self, {}


@dataclass(frozen=True)
class AsTrained(Mode):
    """The encoding with which the model was trained, as far as that is defined."""

    @property
    def key(self) -> dict[str, Any]:
        return {}

    def passes(
        self, model: EvaluableModel, lengths: Sequence[int]
    ) -> Iterator[list[int]]:
        longest = find_defined_length(model.encoding, max(lengths, default=0))
        defined_lengths = [length for length in lengths if length <= longest]
        if defined_lengths:
            yield defined_lengths


@dataclass(frozen=True)
class Unmodified(Mode):
    """A released model, exactly as its configuration has it."""

    @property
    def key(self) -> dict[str, Any]:
        return {"method": AS_SHIPPED}

    def passes(self, model: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
        yield from model.unmodified_passes(lengths)


@dataclass(frozen=True)
class WithMethod(Mode):
    """The encoding that a method makes for contexts beyond the trained length."""

    method: Method
    # The trained geometry of the model, from which the method computes.
    geometry: Geometry
    # The pairs of features that the weights were trained with.
    pairing: Pairing = PAIRING

    @property
    def key(self) -> dict[str, Any]:
        geometry = self.geometry
        key = {
            "method": self.method.label,
            "factor": self.method.factor,
            "geometry": [geometry.rotary_dim, geometry.base, geometry.trained_len],
            **make_sources_key(self.method),
        }
        if self.pairing != PAIRING:
            key["pairing"] = self.pairing
        return key

    def passes(
        self, model: EvaluableModel, lengths: Sequence[int]
    ) -> Iterator[list[int]]:
        assert isinstance(self.method, FixedMethod), "call `search` first"
        for encoding, served_lengths in self.method.passes(self.geometry, lengths):
            set_pairing(encoding, self.pairing)
            model.encoding = encoding
            yield served_lengths

    @property
    def evaluations(self) -> int:
        return int(getattr(self.method, "budget", 0))

    def search(
        self, loss: Callable[[EvaluableModel, Mode], float], model: EvaluableModel
    ) -> tuple[Mode, dict[str, Any]]:
        losses: list[float] = []

        def loss_under(method: Method) -> float:
            losses.append(loss(model, replace(self, method=method)))
            return losses[-1]

        method = self.method.search(self.geometry, loss_under)
        if not losses:
            # The method has no parameters to search.
            return self, {}
        if isinstance(method, Scaled):
            chosen = write_as_typed(method.scaling)
        else:
            chosen = write_as_typed(method)
        return replace(self, method=method), _describe_choice(chosen, losses)


def set_pairing(encoding: Encoding, pairing: Pairing) -> None:
    """Set the pairs of features that every rotation in an encoding rotates."""
    for nested in list_nested_encodings(encoding):
        if isinstance(nested, Rope):
            nested.pairing = pairing


@dataclass(frozen=True)
class Rounded(Mode):
    """Another mode, whose encoding must be RoPE, with rounded stages or rounded keys."""

    mode: Mode
    rounding: Rounding
    # The trained geometry of the model.
    geometry: Geometry

    @property
    def key(self) -> dict[str, Any]:
        return {
            **self.mode.key,
            "base": self.geometry.base,
            "rounding": self.rounding.key,
        }

    @property
    def moves_keys(self) -> bool:
        keys = self.rounding.keys
        return keys is not None and keys.moves > 0

    def passes(self, model: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
        for served_lengths in self.mode.passes(model, lengths):
            rope = model.encoding
            if not isinstance(rope, Rope):
                # An unmodified released model rotates by its own code.
                rope = model.own_rotation(served_lengths[-1])
            model.encoding = RoundedRope(rope, self.rounding, self.geometry.base)
            yield served_lengths


@dataclass(frozen=True)
class SlidingWindow(Mode):
    """Windows of at most `window` tokens, each moved on by half a window.

    A token is thus predicted from at least half a window of tokens before it. `mode` is
    the mode in each window.
    """

    mode: Mode
    window: int

    @property
    def key(self) -> dict[str, Any]:
        return {**self.mode.key, "window": self.window}

    @property
    def moves_keys(self) -> bool:
        return self.mode.moves_keys

    def passes(
        self, model: EvaluableModel, lengths: Sequence[int]
    ) -> Iterator[list[int]]:
        # The encoding is that for the length of a window, whatever the text's length.
        for _ in self.mode.passes(model, [self.window]):
            yield list(lengths)

    @property
    def stride(self) -> int:
        """The number of tokens by which a window is moved on."""
        return self.window // 2

    def losses(
        self, model: EvaluableModel, tokens: Tensor, last: int | None = None
    ) -> Tensor:
        losses = evaluation.compute_sliding_losses(
            model, tokens, self.window, self.stride
        )
        return losses[:, start_of_last(losses.shape[1], last) :]

    def find_correct(self, model: EvaluableModel, batch: Batch) -> Tensor:
        return evaluation.find_correct(model, batch, self.window, self.stride)

    def cut_to_visible(self, tokens: Tensor) -> Tensor:
        # The last token is predicted from the whole window before it.
        return tokens[:, -self.window - 1 :]

    def count_passes(self, length: int) -> tuple[int, int]:
        """Return the number of passes over a text, and of tokens in each pass."""
        further_passes = math.ceil((length - self.window) / self.stride)
        return 1 + max(0, further_passes), self.window


@dataclass(frozen=True)
class WithCache(SlidingWindow):
    """The sliding window, with its probabilities mixed with those of an n-gram cache.

    The cache counts n-grams of the text before a token (`predict_by_cache`): it
    leaves out the last `beyond` tokens, and counts the `within` tokens before them
    (None: all tokens before them).
    """

    beyond: int
    within: int | None = None
    # The share of the cache in the mixture, where a context of ORDER tokens was seen
    # before. Where only a shorter context was seen, the share is smaller in proportion.
    weight: float = 0.0

    @property
    def key(self) -> dict[str, Any]:
        key = {**super().key, "cache": [self.beyond, ORDER, *WEIGHTS]}
        if self.within is not None:
            key["within"] = self.within
        return key

    def losses(
        self, model: EvaluableModel, tokens: Tensor, last: int | None = None
    ) -> Tensor:
        losses = super().losses(model, tokens).double()
        predictions = []
        for row in tokens.tolist():
            predictions.append(
                predict_by_cache(
                    row, ORDER, self.beyond, model.size.vocabulary, self.within
                )
            )
        # The cache's probabilities, and the tokens in the longest known context before
        # each token, both [rows, predictions].
        columns = torch.tensor(predictions, dtype=torch.float64)
        cache_probabilities, context_lengths = columns.unbind(-1)

        weight = self.weight * context_lengths / ORDER
        from_model = (1 - weight) * (-losses).exp()
        from_cache = weight * cache_probabilities
        mixed_losses = -(from_model + from_cache).log()
        return mixed_losses[:, start_of_last(mixed_losses.shape[1], last) :]

    @property
    def evaluations(self) -> int:
        return len(WEIGHTS)

    def search(
        self, loss: Callable[[EvaluableModel, Mode], float], model: EvaluableModel
    ) -> tuple[Mode, dict[str, Any]]:
        losses = [loss(model, replace(self, weight=weight)) for weight in WEIGHTS]
        best = losses.index(min(losses))
        weight = WEIGHTS[best]
        choice = _describe_choice(f"weight={weight:g}", losses)
        return replace(self, weight=weight), choice


def _describe_choice(chosen: str, losses: Sequence[float]) -> dict[str, Any]:
    """Return the row of a search, given its choice and all losses in order."""
    return {
        "chosen": chosen,
        "evaluations": len(losses),
        "first_nll_nats_per_token": losses[0],
        "chosen_nll_nats_per_token": min(losses),
    }


def find_defined_length(encoding: Encoding, longest: int) -> int:
    """Return the longest context for which an encoding is defined, at most `longest`."""
    last_position = encoding.max_position
    if last_position is None:
        return longest
    return min(longest, last_position + 1)
