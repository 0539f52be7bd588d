"""`explore.html`: sliders, and formulas computed in the browser that are those of the package."""

import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from ropelab.math.methods import FREQUENCIES, scaling_class
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.scaling import Scaling
from ropelab.show.looks import looks_for_script
from ropelab.show.page.document import write_page

SCRIPTS = ("common.js", "series.js", "plot.js", "rotary.js", "sliders.js")
# What needs a list of factors, which no slider gives, and what no model is extended with.
NOT_HERE = {"longrope", "one", "spaced", "without"}
# Radians; the same as the default of `ropelab precision`.
TOLERANCE = 0.01


def write_explore(path: Path) -> Path:
    return write_page(path, "explore.html.j2", SCRIPTS, title="Explore", known=known())


def computed() -> set[str]:
    """Return the names of the methods whose formulas are in rotary.js, one to a line."""
    script = (files("ropelab.show.page") / "static" / "rotary.js").read_text(encoding="utf-8")
    table = script.split("const METHODS = {")[1].split("\n};")[0]
    return set(re.findall(r"^  (\w+): \(", table, re.MULTILINE))


def known() -> dict[str, Any]:
    """Return the methods with their parameters, the formats and the looks, for the script."""
    # A method that has no formula in the script yet is not offered: the page works without it.
    offered = computed() - NOT_HERE
    methods = {}
    for name in (name for name in FREQUENCIES if name in offered):
        kind = scaling_class(name)
        defaults = {each.name: each.default for each in fields(kind)}
        plain = {key: value for key, value in defaults.items() if not isinstance(value, Scaling)}
        methods[name] = {"parameters": plain, "source": kind.source}
    # JSON has neither infinity nor NaN: the script reads them from words.
    words = {"inf": "Infinity", "nan": "NaN"}
    facts = ("name", "precision", "min_exponent", "largest")
    formats = [
        {fact: getattr(one, fact) for fact in facts}
        | {"overflow": words.get(str(one.overflow), one.overflow)}
        for one in FORMATS.values()
    ]
    about = {"tolerance": TOLERANCE, "looks": looks_for_script()}
    return {"methods": methods, "formats": formats, **about}
