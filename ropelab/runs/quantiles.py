"""Quantiles and tails of the normal distribution and of Student's t, without SciPy."""
# SciPy takes 110 MB, a third of an installation that reads configurations. Tests compare with it.

import math
from functools import lru_cache
from itertools import count
from statistics import NormalDist

EPSILON = 1e-15


def normal_quantile(share: float) -> float:
    return NormalDist().inv_cdf(share)


def student_tail(t: float, freedom: float) -> float:
    """Return the probability of a value above `t` (at least 0); nan without degrees of freedom."""
    if not (freedom > 0 and t >= 0):
        return math.nan
    whole = freedom + t * t
    return _incomplete_beta(freedom / whole, t * t / whole, freedom / 2, 0.5) / 2


# The tables of one run ask for a few quantiles, thousands of times.
@lru_cache(maxsize=1 << 12)
def student_quantile(share: float, freedom: float) -> float:
    """Return the value below which a share (above a half) lies; nan without degrees of freedom."""
    if not freedom > 0:
        return math.nan
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)
    # The tail is convex: Newton's steps from the normal quantile, which is smaller, only rise.
    t, step = normal_quantile(share), math.inf
    while step > EPSILON * t:
        density = scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (student_tail(t, freedom) - (1 - share)) / density
        t += step
    return t


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function of x, given 1 - x to full precision too."""
    # The continued fraction converges quickly on one side of the mean of the distribution.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - (_incomplete_beta(rest, x, b, a) if rest else 0.0)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / a
    # Abramowitz and Stegun 26.5.8, evaluated from its front as Lentz does.
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in count(1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            fraction *= d * c
        if abs(fraction - before) <= EPSILON * abs(fraction):
            break
    return front * fraction
