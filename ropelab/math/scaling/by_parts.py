"""Methods that keep fast pairs, interpolate slow ones, and blend in between.

Two different ramps go by the name of YaRN. The paper's is linear in rotations r_i = L/lambda_i
(``yarn_paper``); every runtime's is linear in the pair index (``yarn``). They share their ends, up
to rounding to whole pairs, and differ by up to 3x in single frequencies between them.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from ropelab.math.frequencies import Geometry, rotations
from ropelab.math.scaling.plan import RopePlan, Scaling, Stretching, check_attention_factor
from ropelab.runs.errors import InputError


def blend(
    inv_freq: Float[np.ndarray, " pairs"], kept: Float[np.ndarray, " pairs"], stretch: float
) -> Float[np.ndarray, " pairs"]:
    """Return kept * theta + (1 - kept) * theta / stretch."""
    return kept * inv_freq + (1 - kept) * inv_freq / stretch


def ramp_in_rotations(geometry: Geometry, slow: float, fast: float) -> Float[np.ndarray, " pairs"]:
    """Return the weight kept, clip((r_i - slow) / (fast - slow), 0, 1).

    r_i: rotations in the trained length. Source: arXiv:2309.00071, eq. 17-18.
    """
    r = rotations(geometry.inv_freq, geometry.trained_len)
    return np.clip((r - slow) / (fast - slow), 0, 1)


def pair_with_rotations(geometry: Geometry, r: float) -> float:
    """Return the (fractional) pair index that makes ``r`` rotations in the trained length.

    d ln(L / (2 pi r)) / (2 ln base), the inverse of rotations().
    """
    d, base, length = geometry.rotary_dim, geometry.base, geometry.trained_len
    return d * math.log(length / (r * 2 * math.pi)) / (2 * math.log(base))


def coded_ramp_range(
    geometry: Geometry, beta_fast: float, beta_slow: float, truncate: bool
) -> tuple[float, float]:
    """Return the runtimes' first and last pair index of the ramp, whole when ``truncate``."""
    low = pair_with_rotations(geometry, beta_fast)
    high = pair_with_rotations(geometry, beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    # d - 1 and not d/2 - 1: the runtimes' clamp counts features although the ramp counts pairs.
    return max(low, 0), min(high, geometry.rotary_dim - 1)


def ramp_in_pairs(geometry: Geometry, low: float, high: float) -> Float[np.ndarray, " pairs"]:
    """Return the weight kept, 1 - clip((i - low) / (high - low), 0, 1).

    Source: jquesnelle/yarn, LlamaYaRNScaledRotaryEmbedding; transformers rope type 'yarn'.
    """
    width = high - low if high != low else 0.001  # the runtimes' guard
    index = np.arange(geometry.pairs, dtype=np.float64)
    return 1 - np.clip((index - low) / width, 0, 1)


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """Return 0.1 mscale ln(factor) + 1, YaRN's attention factor (arXiv:2309.00071, eq. 22)."""
    return 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True, kw_only=True)
class NtkByParts(Stretching):
    """theta' = (1 - g) theta/factor + g theta, g = clip((r - alpha)/(beta - alpha), 0, 1)."""

    alpha: float = 1.0
    beta: float = 32.0

    name: ClassVar[str] = "ntk_by_parts"
    source: ClassVar[str] = "bloc97 2023; arXiv:2309.00071, eq. 17-20"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_order(self.name, "alpha", self.alpha, "beta", self.beta)

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        kept = ramp_in_rotations(geometry, self.alpha, self.beta)
        return RopePlan(blend(geometry.inv_freq, kept, stretch), stretch=stretch)

    def ramp_range(self, geometry: Geometry) -> tuple[float, float]:
        return pair_with_rotations(geometry, self.beta), pair_with_rotations(geometry, self.alpha)


@dataclass(frozen=True, kw_only=True)
class YarnPaper(NtkByParts):
    """NTK-by-parts, and cos and sin times 0.1 ln(factor) + 1: YaRN as in its paper."""

    attention_factor: float | None = None

    name: ClassVar[str] = "yarn_paper"
    source: ClassVar[str] = "Peng et al. 2023, arXiv:2309.00071, definition 3"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention_factor(self.name, self.attention_factor)

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        given = self.attention_factor
        factor = magnitude(stretch) if given is None else given
        return RopePlan(super().stretched(geometry, stretch).inv_freq, factor, stretch)


