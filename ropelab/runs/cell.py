"""Cells: the independent pieces of a run, the folders that keep finished ones, and
their values.

The config of a run decides which cells the run has, and nothing else does. Every process
and every machine therefore derives the same list of cells from the config. Because of
that, runs can share cells, shards can divide the list, and an interrupted run can resume.

Each finished cell has a folder, which is named by the hash of all that the cell depends
on. An interrupted run thus keeps its finished cells. Only cells that have changed, or
whose files are damaged, are computed again.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

import pandas as pd
from pydantic import Field, TypeAdapter

from ropelab.runs.errors import say
from ropelab.runs.estimate import Estimate
from ropelab.runs.folders import (
    fingerprint,
    lock_folder,
    remove,
    replace_file,
    replace_folder,
    say_nothing,
)
from ropelab.runs.machine import RATES, count_cores, find_rate, use_library_defaults
from ropelab.runs.own import find_sources
from ropelab.runs.tables import DamagedError, Entries, Format, Tables
from ropelab.runs.temporary import make_folder_for


class Advance(Protocol):
    """Reports progress: `advance(1, note="loss 2.31")`.

    Args:
        steps: the steps that were made since the last call.
        note: a text beside the progress line.
        left: the seconds to the end, where the caller knows them better than the steps
            tell; None where it does not.
    """

    def __call__(
        self, steps: float = 1, *, note: str = "", left: float | None = None
    ) -> None: ...


class Progress(Protocol):
    """Opens a progress line for a block:
    `with progress("training, seed 0", total=600) as advance:`.
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
    def kind(self) -> str:
        """The kind of the cell, such as `extrapolate-text`: the name of a folder."""

    @property
    def version(self) -> int:
        """The version of the kind, raised when the numbers change their meaning."""

    @property
    def key(self) -> Mapping[str, Any]:
        """Everything that the tables of the cell depend on, as JSON can hold it."""


@dataclass(frozen=True)
class CellName:
    """The name of a cell without the cell.

    It also names a folder that keeps other files than tables, such as checkpoints.
    """

    kind: str
    version: int
    key: Mapping[str, Any]


class Input(Protocol):
    """An input of a cell besides other cells, such as a corpus; its repr identifies
    it.
    """

    def content(self) -> Any:
        """Return the content of the input, to be sent to another machine."""

    def provide(self, content: Any) -> None:
        """Make this process use `content` where it would read the input from a file."""


@dataclass(frozen=True)
class Resources:
    """The resources of a cell, as far as they can be estimated."""

    # The number of operations in the cell's matrix products.
    operations: float = 0.0
    # The time of everything but matrix products, on one core of the machine whose rates
    # are known.
    seconds: float = 0.0
    # The peak memory of the process in bytes, libraries included. Training the small
    # model at 2048 tokens took 2.9 GB at most.
    memory_bytes: int = 3_000_000_000
    # The number format of the matrix products; empty for a cell that does not use torch.
    dtype: str = ""
    # True if the cell computes on a GPU.
    gpu: bool = False
    # The number of cores that the cell can use, if they are free.
    cores: int = 1
    # True if the process that started the run computes the cell itself, on all of its
    # threads, while no other cell is computed. This is for cells that measure time, and
    # for cells that share a model which is loaded once.
    exclusive: bool = False
    # The names of further cells whose folders this cell reads or writes. For example, a
    # training writes its checkpoints into a folder that evaluations read.
    folders: tuple[CellName, ...] = ()
    # What the cell reads besides the tables of other cells.
    inputs: tuple[Input, ...] = ()

    @property
    def size(self) -> float:
        """A measure of the work that is the same on every machine, so that all shards
        divide the cells in the same way.
        """
        return self.operations / RATES["float32"] + self.seconds

    def estimate(self) -> Estimate:
        """Estimate the cost of the cell, which is unknown on a GPU."""
        if self.gpu:
            # No rate was measured on a GPU. An estimate that has one part and neither
            # seconds nor bytes stands for unknown cost.
            return Estimate(parts=1)

        seconds = self.seconds
        if self.operations:
            seconds += self.operations / find_rate(self.dtype or "float32")
        if self.exclusive:
            # The cell uses all cores, whatever the number of workers.
            return Estimate(
                exclusive_seconds=seconds / count_cores(), bytes=self.memory_bytes
            )

        return Estimate(
            seconds=seconds,
            bytes=self.memory_bytes,
            longest=seconds / self.cores,
            parts=1,
            cores=self.cores,
        )


