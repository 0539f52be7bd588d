"""Finished cells on disk, each in a folder named by the hash of all that its values depend on.

An interrupted run keeps its finished cells; only changed or damaged ones are computed again.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from pydantic import TypeAdapter

from ropelab.runs.folders import (
    Waiting,
    fingerprint,
    locked,
    remove,
    replaced,
    replaced_file,
    say_nothing,
)
from ropelab.runs.notices import say
from ropelab.runs.tables import DamagedError, Entries, Format, Tables


class Named(Protocol):
    """The part of a cell that identifies it."""

    @property
    def kind(self) -> str: ...  # as `extrapolate-text`; cells of a kind are kept together

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


@dataclass(frozen=True)
class Description(CellName):
    """The content of a cell.json."""

    again: str
    tables: Entries


CELL = Format("cell.json", ".", TypeAdapter(Description))


@dataclass(frozen=True)
class Parcel:
    """The folder of a cell on its way to another machine: the content of its files by name."""

    name: CellName
    files: Mapping[str, bytes]


class Cells:
    """A cache of cells in the folder `root`; without one, for the life of this object only.

    `again` names a run that makes every cell anew, once; all its processes share it.
    """

    def __init__(
        self, root: Path | None = None, again: str = "", waiting: Waiting = say_nothing
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="ropelab-"))
        if root is None:
            # The folder goes when this object does.
            weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        self.again = again
        self._waiting = waiting

    def tables(self, name: Named, make: Callable[[], Tables]) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell: read back if it was finished before, made otherwise."""
        # Fresh tables are read back from disk too, so that both ways give the same values.
        folder = self._folder(name)
        with locked(folder, self._waiting):
            try:
                found = self._read(folder)
            except DamagedError as error:
                say(f"{error}: computed again")
                found = None
            if found is None:
                made = make()
                with replaced(folder) as fresh:
                    found = CELL.write(fresh, made, self._about(name))
        return found

    def finished(self, name: Named) -> bool:
        """Return True if the tables of a cell are there, undamaged, and need not be made anew."""
        try:
            return self._read(self._folder(name)) is not None
        except DamagedError:
            return False

    @contextmanager
    def directory(self, name: Named) -> Iterator[Path]:
        """Yield a locked folder that keeps other files, such as training checkpoints."""
        # These carry no hashes: their writer checks that they are read back unchanged.
        folder = self._folder(name)
        with locked(folder, self._waiting):
            if not self._may_be_used(folder):
                remove(folder if self.again or not folder.is_dir() else folder / CELL.file)
                folder.mkdir(parents=True, exist_ok=True)
                with replaced_file(folder / CELL.file) as fresh:
                    CELL.describe(fresh, {**self._about(name), "tables": {}})
            for leftover in folder.glob(".*.new"):
                remove(leftover)
            yield folder

    def packed(self, name: Named) -> Parcel | None:
        """Return the folder of a cell; None if there is none that may be used."""
        folder = self._folder(name)
        with locked(folder, self._waiting):
            if not self._may_be_used(folder):
                return None
            files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
            content = {path.name: path.read_bytes() for path in files if path.is_file()}
        return Parcel(CellName(name.kind, name.version, name.key), content)

    def unpack(self, parcel: Parcel) -> None:
        """Put the folder of a cell in its place, whole or not at all."""
        folder = self._folder(parcel.name)
        with locked(folder, self._waiting), replaced(folder) as fresh:
            for file, content in parcel.files.items():
                (fresh / file).write_bytes(content)

    def _folder(self, name: Named) -> Path:
        return self.root / name.kind / fingerprint({"version": name.version, **name.key})

    def _about(self, name: Named) -> dict[str, Any]:
        return {"kind": name.kind, "version": name.version, "key": name.key, "again": self.again}

    def _description(self, folder: Path) -> dict[str, Any] | None:
        """Return the description of a cell that may be used; DamagedError if it is another's."""
        if not os.path.lexists(folder):
            return None
        about = CELL.description(folder)
        name = about and (about["kind"], fingerprint({"version": about["version"], **about["key"]}))
        if about is None or name != (folder.parent.name, folder.name):
            raise DamagedError(f"{folder / CELL.file} is not what was written")
        return None if self.again and about["again"] != self.again else about

    def _may_be_used(self, folder: Path) -> bool:
        try:
            return self._description(folder) is not None
        except DamagedError:
            return False

    def _read(self, folder: Path) -> dict[str, pd.DataFrame] | None:
        about = self._description(folder)
        return None if about is None else CELL.tables(folder, about)
