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
# Pi as three terms for products in float64. The first two have few bits. The last one
# includes the difference of pi from its float64 number.
HIGH = 3.1415863037109375
MIDDLE = float(np.float32(math.pi - HIGH))
LOW = math.pi - HIGH - MIDDLE + 1.2246467991473532e-16


Angles = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class Reduction:
    """A period as a sum of float32 terms, which are subtracted one after another.

    ``fused``: product and difference are rounded together once (fma), instead of once
    each.
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
    short = {
        1: (),
        2: (SHORT_PERIOD,),
        3: (SHORT_PERIOD, SECOND_TERM),
    }[terms]
    rest = math.tau - math.fsum(short)
    last = float(np.float32(rest))
    return (*short, last)


REDUCTIONS = {
    1: Reduction(split_period(1)),
    2: Reduction(split_period(2)),
    3: Reduction(split_period(3)),
}
# Two numbers of 24 bits each. A product with the first is rounded at nearly every
# period, unless it is fused with the difference.
FULL_PERIOD = float(np.float32(math.tau))
FULL_TERMS = Reduction((FULL_PERIOD, float(np.float32(math.tau - FULL_PERIOD))))


def halve_period(reduction: Reduction) -> Reduction:
    """Return the same reduction by half its period, as by pi instead of 2 pi."""
    terms = tuple(term / 2 for term in reduction.terms)
    return Reduction(terms, reduction.fused)


def reduce_angles(angles: Angles, reduction: Reduction) -> tuple[Angles, Angles]:
    """Return what is left of float32 angles, and how many periods were subtracted.

    Both are computed as in float32 code, and returned in float64.
    """
    stored = np.asarray(angles, dtype=np.float32)
    inverse = np.float32(1 / reduction.period)
    periods = np.rint(stored * inverse)

    left = stored
    for term in reduction.terms:
        if reduction.fused:
            # A product of two float32 numbers is exact in float64.
            product = periods.astype(np.float64) * term
            difference = left.astype(np.float64) - product
            left = difference.astype(np.float32)
        else:
            product = periods * np.float32(term)
            left = left - product
    return left.astype(np.float64), periods.astype(np.float64)


def reduced_tables(angles: Angles, reduction: Reduction) -> tuple[Angles, Angles]:
    """Return cos and sin of float32 angles after a reduction.

    An odd number of half periods changes the sign of both.
    """
    left, periods = reduce_angles(angles, reduction)
    halves = periods * _half_turns(reduction)
    sign = np.where(halves % 2 == 0, 1.0, -1.0)
    return sign * np.cos(left), sign * np.sin(left)


def reduction_errors(angles: Angles, reduction: Reduction) -> Angles:
    """Return the error of the reduction of float32 angles, in radians."""
    stored = np.asarray(angles, dtype=np.float32).astype(np.float64)
    left, periods = reduce_angles(stored, reduction)
    halves = periods * _half_turns(reduction)
    # Multiples of pi are subtracted term by term, the largest first.
    exact = (stored - halves * HIGH) - halves * MIDDLE - halves * LOW
    return left - exact


def find_worst_angles(angles: Angles) -> list[int]:
    """Return where the usual reductions lose most, as indices of the angles."""
    indices = set()
    for reduction in (*REDUCTIONS.values(), FULL_TERMS):
        lost = np.abs(reduction_errors(angles, reduction))
        indices.add(int(lost.argmax()))
    return sorted(indices)


def _half_turns(reduction: Reduction) -> int:
    """Return the half turns in a period: 2, or 1 where it is halved."""
    return round(2 * reduction.period / math.tau)
