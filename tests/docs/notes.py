"""docs/notes: a page per note, every line of it with its verdict, written from the ledger."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ropelab.claims.page import of_source, page
from ropelab.claims.sources import SOURCES
from tests.docs.reference import ROOT, run, table

NOTES = tuple(sorted(source for source in SOURCES if source.isdecimal()))
PICTURES = {
    "001": ("permutation", "rotation", "resolution"),
    "002": ("worked_example",),
    "003": ("sinusoid_code", "sinusoid_sum", "sinusoid_distance", "sinusoid_shift"),
}
"""Figures of the ledger that belong to a note."""
TABLES = ("claims", "passages", "questions", "rest")
HEAD = """\
Every line of this text, with what decides it: `ropelab claims --source {source}`, here from the
committed results (`make docs` writes this page). `ropelab claims
--id ID` shows all that was measured for a claim. Lines without a verdict make no claim of their
own.
"""


def newest_claims() -> Path:
    """The one committed ledger."""
    return run("claims", ("id", ""), ("source", ""))


def note_pages() -> dict[str, str]:
    """The pages by file name."""
    return {f"docs/notes/{source}.md": "\n".join(_page(source)) + "\n" for source in NOTES}


def _page(source: str) -> Iterator[str]:
    tables = {name: table(newest_claims(), name) for name in TABLES}
    mine, about = of_source(tables, source), SOURCES[source]
    known = " ".join(str(x) for x in (about.author, about.year) if x)
    yield f"# Note {source}: {about.title}\n"
    if about.link:
        yield f"{known}, <{about.link}>\n"
    yield HEAD.format(source=source)
    yield from _pictures(PICTURES.get(source, ()))
    yield from _questions(mine["questions"])
    yield "## Line by line\n"
    yield "| line | sentence | verdict | why | claim |\n| --- | --- | --- | --- | --- |"
    for row in page(mine).itertuples():
        said = f"{row.sentence} ({row.english})" if row.english else row.sentence
        yield _row(row.lines, said, row.verdict, row.why, row.id)


def _pictures(names: tuple[str, ...]) -> Iterator[str]:
    folder = newest_claims().relative_to(ROOT)
    for name in names:
        yield f"![{name.replace('_', ' ')}](../../{folder}/figures/{name}.png)\n"


def _questions(asked: pd.DataFrame) -> Iterator[str]:
    if asked.empty:
        return
    yield "## What it asks\n"
    for row in asked.itertuples():
        yield f"- {row.quote} ({row.english}) **{row.answer}**"
    yield ""


def _row(*cells: object) -> str:
    return "| " + " | ".join(_plain(str(cell)) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is inside a table."""
    for mark in "\\|*_<[$":
        text = text.replace(mark, f"\\{mark}")
    return text
