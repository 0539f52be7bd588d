"""A cast plan applied to frequencies: the stored angles and tables, their errors, and
bounds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to, spacing
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
        end = min(stop, 1 << max(start, 1).bit_length())
        yield start, end
        start = end


def blocks(start: int, stop: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) into pieces of at most `size`, lazily: there may be many."""
    return ((at, min(at + size, stop)) for at in range(start, stop, size))


def span(start: int, stop: int) -> Positions:
    """Return the positions start .. stop - 1 in float64."""
    return np.arange(start, stop, dtype=np.float64)


@dataclass(frozen=True)
class Spectrum:
    """The frequencies of a position encoding, radians per token, and their unscaled
    spacing.
    """

    inv_freq: Float[np.ndarray, "pairs"]  # after any scaling method, float64
    # of base^(-2i/rotary_dim); None for one frequency, rounded once
    base: float | None = None
    rotary_dim: int | None = None

    @property
    def pairs(self) -> int:
        return self.inv_freq.size

    @cached_property
    def exponents(self) -> Float[np.ndarray, "pairs"]:
        """2i/d, the exponent of pair i."""
        assert self.rotary_dim is not None
        return np.arange(0, self.rotary_dim, 2, dtype=np.float64) / self.rotary_dim


@dataclass(frozen=True)
class Chain:
    """A plan on a spectrum. Positions are whole numbers in float64; pairs are
    indices.
    """

    plan: CastPlan
    spectrum: Spectrum

    @cached_property
    def inv_freq(self) -> Float[np.ndarray, " pairs"]:
        """The frequencies as stored."""
        spectrum = self.spectrum
        computed = self.spectrum.inv_freq
        if self.plan.frequencies == "float32_pow" and spectrum.base is not None:
            # 1 / base^(2i/d), each step rounded to float32.
            exponents = round_to(spectrum.exponents, _FLOAT32)
            base = round_to(np.array(spectrum.base), _FLOAT32)
            ours = round_to(1 / round_to(np.power(base, exponents), _FLOAT32), _FLOAT32)
            unscaled = np.power(spectrum.base, -spectrum.exponents)
            # A scaled frequency inherits the relative error of the unscaled one. Where
            # there is none, the quotient of two powers would add its own.
            computed = np.where(
                ours == unscaled, computed, computed * (ours / unscaled)
            )
        return round_to(computed, self.plan.inv_freq)

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
            return self._recurrence(stored, int(chosen.max(initial=0)) + 1)[chosen]
        return round_to(self.inv_freq[pairs, None] * stored, self.plan.angle)

    @cached_property
    def _ratio(self) -> tuple[float, np.ndarray]:
        """The ratio of neighbouring unscaled frequencies, exact and as stored."""
        spectrum = self.spectrum
        assert spectrum.base is not None and spectrum.rotary_dim is not None
        exact = spectrum.base ** (-2 / spectrum.rotary_dim)
        return exact, round_to(np.array(exact), self.plan.inv_freq)

    @cached_property
    def _factors(self) -> Float[np.ndarray, "pairs 1"]:
        """The scaling method's share of each frequency; 1 up to the noise of two powers
        is 1.
        """
        assert self.spectrum.base is not None
        unscaled = np.power(self.spectrum.base, self.spectrum.exponents)
        factors = (self.spectrum.inv_freq * unscaled)[:, None]
        return np.where(np.abs(factors - 1) < 1e-14, 1.0, factors)

    def _recurrence(self, stored: Positions, count: int) -> PerPair:
        # angle_0 = m, angle_i = angle_(i-1) * scale, each rounded; the scaling method
        # comes last.
        _, scale = self._ratio
        angles = [round_to(stored, self.plan.angle)]
        for _ in range(count - 1):
            angles.append(round_to(angles[-1] * scale, self.plan.angle))
        return round_to(np.stack(angles) * self._factors[:count], self.plan.angle)

    def _recurrence_bounds(self, positions: Positions) -> PerPair:
        exact, scale = self._ratio
        angle = self.plan.angle
        true = positions
        slip = half_step(positions, self.plan.position, whole=True)
        slip = slip + half_step(positions + slip, angle, whole=True)

        trues = [true]
        slips = [slip]
        for _ in range(self.spectrum.pairs - 1):
            slip = scale * slip + abs(scale - exact) * true
            true = exact * true
            slip = slip + half_step(true + slip, angle)
            trues.append(true)
            slips.append(slip)

        factors = self._factors
        scaled = self._factors * np.stack(trues)
        moved = factors * np.stack(slips)
        last = np.where(factors == 1, 0.0, half_step(scaled + moved, angle))
        # What float64 loses on the way, in products of up to 2^9 numbers.
        return moved + last + 1e-13 * scaled

    @np.errstate(invalid="ignore", over="ignore")
    def angle_errors(self, positions: Positions, pairs: Chosen = ALL) -> PerPair:
        """Return stored angle minus m * theta_i in radians, not wrapped; not finite:
        overflow.
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
            error += theta * (stored - positions)
        if self.plan.angle.precision < 53:
            product = theta * stored
            error += round_to(product, self.plan.angle) - product
        return error

    @np.errstate(invalid="ignore", over="ignore")
    def table(
        self,
        positions: Positions,
        pairs: Chosen = ALL,
    ) -> tuple[PerPair, PerPair]:
        """Return cos and sin as stored."""
        angles = self.angles(positions, pairs)
        table = self.plan.table
        return round_to(np.cos(angles), table), round_to(np.sin(angles), table)

    @np.errstate(invalid="ignore", over="ignore")
    def error_bounds(self, positions: Positions) -> PerPair:
        """Bound the angle errors of each pair at all positions up to m; infinite:
        unknown.
        """
        # The margin covers what float64 loses in computing the bound itself.
        if self.recurrent:
            return self._recurrence_bounds(positions) * (1 + 1e-9)
        skew = np.abs(self.inv_freq - self.spectrum.inv_freq)[:, None] * positions
        return (skew + self.rounding_bounds(positions)) * (1 + 1e-9)

    @np.errstate(invalid="ignore", over="ignore")
    def rounding_bounds(self, positions: Positions) -> PerPair:
        """Bound the distance from m times the stored frequency in the same way."""
        # Half a last place for every rounding. The recurrence has no stored frequency.
        theta = self.inv_freq[:, None]
        if self.recurrent:
            return np.full((theta.size, positions.size), math.inf)
        slip = half_step(positions, self.plan.position, whole=True)
        # where it is stored as 0, nothing moves
        moved = np.where(theta == 0, 0.0, theta * slip)
        return moved + half_step(theta * positions + moved, self.plan.angle)


def half_step(
    x: Float[np.ndarray, "..."],
    fmt: FloatFormat,
    *,
    whole: bool = False,
) -> Float[np.ndarray, "..."]:
    """Bound the error of rounding anything in [0, x]; `whole` numbers up to 2^p have
    none.
    """
    if fmt.precision == 53:
        return np.zeros_like(x)
    half = spacing(x, fmt) / 2
    if whole:
        half = np.where(half <= 0.5, 0.0, half)
    return np.where(x > fmt.largest, math.inf, half)
