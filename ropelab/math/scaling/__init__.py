"""Scaling methods: frequencies from a geometry and a length. By name: ropelab.math.methods."""

from ropelab.math.scaling.pairs import LongRope, Proportional, Resonance, Without
from ropelab.math.scaling.plan import RopePlan, Scaling, kept_weights, roles
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
    "DynamicNtk",
    "Llama3",
    "LongRope",
    "NtkAware",
    "NtkByParts",
    "PositionInterpolation",
    "Proportional",
    "Resonance",
    "RopePlan",
    "Scaling",
    "Unscaled",
    "Without",
    "Yarn",
    "YarnPaper",
    "kept_weights",
    "ntk_base",
    "roles",
]
