"""Methods that divide frequencies: of all pairs by one rule, or only of slow pairs,
with a ramp between kept and divided pairs.

A pair i of a head rotates by theta_i = base^(-2i/d) radians per token, with a wavelength
lambda_i = 2 pi / theta_i. d is the rotary width, L the trained length, and theta'_i the
frequency after the method.

Two different ramps are called YaRN. The ramp of the paper (``yarn_paper``) is linear in
the rotations r_i = L/lambda_i. The ramp of every runtime (``yarn``) is linear in the
pair index. Their ends agree up to rounding to whole pairs. Single frequencies between
the ends differ by up to a factor of 3.
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

    # The method works only up to about half of its factor, so that by default twice the
    # ratio of lengths is tried, too.
    default_factors: ClassVar[tuple[float, ...]] = (1.0, 2.0)

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        base = ntk_base(geometry, stretch)
        inv_freq = inverse_frequencies(geometry.rotary_dim, base)
        return RopePlan(inv_freq, stretch=stretch)


@method("dynamic_ntk", "emozilla 2023; transformers rope type 'dynamic'")
class DynamicNtk(NtkAware):
    """NTK-aware with factor * length/L - (factor - 1) as its factor, L = trained
    length.

    The length is the length of the text. Texts up to L change nothing. In longer texts
    factor 1 stretches, too, by length / L, as in the runtimes.
    """

    factor_means: ClassVar[str] = "factor on length/L - 1; 1 stretches by length/L"
    default_factors: ClassVar[tuple[float, ...]] = ()

    def stretch(self, geometry: Geometry, length: int) -> float:
        # In texts shorter than L the formula would give less than 1, even negative
        # numbers, for which the base would be complex. So the length counts as L at
        # least. Written in this way, the stretch is exactly 1 at L.
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
        # The last pair is the slowest one, whose frequency changes most.
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
    kept_share: PerPair,
    stretch: float,
) -> PerPair:
    """Return kept_share * theta + (1 - kept_share) * theta / stretch."""
    divided = (1 - kept_share) * inv_freq / stretch
    return kept_share * inv_freq + divided


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
    """theta' = (1 - g) theta/factor + g theta; g = (r - slow)/(fast - slow) in 0..1.

    r is the rotations of a pair in the trained length. Pairs of at most `slow`
    rotations are divided, and pairs of at least `fast` rotations are kept.
    """

    # The names of the parameters that are slow and fast.
    ends: ClassVar[tuple[str, str]]
    # True if slow and fast may be equal. The ramp is then a step.
    allows_step: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        slow_name, fast_name = self.ends
        _check_order(self, slow_name, fast_name, allows_step=self.allows_step)

    @property
    def rotations_of_ends(self) -> tuple[float, float]:
        slow_name, fast_name = self.ends
        return getattr(self, slow_name), getattr(self, fast_name)

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        slow, fast = self.rotations_of_ends
        width = fast - slow
        if width == 0:
            # The ramp is a step. A tiny width avoids the division by 0.
            width = 1e-200
        r = rotations(geometry.inv_freq, geometry.trained_len)
        kept_share = np.clip((r - slow) / width, 0, 1)
        inv_freq = blend(geometry.inv_freq, kept_share, stretch)
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

    These are the frequencies of pairs, by their wavelength lambda.
    """

    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    # The blend of the reference code is the ramp of NTK-by-parts with r = L/lambda.
    ends: ClassVar[tuple[str, str]] = ("low_freq_factor", "high_freq_factor")
    # Llama 4 Scout has 1 for both ends, a step, which every runtime accepts.
    allows_step: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class _RuntimeRamp(Scaling):
    """The ramp of jquesnelle/yarn (LlamaYaRNScaledRotaryEmbedding) and of the runtimes.

    The ramp is linear in the pair index, from the pair that rotates ``beta_fast`` times
    in L to the pair that rotates ``beta_slow`` times. ``truncate`` widens the ramp to
    whole pairs.
    """

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        # Kimi-K2 has 1 for both ends, a step, which every runtime accepts.
        _check_order(self, "beta_slow", "beta_fast", allows_step=True)
        super().__post_init__()

    def ramp_range(self, geometry: Geometry) -> tuple[float, float]:
        low = pair_with_rotations(geometry, self.beta_fast)
        high = pair_with_rotations(geometry, self.beta_slow)
        # The last pair is d/2 - 1. The runtimes limit the end to d - 1, the last feature,
        # and so does this method.
        low = max(low, 0)
        high = min(high, geometry.rotary_dim - 1)
        if not self.truncate:
            return low, high
        return math.floor(low), math.ceil(high)

    def ramp(self, geometry: Geometry) -> PerPair:
        """Return a number for each pair.

        It is 0 before the ramp, 1 after it, and between 0 and 1 in the ramp.
        """
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
        kept_share = 1 - self.ramp(geometry)
        return blend(geometry.inv_freq, kept_share, stretch)


@method("yarn", "jquesnelle/yarn; transformers rope type 'yarn'")
class Yarn(_RuntimeRamp, Stretching):
    """YaRN as in the runtimes: the ramp is linear in the pair index.

    The attention factor, which multiplies cos and sin, is ``attention_factor`` if that is
    given. Else it is (0.1 mscale ln f + 1) / (0.1 mscale_all_dim ln f + 1) if both
    parameters are given and not 0, with f = factor. Else it is 0.1 ln f + 1.
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
        """(0.1 mscale_all_dim ln f + 1)^2; None without ``mscale_all_dim``.

        DeepSeek's model code multiplies whole scores by this number, the square of the
        denominator in `attention`.
        """
        # 0 counts as not given.
        if not self.mscale_all_dim:
            return None
        return magnitude(self.factor, self.mscale_all_dim) ** 2


@method("mrrope", "Tian et al. 2026, arXiv:2601.22181; mattian7/mrRoPE")
class MrRope(_RuntimeRamp, Stretching):
    """theta'_i = theta_i / factor^(m(m + 1) / (n(n + 1))) in pair m of the n pairs of
    YaRN's ramp.

    This is MrRoPE-Pro: every pair of the ramp divides its own frequency and all slower
    ones by a power of ``factor`` that grows from pair to pair. MrRoPE-Uni (``uniform``)
    divides by factor^(1/n) in every pair. cos and sin are multiplied by
    0.1 ln(factor) + 1.
    """

    uniform: bool = False

    def plan_stretch(self, geometry: Geometry, stretch: float) -> RopePlan:
        power = self.ramp(geometry)
        if not self.uniform:
            low, high = self.ramp_range(geometry)
            # The ramp is m / n in pair m, and becomes m (m + 1) / (n (n + 1)).
            n = high - low
            # If the ramp ends one pair before it begins, no pair lies inside it.
            if n != -1:
                power = power * (n * power + 1) / (n + 1)
        inv_freq = geometry.inv_freq / stretch**power
        return RopePlan(inv_freq, magnitude(stretch), stretch)


@method("dynamic_yarn", "arXiv:2309.00071, appendix B.3; jquesnelle/yarn")
class DynamicYarn(_RuntimeRamp):
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
    allows_step: bool,
) -> None:
    """Raise InputError unless 0 < low < high.

    If ``allows_step`` is True, low and high may be equal.
    """
    low = getattr(method, low_name)
    high = getattr(method, high_name)
    is_step = allows_step and low == high
    is_ordered = low < high or is_step
    if not (low > 0 and math.isfinite(high) and is_ordered):
        raise InputError(
            f"{method.name}: needs 0 < {low_name} < {high_name}, "
            f"not {low_name}={low:g}, {high_name}={high:g}"
        )
