"""Cells: the independent pieces of a run, the folders that keep finished ones, and
their values.

They follow from the config alone: listing, sharing, sharding and resuming are one
mechanism each. A folder is named by the hash of all that its cell depends on, so that
an interrupted run keeps its finished cells; only changed or damaged ones are computed
again.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from pydantic import TypeAdapter

from ropelab.runs.errors import say
from ropelab.runs.estimate import Estimate
from ropelab.runs.folders import (
    fingerprint,
    locked,
    quietly,
    remove,
    replaced,
    replaced_file,
)
from ropelab.runs.machine import RATES, as_by_default, cores, rate
from ropelab.runs.own import mentioned
from ropelab.runs.tables import DamagedError, Entries, Format, Tables
from ropelab.runs.temporary import folder_of


class Advance(Protocol):
    """Report progress: `advance(1, note="loss 2.31")`; `left`: seconds, if known better
    so.
    """

    def __call__(
        self, steps: float = 1, *, note: str = "", left: float | None = None
    ) -> None: ...


class Progress(Protocol):
    """Opens a progress line: `with progress("training, seed 0", total=600) as advance:
    ...`.
    """

    def __call__(
        self, description: str, total: float | None = None
    ) -> AbstractContextManager[Advance]: ...


@contextmanager
def silent(description: str, total: float | None = None) -> Iterator[Advance]:
    """Show no progress, as in tests and notebooks."""
    yield lambda steps=1, *, note="", left=None: None


class Named(Protocol):
    """The part of a cell that identifies it."""

    @property
    # as `extrapolate-text`; cells of a kind are kept together
    def kind(self) -> str: ...

    @property
    def version(self) -> int: ...  # raised when the numbers change their meaning

    @property
    def key(self) -> Mapping[str, Any]: ...  # all that its tables depend on, json-able


@dataclass(frozen=True)
class CellName:
    """A name alone, also of a folder that keeps other files than tables."""

    kind: str
    version: int
    key: Mapping[str, Any]


class Input(Protocol):
    """An input of a cell besides other cells, such as a corpus; its repr identifies
    it.
    """

    def content(self) -> Any: ...

    # Makes a process on another machine read this instead.
    def provide(self, content: Any) -> None: ...


@dataclass(frozen=True)
class Resources:
    """The resources of a cell, as far as they can be estimated."""

    operations: float = 0.0  # of its matrix products
    # of everything else, on one core of the machine whose rates are known
    seconds: float = 0.0
    # At its peak, libraries included: training the small model at 2048 tokens took 2.9
    # GB at most.
    memory_bytes: int = 3_000_000_000
    dtype: str = ""  # of its matrix products; empty where torch is not used
    gpu: bool = False
    cores: int = 1  # that it can use, if they are free
    # Computed by the process that asked, on all of its threads, with nothing beside it:
    # a clock is read, or a model is loaded once for many cells.
    alone: bool = False
    # of other cells, that are read or left behind for others
    folders: tuple[CellName, ...] = ()
    inputs: tuple[Input, ...] = ()

    @property
    def size(self) -> float:
        """A measure of the work that is the same on every machine, so that all shards
        agree.
        """
        return self.operations / RATES["float32"] + self.seconds

    def estimate(self) -> Estimate:
        """Estimate a cell; on a GPU without a time, as no rate was measured there."""
        if self.gpu:
            return Estimate(parts=1)
        seconds = self.seconds
        if self.operations:
            seconds += self.operations / rate(self.dtype or "float32")
        if self.alone:
            return Estimate(alone=seconds / cores(), bytes=self.memory_bytes)
        return Estimate(seconds, self.memory_bytes, seconds / self.cores, 1, self.cores)


class Cell(Named, Protocol):
    """An independent piece of a run: one model trained, one evaluation, one piece of
    arithmetic.

    A frozen dataclass, pickled to another process or machine, where it loads its
    inputs.
    """

    @property
    def title(self) -> str: ...  # shown while it is computed

    @property
    def resources(self) -> Resources: ...

    @property
    def starts(self) -> "Sequence[Cell]": ...  # to be finished before this one begins

    def tables(self, context: "Context") -> Mapping[str, pd.DataFrame]: ...


@dataclass(frozen=True)
class Description(CellName):
    """The content of a cell.json."""

    again: str
    tables: Entries


CELL = Format("cell.json", ".", TypeAdapter(Description))


@dataclass(frozen=True)
class Archive:
    """The folder of a cell on its way to another machine: the content of its files by
    name.
    """

    name: CellName
    files: Mapping[str, bytes]


class Cells:
    """A cache of cells in the folder `root`; without one, for the life of this object
    only.

    `again` names a run that makes every cell anew, once; all its processes share it.
    """

    def __init__(
        self,
        root: Path | None = None,
        again: str = "",
        waiting: Callable[[Path], None] = quietly,
    ) -> None:
        self.root = root or Path(folder_of(self).name)
        self.again = again
        self._waiting = waiting

    def tables(
        self, name: Named, make: Callable[[], Tables]
    ) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell: read back if it was finished before, made
        otherwise.
        """
        # Fresh tables are read back from disk too, so that both ways give the same
        # values.
        folder = self._folder(name)
        with locked(folder, self._waiting):
            try:
                if (stored := self._read(folder)) is not None:
                    return stored
            except DamagedError as error:
                say(f"{error}: computed again")

            made = make()
            with replaced(folder) as fresh:
                return CELL.write(fresh, made, self._about(name))

    def finished(self, name: Named) -> bool:
        """Return True if the tables of a cell are there, undamaged, and need not be
        made anew.
        """
        with suppress(DamagedError):
            return self._read(self._folder(name)) is not None
        return False

    @contextmanager
    def directory(self, name: Named) -> Iterator[Path]:
        """Yield a locked folder that keeps other files, such as training
        checkpoints.
        """
        # These carry no hashes: their writer checks that they are read back unchanged.
        folder = self._folder(name)
        with locked(folder, self._waiting):
            if not self._may_be_used(folder):
                if self.again or not folder.is_dir():
                    remove(folder)
                else:
                    remove(folder / CELL.file)
                folder.mkdir(parents=True, exist_ok=True)
                with replaced_file(folder / CELL.file) as fresh:
                    CELL.describe(fresh, {**self._about(name), "tables": {}})

            for leftover in folder.glob(".*.new"):
                remove(leftover)
            yield folder

    def packed(self, name: Named) -> Archive | None:
        """Return the folder of a cell; None if there is none that may be used."""
        folder = self._folder(name)
        with locked(folder, self._waiting):
            if not self._may_be_used(folder):
                return None
            files = [
                path
                for path in sorted(folder.iterdir())
                if not path.name.startswith(".")
            ]
            content = {path.name: path.read_bytes() for path in files if path.is_file()}
        return Archive(CellName(name.kind, name.version, name.key), content)

    def unpack(self, archive: Archive) -> None:
        """Put the folder of a cell in its place, whole or not at all."""
        folder = self._folder(archive.name)
        with locked(folder, self._waiting), replaced(folder) as fresh:
            for file, content in archive.files.items():
                (fresh / file).write_bytes(content)

    def _folder(self, name: Named) -> Path:
        return (
            self.root / name.kind / fingerprint({"version": name.version, **name.key})
        )

    def _about(self, name: Named) -> dict[str, Any]:
        return {
            "kind": name.kind,
            "version": name.version,
            "key": name.key,
            "again": self.again,
        }

    def _description(self, folder: Path) -> dict[str, Any] | None:
        """Return the description of a cell that may be used; DamagedError if it is
        another's.
        """
        if not os.path.lexists(folder):
            return None
        about = CELL.description(folder)
        name = about and (
            about["kind"],
            fingerprint({"version": about["version"], **about["key"]}),
        )
        if about is None or name != (folder.parent.name, folder.name):
            raise DamagedError(f"{folder / CELL.file} is not what was written")
        return None if self.again and about["again"] != self.again else about

    def _may_be_used(self, folder: Path) -> bool:
        with suppress(DamagedError):
            return self._description(folder) is not None
        return False

    def _read(self, folder: Path) -> dict[str, pd.DataFrame] | None:
        about = self._description(folder)
        return None if about is None else CELL.tables(folder, about)


