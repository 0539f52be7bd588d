"""Every method that can be typed: one list, one parser, one table; without importing
torch.

To add one that acts on a model: a `Method` under `@method(name, source)` with its
parameters as fields, a line in `ropelab.math.methods.ON_MODELS`, and a row in a test
table.
"""

from collections.abc import Iterable
from dataclasses import MISSING, fields
from inspect import isabstract
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ropelab.math import methods
from ropelab.runs.errors import InputError
from ropelab.runs.own import find, is_own, named

if TYPE_CHECKING:
    import pandas as pd

    from ropelab.math.frequencies import Geometry
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Method

METHODS = (*methods.FREQUENCIES, *methods.ON_MODELS)


def method_class(name: str) -> "type[Scaling] | type[Method]":
    """Return the class of a method by its name or an alias; InputError if there is
    none.
    """
    from ropelab.models.methods.method import Method

    key = methods.canonical(name)
    if key in methods.ON_MODELS:
        return resolve_name(f"ropelab.models.methods.{methods.ON_MODELS[key]}")
    found = None if key in methods.FREQUENCIES else find("methods", name)
    if isinstance(found, type) and issubclass(found, Method):
        # Classes of this package that stand for no method are parts of others.
        part = not is_own(found) and getattr(found, "name", "") not in METHODS
        if part or isabstract(found):
            raise InputError(f"{name} is no method that can be used (docs/own.md)")
        return found
    return methods.scaling_class(name, METHODS)


def parse_method(text: str, factor: float | None = None) -> "Method":
    """Parse a method that acts on frequencies, attention or weights; errors as
    `parse_scaling`.
    """
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Scaled

    name, arguments = methods.split_call(text)
    found = method_class(name)
    if issubclass(found, Scaling):
        return Scaled(scaling=methods.parse_scaling(text, factor))
    method: Method = methods.build_method(found, arguments, factor, parse_method)
    return method


def parse_methods(
    texts: Iterable[str], geometry: "Geometry", test_len: int
) -> "tuple[Method, ...]":
    """Parse methods, each once, with open parameters set for that model and length."""
    from ropelab.runs.labels import method_label

    # A factor that is not given is each of `default_factors` times test_len / trained
    # length. In a shorter context nothing is stretched.
    times = max(1.0, test_len / geometry.trained_len)
    found: dict[str, Method] = {}
    for text in texts:
        for multiple in method_class(methods.split_call(text)[0]).default_factors or (
            1.0,
        ):
            method = parse_method(text, multiple * times).resolved(geometry, test_len)
            label = method_label(method.label, method.factor)
            if found.setdefault(label, method).factor != method.factor:
                raise InputError(
                    f"two methods are {label} in tables and figures; give one of them"
                )
    return tuple(found.values())


def catalogue() -> "pd.DataFrame":
    """Return a row per method, with its parameters."""
    import pandas as pd

    from ropelab.math.scaling import Scaling
    from ropelab.math.scaling.plan import parameter_text
    from ropelab.models.methods.method import Reading

    def parameter(method: "type[Scaling] | type[Method]", field: Any) -> str:
        follows = field.name == "factor" and method.default_factors
        required = field.default is MISSING or field.default == ()
        # A default that follows from model and length is no text.
        known = not (follows or required or field.default is None)
        return f"{field.name}={parameter_text(field.default) if known else '...'}"

    rows = []
    for name in (*METHODS, *named("methods")):
        method = method_class(name)
        acts_on = "frequencies" if issubclass(method, Scaling) else method.acts_on
        if issubclass(method, Scaling):
            usable = "freqs, precision, extrapolate, evaluate"
        elif acts_on == "attention":
            usable = "extrapolate, evaluate"
        # weights of a released model stay as they are, and nothing is searched on it
        else:
            usable = (
                "extrapolate"
                if issubclass(method, Reading)
                else "extrapolate (zero_shot)"
            )
        rows.append(
            {
                "method": name,
                "parameters": ", ".join(
                    parameter(method, field) for field in fields(method)
                ),
                "acts_on": acts_on,
                "factor": method.factor_means,
                "usable_in": usable,
                "does": (method.__doc__ or "").splitlines()[0],
                "source": method.source,
                "aliases": ", ".join(
                    a for a, meant in methods.ALIASES.items() if meant == name
                ),
            }
        )
    return pd.DataFrame(rows)
