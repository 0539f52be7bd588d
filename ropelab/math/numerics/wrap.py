"""When a position code comes back, and how many codes there are until then, in exact arithmetic.

A pair whose period is a fraction p/q of tokens stands where it began after p tokens, and not
before. A frequency that is an algebraic number, as every power of a rational base is, has a period
that no fraction equals (pi would be algebraic otherwise): such a pair never comes back.

Before that, cos alone has at m the value that it had at p - m, and sin alone, where p is even, the
value that it had at p/2 - m; whatever q is, for q and p have no common factor.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from jaxtyping import Int

from ropelab.math.numerics.code import Channel

NEAR = 2.0**-50
"""Relative: a period computed as 2 pi / theta, theta as 2 pi / period, is off by less."""
BY_CHANCE = 1e-6
"""With this probability at most a period that is no fraction is read as one."""


def whole_period(theta: float) -> int | None:
    """After how many whole tokens a pair of that frequency stands where it began; None: never.

    The period is read as the fraction that it equals in float64. Some fraction with a denominator
    up to q lies that near to any number with a probability of about q^2 times the distance, so only
    small denominators are tried where periods are long, and none above 1e9 tokens.

    >>> [whole_period(2 * math.pi / period) for period in (360, 62.5)], whole_period(1.0)
    ([360, 125], None)
    """
    if not theta:
        return 1
    period = 2 * math.pi / theta
    near = NEAR * period
    denominators = int(math.sqrt(BY_CHANCE / near))
    if not denominators:
        return None
    fraction = Fraction(period).limit_denominator(denominators)
    return fraction.numerator if abs(float(fraction) - period) <= near else None


def returns_after(inv_freq: Iterable[float]) -> int | None:
    """The first position after 0 at which all pairs stand as they do at 0; None: there is none.

    >>> returns_after([2 * math.pi / 10, 2 * math.pi / 25]), returns_after([1.0])
    (50, None)
    """
    together = 1
    for period in map(whole_period, inv_freq):
        if period is None:
            return None
        together = math.lcm(together, period)
    return together


def first_repeat(period: int, channel: Channel) -> int:
    """The first position whose code stood at an earlier one, for a pair of that whole period."""
    if channel == "cos":
        return period // 2 + 1
    if channel == "sin" and period % 2 == 0:
        return period // 4 + 1
    return period


def distinct_positions(
    period: int, channel: Channel, offset: int, length: int
) -> Int[np.ndarray, " codes"]:
    """One position for each different code of a pair among offset .. offset + length - 1."""
    places = np.arange(offset, offset + min(length, period)) % period
    if channel == "cos":
        places = np.minimum(places, -places % period)
    elif channel == "sin" and period % 2 == 0:
        places = np.minimum(places, (period // 2 - places) % period)
    return np.unique(places)
