"""The ledger of claims: each statement with its source, verdict and the number that decides."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ropelab.show.page.shown import Shown

COLUMNS = {
    "id",
    "statement",
    "source",
    "verdict",
    "measured",
    "expected",
    "decided_by",
    "decided_at",
}
EVIDENCE = "evidence"


@dataclass(frozen=True)
class Quotation:
    """Where a statement is made, in the words of its source; what is unknown is empty."""

    where: str
    link: str
    quote: str
    english: str


@dataclass(frozen=True)
class Statement:
    """One claim with its verdict.

    Attributes:
        evidence: what kind decides it (arithmetic, small trained models); empty if not recorded.
        quotations: where it is said, word for word; empty if not recorded.
        findings: everything that was measured for it, a phrase each, with whether it agrees.
    """

    id: str
    statement: str
    source: str
    verdict: str
    decided: str
    expected: str
    command: str
    evidence: str
    quotations: tuple[Quotation, ...]
    findings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sentence:
    """A sentence of a note: its section, the verdict, why, and the id of the statement."""

    section: str
    sentence: str
    english: str
    verdict: str
    why: str
    claim: str


@dataclass(frozen=True)
class Note:
    """A text whose sentences are judged, and the questions that it asks with their answers."""

    key: str
    title: str
    about: str
    link: str
    sentences: tuple[Sentence, ...]
    questions: tuple[tuple[str, str, str], ...]


def notes_of(run: Shown) -> list[Note]:
    """The notes of a ledger, each sentence with its verdict; none if the run does not have them."""
    if "source" not in run.tables.get("passages", ()):
        return []
    passages = _text(run.tables["passages"]).assign(key=_keys)
    asked = run.tables.get("questions", pd.DataFrame(columns=["source", "quote"]))
    asked = _text(asked).assign(key=_keys)
    notes = sorted(key for key in set(passages["key"]) if key.isdecimal())
    claims = run.tables["claims"].set_index("id")
    return [
        _note(key, claims, passages[passages["key"] == key], asked[asked["key"] == key])
        for key in notes
    ]


def _text(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(object).where(table.notna(), "")


def _keys(table: pd.DataFrame) -> pd.Series:
    """The keys of sources; those of notes are three digits, which a file gives back as numbers."""
    text = table["source"].astype(str)
    return text.where(~text.str.isdecimal(), text.str.zfill(3))


def _note(key: str, claims: pd.DataFrame, passages: pd.DataFrame, asked: pd.DataFrame) -> Note:
    first = passages.iloc[0]
    year = f"{first['year']:.0f}" if first["year"] != "" else ""
    sentences = []
    for _, row in passages.iterrows():
        claim = claims.loc[row["id"]]
        said = row["quote"] or claim["statement"]
        why = f"{claim['decided_by']}: {claim['decided_at']}"
        found = (row["place"], said, row["english"], claim["verdict"], why, row["id"])
        sentences.append(Sentence(*map(str, found)))
    return Note(
        key=key,
        title=str(first["title"]),
        about=" ".join(filter(None, (str(first["author"]), year))),
        link=_safe(str(first["link"])),
        sentences=tuple(sentences),
        questions=tuple(
            (str(row.quote), str(row.english), str(row.answer)) for row in asked.itertuples()
        ),
    )


def _safe(link: str) -> str:
    return link if link.startswith(("https://", "http://")) else ""


def ledger_of(runs: Sequence[Shown]) -> tuple[Shown, list[Statement]] | None:
    """The newest ledger among the runs, None if there is none."""
    with_claims = [
        run
        for run in runs
        if "claims" in run.tables and set(run.tables["claims"].columns) >= COLUMNS
    ]
    if not with_claims:
        return None
    run = max(with_claims, key=lambda run: str(run.manifest.get("start", "")))
    findings = run.tables.get("findings", pd.DataFrame(columns=["id"]))
    passages = run.tables.get("passages", pd.DataFrame(columns=["id"]))
    claims = run.tables["claims"]
    return run, [_statement(row, findings, passages) for _, row in claims.iterrows()]


def _statement(row: pd.Series, findings: pd.DataFrame, passages: pd.DataFrame) -> Statement:
    found = findings[findings["id"] == row["id"]]
    return Statement(
        id=row["id"],
        statement=row["statement"],
        source=row["source"],
        verdict=row["verdict"],
        decided=f"{row['decided_by']}: {row['decided_at']}",
        expected=row["expected"],
        command=row["command"],
        evidence=str(row.get(EVIDENCE, "")),
        quotations=tuple(
            _quotation(one) for _, one in passages[passages["id"] == row["id"]].iterrows()
        ),
        findings=tuple(
            (f"{one['what']}: {one['measured']}", str(one["agrees"])) for _, one in found.iterrows()
        ),
    )


def _quotation(row: pd.Series) -> Quotation:
    known = {str(name): str(value) for name, value in row.items() if pd.notna(value)}
    parts = [known.get(name, "") for name in ("author", "year", "title", "place")]
    link = known.get("link", "")
    return Quotation(
        where=", ".join(filter(None, parts)),
        link=_safe(link),
        quote=known.get("quote", ""),
        english=known.get("english", ""),
    )
