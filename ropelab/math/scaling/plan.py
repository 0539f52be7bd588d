"""The base class of scaling methods (Scaling), and their result (RopePlan).

A scaling method changes the frequencies of RoPE, so that a model reads texts beyond its
trained length. It is a class whose fields are the parameters that users type
(`TypedMethod`), and its method `plan` makes a RopePlan.

Three factors act on attention logits. ``attention_factor`` multiplies cos and sin of
queries and of keys, so that it is squared in a logit of rotated features.
``softmax_factor`` is not in the plan. It multiplies whole scores, so that it also acts
on unrotated features. ``logit_multiplier`` is attention_factor^2.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from ropelab.math.frequencies import Geometry
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError
from ropelab.runs.own import is_own, keep_surroundings, write_reference
from ropelab.runs.spelling import split_list

# The square of an attention factor multiplies every logit, and has to be finite in
# float64.
LARGEST_ATTENTION_FACTOR = 1e100
LARGEST_FLOAT = sys.float_info.max
# The largest difference between equal weights (`compute_kept_weights`), or equal ratios
# of frequencies, which are quotients of float64 numbers.
ROUNDING_ERROR = 1e-11
T = TypeVar("T", bound="TypedMethod")
# The classes of methods that change frequencies, by the names in their decorators
# `@method`.
SCALINGS: "dict[str, type[Scaling]]" = {}


@dataclass(frozen=True)
class RopePlan:
    """The whole effect of a scaling method: one frequency per pair and one factor."""

    # Radians per token. A pair of frequency 0 does not rotate.
    inv_freq: Float[np.ndarray, " pairs"]
    # The factor on cos and sin.
    attention_factor: float = 1.0
    # The number by which the frequency of the slowest pairs is divided; 1 if no pair is.
    stretch: float = 1.0

    @property
    def logit_multiplier(self) -> float:
        return self.attention_factor**2


@dataclass(frozen=True)
class Range:
    """The values that a parameter may have, in words and as a test."""

    words: str
    holds: Callable[[float], bool]


FACTOR = Range("a number of at least 1", lambda x: math.isfinite(x) and x >= 1)
ATTENTION_FACTOR = Range(
    f"a positive number up to {LARGEST_ATTENTION_FACTOR:g}",
    lambda x: 0 < x <= LARGEST_ATTENTION_FACTOR,
)
Ranges = Mapping[str, Range]


@dataclass(frozen=True, kw_only=True)
class TypedMethod:
    """A method as users type it: its fields are its parameters.

    The parameters are checked when a method is built (InputError). If users give no
    factor, the factors are ``default_factors``, each times the test length over the
    trained length. Methods that follow the length of the text have no default factors. A
    class from outside this package is named by its module.
    """

    # The name that users type.
    name: ClassVar[str]
    # The paper or the code that has the method.
    source: ClassVar[str]
    # The meaning of the factor in words; empty if the method has no factor.
    factor_means: ClassVar[str] = ""
    default_factors: ClassVar[tuple[float, ...]] = ()
    # The ranges of the parameters that this class defines, without the parameters of
    # its base classes.
    ranges: ClassVar[Ranges] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # `@method` gives a class of this package its name and source. A class that the
        # user wrote (an own class) is named by its module, and may state a source.
        if is_own(cls):
            cls.name = write_reference(cls)
            cls.source = cls.__dict__.get("source", cls.name)

    def __post_init__(self) -> None:
        for base_class in type(self).__mro__:
            # Each class has the ranges of its own parameters. If a class has no ranges,
            # `base_class.ranges` would find those of its own base class, which would
            # then be checked twice.
            ranges: Ranges = base_class.__dict__.get("ranges", {})
            for name, allowed in ranges.items():
                self._check_range(name, allowed)

    def _check_range(self, name: str, allowed: Range) -> None:
        value = getattr(self, name, None)
        if value is None or allowed.holds(value):
            return
        shown = f"{value:g}" if isinstance(value, float) else value
        raise InputError(f"{self.name}: {name} must be {allowed.words}, not {shown}")

    @property
    def label(self) -> str:
        """The method as typed, without parameters that have their defaults."""
        return write_as_typed(self)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def method(name: str, source: str) -> Callable[[type[T]], type[T]]:
    """Make a class of parameters a method: a frozen dataclass with name and source."""

    def register(cls: type[T]) -> type[T]:
        cls.name = name
        cls.source = source
        complete = dataclass(frozen=True, kw_only=True)(cls)
        # A user's class is found by its module and name. It is not registered, so that
        # it cannot replace a class of ropelab.
        if issubclass(complete, Scaling) and not is_own(complete):
            SCALINGS[name] = complete
        return complete

    return register


@dataclass(frozen=True, kw_only=True)
class Scaling(TypedMethod):
    """A way to run a model beyond its trained length by changing frequencies."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "plan" in cls.__dict__:
            cls.plan = _check_result_of(cls.plan)  # type: ignore[method-assign]

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        """Return the frequencies to use while ``length`` tokens are in the context."""
        # Static methods ignore ``length``; dynamic methods are the identity up to the
        # trained length.
        raise NotImplementedError

    def ramp_range(self, geometry: Geometry) -> tuple[float, float] | None:
        """Return the first and the last index of the pairs whose frequencies are blended
        between kept and divided; None for a method that does not blend.

        The indices may be fractions.
        """
        return None

    @property
    def softmax_factor(self) -> float | None:
        """The factor that the method's model code applies to whole scores; None if it
        applies no factor.
        """
        return None


