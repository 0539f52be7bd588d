"""Cells: the independent pieces of a run, and the values that its tables are made from.

They follow from the config alone: listing, sharing, sharding and resuming are one mechanism each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pandas as pd

from ropelab.runs.cells import CellName, Cells, Named
from ropelab.runs.estimate import Estimate
from ropelab.runs.folders import fingerprint
from ropelab.runs.machine import RATES, rate


class Advance(Protocol):
    """Report progress: `advance(1, note="loss 2.31")`; `left`: seconds, if known better so."""

    def __call__(self, steps: float = 1, *, note: str = "", left: float | None = None) -> None: ...


class Progress(Protocol):
    """Opens a progress line: `with progress("training, seed 0", total=600) as advance: ...`."""

    def __call__(
        self, description: str, total: float | None = None
    ) -> AbstractContextManager[Advance]: ...


@contextmanager
def silent(description: str, total: float | None = None) -> Iterator[Advance]:
    """Show no progress, as in tests and notebooks."""

    yield lambda steps=1, *, note="", left=None: None


class Supply(Protocol):
    """An input of a cell besides other cells, such as a corpus; its repr identifies it."""

    def content(self) -> Any: ...

    # Makes a process on another machine read this instead.
    def provide(self, content: Any) -> None: ...


@dataclass(frozen=True)
class Needs:
    """The resources of a cell, as far as they can be estimated."""

    operations: float = 0.0  # of its matrix products
    seconds: float = 0.0  # of everything else, on one core of the machine whose rates are known
    # At its peak, libraries included: training the small model at 2048 tokens took 2.9 GB at most.
    memory_bytes: int = 3_000_000_000
    dtype: str = ""  # of its matrix products; empty where torch is not used
    gpu: bool = False
    # Computed by the process that asked, on all of its threads, with nothing beside it: a clock is
    # read, or a model is loaded once for many cells.
    alone: bool = False
    folders: tuple[CellName, ...] = ()  # of other cells, that are read or left behind for others
    supplies: tuple[Supply, ...] = ()

    @property
    def size(self) -> float:
        """A measure of the work that is the same on every machine, so that all shards agree."""
        return self.operations / RATES["float32"] + self.seconds

    def estimate(self) -> Estimate:
        """Estimate a cell on one core; on a GPU without a time, as no rate was measured there."""
        if self.gpu:
            return Estimate(parts=1)
        seconds = self.seconds
        if self.operations:
            seconds += self.operations / rate(self.dtype or "float32")
        return Estimate(seconds, self.memory_bytes, longest=seconds, parts=1)


class Cell(Named, Protocol):
    """An independent piece of a run: one model trained, one evaluation, one piece of arithmetic.

    A frozen dataclass, pickled to another process or machine, where it loads its inputs.
    """

    @property
    def title(self) -> str: ...  # shown while it is computed

    @property
    def needs(self) -> Needs: ...

    @property
    def starts(self) -> "Sequence[Cell]": ...  # to be finished before this one begins

    def tables(self, context: "Context") -> Mapping[str, pd.DataFrame]: ...


@dataclass(frozen=True)
class Stored:
    """A finished run found on disk."""

    experiment: str
    config: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    path: str


@dataclass(frozen=True)
class Context:
    """The surroundings of a cell; without arguments everything stays in a temporary folder."""

    progress: Progress = silent
    cells: Cells = field(default_factory=Cells)
    limits: bool = True  # refuse more memory than is free, where only the cell can tell

    def compute(self, cell: Cell) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell, computed here if they are not there yet."""
        return self.cells.tables(cell, partial(cell.tables, self))


@dataclass(frozen=True)
class Values:
    """The tables of finished cells: `values[cell]["loss"]`; and stored runs, for the ledger."""

    context: Context = field(default_factory=Context)
    stored: Callable[[str], list[Stored]] = lambda experiment: []

    def __getitem__(self, cell: Cell) -> dict[str, pd.DataFrame]:
        return self.context.compute(cell)


def name_of(cell: Cell) -> str:
    """Return the hash that distinguishes a cell from all others."""
    return fingerprint({"kind": cell.kind, "version": cell.version, **cell.key})


def with_starts(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return cells and all they start from, each once, by name; starts come before."""
    found: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        if (name := name_of(cell)) not in found:
            for start in cell.starts:
                add(start)
            found[name] = cell

    for cell in cells:
        add(cell)
    return found


@dataclass(frozen=True, kw_only=True)
class Computation:
    """A piece of arithmetic: a function of the module level, applied to json-able inputs.

    Where there are `starts`, it takes a list of their tables too; read back from CSV, in which
    whole numbers with gaps are floats.
    """

    kind: str
    version: int
    title: str
    function: Callable[..., Mapping[str, pd.DataFrame]]
    inputs: Mapping[str, Any]
    needs: Needs = Needs(memory_bytes=300_000_000)
    starts: tuple[Cell, ...] = ()

    @property
    def key(self) -> Mapping[str, Any]:
        starts = {"starts": [name_of(start) for start in self.starts]} if self.starts else {}
        return {**self.inputs, **starts}

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        with context.progress(self.title, 1) as advance:
            starts = [context.compute(start) for start in self.starts]
            found = self.function(**self.inputs, **({"starts": starts} if starts else {}))
            advance(1)
        return found
