"""Every scaling method by name, and the little language in which users write them.

``yarn``, ``yarn(factor=4, beta_fast=16)``, ``resonance(inner=yarn(factor=8))``,
``longrope(long_factor=[1, 1.5, 4, 4])``. A new method is one class in this package and one line in
METHODS; the command line, the tables and the figures know it from there.
"""

import types
import typing
from dataclasses import fields

from ropelab.config import read_number, split_list
from ropelab.errors import InputError, unknown_name
from ropelab.rope.scaling.by_parts import DynamicYarn, Llama3, NtkByParts, Yarn, YarnPaper
from ropelab.rope.scaling.given import LongRope
from ropelab.rope.scaling.plan import Scaling
from ropelab.rope.scaling.selected import Clipped, PRope, Proportional, Resonance
from ropelab.rope.scaling.uniform import (
    AdjustedBase,
    DynamicNtk,
    NtkAware,
    PositionInterpolation,
    Unscaled,
)

METHODS: dict[str, type[Scaling]] = {
    method.name: method
    for method in (
        Unscaled,
        PositionInterpolation,
        NtkAware,
        DynamicNtk,
        NtkByParts,
        Yarn,
        YarnPaper,
        DynamicYarn,
        Llama3,
        LongRope,
        Resonance,
        Clipped,
        PRope,
        Proportional,
        AdjustedBase,
    )
}

ALIASES = {
    "none": "unscaled",
    "default": "unscaled",
    "linear": "pi",
    "dynamic": "dynamic_ntk",
    "by_parts": "ntk_by_parts",
    "cope": "clipped",
}
"""Other names in use, mostly the rope types of transformers."""


def parse_method(text: str, factor: float | None = None) -> Scaling:
    """The method that ``text`` describes; ``factor`` is the default for methods that take one.

    Raises InputError for an unknown method or knob (with the nearest name), a value that is not of
    the knob's kind, a knob given twice, or values the method refuses.

    >>> parse_method("yarn(beta_fast=16)", factor=4).label
    'yarn(factor=4, beta_fast=16)'
    """
    name, arguments = _split_call(text)
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in METHODS:
        raise unknown_name("method", name, METHODS)
    given = _knobs(METHODS[key], arguments, factor)
    return METHODS[key](**given)


def knob_names(method: type[Scaling]) -> list[str]:
    """The names of a method's knobs."""
    return [knob.name for knob in fields(method)]


def _knobs(method: type[Scaling], arguments: list[str], factor: float | None) -> dict[str, object]:
    kinds = typing.get_type_hints(method)
    given: dict[str, object] = {}
    for argument in arguments:
        name, _, value = (part.strip() for part in argument.partition("="))
        if name not in knob_names(method):
            raise _unknown_knob(method, name)
        if name in given:
            raise InputError(f"{method.name}: {name} is given twice")
        given[name] = _value(f"{method.name}: {name}", value, kinds[name], factor)
    if factor is not None and "factor" in knob_names(method):
        given.setdefault("factor", float(factor))
    return given


def _unknown_knob(method: type[Scaling], name: str) -> InputError:
    names = knob_names(method)
    if not names:
        return InputError(f"{method.name} takes no knobs, so not '{name}'")
    return unknown_name(f"{method.name} knob", name, names)


def _value(what: str, text: str, kind: object, factor: float | None) -> object:
    if kind is Scaling:
        return parse_method(text, factor)
    if kind == tuple[float, ...]:
        return tuple(_number(what, item) for item in split_list(text.strip("[]()")))
    if kind is bool:
        return _truth(what, text)
    if kind is int:
        return _whole(what, text)
    if isinstance(kind, types.UnionType) and text.lower() == "none":
        return None
    return _number(what, text)


def _number(what: str, text: str) -> float:
    try:
        return float(read_number(text))  # type: ignore[arg-type]
    except ValueError:
        raise InputError(f"{what} must be a number, not '{text}'") from None


def _whole(what: str, text: str) -> int:
    value = _number(what, text)
    if value != int(value):
        raise InputError(f"{what} must be a whole number, not '{text}'")
    return int(value)


def _truth(what: str, text: str) -> bool:
    try:
        return {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}[
            text.lower()
        ]
    except KeyError:
        raise InputError(f"{what} must be true or false, not '{text}'") from None


def _split_call(text: str) -> tuple[str, list[str]]:
    """``"name(a=1, b=2)"`` into the name and its arguments."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name, []
    if not rest.endswith(")") or rest.count("(") != rest.count(")") - 1:
        raise InputError(f"cannot read method '{text}': write name(knob=value, ...)")
    return name.strip(), split_list(rest[:-1])
