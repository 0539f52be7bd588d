"""Configurations of models: read as runtimes read them, written, and code checked against them.

A `document` is read by one reader per runtime to a `RopeSpec` per layer type; `audited` sets them
side by side, `emit` is their inverse, and `check` compares a rotary code's answers (`observed`).

`ropelab.audit(...)` is a call. This room has the name of that function, so it answers the call
itself: a function beside it would be replaced as soon as anything imports the room.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from ropelab.audit.audited import Audit

Rows = Sequence[Mapping[str, Any]]


class Result:
    """The outcome of a command: ``rows`` are its tables as lists, ``tables`` as DataFrames."""

    rows: Mapping[str, Rows]

    @cached_property
    def tables(self) -> "dict[str, pd.DataFrame]":
        import pandas as pd

        return {name: pd.DataFrame(list(rows)) for name, rows in self.rows.items()}


class _Callable(ModuleType):
    def __call__(self, source: str, **options: Any) -> "Audit":
        """Return a configuration as each runtime reads it; see `ropelab.audit.audited.audit`."""
        from ropelab.audit.audited import audit

        return audit(source, **options)


sys.modules[__name__].__class__ = _Callable
