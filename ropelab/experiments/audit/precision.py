"""How exactly each runtime's number formats hold the angles, up to the length."""

from typing import Any

import numpy as np

from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.presets import PRESETS
from ropelab.runtimes.spec import Reading, RopeSpec

PRESET_OF = {"llama.cpp": "ggml"}
"""The cast preset of a runtime; the others form float32 angles by a product."""

USUAL = "transformers_llama"
TOLERANCE = 0.01
"""Radians."""


def rows(readings: tuple[Reading, ...], length: int) -> list[dict[str, Any]]:
    """A row per cast chain: the largest angle error at the length, the first position beyond."""
    chains: dict[str, list[Reading]] = {}
    for reading in readings:
        if reading.main is not None:
            chains.setdefault(PRESET_OF.get(reading.runtime.name, USUAL), []).append(reading)
    return [row(preset, found, length) for preset, found in chains.items()]


def row(preset: str, readings: list[Reading], length: int) -> dict[str, Any]:
    """The angle error of one chain on the frequencies of the first runtime that has it."""
    spec = readings[0].main
    assert spec is not None
    chain = chain_of(preset, spec, length)
    positions = np.unique(np.concatenate([[length - 1], 2.0 ** np.arange(0, 41)]))
    positions = positions[positions < length]
    errors = np.abs(np.asarray(chain.angle_errors(positions), dtype=np.float64)).max(axis=0)
    beyond = np.flatnonzero(~(errors <= TOLERANCE))
    return {
        "chain": preset,
        "runtimes": ", ".join(reading.runtime.name for reading in readings),
        "length_tokens": length,
        "angle_error_rad": float(errors[-1]),
        "tolerance_rad": TOLERANCE,
        "beyond_from_tokens": int(positions[beyond[0]]) if beyond.size else None,
        "table_format": chain.plan.table.name,
    }


def chain_of(preset: str, spec: RopeSpec, length: int) -> Chain:
    """The chain on the scaled frequencies of a spec."""
    spectrum = Spectrum(spec.inv_freq(length), spec.base, spec.rotary_dim)
    return Chain(PRESETS[preset].plan, spectrum)
