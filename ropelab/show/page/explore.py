"""`explore.html`: sliders, and formulas computed in the browser that are those of the
package.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropelab.math.methods import FREQUENCIES, parse_scaling, scaling_class
from ropelab.math.models import MODELS, KnownModel
from ropelab.math.numerics.formats import FORMATS
from ropelab.show.looks import looks_for_script
from ropelab.show.page.document import write_page

SCRIPTS = ("common.js", "series.js", "plot.js", "rotary.js", "sliders.js")
# What needs a list of factors, which no slider gives, and what no model is extended
# with.
NOT_HERE = {"longrope", "one", "spaced", "without"}
# Parameters that a field of the page can set; the others are lists and methods.
PLAIN = (bool, int, float, str, type(None))
# Radians; the same as the default of `ropelab precision`.
TOLERANCE = 0.01


def write_explore(path: Path) -> Path:
    return write_page(path, "explore.html.j2", SCRIPTS, title="Explore", known=known())


def known() -> dict[str, Any]:
    """Return methods with their parameters, models, formats and looks, for the script.

    The script offers those methods that it has a formula for, and the models that use
    one.
    """
    methods = {}
    for name in (name for name in FREQUENCIES if name not in NOT_HERE):
        kind = scaling_class(name)
        defaults = {each.name: each.default for each in fields(kind)}
        plain = {
            key: value for key, value in defaults.items() if isinstance(value, PLAIN)
        }
        methods[name] = {"parameters": plain, "source": kind.source}
    # JSON has neither infinity nor NaN: the script reads them from words.
    words = {"inf": "Infinity", "nan": "NaN"}
    formats = [
        {
            fact: getattr(one, fact)
            for fact in ("name", "precision", "min_exponent", "largest")
        }
        | {"overflow": words.get(str(one.overflow), one.overflow)}
        for one in FORMATS.values()
    ]
    about = {"tolerance": TOLERANCE, "looks": looks_for_script()}
    models = {one.name: _settings(one, methods) for one in MODELS.values()}
    return {"methods": methods, "formats": formats, "models": models, **about}


def _settings(model: KnownModel, methods: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page sets for a model; a method that the page does not have stays
    a name.
    """
    method = parse_scaling(model.method)
    names = methods.get(method.name, {"parameters": ()})["parameters"]
    parameters = {name: getattr(method, name) for name in names}
    if parameters.get("factor", 0) is None:
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
