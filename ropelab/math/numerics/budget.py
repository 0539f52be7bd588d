"""Bounds on what honest rotary codes lose: float32, bfloat16 tables, a recurrence over
pairs.

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

UNIT = FORMATS["float32"].epsilon / 2  # of one rounding, relative
# Beyond a correctly rounded power; also of the recurrence's ratio, once for every pair
# before.
POWER = UNIT
SCALING = 4 * UNIT
COSINE = 4 * UNIT

_FLOAT32 = FORMATS["float32"]
_ANGLES = CastPlan(
    position=_FLOAT32, inv_freq=_FLOAT32, angle=_FLOAT32, frequencies="float32_pow"
)


def _is_exact(angles: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    return angles == round_to(angles, _FLOAT32)


PerPair = Float[np.ndarray, "n pairs"]


@dataclass(frozen=True)
class Budget:
    """The largest errors of an honest code of one kind; ``factor`` multiplies its cos
    and sin.
    """

    kind: Kind
    spectrum: Spectrum
    factor: float = 1.0

    @property
    def table_format(self) -> FloatFormat:
        """The format of tables, vectors and their products."""
        return FORMATS["bfloat16" if self.kind == "bfloat16" else "float32"]

    def angles(self, positions: Float[np.ndarray, " n"]) -> PerPair:
        """Bound the error of each angle at these positions, in radians."""
        recurrent = self.kind == "recurrence"
        plan = replace(_ANGLES, angles="recurrence") if recurrent else _ANGLES
        # the first power is base^0, which is exact
        steps = np.arange(self.spectrum.pairs)
        lost = (steps if recurrent else np.minimum(steps, 1)) * POWER
        assert self.spectrum.base is not None
        kept = self.spectrum.inv_freq * self.spectrum.base**self.spectrum.exponents
        lost = lost + np.where(np.abs(kept - 1) < 1e-12, 0.0, SCALING)
        angles = np.abs(self.spectrum.inv_freq) * positions[:, None]
        # The chain's bound takes powers as correctly rounded and the scaling as exact.
        bounds = Chain(plan, self.spectrum).error_bounds(positions).T
        bounds = (bounds + lost * angles) * (1 + 1e-3)
        return np.where(self.exact_pairs & _is_exact(angles), 0.0, bounds)

    @property
    def exact_pairs(self) -> Bool[np.ndarray, " pairs"]:
        """True for a pair whose frequency every code has exactly: base^0, divided by a
        power of two if at all.
        """
        mantissas, _ = np.frexp(self.spectrum.inv_freq)
        first = np.arange(self.spectrum.pairs) == 0
        return first & (np.abs(mantissas) == 0.5)

    def tables(self, positions: Float[np.ndarray, " n"]) -> PerPair:
        """Bound the error of each cos and sin."""
        computed = np.minimum(self.angles(positions), 2.0) + COSINE + UNIT
        return (
            self.factor * computed
            + spacing(self.factor * (1 + computed), self.table_format) / 2
        )

    def features(
        self,
        positions: Float[np.ndarray, " n"],
        first: Float[np.ndarray, "vectors pairs"],
        second: Float[np.ndarray, "vectors pairs"],
    ) -> Float[np.ndarray, " n"]:
        """Bound the error of any feature of these vectors, which the format holds
        exactly.
        """
        sizes = np.abs(first) + np.abs(second)
        lengths = self.factor * np.hypot(first, second)
        lost = self.tables(positions)[:, None] * sizes
        # Two products and their sum, or the sum alone where products are fused into it.
        unit = self.table_format.epsilon / 2
        return np.asarray(
            (lost + (2 * unit + unit**2) * (lengths + lost)).max(axis=(1, 2))
        )
