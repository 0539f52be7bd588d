"""A position encoding before it is stored, and its repetitions in exact arithmetic.

A pair of features rotates by theta radians per token, with a period of 2 pi / theta
tokens. If the period is a fraction p/q, the pair is back at its start after p tokens. The
frequencies of RoPE, powers of a rational base, are algebraic numbers. If one of their
periods were a fraction, pi would be algebraic, too. The pairs of RoPE therefore never
repeat.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ropelab.math.numerics.chain import Chain, Positions
from ropelab.math.numerics.formats import FLOAT32_BITS, FloatFormat, spacing
from ropelab.runs.arrays import Float, Int

Wave = Callable[[np.ndarray], np.ndarray]

# The functions of an angle that a component stores.
_WAVES: dict[str, tuple[Wave, ...]] = {
    "cos": (np.cos,),
    "sin": (np.sin,),
    "pair": (np.cos, np.sin),
    "vector": (np.cos, np.sin),
}

# The largest relative error of a period that is computed as 2 pi / theta, where theta was
# computed as 2 pi / period.
PERIOD_ERROR = 2.0**-50
# The largest probability with which a period that is no fraction is taken for a
# fraction.
LARGEST_CHANCE = 1e-6


@dataclass(frozen=True)
class PositionEncoding:
    """The numbers that represent a position, made from some pairs of a chain.

    A chain computes the stored angles of a head. A component is one of:

    cos, sin: only the cosine or only the sine of one pair.
    pair, vector: cosine and sine, of one pair or of many pairs.
    score: the mean of cos over the pairs of the head, of which those that do not rotate
        have cos 1. This is the attention score of two equal unit vectors at that distance.
    angle: the stored angles, which tell as much as an unrounded table of cos and sin.
    """

    chain: Chain
    component: str
    pairs: range

    @np.errstate(invalid="ignore", over="ignore")
    def values(
        self,
        positions: Positions,
        pairs: range,
    ) -> Float[np.ndarray, "features n"]:
        """Return the numbers of some pairs, pair by pair, before they are rounded."""
        if self.component == "score":
            return self._scores(positions, pairs)

        chosen = slice(pairs.start, pairs.stop)
        angles = self.chain.angles(positions, chosen)
        if self.component == "angle":
            return angles

        # [pairs, waves, n], of which pairs and waves become one axis.
        waves = [wave(angles) for wave in _WAVES[self.component]]
        by_pair = np.stack(waves, axis=1)
        return by_pair.reshape(-1, len(positions))

    def _scores(
        self,
        positions: Positions,
        pairs: range,
    ) -> Float[np.ndarray, "1 n"]:
        total = np.zeros_like(positions)
        # The pairs are added one by one, so that only one row of angles is in memory.
        for pair in pairs:
            chosen = slice(pair, pair + 1)
            angles = self.chain.angles(positions, chosen)[0]
            total = total + np.cos(angles)

        spectrum = self.chain.spectrum
        unrotated = spectrum.head_pairs - spectrum.pairs
        mean = (total + unrotated) / (len(pairs) + unrotated)
        return mean[None]

    @property
    def per_pair(self) -> int:
        """The numbers that a pair contributes; 0 if all pairs make one number together."""
        if self.component == "score":
            return 0
        if self.component == "angle":
            return 1
        return len(_WAVES[self.component])

    @property
    def single(self) -> bool:
        """True if the encoding is a single number."""
        return self.per_pair == 0 or len(self.pairs) * self.per_pair == 1

    def packs(self, fmt: FloatFormat) -> bool:
        """Return True if 64 bits hold the encoding: one number, or two of 32 bits."""
        if self.single:
            return True
        numbers = len(self.pairs) * self.per_pair
        return numbers == 2 and fmt.precision <= FLOAT32_BITS

    def leading(self, fmt: FloatFormat) -> range:
        """Return the pairs to compare first, which separate most positions."""
        if self.component == "score":
            return self.pairs
        # The leading pairs have 48 bits or more. Cos and sin together tell about two
        # bits more than either alone.
        count = math.ceil(48 / (fmt.precision + 2))
        return self.pairs[:count]


def measure_neighbour_steps(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    positions: Positions,
) -> Positions:
    """Return the largest change of a number of the encoding to the next position.

    There is a result for each position. It is the change before rounding, in units of
    the last place of `fmt` at the larger of the two numbers. If the change is below one
    half, the two numbers are mostly stored alike.
    """
    values = encoding.values(positions, encoding.pairs)
    next_values = encoding.values(positions + 1, encoding.pairs)
    larger_values = np.maximum(np.abs(values), np.abs(next_values))
    steps = np.abs(next_values - values) / spacing(larger_values, fmt)
    return np.max(steps, axis=0)


def find_whole_period(theta: float) -> int | None:
    """Return the whole number of tokens after which a pair is back at its start.

    None: the pair is never back at its start.

    >>> [find_whole_period(2 * math.pi / period) for period in (360, 62.5)], find_whole_period(1.0)
    ([360, 125], None)
    """
    if not theta:
        return 1

    period = 2 * math.pi / theta
    tolerance = PERIOD_ERROR * period

    # The period is read as the fraction that it equals in float64. A number that is no
    # fraction is within the tolerance of a fraction with a denominator up to q with a
    # probability of about q^2 times the tolerance. The longer a period, the smaller are
    # the denominators that are tried. Above 1e9 tokens no denominator is tried.
    largest_denominator = int(math.sqrt(LARGEST_CHANCE / tolerance))
    if largest_denominator == 0:
        return None

    fraction = Fraction(period).limit_denominator(largest_denominator)
    if abs(float(fraction) - period) > tolerance:
        return None
    return fraction.numerator


def find_common_period(inv_freq: Iterable[float]) -> int | None:
    """Return the first position after 0 at which all pairs are as at position 0.

    None: there is no such position.

    >>> find_common_period([2 * math.pi / 10, 2 * math.pi / 25]), find_common_period([1.0])
    (50, None)
    """
    common_period = 1
    for theta in inv_freq:
        period = find_whole_period(theta)
        if period is None:
            return None
        common_period = math.lcm(common_period, period)
    return common_period


def find_first_repeat(period: int, component: str) -> int:
    """Return the first position that repeats an earlier one, for a whole period."""
    # Within a period p, cos alone has the same value at m and at p - m. Sin alone has
    # the same value at m and at p/2 - m, if p is even. This also holds for a period of
    # p/q tokens, since q and p have no common factor.
    if component == "cos":
        return period // 2 + 1
    if component == "sin" and period % 2 == 0:
        return period // 4 + 1
    return period


def list_distinct_positions(
    period: int,
    component: str,
    offset: int,
    length: int,
) -> Int[np.ndarray, " distinct"]:
    """Return one position per distinct value of a pair, from ``offset`` on."""
    count = min(length, period)
    return np.unique(find_first_equals(period, component, offset, count))


def find_first_equals(
    period: int,
    component: str,
    offset: int,
    count: int,
) -> Int[np.ndarray, " positions"]:
    """Return for each position from ``offset`` on the smallest position that has the same
    value of a pair.
    """
    # Of two positions with the same value, as in `find_first_repeat`, the smaller
    # position stays.
    positions = np.arange(offset, offset + count) % period
    if component == "cos":
        mirrored = -positions % period
        positions = np.minimum(positions, mirrored)
    elif component == "sin" and period % 2 == 0:
        mirrored = (period // 2 - positions) % period
        positions = np.minimum(positions, mirrored)
    return positions
