"""Scaling methods by name, and the syntax in which users write any method.

``yarn``, ``yarn(factor=4, beta_fast=16)``, ``resonance(inner=yarn(factor=8))``,
``longrope(long_factor=[1, 1.5, 4, 4])``, ``without(band=slow)``.
"""

import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, check_known, make_name_error
from ropelab.runs.files import read_table_beside
from ropelab.runs.own import find_own, is_own
from ropelab.runs.spelling import NUMBER, read_number, read_plain_number, split_list

if TYPE_CHECKING:
    from ropelab.math.scaling import Scaling

_TABLES = read_table_beside(__file__)
# The names of the methods that change frequencies.
FREQUENCY_METHODS: tuple[str, ...] = tuple(_TABLES["frequencies"])
# The class of each method that changes anything else in a model, by name.
MODEL_METHODS = _TABLES["on_models"]
# The name of a method by any of its other names.
ALIASES = _TABLES["aliases"]
# The words for truth values, by which users set a parameter.
TRUTH_VALUES = {
    "true": True,
    "yes": True,
    "1": True,
    "false": False,
    "no": False,
    "0": False,
}
# A method and its factor as people write them, so that an error can say the right form:
# yarn:4, yarn x4, yarn factor=4.
WITH_FACTOR = re.compile(
    r"""
    ([A-Za-z]\w*?)              # Group 1: the name of the method.
    [\s:=@/×x*-]+               # What people write between the name and the factor.
    (                           # Group 2: the factor and all other parameters.
        (?:\w+\s*=\s*)?         # The name of the factor, if it is written.
        [\d.]+
        (?:[\s,;]+\w+=[\w.]+)*  # Other parameters, each with its name.
    )
    """,
    re.VERBOSE,
)
# The most characters of a text that is matched with WITH_FACTOR. The time of a match
# grows with the cube of their number.
MOST_MATCHED = 200
# The most opening brackets in the arguments of one method. Nobody means so many, and
# Python's stack holds more.
MOST_BRACKETS = 20


def resolve_alias(name: str) -> str:
    """Return the registered name for any spelling or alias.

    The reference of a user's own class, `module:Class`, is returned as it is.
    """
    if ":" in name:
        return name
    key = name.lower().replace("-", "_")
    return ALIASES.get(key, key)


def find_scaling_class(
    name: str, names: Iterable[str] = FREQUENCY_METHODS
) -> "type[Scaling]":
    """Return the class of a scaling method by name, alias or reference.

    An error about an unknown name suggests the nearest of `names`.
    """
    key = resolve_alias(name)
    if key in MODEL_METHODS:
        raise InputError(f"{key} is not a change of frequencies alone; use extrapolate")
    # The classes are imported here, since they need NumPy. Help needs only their names.
    from ropelab.math.scaling import SCALINGS, Scaling

    if key in SCALINGS:
        return SCALINGS[key]

    own_class = find_own("methods", name)
    if own_class is None:
        raise make_method_error(name, names)
    if not (isinstance(own_class, type) and issubclass(own_class, Scaling)):
        raise InputError(
            f"{name} must be a class below Scaling; here it is none (docs/own.md)"
        )
    if own_class.plan is Scaling.plan:
        raise InputError(f"{name} has no plan() of its own (docs/own.md)")
    return own_class


def make_method_error(name: str, names: Iterable[str]) -> InputError:
    """Make an error for a method that does not exist.

    If a factor was typed beside a known name, the error says the form with brackets.

    >>> print(make_method_error("yarn:4", ["yarn"]))
    unknown method 'yarn:4'; type 'yarn(factor=4)'
    """
    number_match = NUMBER.fullmatch(name.lstrip("x× "))
    if number_match:
        number = number_match[0].strip()
        advice = f"a factor is a parameter, such as 'yarn(factor={number})'"
        return InputError(f"unknown method '{name}'; {advice}")
    match = WITH_FACTOR.fullmatch(name) if len(name) <= MOST_MATCHED else None
    method = resolve_alias(match[1]) if match else ""
    if match and method in names:
        parameters = re.sub(r"[\s,;]+", ", ", match[2].strip())
        if "=" not in parameters:
            parameters = f"factor={parameters}"
        return InputError(f"unknown method '{name}'; type '{method}({parameters})'")
    return make_name_error("method", name, names)


def parse_scaling(text: str, factor: float | None = None) -> "Scaling":
    """Read a method that changes frequencies; InputError if it cannot be read.

    ``factor`` (test over trained length) is given to a method that takes a factor and is
    written without one.

    >>> parse_scaling("yarn(beta_fast=16)", factor=4).label
    'yarn(factor=4, beta_fast=16)'
    """
    name, arguments = split_call(text)
    return build_method(find_scaling_class(name), arguments, factor, parse_scaling)


