"""The manifest of a finished run: written with a hash of all that it says, checked when read."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter

from ropelab.runs.files import read_regular
from ropelab.runs.notices import say_once

NAME = "manifest.json"
# Bytes that it may take.
LARGEST = 2**26
HASH = "sha256"

# Names become paths: they stay inside the run's folder.
TableName = Annotated[str, StringConstraints(pattern=r"^\w[\w-]*$")]
FigureName = Annotated[str, StringConstraints(pattern=r"^figures/\w[\w.+-]*$")]


@dataclass
class Table:
    """A table: how many rows, its columns with their units, and the hash of its file."""

    rows: int
    columns: dict[str, str | None]
    sha256: str


@dataclass
class Manifest:
    """The origin of the numbers, and the sentences about them."""

    schema: int
    experiment: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]
    question: str
    cannot_show: str
    answer: str
    summary: list[dict[str, Any]]
    command: str
    start: str
    seconds: float
    packages: dict[str, str | None]
    commit: str | None
    tables: dict[TableName, Table]
    figures: list[FigureName] | None


SHAPE = TypeAdapter(Manifest)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a run, with the hash of what it says."""
    plain = json.loads(json.dumps(manifest, allow_nan=False))  # as it will be read back
    text = json.dumps({**plain, HASH: hash_of(plain)}, indent=2, ensure_ascii=False)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a finished run, None where there is none that can be read.

    A manifest.json that is not of this program's making, or was changed since it was written, is
    left alone, and said once.
    """
    path = folder / NAME
    try:
        manifest = json.loads(read_regular(path, LARGEST))
        SHAPE.validate_python(manifest)
        changed = manifest.get(HASH) != hash_of(manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        say_once(f"left out: {path} is not the manifest of a finished run")
        return None
    if changed:
        say_once(f"left out: {path} is not what was written")
        return None
    return dict(manifest)


def hash_of(manifest: Mapping[str, Any]) -> str:
    """Hash all that a manifest says, whatever the order and the spacing of its file."""
    said = {key: value for key, value in manifest.items() if key != HASH}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
