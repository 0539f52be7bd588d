"""A cast plan applied to frequencies: stored angles and tables, errors, and bounds.

A cast plan has the number format to which each stage of the rotation is rounded: the
position m, the frequencies theta_i, the angles m theta_i, and the table of cos and sin.
A plan can also compute angles by a recurrence over the pairs of a head. A chain gives
what code with these roundings stores, and how far it is from exact arithmetic.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.formats import (
    FLOAT64_BITS,
    FORMATS,
    FloatFormat,
    Values,
    round_to,
    spacing,
)
from ropelab.runs.arrays import Float, Int

_FLOAT32 = FORMATS["float32"]
# The number of numbers that are computed together, few enough for the processor's
# cache.
BLOCK = 1 << 15

# Whole numbers in float64.
Positions = Float[np.ndarray, " n"]
PerPair = Float[np.ndarray, "pairs n"]
# The indices of the pairs that are computed.
PairIndices = np.ndarray | slice
ALL_PAIRS = slice(None)


def cut_into_octaves(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) at the powers of two; 0 is in one piece with 1."""
    while start < stop:
        next_power = 1 << max(start, 1).bit_length()
        end = min(stop, next_power)
        yield start, end
        start = end


def cut_into_blocks(
    start: int, stop: int, size: int = BLOCK
) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) into pieces of at most `size`, lazily: there may be many."""
    for low in range(start, stop, size):
        high = min(low + size, stop)
        yield low, high


def list_positions(start: int, stop: int) -> Positions:
    """Return the positions start .. stop - 1 in float64."""
    return np.arange(start, stop, dtype=np.float64)


@dataclass(frozen=True)
class Spectrum:
    """The frequencies of a position encoding, and their spacing before any scaling."""

    # Radians per token after any scaling method, float64.
    inv_freq: Float[np.ndarray, "pairs"]
    # Before scaling the frequencies are base^(-2i/rotary_dim). If base and rotary_dim
    # are None, the frequencies are not powers of a base, and are rounded once.
    base: float | None = None
    rotary_dim: int | None = None
    # Features of the head. None: all of them rotate, so that the pairs are the head.
    head_dim: int | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs that have a frequency."""
        return self.inv_freq.size

    @property
    def head_pairs(self) -> int:
        """The number of pairs of the head, with those that do not rotate."""
        if self.head_dim is None:
            return self.pairs
        return self.head_dim // 2

    @property
    def rotated_share(self) -> float:
        """The share of the head that has a frequency."""
        return self.pairs / self.head_pairs

    @property
    def head_frequencies(self) -> Float[np.ndarray, " head_pairs"]:
        """The frequencies of the whole head. A pair that does not rotate has 0."""
        unrotated = np.zeros(self.head_pairs - self.pairs)
        return np.concatenate((self.inv_freq, unrotated))

    @cached_property
    def exponents(self) -> Float[np.ndarray, "pairs"]:
        """2i/d, the exponent of pair i."""
        assert self.rotary_dim is not None
        first_features = np.arange(0, self.rotary_dim, 2, dtype=np.float64)
        return first_features / self.rotary_dim


