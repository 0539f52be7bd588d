"""The index of a results folder: every run with its figures, its answer and its command."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import quote

import pandas as pd

from ropelab.runs import store
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_regular
from ropelab.runs.tables import as_markdown
from ropelab.show.drawn import write
from ropelab.show.terminal import format_value

LONGEST_NAME = 80
# What Markdown reads as more than a letter; `_` inside a word and `|` (see as_markdown) are none.
SPECIAL = re.compile(r"([\\`*\[\]<>&~]|(?<!\w)_|_(?!\w))")

# Characters of a folder's name that stay themselves in a link.
SAFE = "/+"


def check_index(name: str) -> None:
    """Refuse an index that would be outside of the results folder, or in the way of runs."""
    path = Path(name)
    plain = path.name == name and name.isprintable() and len(name) <= LONGEST_NAME
    if not plain or path.suffix != ".md":
        raise InputError(
            "--index must be the name of a file in the results folder that ends in .md, "
            f"got '{shorten(name, LONGEST_NAME)}'"
        )


def escaped(text: str) -> str:
    """Write text of a manifest, which anybody may have written, as plain words of Markdown.

    >>> escaped("<b> [x](y)\\n# copy_in_text")
    '\\\\<b\\\\> \\\\[x\\\\](y) # copy_in_text'
    """
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Write text as code of one line, between more backticks than it has itself."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{' '.join(text.split())}{fence}"


def write_index(results: Path, name: str = "index.md", title: str = "Results") -> Path:
    """Write the index of all finished runs below `results`, and return its path."""
    text = "\n".join(_lines(results, title)) + "\n"
    return write({name: text.encode()}, results)[0]


def _lines(results: Path, title: str) -> Iterator[str]:
    runs = list(store.finished(results))
    kept = _kept(results)
    said = "Each run: the question, the answer computed from its tables, the command that made it."
    yield from (f"# {escaped(title)}", "", said)
    if kept is not None:
        yield "Only the figures that the documentation shows are kept here; `make reference` draws"
        yield "the others, and `ropelab report` of this folder shows all of them in one page."
    yield ""
    for folder, manifest in runs:
        title = f"{manifest['experiment']} {folder.name}"
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        yield f"- [{escaped(title)}](#{anchor}): {escaped(manifest['question'])}"
    for folder, manifest in runs:
        yield ""
        yield from _section(folder.relative_to(results).as_posix(), manifest, kept)


def _kept(results: Path) -> set[str] | None:
    """Return the figures that the folder's .gitignore excepts; None without one: all are kept."""
    try:
        lines = read_regular(results / ".gitignore", 2**20).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return {line.removeprefix("!/") for line in lines if line.startswith("!/")}


def _section(where: str, manifest: Mapping[str, Any], kept: set[str] | None) -> Iterator[str]:
    versions = manifest["packages"]
    made_by = f"ropelab {versions.get('ropelab')}, torch {versions.get('torch')}"
    commit = f", commit {escaped(manifest['commit'][:10])}" if manifest["commit"] else ""
    yield from (f"## {escaped(where.replace('/', ' '))}", "")
    yield from (f"**{escaped(manifest['question'])}** {escaped(manifest['answer'])}", "")
    time, cells = f"{manifest['seconds']:.0f} s", manifest.get("measurements", {"reused": 0})
    of = f" ({cells['reused']} of {sum(cells.values())} measurements from earlier runs)"
    time += f" from start to end{of if cells['reused'] else ''}"
    yield f"Made by {code(manifest['command'])} with {escaped(made_by)}{commit}; {time}."
    link = quote(where, SAFE)
    tables = (
        f"[{escaped(name)}]({link}/tables/{quote(name, SAFE)}.csv)" for name in manifest["tables"]
    )
    yield f"Tables: {', '.join(tables)}. [Manifest]({link}/manifest.json)."
    yield from ("", f"What it cannot show: {escaped(manifest['cannot_show'])}", "")
    threads = manifest.get("threads")
    times = {
        f"Times of {escaped(name)} (they differ from run to run; {threads} threads):": records
        for name, records in manifest.get("times", {}).items()
    }
    for title, records in {"": manifest["summary"], **times}.items():
        if title:
            yield from ("", title, "")
        table = pd.DataFrame(records, dtype=object).rename(columns=escaped)
        yield from as_markdown(table, lambda value: escaped(format_value(value)))
    for path in (f"{where}/{figure}" for figure in manifest["figures"] or ()):
        if kept is None or path in kept:
            yield ""
            yield f"![{escaped(Path(path).stem.replace('_', ' '))}]({quote(path, SAFE)})"
