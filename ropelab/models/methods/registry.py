"""Every method that can be typed, its parser and its table, without importing torch.

To add one that acts on a model: a `Method` under `@method(name, source)` with its
parameters as fields, a line in `ropelab.math.methods.ON_MODELS`, and a row in a test
table.
"""

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields
from inspect import isabstract
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ropelab.math import methods
from ropelab.runs.errors import InputError
from ropelab.runs.own import find, is_own, list_entry_points

if TYPE_CHECKING:
    import pandas as pd

    from ropelab.math.frequencies import Geometry
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Method

METHODS = (*methods.FREQUENCIES, *methods.ON_MODELS)


def method_class(name: str) -> "type[Scaling] | type[Method]":
    """Return the class of a method by its name or an alias; InputError if unknown."""
    from ropelab.models.methods.method import Method

    key = methods.canonical(name)
    if key in methods.ON_MODELS:
        return resolve_name(f"ropelab.models.methods.{methods.ON_MODELS[key]}")

    own = None if key in methods.FREQUENCIES else find("methods", name)
    if not (isinstance(own, type) and issubclass(own, Method)):
        return methods.scaling_class(name, METHODS)
    # Classes of this package that stand for no method are parts of others.
    is_part = not is_own(own) and getattr(own, "name", "") not in METHODS
    if is_part or isabstract(own):
        raise InputError(f"{name} is no method that can be used (docs/own.md)")
    return own


def parse_method(text: str, factor: float | None = None) -> "Method":
    """Parse a method that acts on frequencies, attention or weights.

    Errors are those of `parse_scaling`.
    """
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Scaled

    name, arguments = methods.split_call(text)
    kind = method_class(name)
    if issubclass(kind, Scaling):
        return Scaled(scaling=methods.parse_scaling(text, factor))
    method: Method = methods.build_method(kind, arguments, factor, parse_method)
    return method


def parse_methods(
    texts: Iterable[str],
    geometry: "Geometry",
    test_len: int,
    factor: float | None = None,
) -> "tuple[Method, ...]":
    """Parse methods, each once, with open parameters set for that model and length.

    `factor` is that of all methods that have one and whose text names none.
    """
    from ropelab.runs.labels import method_label

    # A factor that is not given is each of `default_factors` times test_len / trained
    # length. In a shorter context nothing is stretched.
    stretch = max(1.0, test_len / geometry.trained_len)
    by_label: dict[str, Method] = {}
    for text in texts:
        name, _ = methods.split_call(text)
        multiples = method_class(name).default_factors or (1.0,)
        factors = [multiple * stretch for multiple in multiples]
        if factor is not None:
            factors = [factor]
        for own_factor in factors:
            method = parse_method(text, own_factor)
            method = method.resolve(geometry, test_len)
            label = method_label(method.label, method.factor)
            known = by_label.setdefault(label, method)
            if known.factor != method.factor:
                raise InputError(
                    f"two methods are {label} in tables and figures; give one of them"
                )
    return tuple(by_label.values())


def catalogue() -> "pd.DataFrame":
    """Return a row per method, with its parameters."""
    import pandas as pd

    rows = []
    for name in (*METHODS, *list_entry_points("methods")):
        method = method_class(name)
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


def _describe_parameter(
    method: "type[Scaling] | type[Method]",
    field: "Field[Any]",
) -> str:
    """Return a parameter with its default, or with dots if none can be printed."""
    from ropelab.math.scaling.plan import parameter_text

    is_required = field.default is MISSING or field.default == ()
    # A default that follows from model and length is no text.
    is_open = field.default is None
    is_derived = field.name == "factor" and method.default_factors
    if is_required or is_open or is_derived:
        return f"{field.name}=..."
    return f"{field.name}={parameter_text(field.default)}"


def _describe_use(method: "type[Scaling] | type[Method]") -> tuple[str, str]:
    """Return the part of a model that a method acts on, and the commands it suits."""
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import FixedMethod

    if issubclass(method, Scaling):
        return "frequencies", "freqs, precision, extrapolate, evaluate"
    if method.acts_on == "attention":
        return "attention", "extrapolate, evaluate"
    # Weights of a released model stay as they are, and nothing is searched on it.
    if issubclass(method, FixedMethod):
        return method.acts_on, "extrapolate"
    return method.acts_on, "extrapolate (zero_shot)"


def _summarise(method: "type[Scaling] | type[Method]") -> str:
    """Return the first paragraph of a method's docstring in one line."""
    paragraph, _, _ = (method.__doc__ or "").partition("\n\n")
    return " ".join(paragraph.split())
