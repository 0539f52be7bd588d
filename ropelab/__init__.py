"""ropelab: a laboratory for rotary position embeddings.

Every command of the command line is a function here that returns a `Run` with DataFrames:

    import ropelab
    ropelab.precision(base=1e6).tables["resolution"]

`ropelab.methods()` and `ropelab.models()` are DataFrames of what can be named.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropelab.experiments import NAMES

if TYPE_CHECKING:
    from ropelab.lab import Run

__version__ = "0.1.0"
# Commands for one configuration, which keep nothing; `audit` is a room that can be called.
DESK = {"audit": "ropelab.audit", "check": "ropelab.audit.check", "emit": "ropelab.audit.emit"}
__all__ = [
    "__version__",
    *DESK,
    "methods",
    "models",
    "run",
    *(name.replace("-", "_") for name in NAMES),
]


def __getattr__(name: str) -> Any:
    """`run`, lists, and a function per experiment, made when they are first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'ropelab' has no attribute '{name}'")
    if name == "run":
        from ropelab.lab import run

        return run
    if name == "models":
        return import_module("ropelab.models")
    if name in DESK:
        module = import_module(DESK[name])
        return module if name == "audit" else getattr(module, name)
    if name == "methods":
        from ropelab.models.methods.registry import catalogue

        return catalogue
    return command_of(name.replace("_", "-"))


def __dir__() -> list[str]:
    return sorted(__all__)


@cache
def command_of(name: str) -> "Callable[..., Run]":
    """Return the function of an experiment: its parameters are the fields of the config."""
    from ropelab.experiments import load

    def command(**values: Any) -> "Run":
        from ropelab.lab import run

        return run(name, **values)

    experiment = load(name)
    command.__name__ = command.__qualname__ = name.replace("-", "_")
    command.__doc__ = experiment.text
    command.__signature__ = experiment.signature  # type: ignore[attr-defined]
    return command
