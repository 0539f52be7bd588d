"""Statements about rotary embeddings with their sources, judged by computing.

A claim is a record in a TOML file. Its check is a function in the Python file of the same
name, and decides it by a computation, program code or a dated document. The checks in
`trained` decide by the stored runs of other experiments.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallableClaims(ModuleType):
    # `ropelab.claims(...)` calls this module itself. A function `ropelab.claims` would be
    # replaced by the module as soon as anything imports the module.
    def __call__(self, **values: Any) -> Any:
        import ropelab

        return ropelab.make_experiment_function("claims")(**values)

    def __reduce__(self) -> tuple[Any, ...]:
        # A module cannot be pickled. A pool of processes imports it by its name instead.
        return import_module, (__name__,)


sys.modules[__name__].__class__ = _CallableClaims
