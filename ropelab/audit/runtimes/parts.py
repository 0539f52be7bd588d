"""The arithmetic that readers share: values in, a scaling and its factor on cos and sin out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ropelab.audit.runtimes.families import Family, family_of
from ropelab.audit.runtimes.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    whole,
)
from ropelab.audit.runtimes.trace import Trace
from ropelab.errors import InputError
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    NtkAware,
    PositionInterpolation,
    Proportional,
    Scaling,
    Unscaled,
    Yarn,
)


@dataclass
class Settings:
    """Values of one layer type on their way to a RopeSpec, with where each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: Any, source: str) -> None:
        """Set a value and its source."""
        self.values[name], self.sources[name] = value, source

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default where it is missing."""
        return self.values.get(name, default)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number; RefusedError where it is missing without a default."""
        value = self.values.get(name, default)
        if value is None:
            raise RefusedError(f"{name} is missing")
        return number(value, name)

    def needs(self, *names: str) -> None:
        """RefusedError unless every name has a value that is there, null included."""
        missing = [name for name in names if name not in self.values]
        if missing:
            raise RefusedError(f"rope type '{self.get('rope_type')}' needs {', '.join(missing)}")


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """0.1 mscale ln(factor) + 1, and 1 where nothing is stretched, as the runtimes code it."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def yarn(
    factor: float,
    attention: float,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> tuple[Scaling, float]:
    """The coded ramp with its attention factor spelled out."""
    if factor < 1:
        raise NotModelledError(f"yarn with a factor of {factor:g}, which compresses")
    scaling = Yarn(
        factor=factor,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        truncate=truncate,
        attention_factor=attention,
    )
    return scaling, attention


def yarn_of_mscales(settings: Settings, factor: float) -> tuple[Scaling, float]:
    """With the ratio of the mscales, of which a lone one counts; the ramp is truncated."""
    over = magnitude(factor, settings.number("mscale", 1.0))
    return yarn(
        factor,
        over / magnitude(factor, settings.number("mscale_all_dim", 0.0)),
        beta_fast=settings.number("beta_fast", 32),
        beta_slow=settings.number("beta_slow", 1),
    )


def linear(factor: float) -> tuple[Scaling, float]:
    """All frequencies divided by the factor."""
    if factor < 1:
        raise NotModelledError(f"linear with a factor of {factor:g}, which spreads positions out")
    return PositionInterpolation(factor=factor), 1.0


def dynamic(factor: float) -> tuple[Scaling, float]:
    """The base that grows with the sequence."""
    if factor < 1:
        raise NotModelledError(f"dynamic with a factor of {factor:g}")
    return DynamicNtk(factor=factor), 1.0


def ntk(factor: float) -> tuple[Scaling, float]:
    """base * factor^(d/(d-2)), at every length."""
    if factor < 1:
        raise NotModelledError(f"a base lowered by {factor:g}")
    return NtkAware(factor=factor), 1.0


def llama3(factor: float, low: float, high: float) -> tuple[Scaling, float]:
    """Kept, blended and divided by turns in the trained length."""
    if factor < 1 or not 0 < low < high:
        raise NotModelledError(f"llama3 with factor {factor:g}, low {low:g} and high {high:g}")
    return Llama3(factor=factor, low_freq_factor=low, high_freq_factor=high), 1.0


def longrope(
    short: tuple[float, ...], long: tuple[float, ...], factor: float, attention: float
) -> tuple[Scaling, float]:
    """One divisor per pair; the table is chosen by length."""
    if min(short + long, default=0) <= 0 or attention <= 0:
        raise NotModelledError("longrope with numbers that are not positive")
    scaling = LongRope(
        long_factor=long,
        short_factor=short,
        factor=max(1.0, factor),
        attention_factor=attention,
    )
    return scaling, attention


def longrope_attention(factor: float, trained: float) -> float:
    """sqrt(1 + ln(factor) / ln(trained)), and 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))


