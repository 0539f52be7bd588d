"""What an experiment may use of the outside: say how far it is, keep cells, read stored runs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from ropelab.cells import Cells


class Advance(Protocol):
    """Report progress: `advance(1, note="loss 2.31")`."""

    def __call__(self, steps: float = 1, *, note: str = "") -> None: ...


class Progress(Protocol):
    """Opens a progress line: `with progress("training, seed 0", total=600) as advance: ...`."""

    def __call__(
        self, description: str, total: float | None = None
    ) -> AbstractContextManager[Advance]: ...


@dataclass(frozen=True)
class Stored:
    """A finished run found on disk."""

    experiment: str
    config: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    path: str


@contextmanager
def silent(description: str, total: float | None = None) -> Iterator[Advance]:
    """Progress for tests and notebooks: none."""

    def advance(steps: float = 1, *, note: str = "") -> None:
        """Report nothing."""

    yield advance


def nothing_stored(experiment: str) -> list[Stored]:
    """The stored runs of a context without a results folder: none."""
    return []


@dataclass(frozen=True)
class Context:
    """The outside as an experiment sees it; without arguments everything stays in memory."""

    progress: Progress = silent
    cells: Cells = field(default_factory=Cells)
    stored: Callable[[str], list[Stored]] = nothing_stored
    times: dict[str, Any] = field(default_factory=dict)
    """Measured times, json-able, for the manifest: tables hold only what can be reproduced."""
