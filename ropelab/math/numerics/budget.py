"""The largest rounding errors of rotary code that makes no mistake.

Code that is tested against a configuration may differ from exact numbers by these
errors, and a larger difference is a mistake. Three kinds of code are known: float32,
tables in bfloat16, and angles computed by a recurrence from pair to pair. Each stage
rounds once. Besides this rounding, a power may be wrong by half a unit in the last
place, cos and sin may be wrong by two units in the last place of 1, and a scaling
method may round four times more.
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

# The largest relative error of one rounding: half a unit in the last place.
UNIT = FORMATS["float32"].epsilon / 2
# The relative error of a power besides its rounding. The ratio of the recurrence has
# the same error, which counts once for every pair before.
POWER_ERROR = UNIT
# The relative error of a scaling method.
SCALING_ERROR = 4 * UNIT
# The error of a cosine or sine besides its rounding.
COSINE_ERROR = 4 * UNIT

_FLOAT32 = FORMATS["float32"]
_ANGLES = CastPlan(
    position=_FLOAT32, inv_freq=_FLOAT32, angle=_FLOAT32, frequencies="float32_pow"
)


Positions = Float[np.ndarray, " n"]
PerPair = Float[np.ndarray, "n pairs"]
PairVectors = Float[np.ndarray, "vectors pairs"]


@dataclass(frozen=True)
class Budget:
    """The largest errors of code of one kind."""

    kind: Kind
    spectrum: Spectrum
    # The factor by which the code multiplies cos and sin.
    factor: float = 1.0

    @property
    def table_format(self) -> FloatFormat:
        """The format of tables, vectors and their products."""
        if self.kind == "bfloat16":
            return FORMATS["bfloat16"]
        return FORMATS["float32"]

    def angles(self, positions: Positions) -> PerPair:
        """Bound the error of each angle at these positions, in radians."""
        # The bounds of a chain hold for code that rounds powers correctly and scales
        # frequencies exactly. The errors of powers and of the scaling are added.
        chain = Chain(self._plan, self.spectrum)
        bounds = chain.error_bounds(positions).T
        angles = np.abs(self.spectrum.inv_freq) * positions[:, None]
        further_errors = self._bound_frequency_errors() * angles
        bounds = (bounds + further_errors) * (1 + 1e-3)

        is_stored_exactly = angles == round_to(angles, _FLOAT32)
        return np.where(self.exact_pairs & is_stored_exactly, 0.0, bounds)

    @property
    def _plan(self) -> CastPlan:
        if self.kind == "recurrence":
            return replace(_ANGLES, angles="recurrence")
        return _ANGLES

    def _bound_frequency_errors(self) -> Float[np.ndarray, " pairs"]:
        """Bound the relative error of each frequency that the chain does not count."""
        spectrum = self.spectrum
        # The recurrence rounds once for each pair before a pair, and a power rounds
        # once. The first power is base^0, which is exact.
        roundings = np.arange(spectrum.pairs)
        if self.kind != "recurrence":
            roundings = np.minimum(roundings, 1)

        assert spectrum.base is not None
        factors = spectrum.inv_freq * spectrum.base**spectrum.exponents
        is_unscaled = np.abs(factors - 1) < 1e-12
        return roundings * POWER_ERROR + np.where(is_unscaled, 0.0, SCALING_ERROR)

    @property
    def exact_pairs(self) -> Bool[np.ndarray, " pairs"]:
        """True for a pair whose frequency is exact in all code.

        That is the first pair, with base^0 = 1, if it is not scaled or is divided by a
        power of two.
        """
        is_first = np.arange(self.spectrum.pairs) == 0
        # frexp writes a number as m * 2^e with 0.5 <= |m| < 1.
        mantissas, _ = np.frexp(self.spectrum.inv_freq)
        is_power_of_two = np.abs(mantissas) == 0.5
        return is_first & is_power_of_two

    def tables(self, positions: Positions) -> PerPair:
        """Bound the error of each cos and sin."""
        # The error of an angle moves a point on the unit circle by at most the same
        # number, and never by more than the diameter.
        chords = np.minimum(self.angles(positions), 2.0)
        errors = chords + COSINE_ERROR + UNIT
        scaled_errors = self.factor * errors
        largest = self.factor * (1 + errors)
        return scaled_errors + spacing(largest, self.table_format) / 2

    def features(
        self,
        positions: Positions,
        first: PairVectors,
        second: PairVectors,
    ) -> Float[np.ndarray, " n"]:
        """Bound the error of any rotated feature of some vectors, at each position.

        ``first`` and ``second`` have the two features of each pair, as numbers that the
        table's format holds exactly.
        """
        sizes = np.abs(first) + np.abs(second)
        lengths = self.factor * np.hypot(first, second)
        table_errors = self.tables(positions)[:, None] * sizes  # [n, vectors, pairs]

        # Two products and their sum are rounded. If the hardware fuses products and
        # sum, only the sum is rounded.
        unit = self.table_format.epsilon / 2
        roundings = 2 * unit + unit**2
        errors = table_errors + roundings * (lengths + table_errors)
        return np.asarray(errors.max(axis=(1, 2)))
