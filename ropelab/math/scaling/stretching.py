"""Methods that stretch all pairs by one rule, or slow ones and blend towards fast ones.

Two different ramps go by the name of YaRN: linear in rotations r_i = L/lambda_i in the
paper (``yarn_paper``), linear in the pair index in every runtime (``yarn``). Their ends
agree up to rounding to whole pairs; single frequencies between these differ by up to
3x.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ropelab.math.frequencies import (
    Geometry,
    check_base,
    inverse_frequencies,
    rotations,
)
from ropelab.math.scaling.plan import RopePlan, Scaling, Stretching, method
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

PerPair = Float[np.ndarray, " pairs"]


@method("unscaled", "Su et al. 2021, arXiv:2104.09864")
class Unscaled(Scaling):
    """theta'_i = theta_i: the model as trained."""

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        return RopePlan(geometry.inv_freq)


@method("pi", "Chen et al. 2023, arXiv:2306.15595")
class PositionInterpolation(Stretching):
    """theta'_i = theta_i / factor: positions squeezed into the trained range
    ("linear").
    """

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        return RopePlan(geometry.inv_freq / stretch, stretch=stretch)


@method("ntk", "bloc97 2023; Peng et al. 2023 (YaRN), arXiv:2309.00071, eq. 16")
class NtkAware(Stretching):
    """base' = base * factor^(d/(d-2)): the first pair stays, the last is divided by
    ``factor``.
    """

    # The method works up to about half of its factor only, so twice the factor is a
    # default, too.
    default_factors: ClassVar[tuple[float, ...]] = (1.0, 2.0)

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        base = ntk_base(geometry, stretch)
        inv_freq = inverse_frequencies(geometry.rotary_dim, base)
        return RopePlan(inv_freq, stretch=stretch)


@method("dynamic_ntk", "emozilla 2023; transformers rope type 'dynamic'")
class DynamicNtk(NtkAware):
    """NTK-aware with factor * length/L - (factor - 1) as its factor, L = trained
    length.

    The identity up to L; beyond it, as in the runtimes, also factor 1 stretches, by
    length / L.
    """

    factor_means: ClassVar[str] = "factor on length/L - 1; 1 stretches by length/L"
    default_factors: ClassVar[tuple[float, ...]] = ()

    def stretch(self, geometry: Geometry, length: int) -> float:
        # At lengths below L the formula would give less than 1, then negative numbers, and
        # the base would be complex. Written in this way the stretch is exactly 1 at L.
        longest = max(length, geometry.trained_len)
        growth = longest / geometry.trained_len - 1
        return 1 + self.factor * growth


@method("abf", "Xiong et al. 2023, arXiv:2309.16039")
class AdjustedBase(Scaling):
    """theta'_i = base^(-2 i / d) with another ``base``, to be followed by training
    ("ABF").
    """

    base: float = 500_000.0

    def __post_init__(self) -> None:
        check_base(self.base)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        inv_freq = inverse_frequencies(geometry.rotary_dim, self.base)
        # The stretch of a plan is that of the slowest pair, which changes most.
        stretch = geometry.inv_freq[-1] / inv_freq[-1]
        return RopePlan(inv_freq, stretch=float(stretch))


def ntk_base(geometry: Geometry, factor: float) -> float:
    """Return base * factor^(d/(d-2)), which divides the slowest frequency by factor."""
    d = geometry.rotary_dim
    if d < 4:
        raise InputError(
            "NTK-aware scaling needs rotary_dim 4 or more: one pair ignores the base"
        )
    try:
        growth = factor ** (d / (d - 2))
        return geometry.base * growth
    except OverflowError:
        raise InputError(
            f"NTK-aware scaling by {factor:g} needs a base beyond float64"
        ) from None


def blend(
    inv_freq: PerPair,
    kept: PerPair,
    stretch: float,
) -> PerPair:
    """Return kept * theta + (1 - kept) * theta / stretch."""
    divided = (1 - kept) * inv_freq / stretch
    return kept * inv_freq + divided


