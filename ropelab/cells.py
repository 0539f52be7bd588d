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
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.folders import Waiting, fingerprint, locked, replaced, say_nothing
from ropelab.tables import read_tables, write_tables


class Cells:
    """A cache of cells in a folder.

    Args:
        root: where cells are kept; None keeps them for the life of this object only.
        again: make every cell anew that this object is asked for (once).
        waiting: called with a cell's folder when another process holds it.
    """

    def __init__(
        self, root: Path | None = None, again: bool = False, waiting: Waiting = say_nothing
    ) -> None:
        self._root = _temporary(self) if root is None else root
        self._again = again
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
            if (folder / "cell.json").exists() and not self._stale(folder):
                self._reused += folder not in self._made
                return read_tables(folder)
            tables = make()
            with replaced(folder) as fresh:
                write_tables(tables, fresh)
                _describe(fresh, kind, version, key)
            self._made.add(folder)
            self._computed += 1
        return read_tables(folder)

    def counts(self) -> dict[str, int]:
        """How many cells were computed and how many were there before; empty if there were none."""
        counts = {"computed": self._computed, "reused": self._reused}
        return counts if any(counts.values()) else {}

    @contextmanager
    def directory(self, *, kind: str, version: int, key: Mapping[str, Any]) -> Iterator[Path]:
        """A locked folder of one cell that keeps its own files, such as training checkpoints."""
        folder = self._folder(kind, version, key)
        with locked(folder, self._waiting):
            if self._stale(folder):
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
            _describe(folder, kind, version, key)
            yield folder

    def _folder(self, kind: str, version: int, key: Mapping[str, Any]) -> Path:
        return self._root / kind / fingerprint({"version": version, **key})

    def _stale(self, folder: Path) -> bool:
        return self._again and folder not in self._made


def _temporary(owner: object) -> Path:
    """A folder that goes when its owner goes."""
    folder = Path(tempfile.mkdtemp(prefix="ropelab-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _describe(folder: Path, kind: str, version: int, key: Mapping[str, Any]) -> None:
    text = json.dumps({"kind": kind, "version": version, "key": key}, indent=2, sort_keys=True)
    (folder / "cell.json").write_text(text + "\n", encoding="utf-8")
