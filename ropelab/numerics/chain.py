"""A cast plan applied to frequencies: what is stored for every position, and how far off it is."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.numerics.casts import CastPlan
from ropelab.numerics.formats import FORMATS, FloatFormat, round_to, spacing

_FLOAT32 = FORMATS["float32"]


@dataclass(frozen=True)
class Spectrum:
    """The frequencies of a position code, radians per token, and the spacing they come from.

    inv_freq:  what the code turns by, after any scaling method (float64).
    base, rotary_dim:  of the unscaled frequencies base^(-2i/rotary_dim); None where there is no
        such thing (a single frequency), and then both rules of a plan mean 'rounded once'.
    """

    inv_freq: Float[Tensor, "pairs"]
    base: float | None = None
    rotary_dim: int | None = None

    @property
    def pairs(self) -> int:
        """The number of frequencies."""
        return self.inv_freq.numel()

    @cached_property
    def exponents(self) -> Float[Tensor, "pairs"]:
        """2i/d, the exponent of pair i."""
        assert self.rotary_dim is not None
        return torch.arange(0, self.rotary_dim, 2, dtype=torch.float64) / self.rotary_dim

    @cached_property
    def scaling(self) -> Float[Tensor, "pairs"]:
        """Scaled frequency over unscaled frequency; 1 where nothing was scaled."""
        assert self.base is not None
        return self.inv_freq * torch.pow(self.base, self.exponents)


def float32_pow(spectrum: Spectrum) -> Float[Tensor, "pairs"]:
    """1 / base^(2i/d), each step rounded to float32; a scaled frequency inherits the error."""
    if spectrum.base is None:
        return spectrum.inv_freq
    exponents = round_to(spectrum.exponents, _FLOAT32)
    base = round_to(torch.tensor(spectrum.base, dtype=torch.float64), _FLOAT32)
    power = round_to(torch.pow(base, exponents), _FLOAT32)
    unscaled = torch.pow(spectrum.base, -spectrum.exponents)
    ours = round_to(power.reciprocal(), _FLOAT32)
    return torch.where(ours == unscaled, spectrum.inv_freq, spectrum.inv_freq * (ours / unscaled))


@dataclass(frozen=True)
class Chain:
    """One plan on one spectrum. Positions are whole numbers in float64; pairs are indices."""

    plan: CastPlan
    spectrum: Spectrum

    @cached_property
    def inv_freq(self) -> Float[Tensor, "pairs"]:
        """The frequencies as stored."""
        exact = self.spectrum.inv_freq
        computed = float32_pow(self.spectrum) if self._by_pow else exact
        return round_to(computed, self.plan.inv_freq)

    @property
    def _by_pow(self) -> bool:
        return self.plan.frequencies == "float32_pow"

    @property
    def recurrent(self) -> bool:
        """Whether angles go from pair to pair instead of being products."""
        return self.plan.angles == "recurrence" and self.spectrum.base is not None

    def positions(self, positions: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """The positions as stored."""
        return round_to(positions, self.plan.position)

    def angles(
        self, positions: Float[Tensor, "n"], pairs: slice = slice(None)
    ) -> Float[Tensor, "pairs n"]:
        """The angles as stored, in radians, not reduced."""
        stored = self.positions(positions)
        if self.recurrent:
            return self._recurrence(stored)[pairs]
        return round_to(self.inv_freq[pairs, None] * stored, self.plan.angle)

    def _recurrence(self, stored: Float[Tensor, "n"]) -> Float[Tensor, "pairs n"]:
        """angle_0 = m, angle_i = angle_(i-1) * scale, each rounded; then the scaling method."""
        assert self.spectrum.base is not None and self.spectrum.rotary_dim is not None
        exact = torch.tensor(self.spectrum.base, dtype=torch.float64) ** (
            -2 / self.spectrum.rotary_dim
        )
        scale = round_to(exact, self.plan.inv_freq)
        angles = [round_to(stored, self.plan.angle)]
        for _ in range(self.spectrum.pairs - 1):
            angles.append(round_to(angles[-1] * scale, self.plan.angle))
        unscaled = torch.stack(angles)
        factor = self.spectrum.scaling[:, None]
        return torch.where(
            (factor - 1).abs() < 1e-14, unscaled, round_to(unscaled * factor, self.plan.angle)
        )

    def angle_errors(
        self, positions: Float[Tensor, "n"], pairs: Tensor | slice = slice(None)
    ) -> Float[Tensor, "pairs n"]:
        """Stored angle minus m * theta_i in radians, not wrapped; not finite where it overflowed.

        Assembled from the error of each stage, so that nothing is lost to cancellation.
        """
        exact = self.spectrum.inv_freq[pairs, None]
        if self.recurrent:
            return self.angles(positions)[pairs] - exact * positions
        theta = self.inv_freq[pairs, None]
        stored = self.positions(positions)
        error = (theta - exact) * positions
        if self.plan.position.precision < 53:
            error += theta * (stored - positions)
        if self.plan.angle.precision < 53:
            product = theta * stored
            error += round_to(product, self.plan.angle).sub_(product)
        return error

    def table(
        self, positions: Float[Tensor, "n"], pairs: slice = slice(None)
    ) -> tuple[Float[Tensor, "pairs n"], Float[Tensor, "pairs n"]]:
        """cos and sin as stored."""
        angles = self.angles(positions, pairs)
        return (
            round_to(torch.cos(angles), self.plan.table),
            round_to(torch.sin(angles), self.plan.table),
        )

    def error_bounds(self, positions: Float[Tensor, "n"]) -> Float[Tensor, "pairs n"]:
        """For each pair, no angle error at any position up to m is larger than this.

        Nondecreasing in m; infinite where something overflows or no bound is known.
        """
        skew = (self.inv_freq - self.spectrum.inv_freq).abs()[:, None] * positions
        return (skew + self.rounding_bounds(positions)) * (1 + 1e-9)

    def rounding_bounds(self, positions: Float[Tensor, "n"]) -> Float[Tensor, "pairs n"]:
        """The same for the distance from m times the stored frequency: half a last place for every
        rounding. For the recurrence no bound is known."""
        theta = self.inv_freq[:, None]
        if self.recurrent:
            return torch.full((theta.numel(), positions.numel()), torch.inf, dtype=torch.float64)
        slip = _half_step(positions, self.plan.position, whole=True)
        return theta * slip + _half_step(theta * (positions + slip), self.plan.angle)


def _half_step(x: Tensor, fmt: FloatFormat, *, whole: bool = False) -> Tensor:
    """The largest error of rounding anything in [0, x]; `whole` numbers up to 2^p have none."""
    if fmt.precision == 53:
        return torch.zeros(1, dtype=torch.float64)
    half = spacing(x, fmt) / 2
    if whole:
        half = torch.where(half <= 0.5, 0.0, half)
    return torch.where(x > fmt.largest, torch.inf, half)
