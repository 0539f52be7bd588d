"""Tables as lists of rows, for commands that import nothing heavy."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Rows = Sequence[Mapping[str, Any]]


class Result:
    """The outcome of a command, whose tables are lists of rows in ``rows`` and
    DataFrames in ``tables``.
    """

    rows: Mapping[str, Rows]

    @cached_property
    def tables(self) -> "dict[str, pd.DataFrame]":
        # Imported here: the command line shows rows without pandas.
        import pandas as pd

        return {name: pd.DataFrame(list(rows)) for name, rows in self.rows.items()}


def group_pairs(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the values of each key as a list; a pair is a key and one of its values."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
