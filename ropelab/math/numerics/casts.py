"""Cast plans: which number format each stage of a rotary implementation rounds to.

A rotary implementation is a chain of six stages, and a bug report about precision is nearly always
one of them in the wrong format:

    position   m, as it enters the product
    inv_freq   theta_i, as it is stored
    angle      m * theta_i, as the product returns it
    table      cos and sin of the angle, as they are stored
    rotation   x1 cos - x2 sin and x1 sin + x2 cos: every product and every sum
    score      the rotated query and key as they enter the dot product, and the score itself
               (the sum inside is exact: matrix units accumulate more widely than they store)

Two differences between real codes are not casts and have fields of their own: how frequencies are
computed (`frequencies`) and how angles are (`angles`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from ropelab.errors import InputError, unknown_name
from ropelab.math.numerics.formats import FORMATS, FloatFormat, format_named

Stage = Literal["position", "inv_freq", "angle", "table", "rotation", "score"]
STAGES: tuple[Stage, ...] = get_args(Stage)

Frequencies = Literal["exact", "float32_pow"]
"""exact: base^(-2i/d) in float64, then one rounding to the format of inv_freq.
float32_pow: 1 / base^(2i/d) with every step rounded to float32, as nearly all code writes it; the
power itself is taken as correctly rounded, which math libraries miss by a last place or two."""

Angles = Literal["product", "recurrence"]
"""product: m * theta_i. recurrence: start at m, multiply by base^(-2/d) from pair to pair, each
product rounded to the format of the angle (ggml's `theta *= theta_scale`)."""

RULES: dict[str, tuple[str, ...]] = {
    "frequencies": get_args(Frequencies),
    "angles": get_args(Angles),
}

EXACT = FORMATS["float64"]


@dataclass(frozen=True, kw_only=True)
class CastPlan:
    """The format of every stage and the two rules; by default everything is float64 and exact."""

    position: FloatFormat = EXACT
    inv_freq: FloatFormat = EXACT
    angle: FloatFormat = EXACT
    table: FloatFormat = EXACT
    rotation: FloatFormat = EXACT
    score: FloatFormat = EXACT
    frequencies: Frequencies = "exact"
    angles: Angles = "product"

    @property
    def label(self) -> str:
        """The plan as `parse_cast` reads it, 'float64' for the exact one.

        >>> CastPlan(table=FORMATS["bfloat16"]).label
        'table=bfloat16'
        """
        return ",".join(f"{name}={_text(value)}" for name, value in self.inexact()) or "float64"

    @property
    def phase(self) -> "CastPlan":
        """The part that decides the angles: equal phases have equal angle errors."""
        return replace(self, table=EXACT, rotation=EXACT, score=EXACT)

    @property
    def code(self) -> "CastPlan":
        """The part that decides the stored cos and sin."""
        return replace(self, rotation=EXACT, score=EXACT)

    def format_of(self, stage: Stage) -> FloatFormat:
        """The format of one stage."""
        value: FloatFormat = getattr(self, stage)
        return value

    def inexact(self) -> list[tuple[str, FloatFormat | str]]:
        """The stages and rules that differ from the exact plan, in the order of the chain."""
        exact = type(self).__dataclass_fields__
        return [
            (field.name, getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != exact[field.name].default
        ]

    def repaired(self, name: str) -> "CastPlan":
        """The same plan with one stage or rule made exact."""
        changes: dict[str, Any] = {name: type(self).__dataclass_fields__[name].default}
        return replace(self, **changes)


def alone(stage: Stage, fmt: FloatFormat) -> CastPlan:
    """Everything exact but one stage."""
    return _plan({stage: fmt})


def everything(fmt: FloatFormat) -> CastPlan:
    """Every stage in one format, frequencies computed exactly before they are rounded."""
    return _plan(dict.fromkeys(STAGES, fmt))


def parse_cast(text: str) -> CastPlan:
    """Read `inv_freq=bfloat16,table=float16`; `all=...` sets every stage, later parts win.

    Raises:
        InputError: an unknown stage, format or rule, with the nearest one; a part without '='.
    """
    values: dict[str, FloatFormat | str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"cannot read cast '{part}': write stage=format, such as angle=tf32")
        values |= _settings(name, value)
    return _plan(values)


def _plan(values: Mapping[Any, Any]) -> CastPlan:
    return CastPlan(**values)


def _settings(name: str, value: str) -> dict[str, FloatFormat | str]:
    """One `name=value` as fields of the plan."""
    if name == "all":
        return dict.fromkeys(STAGES, format_named(value))
    if name in RULES:
        if value not in RULES[name]:
            raise unknown_name(f"value of {name}", value, RULES[name])
        return {name: value}
    if name not in STAGES:
        raise unknown_name("stage", name, ("all", *STAGES, *RULES))
    return {name: format_named(value)}


def _text(value: FloatFormat | str) -> str:
    return value.name if isinstance(value, FloatFormat) else value
