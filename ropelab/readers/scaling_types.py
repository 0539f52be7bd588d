"""The scaling types that configurations name, such as `yarn`.

A scaling type has a function that makes the scaling from the settings of a layer type;
the keys that it needs and their defaults are in methods.toml.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ropelab.math import scaling as scalings
from ropelab.readers.families import read_table
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    require_number,
    require_numbers,
)
from ropelab.readers.trace import BANDS, LISTS, MSCALES

# The usual ends of llama3's ramp, in rotations within the original length.
USUAL_BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Pairs of different names, under `type` and under `rope_type`, for the same scaling
# type.
SAME_TYPES = (("su", "longrope"), ("mrope", "default"))

# A scaling, the factor on cos and sin, and the trained length.
MadeScaling = tuple[scalings.Scaling, float, int]
Maker = TypeVar("Maker", bound=Callable[..., Any])

# The functions that make the scaling types, by table of methods.toml and type.
MAKERS: dict[tuple[str, str], Callable[..., MadeScaling]] = {}


def scaling_type(table_name: str, *kinds: str) -> Callable[[Maker], Maker]:
    """Let a function make these scaling types of a table of methods.toml."""

    def register(maker: Maker) -> Maker:
        for kind in kinds:
            MAKERS[table_name, kind] = maker
        return maker

    return register


@dataclass(frozen=True)
class ScalingRule:
    """One scaling type as a runtime reads it."""

    make: Callable[[Settings], MadeScaling]
    needs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def make_scaling(self, settings: Settings) -> MadeScaling:
        settings.needs(*self.needs)
        settings.defaults = self.defaults
        made = self.make(settings)
        # These defaults are for the scaling alone, not for values that are read later.
        settings.defaults = {}
        return made


def yarn_attention(factor: float, mscale: float = 1.0) -> float:
    """Return YaRN's factor on attention: 0.1 mscale ln(factor) + 1, or 1 for factors up
    to 1.
    """
    if factor <= 1:
        return 1.0
    return 0.1 * mscale * math.log(factor) + 1.0


def mscale_ratio(settings: Settings, factor: float) -> float:
    """Return DeepSeek's factor on attention: YaRN's factor for mscale, divided by
    YaRN's factor for mscale_all_dim.
    """
    numerator = yarn_attention(factor, settings.number("mscale", 1.0))
    return numerator / yarn_attention(factor, settings.number("mscale_all_dim", 0.0))


def find_attention(settings: Settings, factor: float, mscales: bool = True) -> float:
    """Return the factor on attention: by its key, by two mscales, or by the factor.

    `mscales` is True if the runtime reads the mscales.
    """
    if settings.read("attention_factor") is not None:
        return settings.number("attention_factor")
    # transformers has `if mscale and mscale_all_dim`, so that both have to be there,
    # and not 0.
    if mscales and all(settings.get(name) for name in MSCALES):
        return mscale_ratio(settings, factor)
    return yarn_attention(factor)


def longrope_attention(factor: float, trained: float) -> float:
    """Return longrope's factor on attention, sqrt(1 + ln(factor) / ln(trained))."""
    if factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(trained))


def make_longrope(
    tables: Sequence[tuple[float, ...]],
    factor: float,
    trained: int,
    attention: Any = None,
) -> MadeScaling:
    """Divide the frequency of each pair by a number, from one of two tables.

    The length of the context chooses the short table or the long one.

    Args:
        tables: the short one and the long one, with a number for each pair.
        factor: the longest context divided by the trained length.
        trained: the trained length in tokens.
        attention: the factor on cos and sin; None: it follows from the factor.
    """
    if attention is None:
        attention = longrope_attention(factor, trained)
    attention = require_number(attention, "attention_factor")
    short_table, long_table = tables

    scaling = scalings.LongRope(
        long_factor=long_table,
        short_factor=short_table,
        factor=max(1.0, factor),
        attention_factor=attention,
    )
    return scaling, attention, trained


# The scaling types that several runtimes read alike. Those of one runtime are in its own
# file.


@scaling_type("common", "default")
@scaling_type("unscaled", "default", "mrope")
@scaling_type("transformers-4", "origin")
@scaling_type("servers", "mrope")
@scaling_type("unsloth", "dynamic")
@scaling_type("onnxruntime-genai", "default")
def make_unscaled(settings: Settings) -> MadeScaling:
    """Scale nothing."""
    return scalings.Unscaled(), 1.0, settings.longest


