"""`explore.html`: a page of sliders that computes the formulas of this package in the
browser.

The script of the page has each formula again. The parameters, their defaults and the
known models come from here.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropelab.math.methods import FREQUENCIES, find_scaling_class, parse_scaling
from ropelab.math.models import MODELS, KnownModel
from ropelab.math.numerics.formats import FORMATS, FloatFormat
from ropelab.show.looks import list_looks_for_script
from ropelab.show.page.document import write_page

SCRIPTS = ("common.js", "series.js", "plot.js", "rotary.js", "sliders.js")
# Methods that the page does without: one needs a list of factors, which no slider can
# give, and the remaining ones are experiments that extend no model.
NOT_HERE = {"longrope", "one", "spaced", "without"}
# Parameters of these types can be set by a field of the page. Parameters of other types
# are lists and methods.
PLAIN = (bool, int, float, str, type(None))
# The tolerated error of an angle in radians, as `ropelab precision` has it by default.
TOLERANCE = 0.01
# JSON has neither infinity nor NaN, and the script reads these words instead.
NUMBERS = {"inf": "Infinity", "nan": "NaN"}


def write_explore(path: Path) -> Path:
    return write_page(
        path, "explore.html.j2", SCRIPTS, title="Explore", known=list_known()
    )


def list_known() -> dict[str, Any]:
    """Return methods with their parameters, models, formats and looks, for the script.

    The script offers those methods that it has a formula for, and the models that use
    one.
    """
    methods = {}
    for name in FREQUENCIES:
        if name not in NOT_HERE:
            methods[name] = _describe_method(name)
    models = {}
    for model in MODELS.values():
        models[model.name] = _list_settings(model, methods)
    return {
        "methods": methods,
        "formats": [_describe_format(fmt) for fmt in FORMATS.values()],
        "models": models,
        "tolerance": TOLERANCE,
        "looks": list_looks_for_script(),
    }


def _describe_method(name: str) -> dict[str, Any]:
    scaling = find_scaling_class(name)
    parameters = {}
    for parameter in fields(scaling):
        if isinstance(parameter.default, PLAIN):
            parameters[parameter.name] = parameter.default
    return {"parameters": parameters, "source": scaling.source}


def _describe_format(fmt: FloatFormat) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "precision": fmt.precision,
        "min_exponent": fmt.min_exponent,
        "largest": fmt.largest,
        "overflow": NUMBERS.get(str(fmt.overflow), fmt.overflow),
    }


def _list_settings(model: KnownModel, methods: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page sets for a model.

    A method that the page does not have is a name without parameters.
    """
    method = parse_scaling(model.method)
    parameters = {}
    if method.name in methods:
        for name in methods[method.name]["parameters"]:
            parameters[name] = getattr(method, name)

    # A method that was written without a factor follows from the lengths.
    if "factor" in parameters and parameters["factor"] is None:
        parameters["factor"] = model.factor

    return {
        "base": model.base,
        "head_dim": model.head_dim,
        "rotary_dim": model.rotary_width,
        "trained": model.trained_len,
        "target": model.promised_len,
        "method": method.name,
        "parameters": parameters,
    }