class Cell(Named, Protocol):
    """An independent piece of a run: one model trained, one evaluation, one piece of
    arithmetic.

    Cells are frozen dataclasses. A cell may be pickled and sent to another process or
    machine, where it loads its inputs.
    """

    @property
    def title(self) -> str:
        """The line that is shown while the cell is computed."""

    @property
    def resources(self) -> Resources:
        """The resources that the cell needs on a machine."""

    @property
    def prerequisites(self) -> "Sequence[Cell]":
        """The cells that must be finished before this cell begins."""

    def tables(self, context: "Context") -> Mapping[str, pd.DataFrame]:
        """Compute the cell."""


@dataclass(frozen=True)
class Description(CellName):
    """The content of a cell.json."""

    # The name of the run that computed the cell anew, as `Cells` explains; empty if the
    # run would have reused a finished cell. The file calls this entry `again`.
    fresh_run: Annotated[str, Field(alias="again")]
    tables: Entries


CELL = Format(file="cell.json", inside=".", shape=TypeAdapter(Description))


@dataclass(frozen=True)
class Archive:
    """The folder of a cell on its way to another machine: the content of its files by
    name.
    """

    name: CellName
    files: Mapping[str, bytes]


class Cells:
    """A cache of cells in a folder."""

    def __init__(
        self,
        root: Path | None = None,
        fresh_run: str = "",
        waiting: Callable[[Path], None] = say_nothing,
    ) -> None:
        """Open the cache.

        Args:
            root: the folder; None for a temporary one that goes with this object.
            fresh_run: the name of a run that computes every cell anew, once. All
                processes of that run pass the same name. Empty: finished cells are
                reused.
            waiting: called with a folder while another process holds its lock.
        """
        self.root = root or Path(make_folder_for(self).name)
        self.fresh_run = fresh_run
        self._waiting = waiting

    def tables(
        self, name: Named, make: Callable[[], Tables]
    ) -> dict[str, pd.DataFrame]:
        """Return the stored tables of a cell. If there are none, make and store them
        now.
        """
        # New tables are read back from disk too, so that new and reused tables have the
        # same values.
        folder = self._folder(name)
        with lock_folder(folder, self._waiting):
            try:
                if (stored := self._read_tables(folder)) is not None:
                    return stored
            except DamagedError as error:
                say(f"{error}: computed again")

            tables = make()
            with replace_folder(folder) as new_folder:
                return CELL.write(new_folder, tables, self._describe(name))

    def is_finished(self, name: Named) -> bool:
        """Return True if the stored tables of a cell are complete, undamaged, and may
        be used.
        """
        with suppress(DamagedError):
            return self._read_tables(self._folder(name)) is not None
        return False

    @contextmanager
    def directory(self, name: Named) -> Iterator[Path]:
        """Yield a locked folder that keeps other files, such as training
        checkpoints.
        """
        # These files carry no hashes. The code that writes a file of this folder checks,
        # when it reads the file again, that nothing has changed.
        folder = self._folder(name)
        with lock_folder(folder, self._waiting):
            if not self._may_be_used(folder):
                if self.fresh_run or not folder.is_dir():
                    # A run that computes every cell anew must not continue from old
                    # checkpoints, so the whole folder is removed. If there is a file at
                    # the path of the folder, the file is removed.
                    remove(folder)
                else:
                    # Only the description is missing or damaged. Checkpoints are kept,
                    # since the code that reads them verifies them.
                    remove(folder / CELL.file)
                folder.mkdir(parents=True, exist_ok=True)
                with replace_file(folder / CELL.file) as new_file:
                    CELL.describe(new_file, {**self._describe(name), "tables": {}})

            # A process that was killed while it wrote a file left an unfinished file.
            for leftover in folder.glob(".*.new"):
                remove(leftover)
            yield folder

    def pack(self, name: Named) -> Archive | None:
        """Return the folder of a cell; None if there is none that may be used."""
        folder = self._folder(name)
        with lock_folder(folder, self._waiting):
            if not self._may_be_used(folder):
                return None
            content: dict[str, bytes] = {}
            for path in sorted(folder.iterdir()):
                is_hidden = path.name.startswith(".")
                if path.is_file() and not is_hidden:
                    content[path.name] = path.read_bytes()
        return Archive(CellName(name.kind, name.version, name.key), content)

    def unpack(self, archive: Archive) -> None:
        """Put the folder of a cell in its place, whole or not at all."""
        folder = self._folder(archive.name)
        with lock_folder(folder, self._waiting), replace_folder(folder) as new_folder:
            for file, content in archive.files.items():
                (new_folder / file).write_bytes(content)

    def _folder(self, name: Named) -> Path:
        key_hash = fingerprint({"version": name.version, **name.key})
        return self.root / name.kind / key_hash

    def _describe(self, name: Named) -> dict[str, Any]:
        return {
            "kind": name.kind,
            "version": name.version,
            "key": name.key,
            "again": self.fresh_run,
        }

    def _read_description(self, folder: Path) -> dict[str, Any] | None:
        """Return the description of a cell that may be used, else None.

        DamagedError: the folder has no description, or the description of another cell.
        """
        if not os.path.lexists(folder):
            return None
        about = CELL.description(folder)
        if about is None:
            raise DamagedError(f"{folder / CELL.file} is not what was written")

        # The path of a folder says which cell it is for, and its description must name
        # the same cell.
        key_hash = fingerprint({"version": about["version"], **about["key"]})
        if (about["kind"], key_hash) != (folder.parent.name, folder.name):
            raise DamagedError(f"{folder / CELL.file} is not what was written")

        if self.fresh_run and about["again"] != self.fresh_run:
            # The cell was computed before this run began, and is computed again.
            return None
        return about

    def _may_be_used(self, folder: Path) -> bool:
        with suppress(DamagedError):
            return self._read_description(folder) is not None
        return False

    def _read_tables(self, folder: Path) -> dict[str, pd.DataFrame] | None:
        about = self._read_description(folder)
        return None if about is None else CELL.tables(folder, about)


