"""What is promised whatever happens: the right tables, or one line and nothing changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropelab.runs import store
from tests.stress.bench import NAME, Told

HIDDEN = (".new", ".old")


@dataclass(frozen=True)
class Trial:
    """One thing that was tried; `problem` says what did not hold, empty where all did."""

    what: str
    problem: str = ""


def tables_in(results: Path) -> dict[str, bytes]:
    """The tables of a results folder, of runs and of cells, by their place."""
    paths = [p.relative_to(results) for p in results.rglob("*.csv")]
    return {
        str(path): (results / path).read_bytes()
        for path in paths
        if not any(part.endswith(HIDDEN) for part in path.parts)
    }


def leftovers(results: Path) -> list[str]:
    """What an unfinished command left behind."""
    return [str(p.relative_to(results)) for p in results.rglob(".*") if p.suffix in HIDDEN]


def one_line(told: Told) -> Iterator[str]:
    """Problems of a command that failed: it says why in one line, with status 1 or 2."""
    if told.status not in (1, 2):
        yield f"status {told.status}"
    lines = told.err.splitlines()
    if not lines or not lines[-1].startswith("ropelab: ") or "Traceback" in told.err:
        yield f"stderr {told.err!r}"
    if sum(line.startswith("ropelab: ") for line in lines) > 1:
        yield f"more than one line: {told.err!r}"


def nothing_half(results: Path, right: dict[str, bytes]) -> Iterator[str]:
    """Problems of results after a failure: what is there is whole."""
    for folder in (results / NAME).glob("[!.]*"):
        table = "tables/bench.csv"
        if not all((folder / name).exists() for name in ("manifest.json", "config.toml", table)):
            yield f"half a run in {folder.name}"
        elif (folder / table).read_bytes() != right[f"{NAME}/{folder.name}/{table}"]:
            yield f"wrong tables in {folder.name}"


def said_in(results: Path) -> list[dict[str, Any]]:
    """What the manifests of finished runs say, but for when they were made, and of what."""
    each_time = {"start", "seconds", "measurements", "sha256"}
    return [
        {entry: value for entry, value in manifest.items() if entry not in each_time}
        for _, manifest in store.finished(results)
    ]


def all_right(results: Path, told: Told, right: dict[str, bytes]) -> Iterator[str]:
    """Problems of a command that was not disturbed: status 0 and the right tables."""
    if told.status:
        yield f"status {told.status} afterwards: {told.err!r}"
    if tables_in(results) != right:
        yield f"other tables: {sorted(tables_in(results))}"
