"""Sines of large angles in float32: the error of the reduction to one period.

A library subtracts whole periods from an angle before it evaluates a polynomial. With 2
pi as one float32 number every period is off by 1.7e-7 rad. Cody and Waite write 2 pi as
a sum of two or three numbers (terms). The first terms have few bits, so that their
products with a small number of periods are exact. Angles that are exact in float32 have
no other error than this. For example, pair 0 rotates by one radian per token.
"""

import math
from dataclasses import dataclass

import numpy as np

from ropelab.runs.arrays import Float

# The first term of 2 pi. It has so few bits that its product with up to 2^16 periods is
# exact in float32.
SHORT_PERIOD = 6.28125
# The second term, which has 11 bits: eight times the second number of Cephes' sinf.
SECOND_TERM = 1.93500518798828125e-3
# Pi as a sum of three terms for products in float64. The first two terms have few bits.
# The last term includes the difference of pi from its float64 number.
PI_HIGH = 3.1415863037109375
PI_MIDDLE = float(np.float32(math.pi - PI_HIGH))
PI_LOW = math.pi - PI_HIGH - PI_MIDDLE + 1.2246467991473532e-16


Angles = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class Reduction:
    """A period as a sum of float32 terms, which are subtracted one after another.

    If ``fused`` is True, product and difference are rounded together, once (fma). Else
    each is rounded.
    """

    terms: tuple[float, ...]
    fused: bool = False

    @property
    def period(self) -> float:
        return math.fsum(self.terms)


def split_period(terms: int) -> tuple[float, ...]:
    """Return 2 pi as a sum of ``terms`` float32 numbers.

    >>> len(split_period(3))
    3
    >>> abs(math.fsum(split_period(3)) - math.tau) < 1e-13
    True
    """
    first_terms = {
        1: (),
        2: (SHORT_PERIOD,),
        3: (SHORT_PERIOD, SECOND_TERM),
    }[terms]
    remainder = math.tau - math.fsum(first_terms)
    last_term = float(np.float32(remainder))
    return (*first_terms, last_term)


# The usual reductions, by their number of terms.
REDUCTIONS = {
    1: Reduction(split_period(1)),
    2: Reduction(split_period(2)),
    3: Reduction(split_period(3)),
}
# A reduction by two terms of 24 bits each. The product of the first term is rounded at
# nearly every number of periods, unless it is fused with the difference.
FULL_PERIOD = float(np.float32(math.tau))
FULL_TERMS = Reduction((FULL_PERIOD, float(np.float32(math.tau - FULL_PERIOD))))


def halve_period(reduction: Reduction) -> Reduction:
    """Return a reduction by half the period, such as pi instead of 2 pi."""
    terms = tuple(term / 2 for term in reduction.terms)
    return Reduction(terms, reduction.fused)


def reduce_angles(angles: Angles, reduction: Reduction) -> tuple[Angles, Angles]:
    """Return the remainders of float32 angles, and the numbers of subtracted periods.

    Both are computed as in float32 code, and returned in float64.
    """
    stored = np.asarray(angles, dtype=np.float32)
    inverse = np.float32(1 / reduction.period)
    periods = np.rint(stored * inverse)

    remainder = stored
    for term in reduction.terms:
        if reduction.fused:
            # A product of two float32 numbers is exact in float64.
            product = periods.astype(np.float64) * term
            difference = remainder.astype(np.float64) - product
            remainder = difference.astype(np.float32)
        else:
            product = periods * np.float32(term)
            remainder = remainder - product
    return remainder.astype(np.float64), periods.astype(np.float64)


def reduced_tables(angles: Angles, reduction: Reduction) -> tuple[Angles, Angles]:
    """Return cos and sin of float32 angles after a reduction.

    An odd number of half turns changes the signs of cos and sin.
    """
    remainders, periods = reduce_angles(angles, reduction)
    half_turns = periods * _count_half_turns(reduction)
    sign = np.where(half_turns % 2 == 0, 1.0, -1.0)
    return sign * np.cos(remainders), sign * np.sin(remainders)


def reduction_errors(angles: Angles, reduction: Reduction) -> Angles:
    """Return the error of the reduction of float32 angles, in radians."""
    stored = np.asarray(angles, dtype=np.float32).astype(np.float64)
    remainders, periods = reduce_angles(stored, reduction)
    half_turns = periods * _count_half_turns(reduction)
    # Multiples of pi are subtracted term by term, the largest term first.
    exact = stored - half_turns * PI_HIGH
    exact = exact - half_turns * PI_MIDDLE - half_turns * PI_LOW
    return remainders - exact


def find_worst_angles(angles: Angles) -> list[int]:
    """Return the indices of the angles at which the usual reductions lose most."""
    indices = set()
    for reduction in (*REDUCTIONS.values(), FULL_TERMS):
        errors = np.abs(reduction_errors(angles, reduction))
        indices.add(int(errors.argmax()))
    return sorted(indices)


def _count_half_turns(reduction: Reduction) -> int:
    """Return the half turns in a period: 2, or 1 if the period is halved."""
    return round(2 * reduction.period / math.tau)
