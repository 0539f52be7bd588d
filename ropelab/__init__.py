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
# The functions that are not experiments, each with the object that implements it. `audit`
# and `models` are both packages and functions: the `__init__.py` of each gives its own
# module a class with `__call__`, so that `ropelab.audit(...)` and `import ropelab.audit`
# both work.
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
    """Return an attribute of the package when it is first used: a function that is
    imported, or one that is made for an experiment.
    """
    if name not in __all__:
        raise AttributeError(f"module 'ropelab' has no attribute '{name}'")
    if name in ELSEWHERE:
        return resolve_name(ELSEWHERE[name])
    return make_experiment_function(name.replace("_", "-"))


def __dir__() -> list[str]:
    return sorted(__all__)


@cache
def make_experiment_function(name: str) -> "Callable[..., Run]":
    """Make a function that runs an experiment. Its parameters are the fields of the
    experiment's config.
    """
    from ropelab.experiments import load

    def run_experiment(**values: Any) -> "Run":
        from ropelab.lab import run

        return run(name, **values)

    experiment = load(name)
    function_name = name.replace("-", "_")
    run_experiment.__name__ = function_name
    run_experiment.__qualname__ = function_name
    run_experiment.__doc__ = experiment.text
    run_experiment.__signature__ = experiment.signature  # type: ignore[attr-defined]
    return run_experiment
