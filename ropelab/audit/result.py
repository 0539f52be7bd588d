"""The tables of `audit`, `emit` and `check`, for Python."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Rows = Sequence[Mapping[str, Any]]


class Result:
    """The outcome of a command: ``rows`` are its tables as lists, ``tables`` as
    DataFrames.
    """

    rows: Mapping[str, Rows]

    @cached_property
    def tables(self) -> "dict[str, pd.DataFrame]":
        import pandas as pd

        return {name: pd.DataFrame(list(rows)) for name, rows in self.rows.items()}
