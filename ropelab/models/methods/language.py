"""The little language in which users write methods, the same wherever one is typed.

``yarn``, ``yarn(factor=4, beta_fast=16)``, ``resonance(inner=yarn(factor=8))``,
``longrope(long_factor=[1, 1.5, 4, 4])``, ``log_n(inner=ntk)``, ``rerope(window=512)``,
``without(band=slow)``.
"""

import types
import typing
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from ropelab.errors import InputError, unknown_name
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Scaling
from ropelab.models.methods.registry import method_class
from ropelab.runs.config import read_number, split_list

if TYPE_CHECKING:
    from ropelab.models.methods.method import Method

    Typed = Scaling | Method


def parse_scaling(text: str, factor: float | None = None) -> Scaling:
    """The change of frequencies that ``text`` describes.

    Args:
        factor: how far is to be read, for methods whose factor means that and is not given.
    Raises:
        InputError: an unknown method or knob (with the nearest name), a value that is not of the
            knob's kind, a knob given twice, values the method refuses, or a method that is more
            than a change of frequencies.

    >>> parse_scaling("yarn(beta_fast=16)", factor=4).label
    'yarn(factor=4, beta_fast=16)'
    """
    parsed = _parse(text, factor)
    if not isinstance(parsed, Scaling):
        raise InputError(f"{parsed.name} is not a change of frequencies alone; use extrapolate")
    return parsed


def parse_method(text: str, factor: float | None = None) -> "Method":
    """The method that ``text`` describes, acting on frequencies or on attention.

    Raises:
        InputError: as `parse_scaling`, which any other kind of method passes here.
    """
    from ropelab.models.methods.method import Scaled  # torch, which frequencies alone do not need

    parsed = _parse(text, factor)
    return Scaled(scaling=parsed) if isinstance(parsed, Scaling) else parsed


def parse_methods(texts: Iterable[str], geometry: Geometry, test_len: int) -> "tuple[Method, ...]":
    """Methods as typed, each once, with open knobs set for that model and length.

    A factor that is not given follows from test_len / trained length, as the class of the method
    says (`factors_tried`).

    Raises:
        InputError: as `parse_method`, or a method that does not fit the geometry.
    """
    reach = test_len / geometry.trained_len
    methods: dict[tuple[str, float], Method] = {}
    for text in texts:
        for times in method_class(_split_call(text)[0]).factors_tried or (1.0,):
            method = parse_method(text, times * reach).resolved(geometry, test_len)
            methods.setdefault((method.label, method.reach), method)
    return tuple(methods.values())


def knob_names(method: "type[Typed]") -> list[str]:
    """The names of a method's knobs."""
    return [knob.name for knob in fields(method)]


def _parse(text: str, factor: float | None) -> "Typed":
    name, arguments = _split_call(text)
    method = method_class(name)
    return method(**_knobs(method, arguments, factor))


def _knobs(
    method: "type[Typed]", arguments: list[str], factor: float | None
) -> dict[str, typing.Any]:
    kinds = typing.get_type_hints(method)
    given: dict[str, object] = {}
    for argument in arguments:
        name, _, value = (part.strip() for part in argument.partition("="))
        if name not in knob_names(method):
            raise _unknown_knob(method, name)
        if name in given:
            raise InputError(f"{method.name}: {name} is given twice")
        given[name] = _value(f"{method.name}: {name}", value, kinds[name], factor)
    if factor is not None and method.factors_tried:
        given.setdefault("factor", float(factor))
    for knob in fields(method):
        if knob.default is MISSING and knob.name not in given:
            raise InputError(f"{method.name} needs {knob.name}=...")
    return given


def _unknown_knob(method: "type[Typed]", name: str) -> InputError:
    names = knob_names(method)
    if not names:
        return InputError(f"{method.name} takes no knobs, so not '{name}'")
    return unknown_name(f"{method.name} knob", name, names)


def _value(what: str, text: str, kind: object, factor: float | None) -> object:
    if isinstance(kind, types.UnionType):
        if text.lower() == "none":
            return None
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    if kind is Scaling:
        return parse_scaling(text, factor)
    if kind == tuple[float, ...]:
        return tuple(_number(what, item) for item in split_list(text.strip("[]()")))
    readers = {bool: _truth, int: _whole, float: _number, str: _word}
    return readers[kind](what, text) if kind in readers else parse_method(text, factor)


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


def _word(what: str, text: str) -> str:
    if not text:
        raise InputError(f"{what} must be a word, not nothing")
    return text.lower()


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
