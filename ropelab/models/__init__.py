"""Position encodings, the small language model, released models, and their tasks.

`ropelab.models()` is the table of the models known by name. This package has the name
of that function, so it answers the call itself: a function beside it would be replaced
as soon as anything imports the package.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class _CallableModels(ModuleType):
    def __call__(self) -> "pd.DataFrame":
        """Return the models known by name: base, widths, lengths, method and source."""
        from ropelab.math.models import table

        return table()

    def __reduce__(self) -> tuple[Any, ...]:
        # A pool of processes is given what it calls as a name.
        return import_module, (__name__,)


sys.modules[__name__].__class__ = _CallableModels
