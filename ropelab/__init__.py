"""ropelab: a laboratory for rotary position embeddings.

Every command of the command line is a function here that returns a `Run` with DataFrames:

    import ropelab
    ropelab.precision(base=1e6).tables["resolution"]
"""

from functools import partial
from typing import Any

from ropelab.experiments import NAMES

__version__ = "0.1.0"
__all__ = ["__version__", "run", *(name.replace("-", "_") for name in NAMES)]


def __getattr__(name: str) -> Any:
    """`run`, and a function per experiment, imported when they are first asked for."""
    if name in __all__:
        from ropelab.lab import run

        return run if name == "run" else partial(run, name.replace("_", "-"))
    raise AttributeError(f"module 'ropelab' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
