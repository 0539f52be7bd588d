"""ropelab: a laboratory for rotary position embeddings.

Each experiment of the command line is a function here that returns a `Run` with
DataFrames:

    import ropelab
    ropelab.precision(base=1e6).tables["resolution"]

`audit`, `check`, `doctor`, `emit`, `run` and `vectors` are functions here, too. Each
returns an answer of its own type. `ropelab.methods()` and `ropelab.models()` return
DataFrames of the names that options take.
"""

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ropelab.experiments import NAMES

if TYPE_CHECKING:
    from ropelab.plan import Run

__version__ = "0.1.0"
# The functions that are not experiments, and where they are. `audit` and `models` are
# both packages and functions: these packages replace the class of their module by a class
# with `__call__`, so that `ropelab.audit(...)` and `import ropelab.audit` both work.
ELSEWHERE = {
    "audit": "ropelab.audit",
    "check": "ropelab.conformance.check:check",
    "doctor": "ropelab.conformance.laws.doctor:doctor",
    "emit": "ropelab.audit.emit:emit",
    "methods": "ropelab.models.methods.registry:make_catalogue",
    "models": "ropelab.models",
    "run": "ropelab.lab:run",
    "vectors": "ropelab.conformance.vectors:vectors",
}
__all__ = ["__version__", *ELSEWHERE, *(name.replace("-", "_") for name in NAMES)]


def __getattr__(name: str) -> Any:
    """Import an attribute of the package when it is first used, or make it, if it is the
    function of an experiment.
    """
    if name not in __all__:
        raise AttributeError(f"module 'ropelab' has no attribute '{name}'")
    if name in ELSEWHERE:
        return resolve_name(ELSEWHERE[name])
    return write_command(name.replace("_", "-"))


def __dir__() -> list[str]:
    return sorted(__all__)


@cache
def write_command(name: str) -> "Callable[..., Run]":
    """Return the function of an experiment, whose parameters are the fields of its
    config.
    """
    from ropelab.experiments import load

    def command(**values: Any) -> "Run":
        from ropelab.lab import run

        return run(name, **values)

    experiment = load(name)
    command.__name__ = command.__qualname__ = name.replace("-", "_")
    command.__doc__ = experiment.text
    command.__signature__ = experiment.signature  # type: ignore[attr-defined]
    return command
