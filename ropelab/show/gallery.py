"""The index of a results folder: every run with its figures, its answer and its
command.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import quote

import pandas as pd

from ropelab.runs import store
from ropelab.runs.errors import InputError, say_once
from ropelab.runs.files import read_regular
from ropelab.runs.sentences import split_verdict
from ropelab.runs.tables import DamagedError, write_markdown
from ropelab.show.captions import find_caption
from ropelab.show.drawn import write_for_user
from ropelab.show.intervals import join_intervals
from ropelab.show.page.document import render
from ropelab.show.page.shown import Restate
from ropelab.show.terminal import format_value

# The most letters of the name of an index.
LONGEST_NAME = 80
# The most bytes of a .gitignore that are read.
MOST_BYTES = 2**20
# Characters to which Markdown gives a meaning. `_` inside a word has none, and `|` is
# escaped by `write_markdown`.
SPECIAL = re.compile(r"([\\`*\[\]<>&~]|(?<!\w)_|_(?!\w))")
# Characters of a path that are not escaped in a link.
SAFE = "/+"
# A text in every index, by which ropelab knows its own files.
MARK = "Each run: the question, the answer computed from its tables,"


def check_index(name: str) -> None:
    """Raise InputError for a name of an index that is not a plain name ending in .md.

    A file of another name could be outside of the results folder, or replace a run.
    """
    path = Path(name)
    is_plain = path.name == name and name.isprintable()
    is_short = len(name) <= LONGEST_NAME
    if is_plain and is_short and path.suffix == ".md":
        return
    raise InputError(
        "--index must be the name of a file in the results folder that ends in .md,"
        f" got '{shorten(name, LONGEST_NAME)}'"
    )


def escape(text: str) -> str:
    """Write a text of a manifest as plain words in Markdown.

    Anybody may have written a manifest, so its texts must not become links or HTML.

    >>> escape("<b> [x](y)\\n# copy_in_text")
    '\\\\<b\\\\> \\\\[x\\\\](y) # copy_in_text'
    """
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def write_code(text: str) -> str:
    """Write text as code of one line, between more backticks than the text has in a
    row.
    """
    runs_of_backticks = re.findall("`+", text)
    longest = max(map(len, runs_of_backticks), default=0)
    fence = "`" * (longest + 1)
    return f"{fence}{' '.join(text.split())}{fence}"


def write_table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the lines of a table in Markdown. Columns without any value are left out."""
    table = join_intervals(pd.DataFrame(records, dtype=object))
    if len(table):
        table = table.dropna(axis="columns", how="all")
    return write_plain_table(table)


def write_plain_table(table: pd.DataFrame) -> Iterator[str]:
    """Return the lines of a table in Markdown. Its texts and the names of its columns are
    plain words (see `escape`).
    """
    # `_` in a name is printed as a space. Escaped, it would leave its backslash behind.
    titled = table.rename(columns=lambda name: _write_cell(str(name).replace("_", " ")))
    return write_markdown(titled, _write_cell)


def _write_cell(value: object) -> str:
    return escape(format_value(value))


def _write_address(path: str) -> str:
    return quote(path, SAFE)


def write_anchor(title: str) -> str:
    """Return the anchor that Markdown gives to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _write_stem(path: str) -> str:
    return Path(path).stem.replace("_", " ")


def _write_caption(path: str, experiment: str) -> str:
    return find_caption(Path(path).stem, experiment)


FILTERS: dict[str, Callable[..., Any]] = {
    "plain": escape,
    "code": write_code,
    "table": write_table,
    "address": _write_address,
    "anchor": write_anchor,
    "stem": _write_stem,
    "caption": _write_caption,
    "first_sentence": lambda answer: split_verdict(answer)[0],
}


def write_index(
    results: Path,
    name: str = "index.md",
    title: str = "Results",
    restate: Restate | None = None,
) -> Path:
    """Write the index of all finished runs below `results`, and return its path.

    `restate` writes the sentences of each run anew from its tables.
    """
    runs: list[tuple[Path, Mapping[str, Any]]] = []
    for folder, manifest in store.find_finished(results):
        if restate is None:
            runs.append((folder, manifest))
        else:
            runs.append((folder, _restate(folder, manifest, restate)))

    # Runs that answer the same question are listed together.
    by_question: dict[str, list[tuple[Path, Mapping[str, Any]]]] = {}
    for run in runs:
        _, about = run
        by_question.setdefault(about["question"], []).append(run)
    text = render(
        "index.md.j2",
        FILTERS,
        title=title,
        results=results,
        runs=runs,
        by_question=by_question,
        kept=_read_kept_figures(results),
    )
    (written,) = write_for_user({name: text.encode()}, results, MARK)
    return written


def _restate(
    folder: Path, manifest: Mapping[str, Any], restate: Restate
) -> Mapping[str, Any]:
    """Return the manifest of a run in today's words, or as it is if the run's tables are
    damaged. Damage is reported on stderr.
    """
    try:
        manifest, tables = store.read_tables(folder, manifest)
    except DamagedError as error:
        say_once(str(error))
        return manifest
    return restate(manifest, tables)


def _read_kept_figures(results: Path) -> set[str] | None:
    """Return the figures that are committed with the results, so that links to them work.

    In the .gitignore of the folder they are the exceptions (`!/path`). If the folder
    has no .gitignore, all figures are kept, and None is returned.
    """
    try:
        text = read_regular(results / ".gitignore", MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
    figures = set()
    for line in text.splitlines():
        if line.startswith("!/"):
            figures.add(line.removeprefix("!/"))
    return figures
