"""`explore.html`: sliders, and formulas computed in the browser that are those of the package."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropelab.math.methods import FREQUENCIES, scaling_class
from ropelab.math.numerics.formats import FORMATS, FloatFormat
from ropelab.math.scaling import Scaling
from ropelab.show.page.document import write_page
from ropelab.show.page.report import drawing

SCRIPTS = ("common.js", "series.js", "plot.js", "rotary.js", "sliders.js")
NOT_HERE = {"longrope", "one", "spaced", "without"}
"""What needs a list of factors, which no slider gives, and what no model is extended with."""
TOLERANCE = 0.01
"""Radians; the same as the default of `ropelab precision`."""


def write_explore(path: Path) -> Path:
    """Write the page of sliders, whole or not at all, and say where it is."""
    return write_page(path, "explore.html.j2", SCRIPTS, title="Explore", known=known())


def known() -> dict[str, Any]:
    """What the script takes from the package: methods with their knobs, formats, looks."""
    names = [name for name in FREQUENCIES if name not in NOT_HERE]
    return {
        "methods": {name: _method(scaling_class(name)) for name in names},
        "formats": [_format(one) for one in FORMATS.values()],
        "tolerance": TOLERANCE,
        "looks": drawing()["looks"],
    }


def _method(kind: Any) -> dict[str, Any]:
    knobs = {knob.name: knob.default for knob in fields(kind)}
    plain = {name: value for name, value in knobs.items() if not isinstance(value, Scaling)}
    return {"knobs": plain, "source": kind.source}


def _format(one: FloatFormat) -> dict[str, Any]:
    return {
        "name": one.name,
        "precision": one.precision,
        "min_exponent": one.min_exponent,
        "largest": one.largest,
        "overflow": _plain(one.overflow),
    }


def _plain(value: float) -> float | str:
    """A number as JSON has it; what it has not is a word."""
    return value if math.isfinite(value) else ("NaN" if math.isnan(value) else "Infinity")
