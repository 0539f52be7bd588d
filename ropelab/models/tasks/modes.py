"""Evaluation modes: the encoding with which a model is evaluated at some length."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.keys import Rounding
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import as_typed
from ropelab.models.encoding.base import Encoding, list_parts
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.lm import evaluation
from ropelab.models.lm.evaluation import Readable
from ropelab.models.lm.matcher import cached_predictions
from ropelab.models.lm.source import Batch
from ropelab.models.methods.method import PAIRING, FixedMethod, Method, Scaled
from ropelab.runs.labels import AS_SHIPPED
from ropelab.runs.own import sources

# The longest n-gram context of a cache, in tokens, and the weights that are tried.
ORDER = 8
WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)


class Mode(ABC):
    """An evaluation mode; it sets the encoding of the model before each pass."""

    @property
    @abstractmethod
    def key(self) -> dict[str, Any]:
        """Everything that identifies it, json-able."""

    @abstractmethod
    def passes(self, model: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Prepare the model for one pass after another; yield the lengths each serves.

        Lengths rise; those for which the encoding is not defined are left out.
        """

    def prepare(self, model: Any, lengths: Sequence[int]) -> None:
        """Set the model's encoding to that of the first pass over these lengths.

        The encoding must be defined for one of them.
        """
        next(self.passes(model, lengths))

    def losses(self, model: Readable, tokens: Tensor, last: int = 0) -> Tensor:
        """Return the loss of the `last` tokens (0: all) of each row."""
        return evaluation.token_losses(model, tokens, last)

    def correct(self, model: Readable, batch: Batch) -> Tensor:
        """Return True where a scored token is the most probable one, [rows, scored]."""
        return evaluation.find_correct(model, batch)

    def visible(self, tokens: Tensor) -> Tensor:
        """Return the part of rows from which their last tokens are predicted."""
        return tokens

    @property
    def moves_keys(self) -> bool:
        """True if stored keys are rotated again, down to lower positions."""
        return False

    @property
    def evaluations(self) -> int:
        """The number of losses that `search` will ask for."""
        return 0

    def search(
        self, loss: Callable[[Readable, "Mode"], float], model: Readable
    ) -> tuple["Mode", dict[str, Any]]:
        """Choose open parameters to lower the `loss` of that model.

        Return the mode with them, and a row about the choice.
        """
        return self, {}


@dataclass(frozen=True)
class AsTrained(Mode):
    """With the encoding the model was trained with, as far as that is defined."""

    @property
    def key(self) -> dict[str, Any]:
        return {}

    def passes(self, model: Readable, lengths: Sequence[int]) -> Iterator[list[int]]:
        last = model.encoding.max_position
        defined = [length for length in lengths if last is None or length <= last + 1]
        if defined:
            yield defined


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
    """By a method made for contexts longer than the trained one."""

    method: Method
    geometry: Geometry
    # The layout that the weights were trained with.
    pairing: Pairing = PAIRING

    @property
    def key(self) -> dict[str, Any]:
        geometry = self.geometry
        key = {
            "method": self.method.label,
            "factor": self.method.factor,
            "geometry": [geometry.rotary_dim, geometry.base, geometry.trained_len],
            **sources(self.method),
        }
        if self.pairing != PAIRING:
            key["pairing"] = self.pairing
        return key

    def passes(self, model: Readable, lengths: Sequence[int]) -> Iterator[list[int]]:
        assert isinstance(self.method, FixedMethod), (
            "a method that is searched must be found first"
        )
        for encoding, served in self.method.passes(self.geometry, lengths):
            set_pairing(encoding, self.pairing)
            model.encoding = encoding
            yield served

    @property
    def evaluations(self) -> int:
        return int(getattr(self.method, "budget", 0))

    def search(
        self, loss: Callable[[Readable, Mode], float], model: Readable
    ) -> tuple[Mode, dict[str, Any]]:
        losses: list[float] = []

        def loss_under(method: Method) -> float:
            losses.append(loss(model, replace(self, method=method)))
            return losses[-1]

        method = self.method.search(self.geometry, loss_under)
        if not losses:
            return self, {}
        chosen = as_typed(method.scaling if isinstance(method, Scaled) else method)
        return replace(self, method=method), _describe_choice(chosen, losses)


