"""Cells: one model, one method, one seed. Each is kept under the hash of its own small config.

An interrupted experiment keeps the cells it finished, and a changed config repeats only the cells
that changed.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.folders import fingerprint, locked, replaced
from ropelab.tables import read_tables, write_tables


class Cells:
    """A cache of cells in a folder.

    Args:
        root: where cells are kept; None keeps them for the life of this object only.
        again: make every cell anew that this object is asked for (once).
    """

    def __init__(self, root: Path | None = None, again: bool = False) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="ropelab-") if root is None else None
        self._root = Path(self._temporary.name) if self._temporary else root
        self._again = again
        self._made: set[Path] = set()

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
        with locked(folder):
            if not (folder / "cell.json").exists() or self._stale(folder):
                tables = make()
                with replaced(folder) as fresh:
                    write_tables(tables, fresh)
                    _describe(fresh, kind, version, key)
                self._made.add(folder)
        return read_tables(folder)

    @contextmanager
    def directory(self, *, kind: str, version: int, key: Mapping[str, Any]) -> Iterator[Path]:
        """A locked folder of one cell that keeps its own files, such as training checkpoints."""
        folder = self._folder(kind, version, key)
        with locked(folder):
            if self._stale(folder):
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
            _describe(folder, kind, version, key)
            yield folder

    def _folder(self, kind: str, version: int, key: Mapping[str, Any]) -> Path:
        assert self._root is not None
        return self._root / kind / fingerprint({"version": version, **key})

    def _stale(self, folder: Path) -> bool:
        return self._again and folder not in self._made


def _describe(folder: Path, kind: str, version: int, key: Mapping[str, Any]) -> None:
    text = json.dumps({"kind": kind, "version": version, "key": key}, indent=2, sort_keys=True)
    (folder / "cell.json").write_text(text + "\n", encoding="utf-8")
