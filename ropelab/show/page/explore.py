"""`explore.html`: a page of sliders that computes the formulas of this package in the
browser.

The script of the page has a copy of each formula in JavaScript. The parameters, their
defaults and the known models are written into the page by this file.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropelab.math.methods import FREQUENCY_METHODS, find_scaling_class, parse_scaling
from ropelab.math.models import MODELS, KnownModel
from ropelab.math.numerics.formats import FORMATS, FloatFormat
from ropelab.runs.files import read_table_beside
from ropelab.show.looks import list_looks_for_script
from ropelab.show.page.document import write_page

SCRIPTS = ("common.js", "series.js", "plot.js", "rotary.js", "sliders.js")
# Methods that the page does without: one needs a list of factors, which no slider can
# give, and the remaining methods are experiments, which extend no model.
NOT_HERE = {"longrope", "one", "spaced", "without"}
# The types of parameters that a field of the page can set. Parameters of other types are
# lists and methods.
PLAIN_TYPES = (bool, int, float, str, type(None))
# The tolerated error of an angle in radians, as `ropelab precision` has it by default.
TOLERANCE = 0.01
# What a model's file must state to be read on the page, by groups of model types.
READS: list[dict[str, Any]] = read_table_beside(__file__)["reads"]
# The words that the script reads for numbers that JSON does not have.
NUMBER_WORDS = {"inf": "Infinity", "nan": "NaN"}


def write_explore(path: Path) -> Path:
    return write_page(
        path, "explore.html.j2", SCRIPTS, title="Explore", known=list_known()
    )


def list_known() -> dict[str, Any]:
    """Return methods with their parameters, models, formats and looks, for the script.

    The script offers the methods for which it has a formula, and the models that use one
    of these methods.
    """
    methods = {}
    for name in FREQUENCY_METHODS:
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
        "types": list_types(),
    }


def list_types() -> dict[str, dict[str, Any]]:
    """Return what the file of each model type that the page reads must state."""
    types = {}
    for group in READS:
        for name in group["types"]:
            types[name] = {key: group[key] for key in ("stated", "share", "scaled")}
    return types


def _describe_method(name: str) -> dict[str, Any]:
    scaling = find_scaling_class(name)
    parameters = {}
    for parameter in fields(scaling):
        if isinstance(parameter.default, PLAIN_TYPES):
            parameters[parameter.name] = parameter.default
    return {"parameters": parameters, "source": scaling.source}


def _describe_format(fmt: FloatFormat) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "precision": fmt.precision,
        "min_exponent": fmt.min_exponent,
        "largest": fmt.largest,
        "overflow": NUMBER_WORDS.get(str(fmt.overflow), fmt.overflow),
    }


def _list_settings(model: KnownModel, methods: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the sliders of the page get when a model is chosen.

    If the page does not have the model's method, only the name of the method is given.
    """
    method = parse_scaling(model.method)
    parameters = {}
    if method.name in methods:
        for name in methods[method.name]["parameters"]:
            parameters[name] = getattr(method, name)

    # A factor that the model's method leaves out follows from the lengths of the model.
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
