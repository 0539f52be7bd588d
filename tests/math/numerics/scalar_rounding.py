"""The specification of rounding: one value at a time, in rational arithmetic, slow and
obvious.
"""

import math
from fractions import Fraction

from ropelab.math.numerics.formats import FloatFormat


def round_scalar(x: float, fmt: FloatFormat) -> float:
    """x rounded to the nearest value of fmt, ties to even, overflow as the format
    says.
    """
    if math.isnan(x):
        return x
    if math.isinf(x):
        return math.copysign(fmt.overflow, x)
    exponent = max(math.frexp(x)[1] - 1, fmt.min_exponent)
    step = Fraction(2) ** (exponent - fmt.precision + 1)
    rounded = round(Fraction(x) / step) * step  # Python rounds halves to even
    if abs(rounded) > Fraction(fmt.largest):
        return math.copysign(fmt.overflow, x)
    return math.copysign(float(rounded), x)
