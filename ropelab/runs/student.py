"""Quantiles and tails of Student's t. They are computed here because SciPy takes 110 MB."""

import math
from functools import lru_cache
from itertools import count
from statistics import NormalDist

# The relative error at which the iterations stop.
EPSILON = 1e-15


def student_tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds `t`, which is at least 0.

    NaN if an argument is NaN, if t is negative, or if there are no degrees of freedom.
    """
    if math.isnan(t) or math.isnan(freedom):
        return math.nan
    if t < 0 or freedom <= 0:
        return math.nan

    # The tail is I(freedom / (freedom + t^2); freedom / 2, 1/2) / 2.
    total = freedom + t * t
    return _incomplete_beta(freedom / total, t * t / total, freedom / 2, 0.5) / 2


# A run needs few different quantiles, each of them thousands of times.
@lru_cache(maxsize=1 << 12)
def student_quantile(share: float, freedom: float) -> float:
    """Return the value that Student's t exceeds with probability 1 - share.

    `share` is above a half. NaN if there are no degrees of freedom, or if their number is
    NaN.
    """
    if math.isnan(freedom) or freedom <= 0:
        return math.nan

    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)

    # The tail is convex, and the normal quantile is below the result. From there every
    # step of Newton's method goes up, towards the result.
    t = NormalDist().inv_cdf(share)
    step = math.inf
    while step > EPSILON * t:
        density = scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (student_tail(t, freedom) - (1 - share)) / density
        t += step
    return t


def _incomplete_beta(x: float, complement: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I(x; a, b).

    `complement` is 1 - x. It is passed on, because a subtraction would lose digits for x
    near 1.
    """
    # The continued fraction converges quickly for x below this limit. Above the limit the
    # symmetry I(x; a, b) = 1 - I(1 - x; b, a) is used.
    if x > (a + 1) / (a + b + 2):
        if not complement:
            return 1.0
        return 1.0 - _incomplete_beta(complement, x, b, a)

    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    prefactor = math.exp(a * math.log(x) + b * math.log(complement) - log_beta) / a

    # The continued fraction is 26.5.8 of Abramowitz and Stegun. Lentz's method evaluates
    # it from its first term on: c and d are the ratios of successive numerators and of
    # successive denominators, and each term multiplies the value so far by c d.
    c = 1.0
    d = 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in count(1):
        even_term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd_term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        fraction_before = fraction
        for term in (even_term, odd_term):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= d * c

        if abs(fraction - fraction_before) <= EPSILON * abs(fraction):
            break
    return prefactor * fraction
