"""Parsing methods of every kind: `ropelab.math.methods`, and those that act on models.

``log_n(inner=ntk)``, ``rerope(window=512)``, ``longrope_search(budget=48)``.
"""

from collections.abc import Iterable

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import FREQUENCIES, build_method, canonical, parse_scaling, split_call
from ropelab.models.methods.method import Method, Scaled
from ropelab.models.methods.registry import method_class


def parse_method(text: str, factor: float | None = None) -> Method:
    """Parse a method that acts on frequencies, attention or weights.

    Raises:
        InputError: as `parse_scaling`.
    """
    name, arguments = split_call(text)
    if canonical(name) in FREQUENCIES:
        return Scaled(scaling=parse_scaling(text, factor))
    method: Method = build_method(method_class(name), arguments, factor, parse_method)
    return method


def parse_methods(texts: Iterable[str], geometry: Geometry, test_len: int) -> tuple[Method, ...]:
    """Parse methods, each once, with open parameters set for that model and length.

    A factor that is not given follows from test_len / trained length, as the class of the method
    says (`default_factors`).

    Raises:
        InputError: as `parse_method`, or a method that does not fit the geometry.
    """
    reach = test_len / geometry.trained_len
    methods: dict[tuple[str, float], Method] = {}
    for text in texts:
        for times in method_class(split_call(text)[0]).default_factors or (1.0,):
            method = parse_method(text, times * reach).resolved(geometry, test_len)
            methods.setdefault((method.label, method.reach), method)
    return tuple(methods.values())
