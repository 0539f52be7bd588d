"""The index of a results folder: every run with its figures, its answer and its command."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

import pandas as pd

from ropelab.errors import InputError
from ropelab.runs import store
from ropelab.runs.folders import replaced_file
from ropelab.runs.tables import as_markdown
from ropelab.show.terminal import format_value

LONGEST_NAME = 80


def check_name(name: str) -> None:
    """Refuse an index that would not lie in the results folder itself, or in the way of runs."""
    path = Path(name)
    plain = path.name == name and name.isprintable() and len(name) <= LONGEST_NAME
    if not plain or path.suffix != ".md":
        raise InputError(
            "--index must be the name of a file in the results folder that ends in .md, "
            f"got '{shorten(name, LONGEST_NAME)}'"
        )


def write_index(results: Path, name: str = "index.md", title: str = "Results") -> Path:
    """Write the index of all finished runs below `results`, and say where it is."""
    path = results / name
    with replaced_file(path) as fresh:
        fresh.write_text("\n".join(_lines(results, title)) + "\n", encoding="utf-8")
    return path


def _lines(results: Path, title: str) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield "Each run: the question, the answer computed from its tables, the command that made it."
    runs = list(store.finished(results))
    yield ""
    yield from (_entry(results, folder, manifest) for folder, manifest in runs)
    for folder, manifest in runs:
        yield ""
        yield from _section(results, folder, manifest)


def _entry(results: Path, folder: Path, manifest: Mapping[str, Any]) -> str:
    anchor = f"{manifest['experiment']}-{folder.name}".replace(".", "").replace("+", "").lower()
    return f"- [{_title(folder, manifest)}](#{anchor}): {manifest['question']}"


def _title(folder: Path, manifest: Mapping[str, Any]) -> str:
    return f"{manifest['experiment']} {folder.name}"


def _section(results: Path, folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    where = folder.relative_to(results).as_posix()
    yield f"## {_title(folder, manifest)}"
    yield ""
    yield f"**{manifest['question']}** {manifest['answer']}"
    yield ""
    yield f"Made by `{manifest['command']}`{_made_by(manifest)}; {_time(manifest)}."
    tables = ", ".join(f"[{name}]({where}/tables/{name}.csv)" for name in manifest["tables"])
    yield f"Tables: {tables}. [Manifest]({where}/manifest.json)."
    yield ""
    yield f"What it cannot show: {manifest['cannot_show']}"
    yield ""
    yield from _rows(manifest["summary"])
    for name, records in manifest.get("times", {}).items():
        yield ""
        yield f"Times of {name} (they differ from run to run; {manifest['threads']} threads):"
        yield ""
        yield from _rows(records)
    for figure in manifest["figures"] or ():
        yield ""
        yield f"![{Path(figure).stem.replace('_', ' ')}]({where}/{figure})"


def _rows(records: list[dict[str, Any]]) -> Iterator[str]:
    """A short table, as Markdown."""
    yield from as_markdown(pd.DataFrame(records, dtype=object), format_value)


def _time(manifest: Mapping[str, Any]) -> str:
    """How long it took, with what ran beside it, and how much of it had been measured before."""
    seconds = f"{manifest['seconds']:.0f} s from start to end"
    cells = manifest.get("measurements", {"reused": 0})
    if not cells["reused"]:
        return seconds
    return f"{seconds} ({cells['reused']} of {sum(cells.values())} measurements from earlier runs)"


def _made_by(manifest: Mapping[str, Any]) -> str:
    packages = manifest["packages"]
    commit = manifest["commit"]
    code = f", commit {commit[:10]}" if commit else ""
    return f" with ropelab {packages['ropelab']}, torch {packages['torch']}{code}"
