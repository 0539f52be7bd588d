"""Tables as lists of rows, for commands that import nothing heavy."""

from collections.abc import Iterable, Mapping, Sequence
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


def grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the second of each pair, in a list under the first."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
