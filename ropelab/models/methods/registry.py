"""Every method by name, and where its class is; light, so that a help text can name them all.

To add one: a class (a `Scaling` in rope/scaling, or a `Method` here) that declares `name`, `source`
and its knobs as fields, a line below, and a row in a test table.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from ropelab.errors import unknown_name

if TYPE_CHECKING:
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Method

UNIFORM, BY_PARTS = "ropelab.math.scaling.uniform", "ropelab.math.scaling.by_parts"
SELECTED, GIVEN = "ropelab.math.scaling.selected", "ropelab.math.scaling.given"
CHOSEN = "ropelab.math.scaling.chosen"
ATTENTION = "ropelab.models.methods.attention"

FREQUENCIES = {
    "unscaled": (UNIFORM, "Unscaled"),
    "pi": (UNIFORM, "PositionInterpolation"),
    "ntk": (UNIFORM, "NtkAware"),
    "dynamic_ntk": (UNIFORM, "DynamicNtk"),
    "ntk_by_parts": (BY_PARTS, "NtkByParts"),
    "yarn": (BY_PARTS, "Yarn"),
    "yarn_paper": (BY_PARTS, "YarnPaper"),
    "dynamic_yarn": (BY_PARTS, "DynamicYarn"),
    "llama3": (BY_PARTS, "Llama3"),
    "longrope": (GIVEN, "LongRope"),
    "resonance": (SELECTED, "Resonance"),
    "clipped": (SELECTED, "Clipped"),
    "p_rope": (SELECTED, "PRope"),
    "proportional": (SELECTED, "Proportional"),
    "abf": (UNIFORM, "AdjustedBase"),
    "one": (CHOSEN, "One"),
    "spaced": (CHOSEN, "Spaced"),
    "without": (CHOSEN, "Without"),
}
"""Changes of frequencies alone, which every command understands."""
MORE = {
    "log_n": (ATTENTION, "SharpenedByLogN"),
    "rerope": (ATTENTION, "Rectified"),
    "self_extend": (ATTENTION, "Grouped"),
    "drope": (ATTENTION, "Unrotated"),
    "longrope_search": ("ropelab.models.methods.search", "LongRopeSearch"),
}
"""Changes of attention or of the model, and what is searched on a model: for extrapolate."""
METHODS = {**FREQUENCIES, **MORE}
ALIASES = {
    "none": "unscaled",
    "default": "unscaled",
    "linear": "pi",
    "dynamic": "dynamic_ntk",
    "by_parts": "ntk_by_parts",
    "cope": "clipped",
}
"""Other names in use, mostly the rope types of transformers."""


def method_class(name: str) -> "type[Scaling] | type[Method]":
    """The class of a method, by its name or an alias.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in METHODS:
        raise unknown_name("method", name, METHODS)
    module, attribute = METHODS[key]
    return getattr(import_module(module), attribute)


def named(names: Iterable[str] = METHODS) -> str:
    """Names for a help text: a list with commas."""
    return ", ".join(names)
