"""Every method a user can type: one registry, one parser, frequencies and attention alike.

`ropelab.methods()` is the table of them. This room has the name of that function, so it answers the
call itself: a function beside it would be replaced as soon as anything imports the room.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class _Callable(ModuleType):
    def __call__(self) -> "pd.DataFrame":
        """All methods with knobs, defaults, what the factor means, where usable, and source."""
        from ropelab.models.methods.catalogue import catalogue

        return catalogue()


sys.modules[__name__].__class__ = _Callable
