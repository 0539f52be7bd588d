"""What the modules of the precision experiment share: its kind of cell, the names of
config fields that go into a cell, and the frequencies of each scheme.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.methods import resolve_scaling
from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.formats import format_named
from ropelab.runs.arrays import Float
from ropelab.runs.cell import Computation, Context, Resources
from ropelab.runs.errors import InputError
from ropelab.runs.thresholds import EXACT

# The fields that decide the frequencies of RoPE. Some methods depend on the length of the
# sequence, so offset and length are among them.
ROTARY = ("base", "head_dim", "rotary_dim", "method", "train_len", "offset", "length")
# The fields that decide the frequencies of each scheme.
FREQUENCIES = {"single": ("period",), "rope": ROTARY, "sinusoidal": ("model_dim",)}
# The fields that decide the scores of random vectors at positions of the range.
SCORED = ("offset", "length", "draws", "seed")

# The base of the sinusoidal encoding.
SINUSOIDAL_BASE = 1e4
# The memory, in bytes, of Python with NumPy, SciPy, pandas and matplotlib.
LIBRARY_BYTES = 300_000_000
# The processor seconds and the bytes of a partial score (see `count_scores`), with the
# intermediate results of three rotations.
SECONDS_PER_SCORE = 1e-7
BYTES_PER_SCORE = 200.0


@dataclass(frozen=True, kw_only=True)
class PrecisionCell(Computation):
    """A cell whose function gets a config, made of the inputs that are config fields.

    The other inputs are passed to the function by their names.
    """

    version: int = 2

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        fields = {}
        arguments = {}
        for name, value in self.inputs.items():
            if name in PrecisionConfig.model_fields:
                fields[name] = value
            else:
                arguments[name] = value

        # Other fields have their defaults in this config, so that the tables of a cell
        # cannot depend on fields that are not among its inputs. The defaults may not go
        # together with the inputs, so nothing is checked again.
        config = PrecisionConfig.model_construct(**fields)
        with context.progress(self.title, 1) as advance:
            return self.function(config, advance=advance, **arguments)


def make_cell(
    config: PrecisionConfig,
    field_names: Iterable[str],
    *,
    inputs: Mapping[str, Any],
    seconds: float,
    memory: float = 0.0,
    scores: float = 0.0,
    **about: Any,
) -> PrecisionCell:
    """Make a cell from the named fields of a config and from more inputs.

    Args:
        config: the config.
        field_names: the fields that the function of the cell reads.
        inputs: what the function gets besides the config.
        seconds: processor time, without scores.
        memory: bytes, without scores and libraries.
        scores: the number of partial scores, see `count_scores`; 0 if the cell has none.
        about: kind, title, function and version of the cell.
    """
    resources = Resources(
        seconds=seconds + scores * SECONDS_PER_SCORE,
        memory_bytes=int(LIBRARY_BYTES + memory + scores * BYTES_PER_SCORE),
    )
    fields = config.model_dump(mode="json", include=set(field_names))
    version = about.pop("version", PrecisionCell.version)
    is_partly_rotated = config.rotated < config.head_dim
    if scores and "rotary_dim" in fields and is_partly_rotated:
        # The scores of such a head were once those of its rotated part. Cells from then
        # are not reused, and those of other heads are.
        version += 1
    return PrecisionCell(
        inputs={**fields, **inputs}, resources=resources, version=version, **about
    )


def make_spectrum(config: PrecisionConfig, scheme: str = "rope") -> Spectrum:
    """Return the frequencies of a scheme, in radians per token.

    InputError: the method is unknown, or no pair rotates under it.
    """
    if scheme == "single":
        return Spectrum(np.array([2 * math.pi / config.period]))
    if scheme == "sinusoidal":
        width = config.model_dim
        inv_freq = inverse_frequencies(width, SINUSOIDAL_BASE)
        return Spectrum(inv_freq, SINUSOIDAL_BASE, width)

    geometry = Geometry(config.rotated, config.base, config.train_len)
    length = config.offset + config.length
    scaling, _ = resolve_scaling(config, length)
    plan = scaling.plan(geometry, length)
    if not plan.inv_freq.any():
        raise InputError(
            f"no pair of {config.rotated} features rotates under {config.method}"
        )
    return Spectrum(plan.inv_freq, config.base, config.rotated, config.head_dim)


def list_formats(config: PrecisionConfig) -> list[str]:
    """Return the names of the formats, float64 first, each once."""
    # Two spellings of one format have the same name.
    names = [format_named(name).name for name in ("float64", *config.formats)]
    return list(dict.fromkeys(names))


def count_scores(config: PrecisionConfig, pairs: float) -> float:
    """Count the partial scores that a cell computes. A partial score is the score of one
    pair of features, in one draw, at one of the powers of two below the length.
    """
    return config.draws * pairs * math.log2(config.length)


def list_powers_below(length: int) -> Float[np.ndarray, " powers"]:
    """Return the powers of two below a length, as distances in float64."""
    return 2.0 ** np.arange((length - 1).bit_length())


def write_size(value: float, low: float, high: float) -> str:
    """Write a spread, an error or a difference of scores with the digits that its
    interval supports, at most two.

    >>> write_size(0.6002, 0.6002, 0.6002), write_size(0.0033, 0.0027, 0.0039)
    ('0.60', '0.003')
    """
    if value <= EXACT:
        return "0"
    first_digit = math.floor(math.log10(value))
    # Two digits are supported if the interval is at most as wide as one step of the
    # second digit.
    step_of_second = 10.0 ** (first_digit - 1)
    digits = 1 if high - low > step_of_second else 2
    if value <= 1e-4:
        return f"{value:.{digits}g}"
    decimals = max(digits - 1 - first_digit, 0)
    return f"{value:.{decimals}f}"
