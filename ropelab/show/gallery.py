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
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_regular
from ropelab.runs.tables import as_markdown
from ropelab.show.drawn import write
from ropelab.show.page.document import rendered
from ropelab.show.terminal import format_value

LONGEST_NAME = 80
# What Markdown reads as more than a letter; `_` inside a word and `|` (as_markdown) are
# not.
SPECIAL = re.compile(r"([\\`*\[\]<>&~]|(?<!\w)_|_(?!\w))")
# Characters of a folder's name that stay themselves in a link.
SAFE = "/+"


# A line of every index.
MARK = "Each run: the question, the answer computed from its tables,"


def check_index(name: str) -> None:
    """Refuse an index that would be outside of the results folder, or in the way of
    runs.
    """
    path = Path(name)
    plain = path.name == name and name.isprintable() and len(name) <= LONGEST_NAME
    if not plain or path.suffix != ".md":
        wanted = "the name of a file in the results folder that ends in .md"
        raise InputError(
            f"--index must be {wanted}, got '{shorten(name, LONGEST_NAME)}'"
        )


def escaped(text: str) -> str:
    """Write text of a manifest, which anybody may have written, as plain words of
    Markdown.

    >>> escaped("<b> [x](y)\\n# copy_in_text")
    '\\\\<b\\\\> \\\\[x\\\\](y) # copy_in_text'
    """
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Write text as code of one line, between more backticks than it has itself."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{' '.join(text.split())}{fence}"


def table_lines(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    table = pd.DataFrame(records, dtype=object).rename(columns=escaped)
    return as_markdown(table, lambda value: escaped(format_value(value)))


FILTERS: dict[str, Callable[[Any], Any]] = {
    "plain": escaped,
    "code": code,
    "table": table_lines,
    "address": lambda path: quote(path, SAFE),
    "anchor": lambda title: re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"),
    "stem": lambda path: Path(path).stem.replace("_", " "),
}


def write_index(results: Path, name: str = "index.md", title: str = "Results") -> Path:
    """Write the index of all finished runs below `results`, and return its path."""
    about = {
        "results": results,
        "runs": list(store.finished(results)),
        "kept": _kept(results),
    }
    text = rendered("index.md.j2", FILTERS, title=title, **about)
    return write({name: text.encode()}, results, MARK)[0]


def _kept(results: Path) -> set[str] | None:
    """Return the figures that the folder's .gitignore excepts; None without one: all
    are kept.
    """
    try:
        lines = read_regular(results / ".gitignore", 2**20).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return {line.removeprefix("!/") for line in lines if line.startswith("!/")}
