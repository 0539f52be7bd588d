"""Finished cells on disk, each in a folder named by the hash of all that its values depend on.

An interrupted run keeps the cells it finished, and a changed config repeats only those that
changed. A cell carries the hash of every table; one that was changed is computed again.
"""

import json
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

from ropelab.runs.files import read_regular
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
from ropelab.runs.tables import DamagedError, read_tables, write_tables

# Kind, version and key of a cell, which name its folder, and the hashes of its tables.
FILE = "cell.json"
LARGEST = 2**24  # bytes of this file


class Named(Protocol):
    """The part of a cell that identifies it."""

    @property
    def kind(self) -> str:
        """A name such as `extrapolate-text`; cells of a kind are kept together."""
        ...

    @property
    def version(self) -> int:
        """Raised when the numbers change their meaning."""
        ...

    @property
    def key(self) -> Mapping[str, Any]:
        """Everything its tables depend on, json-able."""
        ...


@dataclass(frozen=True)
class CellName:
    """A name alone, also of a folder that keeps other files than tables."""

    kind: str
    version: int
    key: Mapping[str, Any]


@dataclass(frozen=True)
class Parcel:
    """The folder of a cell on its way to another machine: the content of its files by name."""

    name: CellName
    files: Mapping[str, bytes]


class Cells:
    """A cache of cells in a folder.

    Args:
        root: where cells are kept; None keeps them for the life of this object only.
        again: the name of a run that makes every cell anew, once; all its processes share it.
        waiting: called with a cell's folder when another process holds it.
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

    def tables(
        self, name: Named, make: Callable[[], Mapping[str, pd.DataFrame]]
    ) -> dict[str, pd.DataFrame]:
        """Return the tables of a cell: read back if it was finished before, made otherwise.

        Fresh tables are read back from disk too, so that both ways give the same values.
        """
        folder = self._folder(name)
        with locked(folder, self._waiting):
            try:
                found = self._read(folder)
            except DamagedError as error:
                say(f"{error}: computed again")
                found = None
            if found is not None:
                return found
            made = make()
            with replaced(folder) as fresh:
                hashes = write_tables(made, fresh)
                found = read_tables(fresh, hashes)
                self._describe(fresh, name, hashes)
        return found

    def finished(self, name: Named) -> bool:
        """Return True if the tables of a cell are there, undamaged, and need not be made anew."""
        try:
            return self._read(self._folder(name)) is not None
        except DamagedError:
            return False

    @contextmanager
    def directory(self, name: Named) -> Iterator[Path]:
        """Yield a locked folder that keeps other files, such as training checkpoints.

        These carry no hashes: their writer checks that they are read back unchanged.
        """
        folder = self._folder(name)
        with locked(folder, self._waiting):
            if not self._is_current(_description(folder)):
                remove(folder if self.again or not folder.is_dir() else folder / FILE)
                folder.mkdir(parents=True, exist_ok=True)
                self._describe(folder, name, {})
            for leftover in folder.glob(".*.new"):
                remove(leftover)
            yield folder

    def packed(self, name: Named) -> Parcel | None:
        """Return the folder of a cell; None if there is none that may be used."""
        folder = self._folder(name)
        with locked(folder, self._waiting):
            if not self._is_current(_description(folder)):
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

    def _read(self, folder: Path) -> dict[str, pd.DataFrame] | None:
        """Return the tables of a finished cell that may be used, None where there is none.

        Raises:
            DamagedError: there is one, but not as it was written.
        """
        if not os.path.lexists(folder):
            return None
        description = _description(folder)
        if description is None:
            raise DamagedError(f"{folder / FILE} is not what was written")
        current = self._is_current(description)
        return read_tables(folder, description["tables"]) if current else None

    def _is_current(self, description: Mapping[str, Any] | None) -> bool:
        """Return True if a cell may be used: any may, unless this run makes all of them anew."""
        if description is None:
            return False
        return not self.again or description["again"] == self.again

    def _describe(self, folder: Path, name: Named, hashes: Mapping[str, str]) -> None:
        about = {
            "kind": name.kind,
            "version": name.version,
            "key": name.key,
            "again": self.again,
            "tables": hashes,
        }
        text = json.dumps(about, indent=2, sort_keys=True)
        with replaced_file(folder / FILE) as fresh:
            fresh.write_text(text + "\n", encoding="utf-8")


def _description(folder: Path) -> dict[str, Any] | None:
    """Return the content of a cell's file, None if it was not written for this folder."""
    try:
        about = json.loads(read_regular(folder / FILE, LARGEST))
        name = fingerprint({"version": about["version"], **about["key"]})
        hashed = all(isinstance(code, str) for code in about["tables"].values())
        ours = hashed and (about["kind"], name) == (folder.parent.name, folder.name)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return about if ours and isinstance(about.get("again"), str) else None