@dataclass(frozen=True, kw_only=True)
class Llama3(Stretching):
    """lambda < L/high_freq_factor kept, > L/low_freq_factor divided by factor, between: blended."""

    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    name: ClassVar[str] = "llama3"
    source: ClassVar[str] = (
        "Llama 3.1 reference code, apply_scaling; transformers rope type 'llama3'"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.low_freq_factor, self.high_freq_factor
        _check_order(self.name, "low_freq_factor", low, "high_freq_factor", high)

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        # With r = L/lambda the reference code's blend is the ramp of NTK-by-parts between these
        # factors, 1 and 4 by default, without an attention factor.
        kept = ramp_in_rotations(geometry, self.low_freq_factor, self.high_freq_factor)
        return RopePlan(blend(geometry.inv_freq, kept, stretch), stretch=stretch)

    def ramp_range(self, geometry: Geometry) -> tuple[float, float]:
        fast, slow = self.high_freq_factor, self.low_freq_factor
        return pair_with_rotations(geometry, fast), pair_with_rotations(geometry, slow)


@dataclass(frozen=True, kw_only=True)
class _CodedRamp(Scaling):
    """Parameters and frequencies of the ramp as the runtimes code it."""

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        # Kimi-K2 has both at 1: a step, which every runtime accepts.
        if not self.beta_slow == self.beta_fast > 0:
            _check_order(self.name, "beta_slow", self.beta_slow, "beta_fast", self.beta_fast)

    def ramp_range(self, geometry: Geometry) -> tuple[float, float]:
        return coded_ramp_range(geometry, self.beta_fast, self.beta_slow, self.truncate)

    def ramped(self, geometry: Geometry, stretch: float) -> Float[np.ndarray, " pairs"]:
        kept = ramp_in_pairs(geometry, *self.ramp_range(geometry))
        return blend(geometry.inv_freq, kept, stretch)


@dataclass(frozen=True, kw_only=True)
class Yarn(_CodedRamp, Stretching):
    """YaRN as in the runtimes: the ramp is linear in the pair index.

    The attention factor is, in this order: ``attention_factor`` when given;
    (0.1 mscale ln f + 1) / (0.1 mscale_all_dim ln f + 1) when both are given and not 0;
    0.1 ln f + 1.
    """

    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    name: ClassVar[str] = "yarn"
    source: ClassVar[str] = "jquesnelle/yarn; transformers rope type 'yarn'"

    def __post_init__(self) -> None:
        _CodedRamp.__post_init__(self)
        Stretching.__post_init__(self)
        check_attention_factor(self.name, self.attention_factor)

    def stretched(self, geometry: Geometry, stretch: float) -> RopePlan:
        return RopePlan(self.ramped(geometry, stretch), self.attention(stretch), stretch)

    def attention(self, stretch: float) -> float:
        """Return the factor on cos and sin at a stretch."""
        if self.attention_factor is not None:
            return self.attention_factor
        # By truth value as in transformers, where 0 counts as not given.
        if self.mscale and self.mscale_all_dim:
            return magnitude(stretch, self.mscale) / magnitude(stretch, self.mscale_all_dim)
        return magnitude(stretch)

    @property
    def softmax_factor(self) -> float | None:
        """(0.1 mscale_all_dim ln f + 1)^2 where DeepSeek's code would apply it, else None."""
        # DeepSeek's model code multiplies whole scores by the square of the denominator above.
        if not self.mscale_all_dim:
            return None
        return magnitude(self.factor, self.mscale_all_dim) ** 2


@dataclass(frozen=True, kw_only=True)
class DynamicYarn(_CodedRamp):
    """YaRN with factor = max(1, length / L): the identity up to the trained length L."""

    name: ClassVar[str] = "dynamic_yarn"
    source: ClassVar[str] = "arXiv:2309.00071, appendix B.3; jquesnelle/yarn"

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        stretch = length / geometry.trained_len
        if stretch <= 1:
            return RopePlan(geometry.inv_freq)
        return RopePlan(self.ramped(geometry, stretch), magnitude(stretch), stretch)


def _check_order(method: str, low_name: str, low: float, high_name: str, high: float) -> None:
    if not (math.isfinite(high) and 0 < low < high):
        raise InputError(
            f"{method}: needs 0 < {low_name} < {high_name}, "
            f"not {low_name}={low:g}, {high_name}={high:g}"
        )
