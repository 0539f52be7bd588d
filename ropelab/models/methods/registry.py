"""Every method that a user can type: its class, its parser, and the table of all
methods.

Methods on frequencies are defined in ropelab/math/scaling, all others in
ropelab/models/methods. torch is not imported here.
"""

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from inspect import isabstract
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ropelab.math import methods
from ropelab.runs.errors import InputError
from ropelab.runs.own import find_own, is_own, list_entry_points

if TYPE_CHECKING:
    import pandas as pd

    from ropelab.math.frequencies import Geometry
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Method

# The names of all methods of ropelab.
METHODS = (*methods.FREQUENCY_METHODS, *methods.MODEL_METHODS)


def find_method_class(name: str) -> "type[Scaling] | type[Method]":
    """Return the class of a method.

    The name is the method's name, an alias, or the user's reference to a class, as in
    `module:MyMethod`. InputError: no method has this name.
    """
    from ropelab.models.methods.method import Method

    canonical_name = methods.resolve_alias(name)
    if canonical_name in methods.MODEL_METHODS:
        class_path = methods.MODEL_METHODS[canonical_name]
        return resolve_name(f"ropelab.models.methods.{class_path}")

    own_class = None
    if canonical_name not in methods.FREQUENCY_METHODS:
        own_class = find_own("methods", name)
    if not (isinstance(own_class, type) and issubclass(own_class, Method)):
        # The name is of a method on frequencies, ropelab's or the user's, or is wrong.
        return methods.find_scaling_class(name, METHODS)
    # A reference may also lead to a class of ropelab, such as a base class of methods.
    is_of_ropelab = not is_own(own_class)
    is_base_class = is_of_ropelab and getattr(own_class, "name", "") not in METHODS
    if is_base_class or isabstract(own_class):
        raise InputError(f"{name} is no method that can be used (docs/own.md)")
    return own_class


def parse_method(text: str, factor: float | None = None) -> "Method":
    """Parse a method that acts on frequencies, attention or weights.

    It raises the errors of `parse_scaling`.
    """
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Scaled

    name, arguments = methods.split_call(text)
    method_class = find_method_class(name)
    if issubclass(method_class, Scaling):
        return Scaled(scaling=methods.parse_scaling(text, factor))
    method: Method = methods.build_method(method_class, arguments, factor, parse_method)
    return method


def parse_methods(
    texts: Iterable[str],
    geometry: "Geometry",
    test_len: int,
    factor: float | None = None,
) -> "tuple[Method, ...]":
    """Parse methods, and set the parameters that were not given.

    These parameters follow from a model and a length. A method that is typed twice is
    returned once.

    Args:
        texts: the methods as they were typed.
        geometry: the geometry of the model.
        test_len: the longest length of context.
        factor: the factor of all methods that take a factor and whose text names none;
            None: each method's `default_factors` times test_len over trained length.
    """
    from ropelab.runs.labels import label_method

    # In a context that is shorter than the trained length nothing is stretched.
    stretch = max(1.0, test_len / geometry.trained_len)
    by_label: dict[str, Method] = {}
    for text in texts:
        name, _ = methods.split_call(text)
        if factor is None:
            multiples = find_method_class(name).default_factors or (1.0,)
            factors = [multiple * stretch for multiple in multiples]
        else:
            factors = [factor]
        for factor_of_method in factors:
            method = parse_method(text, factor_of_method)
            method = method.resolve(geometry, test_len)
            label = label_method(method.label, method.factor)
            first_method = by_label.setdefault(label, method)
            if first_method.factor != method.factor:
                # Labels round factors, so that two factors may have one label.
                raise InputError(
                    f"two methods are {label} in tables and figures; give one of them"
                )
    return tuple(by_label.values())


def make_catalogue() -> "pd.DataFrame":
    """Return the table of all methods, including methods of installed packages."""
    import pandas as pd

    rows = []
    for name in (*METHODS, *list_entry_points("methods")):
        method = find_method_class(name)
        aliases = [alias for alias, meant in methods.ALIASES.items() if meant == name]
        parameters = [_describe_parameter(method, field) for field in fields(method)]
        acts_on, usable_in = _describe_use(method)
        rows.append(
            {
                "method": name,
                "parameters": ", ".join(parameters),
                "acts_on": acts_on,
                "factor": method.factor_means,
                "usable_in": usable_in,
                "does": _summarise(method),
                "source": method.source,
                "aliases": ", ".join(aliases),
            }
        )
    return pd.DataFrame(rows)


def suggest_use(name: str) -> str:
    """Return a command that takes a method as it is; empty if it needs parameters."""
    from ropelab.math.scaling import Scaling

    method = find_method_class(name)
    if any(_is_required(field) for field in fields(method)):
        return ""
    if issubclass(method, Scaling):
        return f"ropelab freqs --method {name}"
    command = f"ropelab extrapolate --methods {name},yarn"
    # Nothing is trained for a method that changes attention alone.
    return f"{command} --quick" if method.acts_on == "attention" else command


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING or field.default == ()


def _describe_parameter(
    method: "type[Scaling] | type[Method]",
    field: "Field[Any]",
) -> str:
    """Return a parameter and its default; dots stand for one that is not fixed."""
    from ropelab.math.scaling.plan import write_parameter

    is_required = _is_required(field)
    # The default follows from the model and the length.
    follows_from_model = field.default is None
    # The default follows from the length over the trained length.
    follows_from_length = field.name == "factor" and method.default_factors
    if is_required or follows_from_model or follows_from_length:
        return f"{field.name}=..."
    return f"{field.name}={write_parameter(field.default)}"


def _describe_use(method: "type[Scaling] | type[Method]") -> tuple[str, str]:
    """Return the part of a model that a method changes, and the commands that take it."""
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import FixedMethod

    if issubclass(method, Scaling):
        return "frequencies", "freqs, precision, base, spectrum, extrapolate, evaluate"
    if method.acts_on == "attention":
        return "attention", "extrapolate, evaluate"
    # `evaluate` takes released models. Their weights stay as they are, and nothing is
    # searched on them.
    if issubclass(method, FixedMethod):
        return method.acts_on, "extrapolate"
    # No model is fine-tuned under a method that is searched.
    return method.acts_on, "extrapolate (zero_shot)"


def _summarise(method: "type[Scaling] | type[Method]") -> str:
    """Return the first paragraph of a method's docstring in one line, with code between
    single backticks.
    """
    paragraph, _, _ = (method.__doc__ or "").partition("\n\n")
    return " ".join(paragraph.split()).replace("``", "`")
