"""Write docs/notes, a page per note, and the findings that travel with the package,
from a run.

python tools/notes.py RUN FOLDER
"""

import sys
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

import pandas as pd

from ropelab.claims.answer import page
from ropelab.claims.committed import COMMITTED_FILE, FINDINGS
from ropelab.claims.ledger import CLAIMS, SOURCES, find_claim
from ropelab.show.captions import CAPTIONS

# Figures of the ledger that belong to a note.
PICTURES = {
    "001": ("permutation", "rotation", "resolution"),
    "002": ("worked_example",),
    "003": ("sinusoid_code", "sinusoid_sum", "sinusoid_distance", "sinusoid_shift"),
}
HEAD = """\
The sentences of this text that can be decided, with what decides them: `ropelab claims --source
{source}`, here from the committed results (`make docs` writes this page). `ropelab claims --id ID`
shows all that was measured for a claim.
"""


def note_pages(run: Path, folder: Path) -> dict[str, str]:
    """Return the pages by file name; figures are linked from `folder`."""
    # Notes are numbered 000 to 004, which must not be read as integers.
    tables = {
        name: pd.read_csv(run / "tables" / f"{name}.csv", dtype={"source": str})
        for name in ("claims", "passages", "questions")
    }
    figures = relpath(run / "figures", folder)
    notes = [source for source in SOURCES if source.isdecimal()]
    return {
        f"{note}.md": "\n".join(_page(note, tables, figures)) + "\n" for note in notes
    }


def findings_to_ship(run: Path) -> str:
    """Return the file of findings on claims that read stored runs, or need torch."""
    claims = pd.read_csv(run / "tables/claims.csv").set_index("id")
    findings = pd.read_csv(
        run / "tables/findings.csv", dtype=str, keep_default_na=False
    )
    read = findings[
        findings["id"].isin(
            [claim.id for claim in CLAIMS if claim.reads or claim.needs_torch]
        )
    ]
    # Where a claim reads runs, what is expected comes from its check.
    expected = claims["expected"].where(
        [find_claim(id_).needs_torch for id_ in claims.index]
    )
    about = {
        name: read["id"].map(column.fillna(""))
        for name, column in {"models": claims["models"], "expected": expected}.items()
    }
    return read[FINDINGS].assign(**about).to_csv(index=False, lineterminator="\n")


def _page(source: str, tables: dict[str, pd.DataFrame], figures: str) -> Iterator[str]:
    about, passages, asked = SOURCES[source], tables["passages"], tables["questions"]
    yield f"# Note {source}: {about.title}\n"
    if about.link:
        yield f"{about.label}, <{about.link}>\n"
    if about.licence:
        yield (
            f"Quoted under {about.licence}, from the post of that title; the rest is"
            " ours.\n"
        )
    yield HEAD.format(source=source)
    for name in PICTURES.get(source, ()):
        yield f"![{name.replace('_', ' ')}]({figures}/{name}.png)\n"
        yield f"*{CAPTIONS['claims'][name]}*\n"
    asked = asked[asked["source"] == source]
    if len(asked):
        yield "## What it asks\n"
        for _, row in asked.iterrows():
            yield f"- {row['quote']} ({row['english']}) **{row['answer']}**"
        yield ""
    yield "## Sentence by sentence\n"
    yield (
        "| section | sentence | verdict | why | claim |\n| --- | --- | --- | --- |"
        " --- |"
    )
    mine = passages[passages["source"] == source]
    order = (
        mine["place"]
        .fillna("")
        .map(about.sections.index)
        .sort_values(kind="stable")
        .index
    )
    for _, row in page({**tables, "passages": mine.loc[order]}).iterrows():
        said = (
            f"{row['sentence']} ({row['english']})"
            if row["english"]
            else row["sentence"]
        )
        cells = (row["section"], said, row["verdict"], row["why"], row["id"])
        yield "| " + " | ".join(_plain(str(cell)) for cell in cells) + " |"


def _plain(text: str) -> str:
    # Escape what Markdown would interpret: quotations contain formulas and pipes.
    for mark in "\\|*_<[$":
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    target = Path(sys.argv[2])
    Path(str(COMMITTED_FILE)).write_text(
        findings_to_ship(Path(sys.argv[1])), encoding="utf-8"
    )
    for name, text in note_pages(Path(sys.argv[1]), target).items():
        (target / name).write_text(text, encoding="utf-8")
