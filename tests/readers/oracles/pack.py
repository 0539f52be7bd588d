"""Observations into golden data: each different table once, and who computed which.

`python pack.py OBSERVATIONS GOLDEN` reads every JSON document of a folder.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


class Store:
    """Tables of float32, each kept once."""

    def __init__(self) -> None:
        self.tables: list[np.ndarray] = []
        self._seen: dict[bytes, int] = {}

    def put(self, values: list[float]) -> int:
        table = np.asarray(values, dtype=np.float32)
        key = table.tobytes()
        if key not in self._seen:
            self._seen[key] = len(self.tables)
            self.tables.append(table)
        return self._seen[key]


def packed(row: dict[str, Any], store: Store) -> Any:
    """One row: the word for what kept the runtime from computing, or its tables."""
    if "fields" in row:
        fields = {
            name: {"table": store.put(value)} if isinstance(value, list) else value
            for name, value in row["fields"].items()
        }
        kernel = {
            length: [store.put(entry["inv_freq"]), entry["attention_factor"]]
            for length, entry in row["kernel"].items()
        }
        return {"fields": fields, "kernel": kernel}
    if "observed" not in row:
        return next(iter(row))
    small: dict[str, Any] = {
        length: {
            layer: [store.put(e["inv_freq"]), e["attention_factor"]]
            for layer, e in t.items()
        }
        for length, t in row["observed"].items()
    }
    if "allowed" in row:
        small["allowed"] = row["allowed"]
    return small


def main(source: Path, target: Path) -> None:
    store = Store()
    for path in sorted(source.glob("*.json")):
        document = json.loads(path.read_text())
        rows = {name: packed(row, store) for name, row in document["rows"].items()}
        lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(r)}" for n, r in rows.items())
        text = (
            f'{{"version": {json.dumps(document["version"])}, "rows":'
            f" {{\n{lines}\n}}}}\n"
        )
        (target / path.name).write_text(text)
    sizes = np.array([len(table) for table in store.tables], dtype=np.int32)
    np.savez_compressed(
        target / "tables.npz", values=np.concatenate(store.tables), sizes=sizes
    )


main(Path(sys.argv[1]), Path(sys.argv[2]))