@dataclass(frozen=True)
class Stored:
    """A finished run found on disk."""

    experiment: str
    config: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    path: str


@dataclass(frozen=True)
class Context:
    """The surroundings of a cell; without arguments everything stays in a temporary
    folder.
    """

    progress: Progress = silent
    cells: Cells = field(default_factory=Cells)
    limits: bool = True  # refuse more memory than is free, where only the cell can tell
    # for a cell that can use several and whose values do not depend on it
    cores: int = 1

    def compute(self, cell: Cell) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell, computed here if they are not there yet."""
        with as_by_default():
            return self.cells.tables(cell, partial(cell.tables, self))


@dataclass(frozen=True)
class Values:
    """The tables of finished cells: `values[cell]["loss"]`; and stored runs, for the
    ledger.
    """

    context: Context = field(default_factory=Context)
    stored: Callable[[str], list[Stored]] = lambda experiment: []

    def __getitem__(self, cell: Cell) -> dict[str, pd.DataFrame]:
        return self.context.compute(cell)


def name_of(cell: Cell) -> str:
    """Return the hash that distinguishes a cell from all others."""
    return fingerprint({"kind": cell.kind, "version": cell.version, **cell.key})


def with_starts(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return cells and all they start from, each once, by name; starts come before."""
    by_name: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        name = name_of(cell)
        if name not in by_name:
            for start in cell.starts:
                add(start)
            by_name[name] = cell

    for cell in cells:
        add(cell)
    return by_name


@dataclass(frozen=True, kw_only=True)
class Computation:
    """A piece of arithmetic: a function of the module level, applied to json-able
    inputs.

    Where there are `starts`, it takes a list of their tables too; read back from CSV,
    in which whole numbers with gaps are floats.
    """

    kind: str
    version: int
    title: str
    function: Callable[..., Mapping[str, pd.DataFrame]]
    inputs: Mapping[str, Any]
    resources: Resources = Resources(memory_bytes=300_000_000)
    starts: tuple[Cell, ...] = ()
    # Sources of one's own methods among the inputs, found by the process that makes the
    # cell.
    own: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", mentioned(self.inputs))

    @property
    def key(self) -> Mapping[str, Any]:
        key: dict[str, Any] = dict(self.inputs)
        if self.starts:
            key["starts"] = [name_of(start) for start in self.starts]
        if self.own:
            key["own"] = self.own
        return key

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        with context.progress(self.title, 1) as advance:
            inputs = dict(self.inputs)
            if self.starts:
                inputs["starts"] = [context.compute(start) for start in self.starts]
            tables = self.function(**inputs)
            advance(1)
        return tables
