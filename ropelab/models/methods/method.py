"""Methods: ways to evaluate a model at a longer context than it was trained at.

One that depends on the length of the context (dynamic NTK, dynamic YaRN) is measured as a prompt of
that length is evaluated: all tokens under the plan of the full length, in a pass of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import ClassVar, Literal, Self

from ropelab.math.frequencies import Geometry
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import Scaling
from ropelab.math.scaling.plan import as_typed
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.rope import Rope
from ropelab.runs.errors import InputError

# The features of a head that form a pair; trained weights belong to one of the two layouts.
PAIRING: Pairing = "interleaved"

ActsOn = Literal["frequencies", "attention", "weights"]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method as typed; its fields are its parameters, checked when it is built (InputError)."""

    name: ClassVar[str]  # as typed
    source: ClassVar[str]  # paper or code
    # A released model lets frequencies and attention be changed, and its weights not.
    acts_on: ClassVar[ActsOn] = "attention"
    factor_means: ClassVar[str] = ""  # empty: it has none
    default_factors: ClassVar[tuple[float, ...]] = ()  # as `Scaling.default_factors`
    is_tunable: ClassVar[bool] = True  # a model can be fine-tuned under it

    @property
    def label(self) -> str:
        """The method as typed, without the factor, which has a column of its own in tables."""
        return as_typed(self)

    @property
    def factor(self) -> float:
        return 1.0

    def resolved(self, geometry: Geometry, test_len: int) -> Self:
        """Set the open parameters for a model and a length; InputError if it does not fit."""
        return self

    @abstractmethod
    def found(self, geometry: Geometry, loss_under: Callable[["Reading"], float]) -> "Reading":
        """Return the method with its searched parameters, given a model's loss under a method."""


@dataclass(frozen=True, kw_only=True)
class Reading(Method):
    """A method that needs no search."""

    @property
    def recalibration(self) -> int:
        """Steps at the trained length that belong to the method; 0: the model stays as trained."""
        return 0

    def found(self, geometry: Geometry, loss_under: Callable[["Reading"], float]) -> "Reading":
        return self

    @abstractmethod
    def encoding(self, geometry: Geometry, length: int) -> Encoding:
        """Return the encoding for a context of `length` tokens."""

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        """Equal for two lengths exactly when their encodings are."""
        return None

    def passes(
        self, geometry: Geometry, lengths: Sequence[int]
    ) -> Iterator[tuple[Encoding, list[int]]]:
        """Group rising lengths that share an encoding: one pass over the longest serves all."""
        for _, group in groupby(lengths, lambda length: self.signature(geometry, length)):
            ends = list(group)
            yield self.encoding(geometry, ends[-1]), ends


@dataclass(frozen=True, kw_only=True)
class Scaled(Reading):
    """Rotary frequencies changed by a scaling method, typed by the name of the scaling."""

    scaling: Scaling
    acts_on: ClassVar[ActsOn] = "frequencies"

    @property
    def label(self) -> str:
        if any(field.name == "factor" for field in fields(self.scaling)):
            return replace(self.scaling, factor=1.0).label  # type: ignore[call-arg]
        return self.scaling.label

    @property
    def factor(self) -> float:
        return float(getattr(self.scaling, "factor", 1.0))

    def resolved(self, geometry: Geometry, test_len: int) -> Self:
        self.scaling.plan(geometry, test_len)
        return self

    def encoding(self, geometry: Geometry, length: int) -> Rope:
        multiplier = self.scaling.softmax_factor or 1.0
        return Rope(self.scaling.plan(geometry, length), PAIRING, multiplier)

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        plan = self.scaling.plan(geometry, length)
        return (*plan.inv_freq.tolist(), plan.attention_factor)


def check_whole(method: str, parameter: str, value: int | None) -> None:
    """Raise InputError unless a parameter is open or at least 1."""
    if value is not None and value < 1:
        raise InputError(f"{method}: {parameter} must be a whole number of at least 1, not {value}")
