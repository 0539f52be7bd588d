"""Floating-point formats, and exact rounding to them; their values are float64 values
too.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ropelab.runs.arrays import Float, Int
from ropelab.runs.errors import known
from ropelab.runs.files import table_beside
from ropelab.runs.spelling import read_format

_EXPONENT_FIELD = 0x7FF0_0000_0000_0000
_FRACTION_BITS = 52
_HALF = 1 << (_FRACTION_BITS - 1)


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """A binary floating-point format with IEEE layout: sign, biased exponent, fraction,
    subnormals.

    Without infinity only the last code of the top exponent is NaN (the 'fn' of
    arXiv:2209.05433 and the OCP FP8 specification). Values beyond the largest become
    the largest where `saturating`, infinity included; else infinity, or NaN where there
    is none.
    """

    name: str
    precision: int  # significant bits p, the implicit one included
    exponent_bits: int  # the bias is 2^(exponent_bits-1) - 1
    has_infinity: bool = True  # the top exponent is reserved, as in IEEE 754
    saturating: bool = False

    @cached_property
    def max_exponent(self) -> int:
        # e of the largest finite value, written 1.f * 2^e.
        bias: int = 2 ** (self.exponent_bits - 1) - 1
        return bias if self.has_infinity else bias + 1

    @cached_property
    def min_exponent(self) -> int:
        # e of the smallest normal value 2^e.
        return 2 - 2 ** (self.exponent_bits - 1)

    @cached_property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value."""
        return math.ldexp(1.0, 1 - self.precision)

    @cached_property
    def largest(self) -> float:
        missing = 1 if self.has_infinity else 2
        return math.ldexp(2.0 - missing * self.epsilon, self.max_exponent)

    @cached_property
    def overflow(self) -> float:
        """The rounded value of a positive number beyond the largest."""
        if self.saturating:
            return self.largest
        return math.inf if self.has_infinity else math.nan


FORMATS = {
    name: FloatFormat(name=name, **row) for name, row in table_beside(__file__).items()
}
# The plain FP8 names overflow to NaN or infinity, '..._saturating' clamps to the
# largest.
FORMATS |= {
    f"{name}_saturating": replace(
        FORMATS[name], name=f"{name}_saturating", saturating=True
    )
    for name in ("float8_e4m3fn", "float8_e5m2")
}


def format_named(name: str) -> FloatFormat:
    return FORMATS[known("format", str(read_format(name)), FORMATS)]


def round_to(x: Float[np.ndarray, "..."], fmt: FloatFormat) -> Float[np.ndarray, "..."]:
    """Round float64 values to the nearest value of `fmt`, ties to even, once and
    exactly.
    """
    # Also subnormals, signed zeros, infinities, NaN and overflow. May share memory with
    # x.
    if x.dtype != np.float64:
        raise TypeError(f"round_to takes float64 values, not {x.dtype}")

    if fmt.precision == 53:
        return x
    if fmt.precision == 24:  # one rounding, by the hardware
        with np.errstate(over="ignore"):
            return x.astype(np.float32).astype(np.float64)

    # For |x| in [2^e, 2^(e+1)), adding and subtracting 1.5 * 2^(e+53-p) makes the
    # float64 adder drop all but p bits, ties to even; clamping e from below gives the
    # subnormals. Casts of libraries from float64 to a 16-bit format go through float32
    # and round twice.
    anchor = _binade(x, fmt)
    anchor += ((53 - fmt.precision) << _FRACTION_BITS) + _HALF
    rounded = np.add(x, anchor.view(np.float64), out=np.empty_like(x))
    rounded -= anchor.view(np.float64)

    # min and max cost less than a mask where nothing overflows; NaN fails both
    # comparisons.
    low = rounded.min(initial=0.0)
    high = rounded.max(initial=0.0)
    if not (low >= -fmt.largest and high <= fmt.largest):
        rounded[np.abs(rounded) > fmt.largest] = fmt.overflow

    # the subtraction loses the sign of zero
    return np.copysign(rounded, x, out=rounded)


def spacing(x: Float[np.ndarray, "..."], fmt: FloatFormat) -> Float[np.ndarray, "..."]:
    """Return the unit in the last place of `fmt` at x; around zero, the smallest
    subnormal.
    """
    if fmt.precision == 53:
        return np.nextafter(np.abs(x), math.inf) - np.abs(x)
    bits = _binade(x, fmt)
    bits += (1 - fmt.precision) << _FRACTION_BITS
    return bits.view(np.float64)


def _binade(x: Float[np.ndarray, "..."], fmt: FloatFormat) -> Int[np.ndarray, "..."]:
    """Return the bits (int64) of 2^e for |x| in [2^e, 2^(e+1)), e within what `fmt`
    rounds.
    """
    bits = np.bitwise_and(
        x.view(np.int64), _EXPONENT_FIELD, out=np.empty(x.shape, np.int64)
    )
    low, high = (
        (e + 1023) << _FRACTION_BITS for e in (fmt.min_exponent, fmt.max_exponent + 1)
    )
    np.maximum(bits, low, out=bits)
    return np.minimum(bits, high, out=bits)