@scaling_type("common", "linear")
@scaling_type("exllamav3", "linear")
@scaling_type("tensorrt-llm", "linear")
@scaling_type("mlx-lm", "linear")
@scaling_type("onnxruntime-genai", "linear")
def make_linear(settings: Settings) -> MadeScaling:
    """Divide all positions by the factor."""
    scaling = scalings.PositionInterpolation(factor=settings.number("factor"))
    return scaling, 1.0, settings.longest


@scaling_type("common", "dynamic")
@scaling_type("tgi", "dynamic")
def make_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base with the length of the context."""
    # Hunyuan's files have an alpha under this type.
    if settings.trace.family.name.startswith("hunyuan") and settings.get("alpha"):
        return raise_base(settings)
    scaling = scalings.DynamicNtk(factor=settings.number("factor"))
    return scaling, 1.0, settings.longest


@scaling_type("tensorrt-llm", "dynamic")
def raise_base(settings: Settings) -> MadeScaling:
    """Multiply the base by Hunyuan's alpha at every length. `factor` is not read."""
    scaling = scalings.NtkAware(factor=settings.number("alpha"))
    return scaling, 1.0, settings.longest


@scaling_type("transformers-5", "llama3")
@scaling_type("transformers-4", "llama3")
@scaling_type("exllamav3", "llama3")
@scaling_type("tensorrt-llm", "llama3")
@scaling_type("tgi", "llama3")
@scaling_type("mlx-lm", "llama3")
@scaling_type("megatron", "llama3")
@scaling_type("onnxruntime-genai", "llama3")
def make_llama3(settings: Settings) -> MadeScaling:
    """Divide low frequencies by the factor, with a ramp to the high frequencies, which
    stay.
    """
    bands = {name: settings.number(name) for name in BANDS}
    check_bands(bands)
    return scalings.Llama3(**bands), 1.0, settings.original()


def check_bands(bands: Mapping[str, float]) -> None:
    """Raise RefusedError for numbers of llama3 by which a length would be divided by
    0.
    """
    for name in ("low_freq_factor", "high_freq_factor"):
        if bands[name] == 0:
            raise RefusedError(f"{name} is 0, and a length is divided by it")


def make_yarn(
    settings: Settings,
    factor: float,
    attention: float,
    trained: int | None = None,
    truncate: bool | None = None,
) -> MadeScaling:
    """Return YaRN. Values that are None, and the betas, are read from the settings."""
    if truncate is None:
        truncate = bool(settings.read("truncate", True))

    scaling = scalings.Yarn(
        factor=factor,
        beta_fast=settings.number("beta_fast", 32),
        beta_slow=settings.number("beta_slow", 1),
        truncate=truncate,
        attention_factor=attention,
    )
    if trained is None:
        trained = settings.original()
    return scaling, attention, trained


@scaling_type("vllm", "deepseek_yarn")
@scaling_type("tensorrt-llm", "yarn")
@scaling_type("mlx-lm", "yarn", "deepseek_yarn", "telechat3-yarn")
def make_mscale_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN with DeepSeek's factor on attention."""
    factor = settings.number("factor")
    return make_yarn(settings, factor, mscale_ratio(settings, factor), truncate=True)


def make_one_table(settings: Settings, name: str, trained: int) -> MadeScaling:
    """Use one of longrope's two tables at every length.

    The factor of longrope is the ratio of the longest context to the trained length.
    """
    # The runtime has chosen the table by its lengths, so that both keys count as used.
    for key in LISTS:
        settings.mark(key, "used")

    divisors = require_numbers(settings.read(name), name)
    ratio = settings.longest / trained
    return make_longrope((divisors, divisors), ratio, trained)


@scaling_type("transformers-5", "proportional")
@scaling_type("servers", "proportional")
@scaling_type("exllamav3", "proportional")
@scaling_type("mlx-lm", "proportional")
def make_proportional(settings: Settings, factor: float | None = None) -> MadeScaling:
    """Rotate a share of the pairs, by the frequencies of the whole head.

    The factor is None for a runtime that reads it from the file.
    """
    if factor is None:
        factor = settings.number("factor", 1.0)
    if factor != 1:
        raise NotModelledError(f"proportional with a factor of {factor:g}")

    share = settings.number("partial_rotary_factor", 1.0)
    return scalings.Proportional(p=share), 1.0, settings.longest


def read_rules(table_name: str) -> dict[str, ScalingRule]:
    """Return a table of methods.toml with the functions that were registered for it."""
    rules = {}
    for kind, row in read_table("methods")[table_name].items():
        make = MAKERS[table_name, kind]
        if "fixed" in row:
            make = partial(make, **row["fixed"])
        needs = tuple(row.get("needs", ()))
        rules[kind] = ScalingRule(make, needs, row.get("defaults", {}))
    return rules


COMMON_RULES = read_rules("common")
