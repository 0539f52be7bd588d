"""Cells: the independent pieces of a run, the folders that keep finished ones, and
their values.

The cells of a run follow from its config alone, so listing, sharing, sharding and
resuming are one mechanism each. Each finished cell has a folder, which is named by the
hash of all that the cell depends on. An interrupted run thus keeps its finished cells,
and only changed or damaged ones are computed again.
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
    lock_folder,
    quietly,
    remove,
    replace_file,
    replace_folder,
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
    # The time of everything else, on one core of the machine whose rates are known.
    seconds: float = 0.0
    # The peak of the process, libraries included. Training the small model at 2048
    # tokens took 2.9 GB at most.
    memory_bytes: int = 3_000_000_000
    # The number format of the matrix products; empty for a cell that does not use torch.
    dtype: str = ""
    # True if the cell computes on a GPU.
    gpu: bool = False
    # The number of cores that the cell can use, if they are free.
    cores: int = 1
    # True if the process that asked computes the cell, on all of its threads, with
    # nothing beside it: a clock is read, or a model is loaded once for many cells.
    alone: bool = False
    # Folders of other cells, which the cell reads, or writes for others.
    folders: tuple[CellName, ...] = ()
    inputs: tuple[Input, ...] = ()

    @property
    def size(self) -> float:
        """A measure of the work that is the same on every machine, so that all shards
        agree.
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
        if self.alone:
            # The cell uses all cores, whatever the number of workers.
            return Estimate(alone=seconds / count_cores(), bytes=self.memory_bytes)

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

    A frozen dataclass, pickled to another process or machine, where it loads its
    inputs.
    """

    @property
    def title(self) -> str:
        """The line that is shown while the cell is computed."""

    @property
    def resources(self) -> Resources:
        """What the cell needs of a machine."""

    @property
    def starts(self) -> "Sequence[Cell]":
        """The cells that must be finished before this one begins."""

    def tables(self, context: "Context") -> Mapping[str, pd.DataFrame]:
        """Compute the cell."""


@dataclass(frozen=True)
class Description(CellName):
    """The content of a cell.json."""

    # The run that computed the cell anew; empty for other runs. See `Cells`.
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
    """A cache of cells in a folder."""

    def __init__(
        self,
        root: Path | None = None,
        again: str = "",
        waiting: Callable[[Path], None] = quietly,
    ) -> None:
        """Open the cache.

        Args:
            root: the folder; None for a temporary one that goes with this object.
            again: the name of a run that computes every cell anew, once. All processes
                of that run have the same name. Empty: finished cells are reused.
            waiting: called with a folder while another process holds its lock.
        """
        self.root = root or Path(make_folder_for(self).name)
        self.again = again
        self._waiting = waiting

    def tables(
        self, name: Named, make: Callable[[], Tables]
    ) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell, made and written now unless they are there."""
        # Fresh tables are read back from disk too, so that fresh and reused tables have
        # the same values.
        folder = self._folder(name)
        with lock_folder(folder, self._waiting):
            try:
                if (stored := self._read_tables(folder)) is not None:
                    return stored
            except DamagedError as error:
                say(f"{error}: computed again")

            made = make()
            with replace_folder(folder) as fresh:
                return CELL.write(fresh, made, self._describe(name))

    def is_finished(self, name: Named) -> bool:
        """Return True if the tables of a cell are there, undamaged, and may be used."""
        with suppress(DamagedError):
            return self._read_tables(self._folder(name)) is not None
        return False

    @contextmanager
    def directory(self, name: Named) -> Iterator[Path]:
        """Yield a locked folder that keeps other files, such as training
        checkpoints.
        """
        # These files carry no hashes: the code that writes a file checks that it reads
        # back unchanged.
        folder = self._folder(name)
        with lock_folder(folder, self._waiting):
            if not self._may_be_used(folder):
                if self.again or not folder.is_dir():
                    remove(folder)
                else:
                    remove(folder / CELL.file)
                folder.mkdir(parents=True, exist_ok=True)
                with replace_file(folder / CELL.file) as fresh:
                    CELL.describe(fresh, {**self._describe(name), "tables": {}})

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
        with lock_folder(folder, self._waiting), replace_folder(folder) as fresh:
            for file, content in archive.files.items():
                (fresh / file).write_bytes(content)

    def _folder(self, name: Named) -> Path:
        code = fingerprint({"version": name.version, **name.key})
        return self.root / name.kind / code

    def _describe(self, name: Named) -> dict[str, Any]:
        return {
            "kind": name.kind,
            "version": name.version,
            "key": name.key,
            "again": self.again,
        }

    def _read_description(self, folder: Path) -> dict[str, Any] | None:
        """Return the description of a cell that may be used, else None.

        DamagedError: the folder has no description, or that of another cell.
        """
        if not os.path.lexists(folder):
            return None
        about = CELL.description(folder)
        if about is None:
            raise DamagedError(f"{folder / CELL.file} is not what was written")

        # The place of a folder says which cell it has, and so does its description.
        code = fingerprint({"version": about["version"], **about["key"]})
        if (about["kind"], code) != (folder.parent.name, folder.name):
            raise DamagedError(f"{folder / CELL.file} is not what was written")

        if self.again and about["again"] != self.again:
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
    # The version of the experiment that made the run, if the present one computes
    # something else; None if the present one made it.
    earlier_version: int | None = None


@dataclass(frozen=True)
class Context:
    """The surroundings of a cell; without arguments everything stays in a temporary
    folder.
    """

    progress: Progress = silent
    cells: Cells = field(default_factory=Cells)
    # True: a cell that needs more memory than is free is refused. Some cells know their
    # need only when they run, so that nobody could refuse them before.
    limits: bool = True
    # The number of cores for a cell that can use several, and whose values do not
    # depend on their number.
    cores: int = 1

    def compute(self, cell: Cell) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell, computed here if they are not there yet."""
        with use_library_defaults():
            return self.cells.tables(cell, partial(cell.tables, self))


@dataclass(frozen=True)
class Values:
    """The tables of finished cells, `values[cell]["loss"]`, and stored runs for the
    ledger.
    """

    context: Context = field(default_factory=Context)
    # Returns the stored runs of an experiment.
    stored: Callable[[str], list[Stored]] = lambda experiment: []

    def __getitem__(self, cell: Cell) -> dict[str, pd.DataFrame]:
        # A cell that is not finished is computed here.
        return self.context.compute(cell)


def name_of(cell: Cell) -> str:
    """Return the hash that distinguishes a cell from all others."""
    return fingerprint({"kind": cell.kind, "version": cell.version, **cell.key})


def list_with_starts(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return cells by name, and all cells that they start from, each once and before
    the cells that need it.
    """
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
    """A cell of arithmetic: a function at the top of a module, and its inputs, as JSON can
    hold them.

    If the cell has `starts`, the function takes a list of their tables as `starts`,
    too. These are read back from CSV, where a column of whole numbers with gaps is one
    of floats.
    """

    kind: str
    version: int
    title: str
    function: Callable[..., Mapping[str, pd.DataFrame]]
    inputs: Mapping[str, Any]
    resources: Resources = Resources(memory_bytes=300_000_000)
    starts: tuple[Cell, ...] = ()
    # The sources of methods from outside that the inputs name. They are read when the
    # cell is made, since a worker process may not have imported them.
    own: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", find_sources(self.inputs))

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
