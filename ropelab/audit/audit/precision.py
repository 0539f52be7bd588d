"""How exactly each runtime's number formats hold the angles, up to the length."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import language_part
from ropelab.errors import unknown_name
from ropelab.math.numerics.casts import PRESETS
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, FloatFormat
from ropelab.math.scaling import LongRope

MODEL_FORMAT = "transformers_llama"
"""The chain of transformers, vLLM and TGI: float32 angles, cos and sin in the model's format."""

PRESET_OF = {
    "llama.cpp": "ggml",
    "ollama": "ggml",
    "sglang": "float32",
    "mlx-lm": "float32",
    "exllamav3": "float32",
    "tensorrt-llm": "float32",
}
"""Runtimes whose cos and sin stay in float32, in a table or in the kernel, whatever the model's
format is."""

USUAL_FORMAT = "bfloat16"
TOLERANCE = 0.01
"""Radians."""


def rows(readings: tuple[Reading, ...], length: int, dtype: FloatFormat) -> list[dict[str, Any]]:
    """A row per cast chain: its errors at the length, and the first position beyond."""
    chains: dict[str, list[Reading]] = {}
    for reading in readings:
        if reading.main is not None:
            chains.setdefault(preset_of(reading.runtime.name, reading.main), []).append(reading)
    return [row(preset, found, length, dtype) for preset, found in chains.items()]


def preset_of(runtime: str, spec: RopeSpec) -> str:
    """The cast preset of a runtime; SGLang keeps longrope's tables in the model's format."""
    if runtime == "sglang" and isinstance(spec.scaling, LongRope):
        return MODEL_FORMAT
    return PRESET_OF.get(runtime, MODEL_FORMAT)


def model_format(config: Mapping[str, Any], given: str = "") -> FloatFormat:
    """The model's number format: the one given, else the file's own, else bfloat16.

    Raises:
        InputError: a name that is no format, with the nearest; one in the file is passed over.
    """
    if given:
        if given not in FORMATS:
            raise unknown_name("--dtype", given, FORMATS)
        return FORMATS[given]
    for part in (language_part(config)[1], config):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part.get(key), str) and part[key].removeprefix("torch.") in FORMATS:
                return FORMATS[part[key].removeprefix("torch.")]
    return FORMATS[USUAL_FORMAT]


def row(preset: str, readings: list[Reading], length: int, dtype: FloatFormat) -> dict[str, Any]:
    """The errors of one chain on the frequencies of the first runtime that has it."""
    spec = readings[0].main
    assert spec is not None
    chain = chain_of(preset, spec, length, dtype)
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
        "table_error": table_error(chain, positions),
    }


def table_error(chain: Chain, positions: np.ndarray) -> float:
    """The largest error of cos and sin as stored, at those positions."""
    angles = chain.spectrum.inv_freq[:, None] * positions
    cos, sin = chain.table(positions)
    return float(max(np.abs(cos - np.cos(angles)).max(), np.abs(sin - np.sin(angles)).max()))


def chain_of(preset: str, spec: RopeSpec, length: int, dtype: FloatFormat) -> Chain:
    """The chain on the scaled frequencies of a spec, its tables in the model's format."""
    spectrum = Spectrum(spec.inv_freq(length), spec.base, spec.rotary_dim)
    plan = PRESETS[preset].plan
    return Chain(replace(plan, table=dtype) if preset == MODEL_FORMAT else plan, spectrum)