@dataclass(frozen=True)
class Chain:
    """A cast plan on a spectrum of frequencies."""

    plan: CastPlan
    spectrum: Spectrum

    @cached_property
    def inv_freq(self) -> Float[np.ndarray, " pairs"]:
        """The frequencies as stored."""
        frequencies = self.spectrum.inv_freq
        if self.plan.frequencies == "float32_pow" and self.spectrum.base is not None:
            frequencies = self._compute_in_float32(self.spectrum.base)
        return round_to(frequencies, self.plan.inv_freq)

    def _compute_in_float32(self, exact_base: float) -> Float[np.ndarray, " pairs"]:
        """Return the frequencies as code computes them that rounds to float32.

        Each step of 1 / base^(2i/d) is rounded.
        """
        spectrum = self.spectrum
        base = round_to(np.array(exact_base), _FLOAT32)
        exponents = round_to(spectrum.exponents, _FLOAT32)
        powers = round_to(np.power(base, exponents), _FLOAT32)
        rounded = round_to(1 / powers, _FLOAT32)

        # A scaling method changes the rounded frequency, so that a scaled frequency has
        # the relative error of the unscaled frequency. Where the rounding changes
        # nothing, the quotient would add an error of float64.
        unscaled = np.power(exact_base, -spectrum.exponents)
        scaled = spectrum.inv_freq * (rounded / unscaled)
        return np.where(rounded == unscaled, spectrum.inv_freq, scaled)

    @property
    def recurrent(self) -> bool:
        """True if angles are computed by a recurrence from pair to pair."""
        return self.plan.angles == "recurrence" and self.spectrum.base is not None

    def positions(self, positions: Positions) -> Positions:
        """Return the positions as stored."""
        return round_to(positions, self.plan.position)

    @np.errstate(invalid="ignore", over="ignore")
    def angles(self, positions: Positions, pairs: PairIndices = ALL_PAIRS) -> PerPair:
        """Return the angles as stored, in radians, not reduced to one rotation."""
        stored_positions = self.positions(positions)
        if self.recurrent:
            indices = np.arange(self.spectrum.pairs)[pairs]
            return self._compute_recurrence(stored_positions, indices)
        product = self.inv_freq[pairs, None] * stored_positions
        return round_to(product, self.plan.angle)

    @cached_property
    def _ratio(self) -> tuple[float, np.ndarray]:
        """The ratio of neighbouring unscaled frequencies, exact and as stored."""
        spectrum = self.spectrum
        assert spectrum.base is not None
        assert spectrum.rotary_dim is not None
        exact_ratio = spectrum.base ** (-2 / spectrum.rotary_dim)
        stored_ratio = round_to(np.array(exact_ratio), self.plan.inv_freq)
        return exact_ratio, stored_ratio

    @cached_property
    def _factors(self) -> Float[np.ndarray, "pairs 1"]:
        """The factors by which the scaling method changes the frequencies."""
        assert self.spectrum.base is not None
        inverse_unscaled = np.power(self.spectrum.base, self.spectrum.exponents)
        factors = (self.spectrum.inv_freq * inverse_unscaled)[:, None]
        # Without scaling the product is 1 but for the errors of float64.
        is_unscaled = np.abs(factors - 1) < 1e-14
        return np.where(is_unscaled, 1.0, factors)

    def _compute_recurrence(
        self, stored_positions: Positions, chosen_pairs: Int[np.ndarray, " chosen"]
    ) -> PerPair:
        """Return the angles of chosen pairs at stored positions.

        angle_0 = m and angle_i = angle_(i-1) * ratio, each rounded. The scaling method
        changes the angles at the end.
        """
        _, ratio = self._ratio
        # The angle of a pair needs the angles of all pairs before it. Only the angles
        # of the chosen pairs are kept.
        angle_of_pair = {}
        angle = round_to(stored_positions, self.plan.angle)
        for pair in range(int(chosen_pairs.max(initial=0)) + 1):
            if pair:
                angle = round_to(angle * ratio, self.plan.angle)
            if pair in chosen_pairs:
                angle_of_pair[pair] = angle

        angles = np.empty((len(chosen_pairs), len(stored_positions)))
        for row, pair in enumerate(chosen_pairs.tolist()):
            angles[row] = angle_of_pair[pair]
        return round_to(angles * self._factors[chosen_pairs], self.plan.angle)

    def _bound_recurrence(self, positions: Positions) -> PerPair:
        """Bound the errors of the angles of `_compute_recurrence`.

        The error of a pair has three parts: the error of the pair before times the
        stored ratio, the error that the ratio adds, and the error of one more rounding.
        """
        exact_ratio, stored_ratio = self._ratio
        ratio_error = abs(stored_ratio - exact_ratio)
        fmt = self.plan.angle

        angle = positions
        error = half_step(positions, self.plan.position, whole=True)
        error = error + half_step(positions + error, fmt, whole=True)
        angles = [angle]
        errors = [error]
        for _ in range(self.spectrum.pairs - 1):
            error = stored_ratio * error + ratio_error * angle
            angle = exact_ratio * angle
            error = error + half_step(angle + error, fmt)
            angles.append(angle)
            errors.append(error)

        factors = self._factors
        scaled_angles = factors * np.stack(angles)
        scaled_errors = factors * np.stack(errors)
        last_rounding = half_step(scaled_angles + scaled_errors, fmt)
        last_rounding = np.where(factors == 1, 0.0, last_rounding)
        # The error of float64 in products of up to 2^9 numbers.
        float64_error = 1e-13 * scaled_angles
        return scaled_errors + last_rounding + float64_error

    @np.errstate(invalid="ignore", over="ignore")
    def angle_errors(
        self, positions: Positions, pairs: PairIndices = ALL_PAIRS
    ) -> PerPair:
        """Return the stored angle minus m * theta_i in radians.

        This error is not reduced to one rotation, and not finite if an angle overflows.
        """
        exact_theta = self.spectrum.inv_freq[pairs, None]
        if self.recurrent:
            return self.angles(positions, pairs) - exact_theta * positions

        theta = self.inv_freq[pairs, None]
        stored_positions = self.positions(positions)
        # The errors of the stages are added. A difference of two large angles would
        # lose digits.
        error = (theta - exact_theta) * positions
        if self.plan.position.precision < FLOAT64_BITS:
            position_error = stored_positions - positions
            error += theta * position_error
        if self.plan.angle.precision < FLOAT64_BITS:
            product = theta * stored_positions
            rounded = round_to(product, self.plan.angle)
            error += rounded - product
        return error

    @np.errstate(invalid="ignore", over="ignore")
    def table(
        self,
        positions: Positions,
        pairs: PairIndices = ALL_PAIRS,
    ) -> tuple[PerPair, PerPair]:
        """Return cos and sin as stored."""
        angles = self.angles(positions, pairs)
        cos = round_to(np.cos(angles), self.plan.table)
        sin = round_to(np.sin(angles), self.plan.table)
        return cos, sin

    @np.errstate(invalid="ignore", over="ignore")
    def error_bounds(self, positions: Positions) -> PerPair:
        """Bound the angle errors of each pair.

        A bound holds at a position and at all positions before it. It is infinite where
        no bound is known.
        """
        # The margin covers what float64 loses in computing the bound itself.
        margin = 1 + 1e-9
        if self.recurrent:
            return self._bound_recurrence(positions) * margin

        frequency_errors = np.abs(self.inv_freq - self.spectrum.inv_freq)
        from_frequencies = frequency_errors[:, None] * positions
        return (from_frequencies + self.rounding_bounds(positions)) * margin

    @np.errstate(invalid="ignore", over="ignore")
    def rounding_bounds(self, positions: Positions) -> PerPair:
        """Bound the distance of stored angles from m times the stored frequency.

        A bound holds at a position and at all positions before it. It is infinite where
        no bound is known.
        """
        # Every rounding adds half a unit in the last place. The recurrence has no stored
        # frequency.
        theta = self.inv_freq[:, None]
        if self.recurrent:
            return np.full((theta.size, positions.size), math.inf)

        position_errors = half_step(positions, self.plan.position, whole=True)
        # A frequency that is stored as 0 has no errors, even of infinite positions,
        # where the product would be nan.
        errors = np.where(theta == 0, 0.0, theta * position_errors)
        largest = theta * positions + errors
        return errors + half_step(largest, self.plan.angle)


def half_step(x: Values, fmt: FloatFormat, *, whole: bool = False) -> Values:
    """Bound the error of rounding any number in [0, x].

    ``whole`` says that the numbers are whole. A format of p significant bits holds all
    whole numbers up to 2^p.
    """
    if fmt.precision == FLOAT64_BITS:
        return np.zeros_like(x)

    half = spacing(x, fmt) / 2
    if whole:
        half = np.where(half <= 0.5, 0.0, half)
    # Numbers beyond the largest value overflow, and have no bound.
    return np.where(x > fmt.largest, math.inf, half)
