"""What an experiment gets from its environment: progress, cells kept and computed, stored runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Protocol

import pandas as pd

from ropelab.errors import RopelabError
from ropelab.runs.cells import CellName, Cells
from ropelab.runs.estimate import Estimate
from ropelab.runs.folders import fingerprint
from ropelab.runs.forecast import Forecast
from ropelab.runs.machine import one_thread, rate


class Advance(Protocol):
    """Report progress: `advance(1, note="loss 2.31")`.

    `left` is the time left in seconds, where whoever reports knows it better than the steps do.
    """

    def __call__(self, steps: float = 1, *, note: str = "", left: float | None = None) -> None: ...


class Progress(Protocol):
    """Opens a progress line: `with progress("training, seed 0", total=600) as advance: ...`."""

    def __call__(
        self, description: str, total: float | None = None
    ) -> AbstractContextManager[Advance]: ...


class Supply(Protocol):
    """Something besides other cells that a cell reads, such as a corpus; its repr identifies it."""

    def content(self) -> Any:
        """What is read, where it can be had."""
        ...

    def provide(self, content: Any) -> None:
        """Make a process on another machine read this instead."""
        ...


@dataclass(frozen=True)
class Needs:
    """What it takes to compute a cell, as far as that can be told before.

    Attributes:
        operations: of its matrix products; of two cells the longer one is begun first.
        memory_bytes: at its peak, the libraries included. Training the small model at 2048 tokens
            took 2.9 GB at most.
        dtype: the number format of those products.
        gpu: whether it is computed on a GPU.
        awaited: whether other cells wait for it; such a one is begun before all others.
        folders: those of other cells that are read, or left behind for others.
        supplies: what else is read from disk.
    """

    operations: float = 0.0
    memory_bytes: int = 3_000_000_000
    dtype: str = "float32"
    gpu: bool = False
    awaited: bool = False
    folders: tuple[CellName, ...] = ()
    supplies: tuple[Supply, ...] = ()

    def cost(self) -> Estimate:
        """What a cell costs on one core; on a GPU without a time, as no rate was measured there."""
        if self.gpu:
            return Estimate(parts=1)
        seconds = self.operations / rate(self.dtype)
        return Estimate(seconds, self.memory_bytes, longest=seconds, parts=1)


class Cell(Protocol):
    """An independent piece of a run: one model to train, or one way to read it to measure.

    A small frozen dataclass that can be pickled: it may be computed in another process, or on
    another machine, and what it needs (a corpus, the weights of a model) it loads there.
    """

    @property
    def kind(self) -> str:
        """What is computed, such as `extrapolate-text`; cells of a kind are kept together."""
        ...

    @property
    def version(self) -> int:
        """Raised when the numbers change their meaning."""
        ...

    @property
    def key(self) -> Mapping[str, Any]:
        """Everything its tables depend on, json-able."""
        ...

    @property
    def title(self) -> str:
        """What a person is told while it is computed."""
        ...

    @property
    def needs(self) -> Needs:
        """What it takes, for whoever decides where and when it is computed."""
        ...

    def tables(self, context: "Context") -> Mapping[str, pd.DataFrame]:
        """Do the work."""
        ...


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

    def advance(steps: float = 1, *, note: str = "", left: float | None = None) -> None:
        """Report nothing."""

    yield advance


class Engine(Protocol):
    """Sees to it that cells are computed, wherever it likes, and kept in the context's cells."""

    def compute(self, cells: Sequence[Cell], context: "Context") -> None:
        """Compute cells; one that fails does not keep the others from it.

        Raises:
            RopelabError: the failure, when all others are finished.
        """
        ...

    def stop(self) -> None:
        """End what is being computed, so that nothing is left running."""
        ...


def called(cells: Sequence[Cell]) -> str:
    """What is said of all cells together."""
    return f"{len(cells)} models and measurements" if len(cells) > 1 else "1 model or measurement"


def shares(cells: Sequence[Cell]) -> list[float]:
    """How much of the work each cell is, in cells of average length, so that time can be told."""
    operations = [cell.needs.operations for cell in cells]
    average = sum(operations) / len(cells)
    return [each / average for each in operations] if average else [1.0] * len(cells)


class InThisProcess:
    """Computes cells one after another, also those of several runs, without any other process."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._forecast = Forecast(workers=1)

    def compute(self, cells: Sequence[Cell], context: "Context") -> None:
        """See `Engine.compute`."""
        if not cells:
            return
        failures = Failures()
        with (
            context.progress(called(cells), len(cells)) as whole,
            self._forecast.of([cell.needs.cost().on(1) for cell in cells]) as parts,
        ):
            for cell, part, share in zip(cells, parts, shares(cells), strict=True):
                try:
                    with self._turn, one_thread():
                        self._forecast.begin(part)
                        context.compute(cell)
                except RopelabError as error:
                    failures.add(error)
                self._forecast.end(part)
                whole(share, left=self._forecast.left(parts))
        failures.report()

    def stop(self) -> None:
        """There is nothing to end."""


class Failures:
    """Errors of cells, told in one sentence when all others are finished."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def add(self, error: Exception) -> None:
        """Remember an error."""
        self._errors.append(error)

    def report(self) -> None:
        """Raise the first error, if there is one; of one for users, say how many more there are."""
        if not self._errors:
            return
        first, others = self._errors[0], len(self._errors) - 1
        if others and isinstance(first, RopelabError):
            raise type(first)(f"{first} (and {others} more failed)")
        raise first


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
    engine: Engine = field(default_factory=InThisProcess)
    limits: bool = True
    """Refuse work of more than a day, or that needs more memory than there is."""

    def phase(self, cells: Sequence[Cell]) -> list[dict[str, pd.DataFrame]]:
        """The tables of cells that do not need each other, in the order of the cells.

        What was computed before is read back; where the rest is computed, the engine decides. A
        run that needs the results of some cells for others (weights, to measure them) has a phase
        for each.

        Raises:
            RopelabError: a cell failed; the others are finished and kept.
        """
        self.engine.compute(self.unfinished(cells), self)
        return [self.compute(cell) for cell in cells]

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those that are still to be computed, each once."""
        found = {
            fingerprint({"kind": cell.kind, "version": cell.version, **cell.key}): cell
            for cell in cells
            if not self.cells.finished(kind=cell.kind, version=cell.version, key=cell.key)
        }
        return list(found.values())

    def compute(self, cell: Cell) -> dict[str, pd.DataFrame]:
        """The tables of one cell, computed here if they are not there yet."""
        return self.cells.tables(
            kind=cell.kind, version=cell.version, key=cell.key, make=partial(cell.tables, self)
        )