def pair_with_rotations(geometry: Geometry, r: float) -> float:
    """Return d ln(L / (2 pi r)) / (2 ln base), the pair that rotates r times in L."""
    d = geometry.rotary_dim
    wavelength = geometry.trained_len / (r * 2 * math.pi)
    return d * math.log(wavelength) / (2 * math.log(geometry.base))


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """Return 0.1 mscale ln(factor) + 1, YaRN's attention factor.

    arXiv:2309.00071, eq. 22.
    """
    return 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True, kw_only=True)
class _RotationsRamp(Stretching):
    """theta' = (1 - g) theta/factor + g theta; g = (r - slow)/(fast - slow) in 0..1."""

    # The parameters that hold slow and fast, in rotations within the trained length.
    ends: ClassVar[tuple[str, str]]
    # True if the two may be equal; the ramp is then a step.
    step: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_order(self, *self.ends, step=self.step)

    @property
    def rotations_of_ends(self) -> tuple[float, float]:
        slow_name, fast_name = self.ends
        return getattr(self, slow_name), getattr(self, fast_name)

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        slow, fast = self.rotations_of_ends
        width = fast - slow
        if width == 0:
            # Equal ends are a step: a tiny width avoids the division by 0.
            width = 1e-200
        r = rotations(geometry.inv_freq, geometry.trained_len)
        kept = np.clip((r - slow) / width, 0, 1)
        inv_freq = blend(geometry.inv_freq, kept, stretch)
        return RopePlan(inv_freq, stretch=stretch)

    def ramp_range(self, geometry: Geometry) -> tuple[float, float]:
        slow, fast = self.rotations_of_ends
        first = pair_with_rotations(geometry, fast)
        last = pair_with_rotations(geometry, slow)
        return first, last


@method("ntk_by_parts", "bloc97 2023; arXiv:2309.00071, eq. 17-20")
class NtkByParts(_RotationsRamp):
    """Pairs blended by their rotations, between ``alpha`` and ``beta``."""

    alpha: float = 1.0
    beta: float = 32.0

    ends: ClassVar[tuple[str, str]] = ("alpha", "beta")


@method("yarn_paper", "Peng et al. 2023, arXiv:2309.00071, definition 3")
class YarnPaper(NtkByParts):
    """NTK-by-parts, and cos and sin times 0.1 ln(factor) + 1: YaRN as in its paper."""

    attention_factor: float | None = None

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        inv_freq = super().plan_stretch(geometry, stretch).inv_freq
        if self.attention_factor is not None:
            return RopePlan(inv_freq, self.attention_factor, stretch)
        return RopePlan(inv_freq, magnitude(stretch), stretch)


@method(
    "llama3", "Llama 3.1 reference code, apply_scaling; transformers rope type 'llama3'"
)
class Llama3(_RotationsRamp):
    """lambda < L/high_freq_factor kept, > L/low_freq_factor divided by factor, between:
    blended.
    """

    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    # The blend of the reference code is the ramp of NTK-by-parts with r = L/lambda.
    ends: ClassVar[tuple[str, str]] = ("low_freq_factor", "high_freq_factor")
    # Llama 4 Scout has 1 for both ends, a step, which every runtime accepts.
    step: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class _CodedRamp(Scaling):
    """The ramp of jquesnelle/yarn (LlamaYaRNScaledRotaryEmbedding) and the runtimes."""

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        # Kimi-K2 has 1 for both ends, a step, which every runtime accepts.
        _check_order(self, "beta_slow", "beta_fast", step=True)
        super().__post_init__()

    def ramp_range(self, geometry: Geometry) -> tuple[float, float]:
        low = pair_with_rotations(geometry, self.beta_fast)
        high = pair_with_rotations(geometry, self.beta_slow)
        # d - 1 and not d/2 - 1: the runtimes' clamp counts features although the ramp
        # counts pairs.
        low = max(low, 0)
        high = min(high, geometry.rotary_dim - 1)
        if not self.truncate:
            return low, high
        return math.floor(low), math.ceil(high)

    def ramp(self, geometry: Geometry) -> PerPair:
        """Return 0 for pairs up to the ramp, 1 for those behind it."""
        low, high = self.ramp_range(geometry)
        width = high - low
        if high == low:
            # The runtimes avoid the division by 0 in this way, too.
            width = 0.001
        pairs = np.arange(geometry.pairs, dtype=np.float64)
        return np.clip((pairs - low) / width, 0, 1)

    def ramp_frequencies(
        self, geometry: Geometry, stretch: float
    ) -> Float[np.ndarray, " pairs"]:
        kept = 1 - self.ramp(geometry)
        return blend(geometry.inv_freq, kept, stretch)


