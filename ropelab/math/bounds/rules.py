"""The rules by which people choose a base, as their authors state them.

Lengths are in tokens.
d is the rotary width, b the trained base, L the trained length, L' the wanted one.
Critical dimension and base, T_extra and small bases: Liu et al. 2023, arXiv:2310.05209,
theorems 1 to 3. Aliasing, stability and precision: Liu 2026, arXiv:2602.10959, of which
only summaries were at hand.
"""

import math

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import ntk_base
from ropelab.runs.errors import InputError

# First zero of the cosine integral Ci.
CI_ZERO = 0.6165054856


def su_asymptote(context: int) -> float:
    """Return L' / x0 with Ci(x0) = 0, the bound for infinite d.

    Su, kexue.fm/archives/10122.
    """
    # The sum becomes (Ci(m) - Ci(m/b)) / ln b, which is at least 0 about where Ci(m/b)
    # <= 0.
    return context / CI_ZERO


def critical_dimension(geometry: Geometry) -> int:
    """Return d_c = 2 ceil((d/2) log_b(L / 2 pi)).

    These features rotate fully in training.
    """
    d = geometry.rotary_dim
    b = geometry.base
    length = geometry.trained_len
    # Within 2 pi tokens not even the fastest pair completes a rotation.
    if length <= 2 * math.pi:
        raise InputError(
            f"the critical dimension needs more than 6 trained tokens, not {length}"
        )
    wavelength = length / (2 * math.pi)
    pairs = math.ceil(d / 2 * math.log(wavelength, b))
    return min(d, 2 * pairs)


def critical_base(geometry: Geometry, context: int) -> float:
    """Return b^(log_{L/2pi}(L'/2pi)).

    The pair that just rotates once in L then does so in L'. It is the same number as
    the logarithmic rule of koboldcpp (pull request 910).
    """
    length = geometry.trained_len
    if length <= 2 * math.pi:
        raise InputError(
            f"the critical base needs more than 6 trained tokens, not {length}"
        )
    new_logarithm = math.log(context / (2 * math.pi))
    old_logarithm = math.log(length / (2 * math.pi))
    growth = new_logarithm / old_logarithm
    try:
        return float(geometry.base**growth)
    except OverflowError:
        return math.inf


def extrapolation_limit(geometry: Geometry, base: float) -> float:
    """Return T_extra = 2 pi base^(d_c/d).

    It is the context that tuning at a larger ``base`` supports.
    """
    share = critical_dimension(geometry) / geometry.rotary_dim
    return 2 * math.pi * base**share


def small_bases(geometry: Geometry) -> tuple[float, float, float]:
    """Return 2 T/pi, T/pi and T/(2 pi) for T trained tokens.

    Models extrapolate when they are tuned with them.
    """
    # The slowest pair's angle then reaches pi/2, pi or 2 pi within T, so that tuning
    # has seen this part of every cosine.
    T = geometry.trained_len
    quarter_turn = 2 * T / math.pi
    half_turn = T / math.pi
    whole_turn = T / (2 * math.pi)
    return quarter_turn, half_turn, whole_turn


def ntk_aware(geometry: Geometry, context: int) -> float:
    """Return b' = b (L'/L)^(d/(d-2)), b itself below L (arXiv:2309.00071, eq. 16)."""
    factor = max(1.0, context / geometry.trained_len)
    return ntk_base(geometry, factor)


def one_rotation_base(rotary_dim: int, context: int) -> float:
    """Return (L'/2pi)^(d/(d-2)).

    At this base the slowest pair rotates exactly once in ``context``.
    """
    if rotary_dim < 4:
        # A single pair rotates by a radian per token, whatever the base.
        return math.inf
    exponent = rotary_dim / (rotary_dim - 2)
    tokens_per_radian = context / (2 * math.pi)
    return float(tokens_per_radian**exponent)


def aliasing_base(context: int) -> float:
    """Return L'/2pi.

    Above it a pair of frequency 1/b rotates less than once in L' tokens. The slowest
    pair has b^(-(d-2)/d), which is faster: `one_rotation_base` is its bound.
    """
    return context / (2 * math.pi)


def stability_base(context: int, coherence: float, layers: int) -> float:
    """Return L'/arccos(e^(1/N)) with e = ``coherence`` and N = ``layers``.

    The cosine of a pair of frequency 1/b, to the power N, is then e.
    """
    angle = math.acos(coherence ** (1 / layers))
    if not angle:
        return math.inf
    return context / angle
