"""The table of all methods: what `ropelab methods` shows."""

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import pandas as pd

from ropelab.math.methods import ALIASES
from ropelab.math.scaling import Scaling
from ropelab.math.scaling.plan import parameter_text
from ropelab.models.methods.registry import METHODS, method_class

if TYPE_CHECKING:
    from ropelab.models.methods.method import Method

    Typed = Scaling | Method


def catalogue() -> pd.DataFrame:
    """method, knobs with defaults, acts_on, factor, usable_in, does, source, aliases."""
    return pd.DataFrame([_row(name, method_class(name)) for name in METHODS])


def _row(name: str, method: "type[Typed]") -> dict[str, str]:
    return {
        "method": name,
        "knobs": ", ".join(_knob(method, knob) for knob in fields(method)),
        "acts_on": "frequencies" if issubclass(method, Scaling) else method.acts_on,
        "factor": method.factor_means,
        "usable_in": _places(method),
        "does": (method.__doc__ or "").splitlines()[0],
        "source": method.source,
        "aliases": ", ".join(alias for alias, meant in ALIASES.items() if meant == name),
    }


def _knob(method: "type[Typed]", knob: Any) -> str:
    """A knob and its default; `...` where the default follows from the model and the length."""
    follows = knob.name == "factor" and method.default_factors
    required = knob.default is MISSING or knob.default == ()
    open_ = follows or required or knob.default is None
    return f"{knob.name}={'...' if open_ else parameter_text(knob.default)}"


def _places(method: "type[Typed]") -> str:
    if issubclass(method, Scaling):
        return "freqs, precision, extrapolate, extrapolate --hf"
    if method.acts_on == "attention":
        return "extrapolate, extrapolate --hf"
    return "extrapolate" if method.is_tunable else "extrapolate (zero_shot)"
