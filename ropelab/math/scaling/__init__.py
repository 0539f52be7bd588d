"""Scaling methods: they change the frequencies of RoPE for contexts longer than trained.

`ropelab.math.methods` finds a method by its name.
"""

from ropelab.math.scaling.pairs import LongRope, Proportional, Without
from ropelab.math.scaling.plan import (
    SCALINGS,
    RopePlan,
    Scaling,
    compute_kept_weights,
    name_roles,
)
from ropelab.math.scaling.stretching import (
    DynamicNtk,
    Llama3,
    NtkAware,
    NtkByParts,
    PositionInterpolation,
    Unscaled,
    Yarn,
    YarnPaper,
    ntk_base,
)

__all__ = [
    "SCALINGS",
    "DynamicNtk",
    "Llama3",
    "LongRope",
    "NtkAware",
    "NtkByParts",
    "PositionInterpolation",
    "Proportional",
    "RopePlan",
    "Scaling",
    "Unscaled",
    "Without",
    "Yarn",
    "YarnPaper",
    "compute_kept_weights",
    "name_roles",
    "ntk_base",
]