def _check_result_of(plan: Callable[..., RopePlan]) -> Callable[..., RopePlan]:
    """Return a method `plan` that raises InputError if its result has no meaning, such
    as nan.
    """

    @wraps(plan)
    def plan_and_check(self: Scaling, geometry: Geometry, length: int) -> RopePlan:
        # A class that the user wrote may change its parameters, or surroundings such as the
        # state of random numbers. Classes of this package do not.
        if not is_own(type(self)):
            return _check_plan(self, geometry, plan(self, geometry, length))

        label = self.label
        with keep_surroundings():
            result = plan(self, geometry, length)
        if self.label != label:
            raise InputError(
                f"{label}: plan() must leave its parameters, and made them {self.label}"
            )

        return _check_plan(self, geometry, result)

    return plan_and_check


def _check_plan(scaling: Scaling, geometry: Geometry, result: object) -> RopePlan:
    """Return a plan with its frequencies in float64; InputError for another result."""
    # The plan() of a user may lack its `return`, or return nothing but frequencies.
    if not isinstance(result, RopePlan):
        raise InputError(
            f"{scaling.label}: plan() must return a RopePlan, not a"
            f" {type(result).__name__}"
        )

    # Each attribute is read once, since an attribute of a user's class may change
    # between two reads.
    attention_factor = result.attention_factor
    stretch = result.stretch
    frequencies = _read_frequencies(result.inv_freq, geometry.pairs)
    if (
        frequencies is None
        or not _is_positive(attention_factor, LARGEST_ATTENTION_FACTOR)
        or not _is_positive(stretch, LARGEST_FLOAT)
    ):
        raise InputError(
            f"{scaling.label}: plan() must return frequencies of {geometry.pairs}"
            " pairs, at least 0, and positive factors"
        )
    return replace(
        result,
        inv_freq=frequencies,
        attention_factor=attention_factor,
        stretch=stretch,
    )


def _read_frequencies(
    numbers: object, pairs: int
) -> Float[np.ndarray, " pairs"] | None:
    """Return a copy of the frequencies of `pairs` pairs in float64.

    None: there is another number of them, or one is not a finite number of at least 0.
    """
    # `asarray` would drop the mask of a masked array, whose masked pairs have no
    # frequency.
    if isinstance(numbers, np.ma.MaskedArray):
        return None
    try:
        array = np.asarray(numbers)
    # A tensor with gradients, or a tensor without memory, cannot become an array.
    except (TypeError, ValueError, RuntimeError):
        return None
    is_real = array.dtype.kind in "fiu"
    if not is_real or array.shape != (pairs,):
        return None

    # A number of a longer format may be beyond every float64. The copy is checked and
    # returned, since the plan() of a user may fill one array again and again.
    with np.errstate(over="ignore"):
        frequencies = np.array(array, dtype=np.float64)
    if not (np.isfinite(frequencies).all() and (frequencies >= 0).all()):
        return None
    # Adding 0.0 turns -0.0 into 0.0. The wavelength of -0.0 would be negative.
    return frequencies + 0.0


