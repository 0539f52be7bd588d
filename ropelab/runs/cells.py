"""Cells: one model, one method, one seed. Each is kept under the hash of its own small config.

An interrupted experiment keeps the cells it finished, and a changed config repeats only the cells
that changed. A cell carries the hash of every table; one that is not as it was written is computed
again, and said.
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
from typing import Any

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

FILE = "cell.json"
"""Of each cell: kind, version and key, which name its folder, and the hashes of its tables."""
LARGEST = 2**24
"""Bytes that this may take."""


@dataclass(frozen=True)
class CellName:
    """What identifies a cell: its kind, its version, and everything its values depend on."""

    kind: str
    version: int
    key: Mapping[str, Any]


@dataclass(frozen=True)
class Parcel:
    """The folder of a cell on its way to another machine: names of files and what is in them."""

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
        self.root = _temporary(self) if root is None else root
        self.again = again
        self._waiting = waiting
        self._made: set[Path] = set()
        self._computed = self._reused = 0

    def tables(
        self,
        *,
        kind: str,
        version: int,
        key: Mapping[str, Any],
        make: Callable[[], Mapping[str, pd.DataFrame]],
    ) -> dict[str, pd.DataFrame]:
        """The tables of one cell: read back if it was finished before, made otherwise.

        Fresh tables are read back from disk too, so that both ways give the same values.

        Args:
            kind: what is measured, `copy-eval`; the folder's name.
            version: raise it when the measurement changes its meaning.
            key: the json-able config of this cell, everything its values depend on.
            make: computes the tables.
        """
        folder = self._folder(kind, version, key)
        with locked(folder, self._waiting):
            tables = self._read_again(folder)
            if tables is not None:
                self._reused += folder not in self._made
                return tables
            made = make()
            with replaced(folder) as fresh:
                hashes = write_tables(made, fresh)
                tables = read_tables(fresh, hashes)
                self._describe(fresh, kind, version, key, hashes)
            self._note(folder)
        return tables

    def finished(self, *, kind: str, version: int, key: Mapping[str, Any]) -> bool:
        """Whether the tables of a cell are there, undamaged, and need not be made anew."""
        try:
            return self._read(self._folder(kind, version, key)) is not None
        except DamagedError:
            return False

    def note_computed(self, *, kind: str, version: int, key: Mapping[str, Any]) -> None:
        """Count a cell that another process computed for this one."""
        self._note(self._folder(kind, version, key))

    def _note(self, folder: Path) -> None:
        self._made.add(folder)
        self._computed += 1

    def counts(self) -> dict[str, int]:
        """How many cells were computed and how many were there before; empty if there were none."""
        counts = {"computed": self._computed, "reused": self._reused}
        return counts if any(counts.values()) else {}

    @contextmanager
    def directory(self, *, kind: str, version: int, key: Mapping[str, Any]) -> Iterator[Path]:
        """A locked folder of one cell that keeps its own files, such as training checkpoints.

        Whoever keeps files there sees for himself that they are read back as they were written.
        """
        folder = self._folder(kind, version, key)
        with locked(folder, self._waiting):
            described = _described(folder)
            if described is None or not self._is_current(described):
                remove(folder if self.again or not folder.is_dir() else folder / FILE)
                folder.mkdir(parents=True, exist_ok=True)
                self._describe(folder, kind, version, key, {})
            for leftover in folder.glob(".*.new"):
                remove(leftover)
            yield folder

    def packed(self, name: CellName) -> Parcel | None:
        """The folder of a cell as it is now; None if there is none that may be used."""
        folder = self._folder(name.kind, name.version, name.key)
        with locked(folder, self._waiting):
            described = _described(folder)
            if described is None or not self._is_current(described):
                return None
            files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
            content = {path.name: path.read_bytes() for path in files if path.is_file()}
        return Parcel(name, content)

    def unpack(self, parcel: Parcel) -> None:
        """Put the folder of a cell in its place, whole or not at all."""
        name = parcel.name
        folder = self._folder(name.kind, name.version, name.key)
        with locked(folder, self._waiting), replaced(folder) as fresh:
            for file, content in parcel.files.items():
                (fresh / file).write_bytes(content)

    def _folder(self, kind: str, version: int, key: Mapping[str, Any]) -> Path:
        return self.root / kind / fingerprint({"version": version, **key})

    def _read_again(self, folder: Path) -> dict[str, pd.DataFrame] | None:
        """The tables of a finished cell; what is damaged is said, and is to be made again."""
        try:
            return self._read(folder)
        except DamagedError as error:
            say(f"{error}: computed again")
            return None

    def _read(self, folder: Path) -> dict[str, pd.DataFrame] | None:
        """The tables of a finished cell that may be used, None where there is none.

        Raises:
            DamagedError: there is one, but not as it was written.
        """
        if not os.path.lexists(folder):
            return None
        described = _described(folder)
        if described is None:
            raise DamagedError(f"{folder / FILE} is not what was written")
        return read_tables(folder, described["tables"]) if self._is_current(described) else None

    def _is_current(self, described: Mapping[str, Any]) -> bool:
        """Whether a cell may be used: any may, unless this run makes all of them anew."""
        return not self.again or described["again"] == self.again

    def _describe(
        self,
        folder: Path,
        kind: str,
        version: int,
        key: Mapping[str, Any],
        hashes: Mapping[str, str],
    ) -> None:
        about = {
            "kind": kind,
            "version": version,
            "key": key,
            "again": self.again,
            "tables": hashes,
        }
        text = json.dumps(about, indent=2, sort_keys=True)
        with replaced_file(folder / FILE) as fresh:
            fresh.write_text(text + "\n", encoding="utf-8")


def _described(folder: Path) -> dict[str, Any] | None:
    """What a cell says of itself, None if that is not what was written for this folder."""
    try:
        about = json.loads(read_regular(folder / FILE, LARGEST))
        name = fingerprint({"version": about["version"], **about["key"]})
        hashed = all(isinstance(code, str) for code in about["tables"].values())
        ours = hashed and (about["kind"], name) == (folder.parent.name, folder.name)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return about if ours and isinstance(about.get("again"), str) else None


def _temporary(owner: object) -> Path:
    """A folder that goes when its owner goes."""
    folder = Path(tempfile.mkdtemp(prefix="ropelab-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
