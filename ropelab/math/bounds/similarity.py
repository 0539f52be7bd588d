"""S(m, b) = unrotated + sum_i cos(m b^(-a_i)) as a function of u = ln b; its slopes.

m is a distance in tokens, b the base of RoPE, and i a pair of features of a head, with
a_i = 2 i / rotary_dim. A pair that does not rotate contributes cos 0 = 1, and
``unrotated`` counts these pairs. Men et al. 2024 (Base of RoPE Bounds Context Length,
arXiv:2405.14591) show that a key equal to the query is preferred to a random key, both m
tokens away, by an amount proportional to this sum.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ropelab.math.frequencies import check_rotary_dim
from ropelab.runs.errors import InputError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

TWO_PI = 2 * math.pi
# A bound on the error of one cosine in single precision (float32) after `reduce_angle`:
# the rounding of an argument in [-pi, pi] to float32 (1.2e-7), the error of the float32
# cosine itself, and this cosine's part of the rounding of the sum.
SINGLE_ERROR = 1e-6


@dataclass(frozen=True)
class Similarity:
    """The sum of cosines of one head."""

    # The exponents a_i of the pairs that rotate, in [0, 1).
    exponents: tuple[float, ...]
    # The number of pairs that do not rotate.
    unrotated: int = 0

    @classmethod
    def of_head(
        cls,
        head_dim: int,
        rotary_dim: int | None = None,
        kept_share: float = 1.0,
        dropped_pairs: tuple[int, ...] = (),
    ) -> "Similarity":
        """Make the sum for a head.

        Args:
            head_dim: the number of features of the head.
            rotary_dim: the number of features that rotate; None: all.
            kept_share: the share of the pairs that rotates, the fastest pairs first
                (p-RoPE).
            dropped_pairs: the indices of pairs that do not rotate, whatever the share.

        InputError: no head has this width, or a dropped pair does not exist.
        """
        rotary = head_dim if rotary_dim is None else rotary_dim
        pairs = rotary // 2

        if head_dim < 2 or head_dim % 2:
            raise InputError(
                f"head_dim must be an even number of at least 2, not {head_dim}"
            )
        check_rotary_dim(rotary)
        if rotary > head_dim:
            raise InputError(f"rotary_dim {rotary} is wider than the head ({head_dim})")

        unknown = [pair for pair in dropped_pairs if not 0 <= pair < pairs]
        if unknown:
            raise InputError(
                f"no pair {unknown[0]} to drop: pairs are 0 to {pairs - 1}"
            )

        # The number of kept pairs is rounded down. The method PRope, which computes it in
        # the same way, therefore keeps the same pairs.
        count = int(kept_share * rotary // 2)
        rotating = [pair for pair in range(count) if pair not in dropped_pairs]
        exponents = tuple(2 * pair / rotary for pair in rotating)
        return cls(exponents, unrotated=head_dim // 2 - len(rotating))

    @property
    def never_negative(self) -> bool:
        # A pair that does not rotate adds 1, and a rotating pair adds at least -1.
        return self.unrotated >= len(self.exponents)

    @cached_property
    def a(self) -> Floats:
        """The exponents a_i as an array."""
        return np.array(self.exponents, dtype=np.float64)

    def inv_freq(self, u: Floats | float) -> Floats:
        """Return b^(-a_i) for u = ln b; one row per entry of ``u``."""
        exponents = np.multiply.outer(u, self.a)
        return np.exp(-exponents)

    def evaluate(self, positions: Floats, u: Floats | float) -> Floats:
        """Return S in float64; ``u`` is one value, or one per position."""
        angles = positions[:, None] * self.inv_freq(u)
        return self.unrotated + np.cos(angles).sum(-1)

    def slope_bound(self, u: float) -> float:
        """Return s = sum_i a_i b^(-a_i).

        |dS/du| <= m s at u and at every larger number in its place.
        """
        slopes = self.a * self.inv_freq(u)
        return float(slopes.sum())

    def slope_typical(self, u: float) -> float:
        """Return the root mean square of dS/du over random phases, per unit of m."""
        amplitudes = self.a * self.inv_freq(u)
        squares = float((amplitudes**2).sum())
        # The mean square of a sine is 1/2.
        return math.sqrt(squares / 2)

    def curvature_bounds(self, u: Floats) -> tuple[Floats, Floats]:
        """Return c1 and c2.

        |d2S/du2| <= c1 m + c2 m^2 at u and at every larger number in its place.
        """
        # d2/du2 cos(phi) = -a^2 (phi^2 cos phi + phi sin phi) with phi = m b^(-a).
        squares = self.a**2
        inv_freq = self.inv_freq(u)
        c1 = (squares * inv_freq).sum(-1)
        c2 = (squares * inv_freq**2).sum(-1)
        return c1, c2

    def rounding_error(self, length: int) -> float:
        """Bound the float64 error of S, for positions below ``length`` and u <= 100."""
        # The relative error of b^(-a) is below (u a + 2) * 2^-53 < 2e-14. The error of an
        # angle is below length * 2e-14, and a cosine adds its own rounding. The errors
        # of all pairs add up.
        return len(self.exponents) * (2e-14 * length + 1e-15)

    @property
    def single_error(self) -> float:
        """Bound the error of S where cosines are computed in float32."""
        # One more error is allowed for the addition of `unrotated`.
        return (len(self.exponents) + 1) * SINGLE_ERROR


@dataclass(frozen=True)
class FixedSimilarity(Similarity):
    """The sum for the fixed frequencies of a scaling plan, whatever the base.

    S is the same at every u. The methods about slopes and curvature do not describe it.
    The exponents are the exponents before scaling, and only their number is used.
    """

    # The frequencies in radians per token.
    frequencies: tuple[float, ...] = ()

    def inv_freq(self, u: Floats | float) -> Floats:
        """Return the fixed frequencies; one row per entry of ``u``."""
        frequencies = np.array(self.frequencies, dtype=np.float64)
        shape = (*np.shape(u), len(frequencies))
        return np.broadcast_to(frequencies, shape)


def reduce_angle(angle: Floats) -> Singles:
    """Bring ``angle`` to [-pi, pi] in float64, then round it to float32."""
    # Sines and cosines of small arguments in float32 are computed twenty times as fast
    # as sines and cosines of large arguments in float64. The only error of the reduced
    # angle is that of rounding a number below pi.
    whole_turns = np.rint(angle * (1 / TWO_PI))
    return (angle - whole_turns * TWO_PI).astype(np.float32)