def set_pairing(encoding: Encoding, pairing: Pairing) -> None:
    """Let every rotation of an encoding pair the features of a head in that layout."""
    for part in list_parts(encoding):
        if isinstance(part, Rope):
            part.pairing = pairing


@dataclass(frozen=True)
class Rounded(Mode):
    """Another mode, which must rotate, with rounded stages or rounded keys."""

    mode: Mode
    rounding: Rounding
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
        for served in self.mode.passes(model, lengths):
            rope = model.encoding
            if not isinstance(rope, Rope):
                rope = model.own_rotation(served[-1])
            model.encoding = RoundedRope(rope, self.rounding, self.geometry.base)
            yield served


@dataclass(frozen=True)
class SlidingWindow(Mode):
    """At most `window` tokens at once, moved on by half of that.

    Each token is predicted from between half and all of the window.
    """

    mode: Mode
    window: int

    @property
    def key(self) -> dict[str, Any]:
        return {**self.mode.key, "window": self.window}

    @property
    def moves_keys(self) -> bool:
        return self.mode.moves_keys

    def passes(self, model: Readable, lengths: Sequence[int]) -> Iterator[list[int]]:
        for _ in self.mode.passes(model, [self.window]):
            yield list(lengths)

    def losses(self, model: Readable, tokens: Tensor, last: int = 0) -> Tensor:
        stride = self.window // 2
        losses = evaluation.sliding_losses(model, tokens, self.window, stride)
        return losses[:, -last:]

    def correct(self, model: Readable, batch: Batch) -> Tensor:
        return evaluation.find_correct(model, batch, self.window, self.window // 2)

    def visible(self, tokens: Tensor) -> Tensor:
        return tokens[:, -self.window - 1 :]

    def count_passes(self, length: int) -> tuple[int, int]:
        """Return the number of passes over a text and the tokens in each."""
        stride = self.window // 2
        # Rounded up.
        further_passes = -(-(length - self.window) // stride)
        return 1 + max(0, further_passes), self.window


@dataclass(frozen=True)
class WithCache(SlidingWindow):
    """The sliding window, mixed with counts of n-grams of the text before.

    The n-grams are more than `beyond` tokens back, and at most `within` further.
    """

    beyond: int
    within: int | None = None
    # Of the counts where the longest context was seen before; shorter ones weigh less.
    weight: float = 0.0

    @property
    def key(self) -> dict[str, Any]:
        key = {**super().key, "cache": [self.beyond, ORDER, *WEIGHTS]}
        if self.within is not None:
            key["within"] = self.within
        return key

    def losses(self, model: Readable, tokens: Tensor, last: int = 0) -> Tensor:
        losses = super().losses(model, tokens).double()
        predictions = []
        for row in tokens.tolist():
            predictions.append(
                cached_predictions(
                    row, ORDER, self.beyond, model.size.vocabulary, self.within
                )
            )
        cached, longest = torch.tensor(predictions, dtype=torch.float64).unbind(-1)

        weight = self.weight * longest / ORDER
        mixed = -((1 - weight) * (-losses).exp() + weight * cached).log()
        return mixed[:, -last:]

    @property
    def evaluations(self) -> int:
        return len(WEIGHTS)

    def search(
        self, loss: Callable[[Readable, Mode], float], model: Readable
    ) -> tuple[Mode, dict[str, Any]]:
        losses = [loss(model, replace(self, weight=weight)) for weight in WEIGHTS]
        weight = WEIGHTS[losses.index(min(losses))]
        choice = _describe_choice(f"weight={weight:g}", losses)
        return replace(self, weight=weight), choice


def _describe_choice(chosen: str, losses: Sequence[float]) -> dict[str, Any]:
    """Return the row of a search: its choice, and the losses in the order of trying."""
    return {
        "chosen": chosen,
        "evaluations": len(losses),
        "first_nll_nats_per_token": losses[0],
        "chosen_nll_nats_per_token": min(losses),
    }


def defined_length(encoding: Encoding, longest: int) -> int:
    """Return the longest context the encoding is defined for, at most `longest`."""
    last = encoding.max_position
    return longest if last is None else min(longest, last + 1)
