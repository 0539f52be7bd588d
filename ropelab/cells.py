"""Cells: one model, one method, one seed. Each is kept under the hash of its own small config.

An interrupted experiment keeps the cells it finished, and a changed config repeats only the cells
that changed.
"""

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.folders import Waiting, fingerprint, locked, replaced, say_nothing
from ropelab.tables import read_tables, write_tables


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
            if self._finished(folder):
                self._reused += folder not in self._made
                return read_tables(folder)
            tables = make()
            with replaced(folder) as fresh:
                write_tables(tables, fresh)
                self._describe(fresh, kind, version, key)
            self._note(folder)
        return read_tables(folder)

    def finished(self, *, kind: str, version: int, key: Mapping[str, Any]) -> bool:
        """Whether the tables of a cell are there and need not be made anew."""
        return self._finished(self._folder(kind, version, key))

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
        """A locked folder of one cell that keeps its own files, such as training checkpoints."""
        folder = self._folder(kind, version, key)
        with locked(folder, self._waiting):
            if folder.exists() and not self._current(folder):
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            self._describe(folder, kind, version, key)
            yield folder

    def packed(self, name: CellName) -> Parcel | None:
        """The folder of a cell as it is now; None if there is none that may be used."""
        folder = self._folder(name.kind, name.version, name.key)
        with locked(folder, self._waiting):
            if not self._finished(folder):
                return None
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            content = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        return Parcel(name, content)

    def unpack(self, parcel: Parcel) -> None:
        """Put the folder of a cell in its place, whole or not at all."""
        name = parcel.name
        folder = self._folder(name.kind, name.version, name.key)
        with locked(folder, self._waiting), replaced(folder) as fresh:
            for file, content in parcel.files.items():
                (fresh / file).parent.mkdir(parents=True, exist_ok=True)
                (fresh / file).write_bytes(content)

    def _folder(self, kind: str, version: int, key: Mapping[str, Any]) -> Path:
        return self.root / kind / fingerprint({"version": version, **key})

    def _finished(self, folder: Path) -> bool:
        return (folder / "cell.json").exists() and self._current(folder)

    def _current(self, folder: Path) -> bool:
        """Whether a cell may be used: any may, unless this run makes all of them anew."""
        if not self.again:
            return True
        try:
            described = json.loads((folder / "cell.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return described.get("again") == self.again

    def _describe(self, folder: Path, kind: str, version: int, key: Mapping[str, Any]) -> None:
        about = {"kind": kind, "version": version, "key": key, "again": self.again}
        text = json.dumps(about, indent=2, sort_keys=True)
        (folder / "cell.json").write_text(text + "\n", encoding="utf-8")


def _temporary(owner: object) -> Path:
    """A folder that goes when its owner goes."""
    folder = Path(tempfile.mkdtemp(prefix="ropelab-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder
