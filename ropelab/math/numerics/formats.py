"""Floating-point formats, and exact rounding to them.

All values of these formats are float64 values too, so that rounded numbers are kept in
float64 arrays.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ropelab.runs.arrays import Float, Int
from ropelab.runs.errors import check_known
from ropelab.runs.files import read_table_beside
from ropelab.runs.spelling import read_format

Values = Float[np.ndarray, "..."]

# The significant bits of float64 and of float32, the implicit bit included.
FLOAT64_BITS = 53
FLOAT32_BITS = 24
# The bits of a float64 number: 1 for the sign, 11 for the exponent plus its bias, 52 for
# the fraction.
_EXPONENT_FIELD = 0x7FF0_0000_0000_0000
_FRACTION_BITS = 52
_BIAS = 1023
# The highest bit of the fraction. Added to the bits of 2^e, whose fraction is 0, it makes
# them the bits of 1.5 * 2^e.
_HALF_OF_FRACTION = 1 << (_FRACTION_BITS - 1)


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """A binary floating-point format: a sign, a biased exponent and a fraction.

    It has subnormal numbers, as in IEEE 754. In a format without infinity only the last
    bit pattern of the top exponent is NaN (the 'fn' formats of arXiv:2209.05433 and of
    the OCP FP8 specification). A number beyond the largest value overflows to infinity,
    or to NaN if the format has no infinity. In a saturating format the number becomes
    the largest value, and so does infinity.
    """

    name: str
    precision: int  # significant bits p, the implicit one included
    exponent_bits: int  # the bias is 2^(exponent_bits-1) - 1
    has_infinity: bool = True  # the top exponent is reserved, as in IEEE 754
    saturating: bool = False

    @cached_property
    def max_exponent(self) -> int:
        # The exponent e of the largest finite value, written as 1.f * 2^e.
        bias: int = 2 ** (self.exponent_bits - 1) - 1
        if self.has_infinity:
            return bias
        return bias + 1

    @cached_property
    def min_exponent(self) -> int:
        # The exponent e of the smallest normal value, 2^e.
        return 2 - 2 ** (self.exponent_bits - 1)

    @cached_property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value."""
        return math.ldexp(1.0, 1 - self.precision)

    @cached_property
    def largest(self) -> float:
        # Significands end one epsilon below 2. Without infinity the last bit pattern of
        # the top exponent is NaN, so that the largest number is the pattern before it.
        if self.has_infinity:
            distance_from_two = self.epsilon
        else:
            distance_from_two = 2 * self.epsilon
        significand = 2.0 - distance_from_two
        return math.ldexp(significand, self.max_exponent)

    @cached_property
    def overflow(self) -> float:
        """The rounded value of a positive number beyond the largest value."""
        if self.saturating:
            return self.largest
        if self.has_infinity:
            return math.inf
        return math.nan


def _read_formats() -> dict[str, FloatFormat]:
    formats = {}
    for name, row in read_table_beside(__file__).items():
        formats[name] = FloatFormat(name=name, **row)

    # Each FP8 format has a saturating variant, which clamps to the largest value.
    for plain_name in ("float8_e4m3fn", "float8_e5m2"):
        name = f"{plain_name}_saturating"
        formats[name] = replace(formats[plain_name], name=name, saturating=True)
    return formats


FORMATS = _read_formats()


def format_named(name: str) -> FloatFormat:
    name = check_known("format", str(read_format(name)), FORMATS)
    return FORMATS[name]


def round_to(x: Values, fmt: FloatFormat) -> Values:
    """Round float64 values to the nearest value of `fmt` in one step, ties to even.

    Subnormals, signed zeros, infinities, NaN and overflow are rounded correctly, too.
    The result may share memory with x.
    """
    if x.dtype != np.float64:
        raise TypeError(f"round_to takes float64 values, not {x.dtype}")

    if fmt.precision == FLOAT64_BITS:
        return x
    if fmt.precision == FLOAT32_BITS:
        # The hardware rounds float64 to float32 in one step.
        with np.errstate(over="ignore"):
            return x.astype(np.float32).astype(np.float64)

    # For |x| in [2^e, 2^(e+1)), an anchor of 1.5 * 2^(e+53-p) is added and subtracted.
    # The sum has the last bits of the anchor, so that float64 itself drops all but p bits
    # of x, ties to even. The factor is 1.5 and not 1, because a negative x would take the
    # sum below 2^(e+53-p), where float64 keeps one bit more. Subnormals follow from a
    # lower limit on e. The casts of libraries do not serve here: they go from float64 to
    # a 16-bit format through float32, and round twice.
    bits = _binade(x, fmt)
    bits += ((FLOAT64_BITS - fmt.precision) << _FRACTION_BITS) + _HALF_OF_FRACTION
    anchor = bits.view(np.float64)
    rounded = np.add(x, anchor, out=np.empty_like(x))
    rounded -= anchor

    # Minimum and maximum cost less than a mask of all values, which is only made if
    # something overflows. If a value is NaN, the minimum and the maximum are NaN, too. No
    # comparison with NaN is true, so that `is_in_range` is False. The mask then leaves
    # the NaN as it is.
    low = rounded.min(initial=0.0)
    high = rounded.max(initial=0.0)
    is_in_range = low >= -fmt.largest and high <= fmt.largest
    if not is_in_range:
        # Negative values, too, become the positive overflow here. They get their sign
        # back at the end.
        rounded[np.abs(rounded) > fmt.largest] = fmt.overflow

    # The signs of x are written back: the subtraction loses the sign of a negative
    # zero, and the overflow above loses the sign of a negative value.
    return np.copysign(rounded, x, out=rounded)


def spacing(x: Values, fmt: FloatFormat) -> Values:
    """Return the unit in the last place of `fmt` at x.

    Around zero it is the smallest subnormal.
    """
    if fmt.precision == FLOAT64_BITS:
        magnitude = np.abs(x)
        return np.nextafter(magnitude, math.inf) - magnitude

    bits = _binade(x, fmt)
    bits += (1 - fmt.precision) << _FRACTION_BITS
    return bits.view(np.float64)


def _binade(x: Values, fmt: FloatFormat) -> Int[np.ndarray, "..."]:
    """Return 2^e for |x| in [2^e, 2^(e+1)), as the bits of a float64 in int64.

    e is limited to the exponents of `fmt`, and one more for values that overflow.
    """
    bits = np.empty(x.shape, np.int64)
    np.bitwise_and(x.view(np.int64), _EXPONENT_FIELD, out=bits)

    lowest = (fmt.min_exponent + _BIAS) << _FRACTION_BITS
    highest = (fmt.max_exponent + 1 + _BIAS) << _FRACTION_BITS
    np.maximum(bits, lowest, out=bits)
    return np.minimum(bits, highest, out=bits)