@method("yarn", "jquesnelle/yarn; transformers rope type 'yarn'")
class Yarn(_CodedRamp, Stretching):
    """YaRN as in the runtimes: the ramp is linear in the pair index.

    The attention factor is ``attention_factor`` when given; else, where both are given
    and not 0, (0.1 mscale ln f + 1) / (0.1 mscale_all_dim ln f + 1); else 0.1 ln f + 1.
    """

    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        inv_freq = self.ramp_frequencies(geometry, stretch)
        return RopePlan(inv_freq, self.attention(stretch), stretch)

    def attention(self, stretch: float) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        # 0 counts as not given in transformers.
        if self.mscale and self.mscale_all_dim:
            numerator = magnitude(stretch, self.mscale)
            denominator = magnitude(stretch, self.mscale_all_dim)
            return numerator / denominator
        return magnitude(stretch)

    @property
    def softmax_factor(self) -> float | None:
        """(0.1 mscale_all_dim ln f + 1)^2 where DeepSeek's code has it, else None."""
        # DeepSeek's model code multiplies whole scores by the square of the denominator
        # in `attention`.
        if not self.mscale_all_dim:
            return None
        return magnitude(self.factor, self.mscale_all_dim) ** 2


@method("mrrope", "Tian et al. 2026, arXiv:2601.22181; mattian7/mrRoPE")
class MrRope(_CodedRamp, Stretching):
    """theta'_i = theta_i / factor^(m(m + 1) / (n(n + 1))) in pair m of the n of YaRN's
    ramp.

    MrRoPE-Pro: every pair of the ramp divides all slower ones by a power of ``factor``
    that grows from pair to pair; ``uniform`` (-Uni): by factor^(1/n). cos and sin times
    0.1 ln(factor) + 1.
    """

    uniform: bool = False

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        power = self.ramp(geometry)
        if not self.uniform:
            low, high = self.ramp_range(geometry)
            width = high - low
            power = power * (width * power + 1) / (width + 1)
        inv_freq = geometry.inv_freq / stretch**power
        return RopePlan(inv_freq, magnitude(stretch), stretch)


@method("dynamic_yarn", "arXiv:2309.00071, appendix B.3; jquesnelle/yarn")
class DynamicYarn(_CodedRamp):
    """YaRN with factor = max(1, length / L): the identity up to the trained length
    L.
    """

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        stretch = length / geometry.trained_len
        if stretch <= 1:
            return RopePlan(geometry.inv_freq)
        inv_freq = self.ramp_frequencies(geometry, stretch)
        return RopePlan(inv_freq, magnitude(stretch), stretch)


def _check_order(
    method: Scaling,
    low_name: str,
    high_name: str,
    *,
    step: bool,
) -> None:
    low = getattr(method, low_name)
    high = getattr(method, high_name)
    is_step = step and low == high
    is_ordered = low < high or is_step
    if not (low > 0 and math.isfinite(high) and is_ordered):
        raise InputError(
            f"{method.name}: needs 0 < {low_name} < {high_name}, "
            f"not {low_name}={low:g}, {high_name}={high:g}"
        )
