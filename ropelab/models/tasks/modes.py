"""Evaluation modes: the encoding with which a model is evaluated at a context of some
length.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.keys import Rounding
from ropelab.math.scaling.plan import as_typed
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.lm import evaluation
from ropelab.models.lm.evaluation import Readable
from ropelab.models.lm.matcher import cached_predictions
from ropelab.models.lm.source import Batch
from ropelab.models.methods.method import Method, Reading, Scaled
from ropelab.runs.labels import AS_SHIPPED
from ropelab.runs.own import sources

# The longest context of a cache, in tokens, and the weights that are tried for it.
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
        """Make the model ready for a pass that serves all lengths yielded, until none
        is left.
        """
        # Lengths rise; those for which the encoding is not defined are left out.

    def losses(self, model: Readable, tokens: Tensor, last: int = 0) -> Tensor:
        """Return the loss of the `last` tokens (0: all), each given those before it in
        its row.
        """
        return evaluation.token_losses(model, tokens, last)

    def correct(self, model: Readable, batch: Batch) -> Tensor:
        """Return True where a scored token is the most probable one, [rows, scored]."""
        return evaluation.correct(model, batch)

    def seen(self, tokens: Tensor) -> Tensor:
        """Return the part of rows that the model is shown when their last tokens are
        predicted.
        """
        return tokens

    @property
    def evaluations(self) -> int:
        """The number of losses that `searched` will ask for."""
        return 0

    def searched(
        self, loss: Callable[[Readable, "Mode"], float], model: Readable
    ) -> tuple["Mode", dict[str, Any]]:
        """Choose open parameters to lower `loss` of that model; return the choice as a
        row too.
        """
        return self, {}


@dataclass(frozen=True)
class AsTrained(Mode):
    """With the encoding the model was trained with, as far as that is defined."""

    @property
    def key(self) -> dict[str, Any]:
        return {}

    def passes(self, model: Readable, lengths: Sequence[int]) -> Iterator[list[int]]:
        defined = [
            length
            for length in lengths
            if length <= defined_length(model.encoding, length)
        ]
        if defined:
            yield defined


@dataclass(frozen=True)
class Unmodified(Mode):
    """A released model, exactly as its configuration has it: frequencies, scaling,
    windows.
    """

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

    @property
    def key(self) -> dict[str, Any]:
        geometry = self.geometry
        return {
            "method": self.method.label,
            "factor": self.method.factor,
            "geometry": [geometry.rotary_dim, geometry.base, geometry.trained_len],
            **sources(self.method),
        }

    def passes(self, model: Readable, lengths: Sequence[int]) -> Iterator[list[int]]:
        assert isinstance(self.method, Reading), (
            "a method that is searched must be found first"
        )
        for encoding, served in self.method.passes(self.geometry, lengths):
            model.encoding = encoding
            yield served

    @property
    def evaluations(self) -> int:
        return int(getattr(self.method, "budget", 0))

    def searched(
        self, loss: Callable[[Readable, Mode], float], model: Readable
    ) -> tuple[Mode, dict[str, Any]]:
        tried: list[float] = []

        def loss_under(method: Method) -> float:
            tried.append(loss(model, replace(self, method=method)))
            return tried[-1]

        method = self.method.search(self.geometry, loss_under)
        if not tried:
            return self, {}
        chosen = as_typed(method.scaling if isinstance(method, Scaled) else method)
        return replace(self, method=method), _choice(chosen, tried)


@dataclass(frozen=True)
class Rounded(Mode):
    """As another mode, which must rotate, with rounded stages of the rotation or
    rounded keys.
    """

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

    def passes(self, model: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
        for served in self.mode.passes(model, lengths):
            set_before = model.encoding
            own = (
                set_before
                if isinstance(set_before, Rope)
                else model.own_rotation(served[-1])
            )
            model.encoding = RoundedRope(own, self.rounding, self.geometry.base)
            yield served


@dataclass(frozen=True)
class SlidingWindow(Mode):
    """At most `window` tokens at once, moved on by half of that."""

    # So between half and all of the window is read before each token, and nothing
    # before that.
    mode: Mode
    window: int

    @property
    def key(self) -> dict[str, Any]:
        return {**self.mode.key, "window": self.window}

    def passes(self, model: Readable, lengths: Sequence[int]) -> Iterator[list[int]]:
        for _ in self.mode.passes(model, [self.window]):
            yield list(lengths)

    def losses(self, model: Readable, tokens: Tensor, last: int = 0) -> Tensor:
        return evaluation.sliding_losses(model, tokens, self.window, self.window // 2)[
            :, -last:
        ]

    def correct(self, model: Readable, batch: Batch) -> Tensor:
        return evaluation.correct(model, batch, self.window, self.window // 2)

    def seen(self, tokens: Tensor) -> Tensor:
        return tokens[:, -self.window - 1 :]

    def passed(self, length: int) -> tuple[int, int]:
        """Return the number of passes over a text and the tokens in each."""
        return 1 + max(0, -(-(length - self.window) // (self.window // 2))), self.window


@dataclass(frozen=True)
class WithCache(SlidingWindow):
    """The sliding window, mixed with counts of the n-grams more than `beyond` tokens
    back.
    """

    beyond: int
    within: int | None = None  # only of so many tokens
    # where the longest context was seen before, and less for shorter ones
    weight: float = 0.0

    @property
    def key(self) -> dict[str, Any]:
        near = {} if self.within is None else {"within": self.within}
        return {**super().key, "cache": [self.beyond, ORDER, *WEIGHTS], **near}

    def losses(self, model: Readable, tokens: Tensor, last: int = 0) -> Tensor:
        losses = super().losses(model, tokens).double()
        rows = (
            cached_predictions(
                row, ORDER, self.beyond, model.size.vocabulary, self.within
            )
            for row in tokens.tolist()
        )
        cached, longest = torch.tensor(list(rows), dtype=torch.float64).unbind(-1)
        weight = self.weight * longest / ORDER
        mixed = -((1 - weight) * (-losses).exp() + weight * cached).log()
        return mixed[:, -last:]

    @property
    def evaluations(self) -> int:
        return len(WEIGHTS)

    def searched(
        self, loss: Callable[[Readable, Mode], float], model: Readable
    ) -> tuple[Mode, dict[str, Any]]:
        tried = [loss(model, replace(self, weight=weight)) for weight in WEIGHTS]
        weight = WEIGHTS[tried.index(min(tried))]
        return replace(self, weight=weight), _choice(f"weight={weight:g}", tried)


def _choice(chosen: str, losses: Sequence[float]) -> dict[str, Any]:
    """Return the row of a search: its choice, and the losses that it tried, in
    order.
    """
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
