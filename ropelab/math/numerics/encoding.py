"""A position encoding before it is stored, and its repetitions in exact arithmetic.

A pair whose period is a fraction p/q of tokens is back at its start after p tokens. A
power of a rational base is algebraic, so its period is no fraction (else pi were
algebraic): no repetition.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ropelab.math.numerics.chain import Chain, Positions
from ropelab.math.numerics.formats import FloatFormat, spacing
from ropelab.runs.arrays import Float, Int

Wave = Callable[[np.ndarray], np.ndarray]

_WAVES: dict[str, tuple[Wave, ...]] = {
    "cos": (np.cos,),
    "sin": (np.sin,),
    "pair": (np.cos, np.sin),
    "vector": (np.cos, np.sin),
}

# A period computed as 2 pi / theta, theta as 2 pi / period, is off by less (relative).
NEAR = 2.0**-50
# A period that is no fraction is read as one with this probability at most.
BY_CHANCE = 1e-6


@dataclass(frozen=True)
class PositionEncoding:
    """The numbers that represent a position: those of some pairs of a chain.

    A component is cos or sin; both ('pair' with one pair, 'vector' with many); 'score',
    the mean of cos over the pairs, the attention score of aligned unit vectors at that
    distance; or 'angle', the stored angles, which tell as much as an unrounded table.
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

        waves = [wave(angles) for wave in _WAVES[self.component]]
        by_pair = np.stack(waves, axis=1)
        return by_pair.reshape(-1, len(positions))

    def _scores(
        self,
        positions: Positions,
        pairs: range,
    ) -> Float[np.ndarray, "1 n"]:
        total = np.zeros_like(positions)
        # Pair after pair, so that no more than one row is held.
        for pair in pairs:
            chosen = slice(pair, pair + 1)
            angles = self.chain.angles(positions, chosen)[0]
            total = total + np.cos(angles)

        mean = total / len(pairs)
        return mean[None]

    @property
    def per_pair(self) -> int:
        """Numbers that a pair contributes; 0: they are one number together."""
        if self.component == "score":
            return 0
        if self.component == "angle":
            return 1
        return len(_WAVES[self.component])

    @property
    def single(self) -> bool:
        return self.per_pair == 0 or len(self.pairs) * self.per_pair == 1

    def packs(self, fmt: FloatFormat) -> bool:
        """Return True if it has at most 64 bits: one number, or two of 32 bits."""
        if self.single:
            return True
        numbers = len(self.pairs) * self.per_pair
        return numbers == 2 and fmt.precision <= 24

    def leading(self, fmt: FloatFormat) -> range:
        """Return the pairs to compare first: enough bits to separate most positions."""
        if self.component == "score":
            return self.pairs
        count = math.ceil(48 / (fmt.precision + 2))
        return self.pairs[:count]


def neighbour_steps(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    places: Positions,
) -> Positions:
    """Return the largest change of a number from m to m + 1, before rounding.

    In units of the last place of `fmt` at the larger of the two. Below one half,
    neighbours mostly collide.
    """
    here = encoding.values(places, encoding.pairs)
    there = encoding.values(places + 1, encoding.pairs)
    larger = np.maximum(np.abs(here), np.abs(there))
    steps = np.abs(there - here) / spacing(larger, fmt)
    return np.max(steps, axis=0)


def whole_period(theta: float) -> int | None:
    """Return the whole tokens after which a pair is back at its start; None: never.

    >>> [whole_period(2 * math.pi / period) for period in (360, 62.5)], whole_period(1.0)
    ([360, 125], None)
    """
    if not theta:
        return 1
    period = 2 * math.pi / theta
    near = NEAR * period
    # The period is read as the fraction that it equals in float64. Some fraction with a
    # denominator up to q is that near to any number with a probability of about q^2
    # times the distance, so only small denominators are tried where periods are long,
    # and none above 1e9 tokens.
    denominators = int(math.sqrt(BY_CHANCE / near))
    if not denominators:
        return None
    fraction = Fraction(period).limit_denominator(denominators)
    if abs(float(fraction) - period) > near:
        return None
    return fraction.numerator


def returns_after(inv_freq: Iterable[float]) -> int | None:
    """Return the first position after 0 with all pairs as at position 0; None: never.

    >>> returns_after([2 * math.pi / 10, 2 * math.pi / 25]), returns_after([1.0])
    (50, None)
    """
    together = 1
    for period in map(whole_period, inv_freq):
        if period is None:
            return None
        together = math.lcm(together, period)
    return together


def first_repeat(period: int, component: str) -> int:
    """Return the first position that repeats an earlier one, for a whole period."""
    # Within a period p cos alone has at m the value that it has at p - m, and sin
    # alone, where p is even, the value at p/2 - m. (For a period p/q too: q and p have
    # no common factor.)
    if component == "cos":
        return period // 2 + 1
    if component == "sin" and period % 2 == 0:
        return period // 4 + 1
    return period


def distinct_positions(
    period: int,
    component: str,
    offset: int,
    length: int,
) -> Int[np.ndarray, " distinct"]:
    """Return one position per distinct value of a pair, from ``offset`` on."""
    count = min(length, period)
    places = np.arange(offset, offset + count) % period
    if component == "cos":
        mirrored = -places % period
        places = np.minimum(places, mirrored)
    elif component == "sin" and period % 2 == 0:
        mirrored = (period // 2 - places) % period
        places = np.minimum(places, mirrored)
    return np.unique(places)
