"""Bounds on what honest rotary codes lose.

The kinds are float32, bfloat16 tables, and a recurrence over pairs.
Each stage rounds once; a power may be off by a unit in the last place, cos and sin by 2
units of 1, and a scaling method may round four times more. A larger error has another
cause.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to, spacing
from ropelab.runs.arrays import Bool, Float

Kind = Literal["float32", "recurrence", "bfloat16"]
KINDS: tuple[Kind, ...] = ("float32", "recurrence", "bfloat16")

# The relative error of one rounding.
UNIT = FORMATS["float32"].epsilon / 2
# A power may be off by this beyond its rounding; so may the recurrence's ratio, once
# for every pair before.
POWER = UNIT
SCALING = 4 * UNIT
COSINE = 4 * UNIT

_FLOAT32 = FORMATS["float32"]
_ANGLES = CastPlan(
    position=_FLOAT32, inv_freq=_FLOAT32, angle=_FLOAT32, frequencies="float32_pow"
)


Positions = Float[np.ndarray, " n"]
PerPair = Float[np.ndarray, "n pairs"]
PairVectors = Float[np.ndarray, "vectors pairs"]


@dataclass(frozen=True)
class Budget:
    """The largest errors of an honest code of one kind."""

    kind: Kind
    spectrum: Spectrum
    factor: float = 1.0  # of its cos and sin

    @property
    def table_format(self) -> FloatFormat:
        """The format of tables, vectors and their products."""
        if self.kind == "bfloat16":
            return FORMATS["bfloat16"]
        return FORMATS["float32"]

    def angles(self, positions: Positions) -> PerPair:
        """Bound the error of each angle at these positions, in radians."""
        # The chain's bound takes powers as correctly rounded and the scaling as exact.
        chain = Chain(self._plan, self.spectrum)
        bounds = chain.error_bounds(positions).T
        angles = np.abs(self.spectrum.inv_freq) * positions[:, None]
        lost = self._frequency_errors() * angles
        bounds = (bounds + lost) * (1 + 1e-3)

        is_stored_exactly = angles == round_to(angles, _FLOAT32)
        return np.where(self.exact_pairs & is_stored_exactly, 0.0, bounds)

    @property
    def _plan(self) -> CastPlan:
        if self.kind == "recurrence":
            return replace(_ANGLES, angles="recurrence")
        return _ANGLES

    def _frequency_errors(self) -> Float[np.ndarray, " pairs"]:
        """Bound the relative error of each frequency beyond what the chain counts."""
        spectrum = self.spectrum
        # The first power is base^0, which is exact.
        roundings = np.arange(spectrum.pairs)
        if self.kind != "recurrence":
            roundings = np.minimum(roundings, 1)

        assert spectrum.base is not None
        factors = spectrum.inv_freq * spectrum.base**spectrum.exponents
        is_unscaled = np.abs(factors - 1) < 1e-12
        return roundings * POWER + np.where(is_unscaled, 0.0, SCALING)

    @property
    def exact_pairs(self) -> Bool[np.ndarray, " pairs"]:
        """True for a pair whose frequency every code has exactly.

        It is base^0, divided by a power of two if at all.
        """
        mantissas, _ = np.frexp(self.spectrum.inv_freq)
        is_first = np.arange(self.spectrum.pairs) == 0
        is_power_of_two = np.abs(mantissas) == 0.5
        return is_first & is_power_of_two

    def tables(self, positions: Positions) -> PerPair:
        """Bound the error of each cos and sin."""
        chords = np.minimum(self.angles(positions), 2.0)
        computed = chords + COSINE + UNIT
        scaled = self.factor * computed
        largest = self.factor * (1 + computed)
        return scaled + spacing(largest, self.table_format) / 2

    def features(
        self,
        positions: Positions,
        first: PairVectors,
        second: PairVectors,
    ) -> Float[np.ndarray, " n"]:
        """Bound the error of any rotated feature of these vectors.

        The format holds the vectors exactly.
        """
        sizes = np.abs(first) + np.abs(second)
        lengths = self.factor * np.hypot(first, second)
        lost = self.tables(positions)[:, None] * sizes

        # Two products and their sum, or the sum alone where products are fused into it.
        unit = self.table_format.epsilon / 2
        roundings = 2 * unit + unit**2
        errors = lost + roundings * (lengths + lost)
        return np.asarray(errors.max(axis=(1, 2)))
