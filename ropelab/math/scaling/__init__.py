"""Scaling methods: each makes the frequencies to use from a geometry and a length."""

from ropelab.math.scaling.by_parts import (
    DynamicYarn,
    Llama3,
    NtkByParts,
    Yarn,
    YarnPaper,
    coded_ramp_range,
)
from ropelab.math.scaling.pairs import (
    Clipped,
    LongRope,
    One,
    PRope,
    Proportional,
    Resonance,
    Spaced,
    Without,
)
from ropelab.math.scaling.plan import RopePlan, Scaling, kept_weights, roles
from ropelab.math.scaling.uniform import (
    AdjustedBase,
    DynamicNtk,
    NtkAware,
    PositionInterpolation,
    Unscaled,
    ntk_base,
)

__all__ = [
    "AdjustedBase",
    "Clipped",
    "DynamicNtk",
    "DynamicYarn",
    "Llama3",
    "LongRope",
    "NtkAware",
    "NtkByParts",
    "One",
    "PRope",
    "PositionInterpolation",
    "Proportional",
    "Resonance",
    "RopePlan",
    "Scaling",
    "Spaced",
    "Unscaled",
    "Without",
    "Yarn",
    "YarnPaper",
    "coded_ramp_range",
    "kept_weights",
    "ntk_base",
    "roles",
]
