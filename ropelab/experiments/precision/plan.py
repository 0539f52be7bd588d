"""What follows from a config of the precision experiment: frequencies, formats, cast plans."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ropelab.errors import InputError
from ropelab.experiments.precision.config import PrecisionConfig
from ropelab.experiments.precision.reported import Reported, parse_reported
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.casts import parse_cast
from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.formats import FloatFormat, format_named
from ropelab.math.numerics.presets import PRESETS, Preset, preset_named


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The positions offset .. offset + length - 1, what is stored there, and how it is sampled.

    rope: the frequencies of the rotary code; spectra: those of every code that is looked at.
    formats: float64 first, each once.
    implementations: cast plans of implementations; none: the stages alone are compared.
    """

    offset: int
    length: int
    rope: Spectrum
    spectra: Mapping[str, Spectrum]
    channels: tuple[str, ...]
    formats: tuple[FloatFormat, ...]
    implementations: tuple[Preset, ...]
    reported: tuple[Reported, ...]
    long_lengths: tuple[int, ...]
    tolerance: float
    samples: int
    draws: int
    seed: int


def plan(config: PrecisionConfig) -> Plan:
    """The plan of a config.

    Raises:
        InputError: a name does not exist, or no pair turns.
    """
    rope = _rope(config)
    return Plan(
        offset=config.offset,
        length=config.length,
        rope=rope,
        spectra={scheme: _spectrum(config, scheme, rope) for scheme in config.schemes},
        channels=config.channels,
        formats=tuple(map(format_named, dict.fromkeys(("float64", *config.formats)))),
        implementations=_implementations(config),
        reported=tuple(map(parse_reported, config.reported)),
        long_lengths=config.long_lengths,
        tolerance=config.tolerance,
        samples=config.samples,
        draws=config.draws,
        seed=config.seed,
    )


def _rope(config: PrecisionConfig) -> Spectrum:
    rotary_dim = config.rotary_dim or config.head_dim
    geometry = Geometry(rotary_dim, config.base, config.train_len)
    scaled = parse_scaling(config.method).plan(geometry, config.offset + config.length)
    if not scaled.inv_freq.any():
        raise InputError(f"no pair of {rotary_dim} features turns under {config.method}")
    return Spectrum(scaled.inv_freq, config.base, rotary_dim)


def _spectrum(config: PrecisionConfig, scheme: str, rope: Spectrum) -> Spectrum:
    if scheme == "single":
        return Spectrum(np.array([2 * math.pi / config.period]))
    if scheme == "sinusoidal":
        return Spectrum(inverse_frequencies(config.model_dim, 1e4), 1e4, config.model_dim)
    return rope


def _implementations(config: PrecisionConfig) -> tuple[Preset, ...]:
    """What `preset` and `cast` name."""
    names = PRESETS if "all" in config.preset else dict.fromkeys(config.preset)
    chosen = tuple(preset_named(name) for name in names)
    if not config.cast:
        return chosen
    cast = parse_cast(config.cast)
    return (*chosen, Preset(cast.label, cast, "given with --cast", "the command line"))
