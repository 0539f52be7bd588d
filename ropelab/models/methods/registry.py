"""Every method by name, and where its class is; light, so that a help text can name them all.

To add one that acts on a model: a class (a `Method`) that declares `name`, `source` and its
parameters as fields, a line below, its name in `ropelab.math.methods.ON_MODELS`, and a row in a
test table.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ropelab.errors import unknown_name
from ropelab.math.methods import FREQUENCIES, canonical, scaling_class

if TYPE_CHECKING:
    from ropelab.math.scaling import Scaling
    from ropelab.models.methods.method import Method

# Each name with the module and the class in ropelab.models.methods.
MORE = {
    "log_n": "attention.SharpenedByLogN",
    "rerope": "attention.Rectified",
    "self_extend": "attention.Grouped",
    "drope": "attention.Unrotated",
    "longrope_search": "search.LongRopeSearch",
}
METHODS = (*FREQUENCIES, *MORE)


def method_class(name: str) -> "type[Scaling] | type[Method]":
    """Return the class of a method, by its name or an alias.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    key = canonical(name)
    if key in FREQUENCIES:
        return scaling_class(key)
    if key not in MORE:
        raise unknown_name("method", name, METHODS)
    module, attribute = MORE[key].split(".")
    found: type[Method] = getattr(import_module(f"ropelab.models.methods.{module}"), attribute)
    return found
