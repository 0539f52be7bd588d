"""What every scaling method makes, and what every method is."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from jaxtyping import Float

from ropelab.errors import InputError
from ropelab.math.frequencies import Geometry

LARGEST_ATTENTION_FACTOR = 1e100
"""Its square multiplies every logit, and is a float64 too."""


@dataclass(frozen=True)
class RopePlan:
    """The whole effect of a scaling method: one frequency per pair and one factor.

    ``inv_freq``: radians per token, float64, 0 for a pair that no longer turns.
    ``attention_factor``: what cos and sin are multiplied with, for queries and keys alike, so every
    logit is multiplied by its square (``logit_multiplier``).
    ``stretch``: what a fully interpolated pair was divided by; 1 where there is no such thing.
    """

    inv_freq: Float[np.ndarray, " pairs"]
    attention_factor: float = 1.0
    stretch: float = 1.0

    @property
    def logit_multiplier(self) -> float:
        """What the attention factor does to every logit: its square."""
        return self.attention_factor**2


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A way to run a model beyond its trained length by changing frequencies.

    A subclass holds only its own parameters, is checked when built (InputError), and turns a
    geometry and a length into a RopePlan.

    Attributes:
        name: as users type it.
        source: paper or code that the method comes from.
        factor_means: the meaning of its ``factor``, empty if it has none.
        default_factors: multiples of test length over trained length, each of which is a factor
            where none is given; empty: its own default, as for methods that follow the length.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    factor_means: ClassVar[str] = ""
    default_factors: ClassVar[tuple[float, ...]] = ()

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        """The frequencies to use while ``length`` tokens are in the context.

        Static methods ignore ``length``; dynamic ones are the identity up to the trained length.
        """
        raise NotImplementedError

    def ramp_range(self, geometry: Geometry) -> tuple[float, float] | None:
        """First and last pair index of the blend, None for a method that does not blend by parts.

        Fractional where the ramp is not cut at whole pairs.
        """
        return None

    @property
    def softmax_factor(self) -> float | None:
        """A factor that the method's model code applies to whole scores, beside the plan."""
        return None

    @property
    def label(self) -> str:
        """The method as it would be typed, knobs at their defaults left out."""
        return as_typed(self)


@dataclass(frozen=True, kw_only=True)
class Stretching(Scaling):
    """A method made to reach ``factor`` times the trained length; factor 1 is the identity.

    Only an attention factor that was given by hand holds there too.
    """

    factor: float = 1.0

    factor_means: ClassVar[str] = "how many times the trained length is to be read"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)

    def __post_init__(self) -> None:
        check_factor(self.name, self.factor)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        """See Scaling.plan; exactly the unscaled frequencies when there is nothing to stretch."""
        stretch = self.stretch(geometry, length)
        if stretch == 1:
            return RopePlan(geometry.inv_freq, self.given_attention_factor or 1.0)
        return self.stretched(geometry, stretch)

    @property
    def given_attention_factor(self) -> float | None:
        """The attention factor that was asked for, which holds at every stretch; None: computed."""
        return None

    def stretch(self, geometry: Geometry, length: int) -> float:
        """How far to stretch now; dynamic methods make it follow ``length``."""
        return self.factor

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        """The plan for a stretch above 1."""
        raise NotImplementedError


def check_factor(method: str, factor: float) -> None:
    """Raise InputError unless ``factor`` is a finite number of at least 1."""
    if not (math.isfinite(factor) and factor >= 1):
        raise InputError(f"{method}: factor must be a number of at least 1, not {factor:g}")


def check_attention_factor(method: str, value: float | None) -> None:
    """Raise InputError unless ``value`` is None (computed) or a positive number to be squared."""
    if value is not None and not 0 < value <= LARGEST_ATTENTION_FACTOR:
        raise InputError(
            f"{method}: attention_factor must be a positive number up to "
            f"{LARGEST_ATTENTION_FACTOR:g}, not {value:g}"
        )


def blend(
    inv_freq: Float[np.ndarray, " pairs"], kept: Float[np.ndarray, " pairs"], stretch: float
) -> Float[np.ndarray, " pairs"]:
    """kept * theta + (1 - kept) * theta / stretch, the form shared by all by-parts methods."""
    return kept * inv_freq + (1 - kept) * inv_freq / stretch


def roles(plan: RopePlan, geometry: Geometry) -> list[str]:
    """What happened to each pair, read off the plan, so that it means the same for every method.

    ``kept``: unchanged. ``interpolated``: divided by the full stretch. ``ramp``: between the two.
    ``dropped``: no longer turns. ``moved``: changed to something outside that range, as when
    wavelengths are rounded or factors searched.
    """
    ratio = (plan.inv_freq / geometry.inv_freq).tolist()
    return [_role(value, 1 / plan.stretch) for value in ratio]


def kept_weights(plan: RopePlan, geometry: Geometry) -> Float[np.ndarray, " pairs"]:
    """w with theta' = w theta + (1 - w) theta/stretch; nan where the plan stretches nothing."""
    if plan.stretch == 1:
        return np.full_like(plan.inv_freq, math.nan)
    ratio = plan.inv_freq / geometry.inv_freq
    weight = (ratio - 1 / plan.stretch) / (1 - 1 / plan.stretch)
    snapped = np.round(weight)
    return np.where(np.abs(weight - snapped) < _ROUNDING, snapped, weight)


_ROUNDING = 1e-11
"""Weights are computed from quotients of float64 numbers; nobody means a weight this small."""


def _role(ratio: float, interpolated: float) -> str:
    if ratio == 0:
        return "dropped"
    if abs(ratio - 1) < _ROUNDING:
        return "kept"
    if abs(ratio / interpolated - 1) < _ROUNDING:
        return "interpolated"
    return "ramp" if interpolated < ratio < 1 else "moved"


class Named(Protocol):
    """A dataclass whose fields are the knobs of a method with that name."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]


def as_typed(method: Named) -> str:
    """A method as it would be typed, knobs at their defaults left out."""
    knobs = [
        f"{knob.name}={parameter_text(getattr(method, knob.name))}"
        for knob in fields(method)
        if getattr(method, knob.name) != knob.default
    ]
    return f"{method.name}({', '.join(knobs)})" if knobs else method.name


def parameter_text(value: object) -> str:
    """The value of a knob as it would be typed.

    >>> parameter_text(500000.0), parameter_text((1.0, 2.5)), parameter_text(True)
    ('500000', '[1, 2.5]', 'true')
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(parameter_text, value))}]"
    return getattr(value, "label", str(value).lower())