def proportional(share: float, factor: float = 1.0) -> tuple[Scaling, float]:
    """The fastest share of the pairs turns, the rest does not."""
    if factor != 1:
        raise NotModelledError(f"proportional with a factor of {factor:g}")
    if not 0 <= share <= 1:
        raise NotModelledError(f"proportional with a share of {share:g}")
    return Proportional(p=share), 1.0


def unscaled() -> tuple[Scaling, float]:
    """Frequencies as trained."""
    return Unscaled(), 1.0


def factor_list(settings: Settings, name: str) -> tuple[float, ...]:
    """One of longrope's two lists."""
    return numbers(settings.get(name), name)


WIDEST = 2**14
"""Features; no head is wider, and a table per pair should stay small."""


def head_dim_of(trace: Trace, family: Family) -> tuple[int, str]:
    """Features of the part of a head that can be rotated, and the source of the number."""
    width, source = _head_dim(trace, family)
    if width > WIDEST:
        raise RefusedError(f"{source} of {width} features is more than any head has")
    return width, source


def _head_dim(trace: Trace, family: Family) -> tuple[int, str]:
    if family.latent and trace.has("qk_rope_head_dim"):
        return whole(trace.get("qk_rope_head_dim"), "qk_rope_head_dim"), "qk_rope_head_dim"
    if (given := trace.get("head_dim")) is not None:
        for unread in ("hidden_size", "num_attention_heads"):
            if trace.has(unread):
                trace.mark(unread, "used", "not for the head: head_dim is given")
        return whole(given, "head_dim"), "head_dim"
    hidden, _ = trace.first(("hidden_size", "n_embd", "dim"))
    heads, _ = trace.first(("num_attention_heads", "n_head", "n_heads"))
    if hidden is None or heads is None:
        raise RefusedError("neither head_dim nor hidden_size and num_attention_heads are there")
    width = whole(hidden, "hidden_size") // whole(heads, "num_attention_heads")
    if width < 1:
        raise RefusedError("hidden_size is below num_attention_heads")
    return width, "hidden_size / num_attention_heads"


def longest(trace: Trace, default: int | None = None) -> tuple[int, str]:
    """max_position_embeddings, or the default of the class."""
    given, path = trace.first(("max_position_embeddings", "n_positions"), default)
    if given is None:
        raise RefusedError("max_position_embeddings is missing")
    return whole(given, path or "max_position_embeddings"), path or "class default"


def width_of(head_dim: int, share: float) -> int:
    """int(head_dim * share), as every runtime writes it."""
    width = int(head_dim * share)
    if width < 1 or width > head_dim:
        raise RefusedError(f"a rotated share of {share:g} of {head_dim} features")
    if width % 2:
        raise NotModelledError(f"an odd rotated width of {width}")
    return width


def finished(spec: RopeSpec) -> RopeSpec:
    """The spec, once its plan was seen to exist: values that our classes refuse show here."""
    if isinstance(spec.scaling, LongRope):
        check_lists(spec.scaling, spec.rotary_dim // 2)
    try:
        spec.plan(spec.trained_len)
        spec.plan(2 * spec.trained_len)
    except InputError as error:
        raise NotModelledError(str(error)) from None
    except (OverflowError, ZeroDivisionError, ValueError) as error:
        raise NotModelledError(f"numbers out of range ({error})") from None
    return spec


def check_lists(scaling: LongRope, pairs: int) -> None:
    """A list of another length cannot be multiplied with the frequencies."""
    for name in ("short_factor", "long_factor"):
        count = len(getattr(scaling, name))
        if count != pairs:
            raise RefusedError(f"{name} has {count} numbers for {pairs} pairs")


def family_for(trace: Trace) -> Family:
    """The family of the model that is read."""
    return family_of(trace.model_type)


def merged(settings: Settings, extra: Mapping[str, str]) -> dict[str, str]:
    """The sources of the settings that a spec keeps, and those of the fields around them."""
    return {**settings.sources, **extra}
