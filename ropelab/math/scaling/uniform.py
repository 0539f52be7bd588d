"""Methods that treat all pairs by one rule: none, linear, a new base."""

from dataclasses import dataclass
from typing import ClassVar

from ropelab.math.frequencies import Geometry, check_base, inverse_frequencies
from ropelab.math.scaling.plan import RopePlan, Scaling, Stretching
from ropelab.runs.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Unscaled(Scaling):
    """theta'_i = theta_i: the model as trained."""

    name: ClassVar[str] = "unscaled"
    source: ClassVar[str] = "Su et al. 2021, arXiv:2104.09864"

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        return RopePlan(geometry.inv_freq)


@dataclass(frozen=True, kw_only=True)
class PositionInterpolation(Stretching):
    """theta'_i = theta_i / factor: positions squeezed into the trained range ("linear")."""

    name: ClassVar[str] = "pi"
    source: ClassVar[str] = "Chen et al. 2023, arXiv:2306.15595"

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        return RopePlan(geometry.inv_freq / stretch, stretch=stretch)


@dataclass(frozen=True, kw_only=True)
class NtkAware(Stretching):
    """base' = base * factor^(d/(d-2)): the first pair stays, the last is divided by ``factor``."""

    name: ClassVar[str] = "ntk"
    source: ClassVar[str] = "bloc97 2023; Peng et al. 2023 (YaRN), arXiv:2309.00071, eq. 16"
    # It works up to about half its factor only, so twice the factor is a default too.
    default_factors: ClassVar[tuple[float, ...]] = (1.0, 2.0)

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        base = ntk_base(geometry, stretch)
        return RopePlan(inverse_frequencies(geometry.rotary_dim, base), stretch=stretch)


@dataclass(frozen=True, kw_only=True)
class DynamicNtk(NtkAware):
    """NTK-aware with factor * length/L - (factor - 1) as its factor, L = trained length.

    The identity up to L; beyond it, as in the runtimes, also factor 1 stretches, by length / L.
    """

    name: ClassVar[str] = "dynamic_ntk"
    source: ClassVar[str] = "emozilla 2023; transformers rope type 'dynamic'"
    factor_means: ClassVar[str] = "factor on length/L - 1; 1 stretches by length/L"
    default_factors: ClassVar[tuple[float, ...]] = ()

    def stretch(self, geometry: Geometry, length: int) -> float:
        # Below L the bracket falls below 1, and further down becomes negative, where the base would
        # be complex. In this form it is exactly 1 at L.
        excess = max(length, geometry.trained_len) / geometry.trained_len - 1
        return 1 + self.factor * excess


@dataclass(frozen=True, kw_only=True)
class AdjustedBase(Scaling):
    """theta'_i = base^(-2 i / d) with another ``base``, to be followed by training ("ABF")."""

    base: float = 500_000.0

    name: ClassVar[str] = "abf"
    source: ClassVar[str] = "Xiong et al. 2023, arXiv:2309.16039"

    def __post_init__(self) -> None:
        check_base(self.base)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        inv_freq = inverse_frequencies(geometry.rotary_dim, self.base)
        # The slowest pair changes most.
        return RopePlan(inv_freq, stretch=float(geometry.inv_freq[-1] / inv_freq[-1]))


def ntk_base(geometry: Geometry, factor: float) -> float:
    """Return base * factor^(d/(d-2)), by which the slowest frequency is divided by ``factor``."""
    d = geometry.rotary_dim
    if d < 4:
        raise InputError(
            "NTK-aware scaling needs a rotary_dim of at least 4: one pair ignores the base"
        )
    try:
        return geometry.base * factor ** (d / (d - 2))
    except OverflowError:
        raise InputError(
            f"NTK-aware scaling by {factor:g} needs a base larger than float64 holds"
        ) from None
