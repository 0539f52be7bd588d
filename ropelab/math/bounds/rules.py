"""The rules by which people choose a base, as their authors state them.

d is the rotary width of a head in features, b the trained base, L the trained length and
L' the wanted length, both in tokens.

The critical dimension and base, T_extra and the small bases are from Liu et al. 2023,
arXiv:2310.05209, theorems 1 to 3. The aliasing and stability bases are from Liu 2026,
arXiv:2602.10959, which was read in summaries only.
"""

import math

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import ntk_base
from ropelab.runs.errors import InputError

# The first zero x0 of the cosine integral Ci(x), which is minus the integral of cos(t) / t
# from x to infinity.
CI_ZERO = 0.6165054856


def su_asymptote(context: int) -> float:
    """Return L' / x0 with Ci(x0) = 0, the least base for infinite d.

    Su, kexue.fm/archives/10122, asks that the sum of cos(m b^(-2i/d)) over the pairs i
    is at least 0 at every position m below L'.
    """
    # For infinite d the mean of the cosines is (Ci(m) - Ci(m/b)) / ln b. Ci(m) is small,
    # so that the mean is at least 0 about where Ci(m/b) <= 0, which is where m/b <= x0.
    return context / CI_ZERO


def critical_dimension(geometry: Geometry) -> int:
    """Return d_c = 2 ceil((d/2) log_b(L / 2 pi)), at most d.

    The d_c features of the fastest pairs rotate at least once within the trained
    length.
    """
    d = geometry.rotary_dim
    b = geometry.base
    length = geometry.trained_len
    # Within 2 pi tokens not even the fastest pair completes a rotation.
    if length <= 2 * math.pi:
        raise InputError(
            f"the critical dimension needs more than 6 trained tokens, not {length}"
        )
    # The number of tokens in which a pair that rotates once in L tokens rotates by a
    # radian.
    tokens_per_radian = length / (2 * math.pi)
    pairs = math.ceil(d / 2 * math.log(tokens_per_radian, b))
    return min(d, 2 * pairs)


def critical_base(geometry: Geometry, context: int) -> float:
    """Return b^(log_{L/2pi}(L'/2pi)).

    With this base the pair that rotated just once in L tokens rotates once in L'
    tokens. The logarithmic rule of koboldcpp (pull request 910) gives the same number.
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

    A model that was tuned with a larger ``base`` supports contexts up to T_extra.
    """
    share = critical_dimension(geometry) / geometry.rotary_dim
    return 2 * math.pi * base**share


def small_bases(geometry: Geometry) -> tuple[float, float, float]:
    """Return the bases 2 T/pi, T/pi and T/(2 pi) for T trained tokens.

    Models that are tuned with these small bases extrapolate.
    """
    # The angle of the slowest pair, about T/b, then reaches pi/2, pi or 2 pi within T, so
    # that tuning has seen this part of every cosine.
    T = geometry.trained_len
    quarter_turn = 2 * T / math.pi
    half_turn = T / math.pi
    whole_turn = T / (2 * math.pi)
    return quarter_turn, half_turn, whole_turn


def ntk_aware(geometry: Geometry, context: int) -> float:
    """Return b' = b (L'/L)^(d/(d-2)), or b itself if L' is below L.

    arXiv:2309.00071, eq. 16.
    """
    factor = max(1.0, context / geometry.trained_len)
    return ntk_base(geometry, factor)


def one_rotation_base(slowest_exponent: float, context: int) -> float:
    """Return (L'/2pi)^(1/a).

    At this base the slowest pair, of the frequency b^-a, rotates exactly once in
    ``context``.

    Args:
        slowest_exponent: a, which is 2i/d for pair i, and (d-2)/d if all pairs rotate.
        context: L', in tokens.
    """
    if slowest_exponent == 0:
        # The first pair rotates by a radian per token, whatever the base.
        return math.inf
    tokens_per_radian = context / (2 * math.pi)
    return float(tokens_per_radian ** (1 / slowest_exponent))


def aliasing_base(context: int) -> float:
    """Return L'/2pi.

    With a larger base b, a pair of frequency 1/b rotates less than once in L' tokens.
    The slowest pair has the frequency b^(-(d-2)/d), which is faster than 1/b. The bound
    for this pair is `one_rotation_base`.
    """
    return context / (2 * math.pi)


def stability_base(context: int, coherence: float, layers: int) -> float:
    """Return L'/arccos(e^(1/N)) with e = ``coherence`` and N = ``layers``.

    With this base the cosine of a pair of frequency 1/b at L', to the power N, is e.
    """
    angle = math.acos(coherence ** (1 / layers))
    if angle == 0:
        return math.inf
    return context / angle