@dataclass(frozen=True)
class Stored:
    """A finished run found on disk."""

    experiment: str
    config: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    path: str
    # The version of the experiment that made the run, if this version of ropelab has a
    # later one, which computes something else. None if the versions are equal.
    earlier_version: int | None = None


@dataclass(frozen=True)
class Context:
    """The surroundings of a cell; without arguments everything stays in a temporary
    folder.
    """

    progress: Progress = silent
    cells: Cells = field(default_factory=Cells)
    # True: a cell refuses to go on if it needs more memory than is free. Some cells know
    # how much they need only while they run, so they cannot be refused before.
    limits: bool = True
    # The number of cores for a cell that can use several, and whose values do not
    # depend on their number.
    cores: int = 1

    def compute(self, cell: Cell) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell, computed now if they are not stored yet."""
        with use_library_defaults():
            return self.cells.tables(cell, partial(cell.tables, self))


@dataclass(frozen=True)
class Values:
    """The tables of finished cells, `values[cell]["loss"]`, and stored runs for the
    ledger.
    """

    context: Context = field(default_factory=Context)
    # Returns the stored runs of an experiment.
    find_stored_runs: Callable[[str], list[Stored]] = lambda experiment: []

    def __getitem__(self, cell: Cell) -> dict[str, pd.DataFrame]:
        # A cell that is not finished is computed here.
        return self.context.compute(cell)


def hash_cell(cell: Cell) -> str:
    """Return the hash of all that a cell depends on; no other cell has the same hash."""
    return fingerprint({"kind": cell.kind, "version": cell.version, **cell.key})


def list_with_prerequisites(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return cells and all their prerequisites, by hash.

    Each cell is listed once, after the cells that it needs.
    """
    cells_by_hash: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        cell_hash = hash_cell(cell)
        if cell_hash not in cells_by_hash:
            for prerequisite in cell.prerequisites:
                add(prerequisite)
            cells_by_hash[cell_hash] = cell

    for cell in cells:
        add(cell)
    return cells_by_hash


@dataclass(frozen=True, kw_only=True)
class Computation:
    """A cell of arithmetic: a function at the top of a module, and its inputs, as JSON can
    hold them.

    If the cell has `prerequisites`, the function also gets an argument `prerequisites`:
    the list of their tables. These tables are read back from CSV, where a column of whole
    numbers with gaps becomes a column of floats.
    """

    kind: str
    version: int
    title: str
    function: Callable[..., Mapping[str, pd.DataFrame]]
    inputs: Mapping[str, Any]
    resources: Resources = Resources(memory_bytes=300_000_000)
    prerequisites: tuple[Cell, ...] = ()
    # The source code of the user's methods that the inputs name, by the reference of the
    # method. The source is read when the cell is made, since a worker process may not
    # have imported the method.
    user_sources: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "user_sources", find_sources(self.inputs))

    @property
    def key(self) -> Mapping[str, Any]:
        # The words `starts` and `own` are part of the hashes of stored cells.
        key: dict[str, Any] = dict(self.inputs)
        if self.prerequisites:
            key["starts"] = [hash_cell(cell) for cell in self.prerequisites]
        if self.user_sources:
            key["own"] = self.user_sources
        return key

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        with context.progress(self.title, 1) as advance:
            inputs = dict(self.inputs)
            if self.prerequisites:
                inputs["prerequisites"] = [
                    context.compute(cell) for cell in self.prerequisites
                ]
            tables = self.function(**inputs)
            advance(1)
        return tables
