"""A cast plan applied to frequencies: stored angles and tables, errors, and bounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.formats import (
    FORMATS,
    FloatFormat,
    Values,
    round_to,
    spacing,
)
from ropelab.runs.arrays import Float

_FLOAT32 = FORMATS["float32"]
# Numbers worked on at once: small enough for the cache.
BLOCK = 1 << 15

Positions = Float[np.ndarray, " n"]
PerPair = Float[np.ndarray, "pairs n"]
Chosen = np.ndarray | slice
ALL = slice(None)


def octaves(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) at the powers of two; 0 belongs to the octave of 1."""
    while start < stop:
        next_power = 1 << max(start, 1).bit_length()
        end = min(stop, next_power)
        yield start, end
        start = end


def blocks(start: int, stop: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) into pieces of at most `size`, lazily: there may be many."""
    for low in range(start, stop, size):
        high = min(low + size, stop)
        yield low, high


def span(start: int, stop: int) -> Positions:
    """Return the positions start .. stop - 1 in float64."""
    return np.arange(start, stop, dtype=np.float64)


@dataclass(frozen=True)
class Spectrum:
    """The frequencies of a position encoding, and their spacing before any scaling."""

    # Radians per token after any scaling method, float64.
    inv_freq: Float[np.ndarray, "pairs"]
    # Unscaled they are base^(-2i/rotary_dim); None: one frequency, rounded once.
    base: float | None = None
    rotary_dim: int | None = None

    @property
    def pairs(self) -> int:
        return self.inv_freq.size

    @cached_property
    def exponents(self) -> Float[np.ndarray, "pairs"]:
        """2i/d, the exponent of pair i."""
        assert self.rotary_dim is not None
        first_features = np.arange(0, self.rotary_dim, 2, dtype=np.float64)
        return first_features / self.rotary_dim


@dataclass(frozen=True)
class Chain:
    """A plan on a spectrum.

    Positions are whole numbers in float64; pairs are indices.
    """

    plan: CastPlan
    spectrum: Spectrum

    @cached_property
    def inv_freq(self) -> Float[np.ndarray, " pairs"]:
        """The frequencies as stored."""
        computed = self.spectrum.inv_freq
        if self.plan.frequencies == "float32_pow" and self.spectrum.base is not None:
            computed = self._power_in_float32(self.spectrum.base)
        return round_to(computed, self.plan.inv_freq)

    def _power_in_float32(self, exact_base: float) -> Float[np.ndarray, " pairs"]:
        """Return the frequencies with 1 / base^(2i/d), each step rounded to float32."""
        spectrum = self.spectrum
        base = round_to(np.array(exact_base), _FLOAT32)
        exponents = round_to(spectrum.exponents, _FLOAT32)
        powers = round_to(np.power(base, exponents), _FLOAT32)
        ours = round_to(1 / powers, _FLOAT32)

        # A scaled frequency inherits the relative error of the unscaled one. Where
        # there is none, the quotient of two powers would add its own.
        unscaled = np.power(exact_base, -spectrum.exponents)
        scaled = spectrum.inv_freq * (ours / unscaled)
        return np.where(ours == unscaled, spectrum.inv_freq, scaled)

    @property
    def recurrent(self) -> bool:
        return self.plan.angles == "recurrence" and self.spectrum.base is not None

    def positions(self, positions: Positions) -> Positions:
        return round_to(positions, self.plan.position)

    @np.errstate(invalid="ignore", over="ignore")
    def angles(self, positions: Positions, pairs: Chosen = ALL) -> PerPair:
        """Return the angles as stored, in radians, not reduced to a turn."""
        stored = self.positions(positions)
        if self.recurrent:
            chosen = np.arange(self.spectrum.pairs)[pairs]
            count = int(chosen.max(initial=0)) + 1
            return self._recurrence(stored, count)[chosen]
        product = self.inv_freq[pairs, None] * stored
        return round_to(product, self.plan.angle)

    @cached_property
    def _ratio(self) -> tuple[float, np.ndarray]:
        """The ratio of neighbouring unscaled frequencies, exact and as stored."""
        spectrum = self.spectrum
        assert spectrum.base is not None
        assert spectrum.rotary_dim is not None
        exact = spectrum.base ** (-2 / spectrum.rotary_dim)
        stored = round_to(np.array(exact), self.plan.inv_freq)
        return exact, stored

    @cached_property
    def _factors(self) -> Float[np.ndarray, "pairs 1"]:
        """The scaling method's share of each frequency."""
        assert self.spectrum.base is not None
        periods = np.power(self.spectrum.base, self.spectrum.exponents)
        factors = (self.spectrum.inv_freq * periods)[:, None]
        # The two powers cancel but for the noise of float64.
        is_unscaled = np.abs(factors - 1) < 1e-14
        return np.where(is_unscaled, 1.0, factors)

    def _recurrence(self, stored: Positions, count: int) -> PerPair:
        # angle_0 = m, angle_i = angle_(i-1) * scale, each rounded; the scaling method
        # comes last.
        _, scale = self._ratio
        angle = round_to(stored, self.plan.angle)
        angles = [angle]
        for _ in range(count - 1):
            angle = round_to(angle * scale, self.plan.angle)
            angles.append(angle)

        scaled = np.stack(angles) * self._factors[:count]
        return round_to(scaled, self.plan.angle)

    def _recurrence_bounds(self, positions: Positions) -> PerPair:
        exact, scale = self._ratio
        scale_error = abs(scale - exact)
        angle = self.plan.angle

        true = positions
        slip = half_step(positions, self.plan.position, whole=True)
        slip = slip + half_step(positions + slip, angle, whole=True)
        trues = [true]
        slips = [slip]
        for _ in range(self.spectrum.pairs - 1):
            slip = scale * slip + scale_error * true
            true = exact * true
            slip = slip + half_step(true + slip, angle)
            trues.append(true)
            slips.append(slip)

        factors = self._factors
        scaled = factors * np.stack(trues)
        moved = factors * np.stack(slips)
        last_rounding = half_step(scaled + moved, angle)
        last_rounding = np.where(factors == 1, 0.0, last_rounding)
        # The noise is what float64 loses in products of up to 2^9 numbers.
        noise = 1e-13 * scaled
        return moved + last_rounding + noise

    @np.errstate(invalid="ignore", over="ignore")
    def angle_errors(self, positions: Positions, pairs: Chosen = ALL) -> PerPair:
        """Return stored angle minus m * theta_i in radians, not wrapped.

        Not finite: an overflow.
        """
        exact = self.spectrum.inv_freq[pairs, None]
        if self.recurrent:
            return self.angles(positions, pairs) - exact * positions

        theta = self.inv_freq[pairs, None]
        stored = self.positions(positions)
        # Assembled from the error of each stage, so that nothing is lost to
        # cancellation.
        error = (theta - exact) * positions
        if self.plan.position.precision < 53:
            position_error = stored - positions
            error += theta * position_error
        if self.plan.angle.precision < 53:
            product = theta * stored
            rounded = round_to(product, self.plan.angle)
            error += rounded - product
        return error

    @np.errstate(invalid="ignore", over="ignore")
    def table(
        self,
        positions: Positions,
        pairs: Chosen = ALL,
    ) -> tuple[PerPair, PerPair]:
        """Return cos and sin as stored."""
        angles = self.angles(positions, pairs)
        cos = round_to(np.cos(angles), self.plan.table)
        sin = round_to(np.sin(angles), self.plan.table)
        return cos, sin

    @np.errstate(invalid="ignore", over="ignore")
    def error_bounds(self, positions: Positions) -> PerPair:
        """Bound the angle errors of each pair at all positions up to m.

        Infinite: unknown.
        """
        # The margin covers what float64 loses in computing the bound itself.
        margin = 1 + 1e-9
        if self.recurrent:
            return self._recurrence_bounds(positions) * margin

        frequency_errors = np.abs(self.inv_freq - self.spectrum.inv_freq)
        skew = frequency_errors[:, None] * positions
        return (skew + self.rounding_bounds(positions)) * margin

    @np.errstate(invalid="ignore", over="ignore")
    def rounding_bounds(self, positions: Positions) -> PerPair:
        """Bound the distance from m times the stored frequency in the same way."""
        # Half a last place for every rounding. The recurrence has no stored frequency.
        theta = self.inv_freq[:, None]
        if self.recurrent:
            return np.full((theta.size, positions.size), math.inf)

        slip = half_step(positions, self.plan.position, whole=True)
        # Where the frequency is stored as 0, nothing moves.
        moved = np.where(theta == 0, 0.0, theta * slip)
        largest = theta * positions + moved
        return moved + half_step(largest, self.plan.angle)


def half_step(x: Values, fmt: FloatFormat, *, whole: bool = False) -> Values:
    """Bound the error of rounding anything in [0, x].

    `whole`: numbers up to 2^p have none.
    """
    if fmt.precision == 53:
        return np.zeros_like(x)

    half = spacing(x, fmt) / 2
    if whole:
        half = np.where(half <= 0.5, 0.0, half)
    return np.where(x > fmt.largest, math.inf, half)