def _is_positive(factor: object, largest: float) -> bool:
    """Return True for a number above 0 and up to `largest` that is no truth value."""
    if isinstance(factor, bool):
        return False
    if not isinstance(factor, float | int | np.floating | np.integer):
        return False
    # An integer may be beyond every float, and is compared as it is.
    return bool(0 < factor <= largest)


@dataclass(frozen=True, kw_only=True)
class Stretching(Scaling):
    """A method for ``factor`` times the trained length; factor 1 is the identity."""

    factor: float = 1.0

    factor_means: ClassVar[str] = "context length over trained length"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)
    ranges: ClassVar[Ranges] = {"factor": FACTOR, "attention_factor": ATTENTION_FACTOR}

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        stretch = self.stretch(geometry, length)
        # At stretch 1 some formulas give the unscaled frequencies only up to rounding.
        # Here they are exact. An attention factor that a user gave is still applied.
        if stretch == 1:
            attention_factor = getattr(self, "attention_factor", None) or 1.0
            return RopePlan(geometry.inv_freq, attention_factor)
        return self.plan_stretch(geometry, stretch)

    def stretch(self, geometry: Geometry, length: int) -> float:
        """Return the current stretch; dynamic methods let it follow ``length``."""
        return self.factor

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        """Return the plan for a stretch above 1."""
        raise NotImplementedError


def name_roles(plan: RopePlan, geometry: Geometry) -> list[str]:
    """Name the effect on each pair, in the same way for every method.

    kept: the frequency is unchanged.
    interpolated: it is divided by the full stretch of the plan.
    ramp: it is between these two.
    dropped: it is 0, so that the pair no longer rotates.
    moved: it is above kept or below interpolated, as after the rounding of wavelengths.
    """
    interpolated = 1 / plan.stretch

    def role(ratio: float) -> str:
        if ratio == 0:
            return "dropped"
        # At a stretch of 1 a pair is kept and interpolated, and counts as kept.
        if abs(ratio - 1) < ROUNDING_ERROR:
            return "kept"
        if abs(ratio / interpolated - 1) < ROUNDING_ERROR:
            return "interpolated"
        if interpolated < ratio < 1:
            return "ramp"
        return "moved"

    ratios = plan.inv_freq / geometry.inv_freq
    return [role(ratio) for ratio in ratios.tolist()]


def compute_kept_weights(
    plan: RopePlan, geometry: Geometry
) -> Float[np.ndarray, " pairs"]:
    """Return the weight w of each pair, with theta' = w theta + (1 - w) theta/stretch.

    The weights are nan at a stretch of 1, where every w solves the equation.
    """
    if plan.stretch == 1:
        return np.full_like(plan.inv_freq, math.nan)

    ratio = plan.inv_freq / geometry.inv_freq
    interpolated = 1 / plan.stretch
    weight = (ratio - interpolated) / (1 - interpolated)
    # The weights 0 and 1 are common, and are returned without their rounding error.
    whole = np.round(weight)
    is_whole = np.abs(weight - whole) < ROUNDING_ERROR
    return np.where(is_whole, whole, weight)


def write_as_typed(method: Any) -> str:
    """Write a method, a dataclass with a name, as a user would type it.

    Parameters that have their defaults are left out.
    """
    parameters = []
    for field in fields(method):
        value = getattr(method, field.name)
        if value != field.default:
            parameters.append(f"{field.name}={write_parameter(value)}")

    if not parameters:
        return str(method.name)
    return f"{method.name}({', '.join(parameters)})"


def write_parameter(value: object) -> str:
    """Write the value of a parameter as a user would type it.

    >>> write_parameter(500000.0), write_parameter((1.0, 2.5)), write_parameter(True)
    ('500000', '[1, 2.5]', 'true')
    """
    if isinstance(value, float):
        # Six digits are written if they are exact, so that 500000.0 becomes 500000 and
        # no value is changed.
        short = f"{value:g}"
        if float(short) == value:
            return short
        return repr(value)

    if isinstance(value, tuple):
        texts = [write_parameter(item) for item in value]
        return f"[{', '.join(texts)}]"

    if isinstance(value, str):
        if split_list(value) != [value]:
            raise InputError(
                f"{value!r} cannot be a parameter: it is not one word or phrase"
            )
        return value

    # A method that is a parameter of another method is written as its label. Other values
    # are whole numbers, true, false and none.
    return getattr(value, "label", str(value).lower())