def resolve_scaling(config: Any, length: int) -> tuple["Scaling", str | None]:
    """Return the method of a config, and the quotient of lengths that is its factor.

    The quotient is in words; None if the method is written with its factor, or needs no
    factor. InputError: the method needs a factor, and ``train_len`` was not given or is
    not below ``length``.
    """
    scaling = parse_scaling(config.method)
    # A method that does not take a factor from outside is the same with any factor.
    if scaling == parse_scaling(config.method, factor=2):
        return scaling, None
    if "train_len" not in config.model_fields_set or length <= config.train_len:
        raise InputError(
            f"{config.method} has no factor: write factor=... among its parameters, or"
            f" give a train_len below {length} tokens, from which it follows"
        )
    quotient = f"{length} / {config.train_len} tokens"
    return parse_scaling(config.method, length / config.train_len), quotient


def build_method(
    method: Any,
    arguments: list[str],
    factor: float | None,
    parse_inner: Callable[[str, float | None], object],
) -> Any:
    """Build a method from arguments such as ``beta_fast=16``.

    `method` is a dataclass with `name`, and with `default_factors`, which are empty if a
    `factor` from outside does not apply to the method. `parse_inner` reads a parameter
    that is a method itself.
    """
    annotations = typing.get_type_hints(method)
    names = [field.name for field in fields(method)]
    values: dict[str, object] = {}

    def parse_with_factor(inner: str) -> object:
        return parse_inner(inner, factor)

    for argument in arguments:
        name, _, text = (part.strip() for part in argument.partition("="))
        if not names:
            raise InputError(f"{method.name} takes no parameters, so not '{name}'")
        check_known(f"{method.name} parameter", name, names)
        if name in values:
            raise InputError(f"{method.name}: {name} is given twice")

        label = f"{method.name}: {name}"
        value_type = annotations[name]
        values[name] = _read_value(label, text, value_type, parse_with_factor)

    # A factor among the arguments wins over the factor derived from the test length.
    if factor is not None and method.default_factors:
        values.setdefault("factor", float(factor))

    for field in fields(method):
        # Without this check the dataclass would raise a TypeError, which says nothing
        # about what to type.
        if field.default is MISSING and field.name not in values:
            raise InputError(f"{method.name} needs {field.name}=...")

    try:
        return method(**values)
    except TypeError as error:
        # The class of a user may have an __init__ that its fields do not describe.
        if not is_own(method):
            raise
        raise InputError(f"{method.__name__}: {error} (docs/own.md)") from None


def split_call(text: str) -> tuple[str, list[str]]:
    """Split ``name(a=1, b=2)`` into the name and its arguments."""
    name, bracket, after_bracket = text.strip().partition("(")
    if not bracket:
        return name, []
    if after_bracket.count("(") > MOST_BRACKETS:
        raise InputError("a value is nested too deeply")
    # The first opening bracket is not in `after_bracket`, which therefore has one more
    # closing bracket than opening brackets.
    closing_count = after_bracket.count("(") + 1
    if not after_bracket.endswith(")") or after_bracket.count(")") != closing_count:
        raise InputError(f"cannot read '{text}': write name(parameter=value, ...)")
    return name.strip(), split_list(after_bracket[:-1])


def _read_value(
    label: str,
    text: str,
    value_type: object,
    parse_inner: Callable[[str], object],
) -> object:
    """Read the value of a parameter by its type.

    ``label`` names the parameter in errors. Any type besides float, int, bool, str and
    tuples of floats is the type of a method, and `parse_inner` reads the value.
    """
    # `float | None` is read as None or as a float.
    if isinstance(value_type, types.UnionType):
        if text.lower() == "none":
            return None
        members = typing.get_args(value_type)
        value_type = next(each for each in members if each is not types.NoneType)

    if value_type == tuple[float, ...]:
        items = split_list(text.strip("[]()"))
        return tuple(_read_float(label, item) for item in items)

    if value_type is float:
        return _read_float(label, text)

    if value_type is int:
        number = _read_float(label, text, allow_suffix=True)
        if not number.is_integer():
            raise InputError(f"{label} must be a whole number, not '{text}'")
        return int(number)

    if value_type is bool:
        if text.lower() not in TRUTH_VALUES:
            raise InputError(f"{label} must be true or false, not '{text}'")
        return TRUTH_VALUES[text.lower()]

    if value_type is str:
        if not text:
            raise InputError(f"{label} needs a value")
        return text

    return parse_inner(text)


def _read_float(label: str, text: str, *, allow_suffix: bool = False) -> float:
    """Read a number; ``allow_suffix`` says that it may be written as 128k."""
    read = read_number if allow_suffix else read_plain_number
    try:
        return float(read(text))  # type: ignore[arg-type]
    except ValueError as error:
        # If the text begins as a number does, the error says what is wrong with the
        # text.
        if text[:1].isdigit():
            raise InputError(f"{label} {error}, got '{text}'") from None
        raise InputError(f"{label} must be a number, not '{text}'") from None
