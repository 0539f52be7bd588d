"""All claims in order, their sources, and the questions of the notes, as the TOML files
of this folder have them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from string import Formatter
from typing import Any

import pandas as pd

from ropelab.claims.record import Claim, Findings, Passage
from ropelab.runs.cell import Stored
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside

# The families of claims in the order of the ledger: first those about statements of the
# notes, then of papers, and then those that trained models decide.
FAMILIES = (
    "attention",
    "forms",
    "periods",
    "sinusoids",
    "scores",
    "encodings",
    "published",
    "theories",
    "trained",
)


@dataclass(frozen=True)
class Source:
    """One publication. Fields that are unknown are left empty."""

    # The title as the publication prints it.
    title: str
    # The author, or the site.
    author: str = ""
    year: int | None = None
    link: str = ""
    # The number of characters of a note, without white space.
    characters: int = 0
    # The licence with its address, if quotations have to name it.
    licence: str = ""
    # The sections of a note, in the order of the text.
    sections: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Author and year, or the title if neither is known."""
        known = [str(fact) for fact in (self.author, self.year) if fact]
        if not known:
            return f"“{self.title}”"
        return " ".join(known)


# The words in the place of a finding that the stored runs do not have.
ABSENT = "not measured in these runs"


@dataclass(frozen=True)
class Question:
    """A question that a note asks, with our answer.

    The answer refers to a finding by `{id:words}`: the id of its claim, and words that
    the finding has and others of the claim do not.
    """

    # The place in the note.
    asked: Passage
    answer: str

    @property
    def insertions(self) -> list[tuple[str, str]]:
        """The claims that the answer refers to, each with the words of the finding."""
        parsed = Formatter().parse(self.answer)
        return [(id_, words or "") for _, id_, words, _ in parsed if id_]

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(id_ for id_, _ in self.insertions)

    def write_answer(self, findings: Mapping[str, Findings]) -> str:
        """Return the answer with the measurement of each finding that it refers to.

        Runs differ in the schemes that they have, so that a finding may be absent.
        """
        answer = ""
        for text, id_, words, _ in Formatter().parse(self.answer):
            answer += text
            if not id_:
                continue
            of_claim = findings[id_]
            if of_claim.has(words or ""):
                answer += of_claim.named(words or "").measured
            else:
                answer += ABSENT
        return answer


def _claim(family: str, record: dict[str, Any]) -> Claim:
    """Make a claim of its record, with values for the fields that the record lacks."""
    passages = tuple(Passage(**passage) for passage in record.pop("passages"))
    if "config" in record:
        command = f"ropelab run {record['config']}"
    else:
        command = f"ropelab claims --id {record['id']}"
    # Claims about encodings are decided with the code of the encodings, which is torch.
    defaults: dict[str, Any] = {
        "command": command,
        "needs_torch": family == "encodings",
    }
    return Claim(family=family, passages=passages, **defaults | record)


SOURCES: dict[str, Source] = {
    key: Source(**{**about, "sections": tuple(about.get("sections", ()))})
    for key, about in table_beside(__file__, "sources").items()
}
CLAIMS: tuple[Claim, ...] = tuple(
    _claim(family, record)
    for family in FAMILIES
    for record in table_beside(__file__, family)["claim"]
)
QUESTIONS: tuple[Question, ...] = tuple(
    Question(answer=record.pop("answer"), asked=Passage(**record))
    for record in table_beside(__file__, "questions")["question"]
)


def find(id_: str) -> Claim:
    """Return a claim by its id; InputError with the nearest ids if there is none."""
    for claim in CLAIMS:
        if claim.id == id_:
            return claim
    # The cutoff is lower than the default of 0.6, since a poor guess does no harm.
    near = get_close_matches(
        id_.lower(), [claim.id for claim in CLAIMS], n=3, cutoff=0.4
    )
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"unknown claim '{id_}'; {guess}allowed: an id that `ropelab claims` lists"
    )


def choose(id_: str = "", source: str = "") -> Sequence[Claim]:
    """Return the claim with an id, or else those of a source, or else all."""
    if id_:
        return (find(id_),)
    if source:
        return said_in(source)
    return CLAIMS


def said_in(source: str) -> tuple[Claim, ...]:
    """Return the claims that a source makes."""
    claims = []
    for claim in CLAIMS:
        if any(passage.source == source for passage in claim.passages):
            claims.append(claim)
    return tuple(claims)


def cite(passage: Passage) -> str:
    """Write the source of a passage, and its section if that is known."""
    label = SOURCES[passage.source].label
    if not passage.section:
        return label
    return f"{label}, {passage.section}"


def judge_run(
    experiment: str, config: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return the ledger's verdicts on one run: a row per claim that it can decide."""
    # The checks do not use the path of a run, which may not be written yet.
    run = Stored(experiment, dict(config), dict(tables), path="")
    rows = []
    for claim in CLAIMS:
        if claim.reads != experiment:
            continue
        findings = claim.evidence(runs=(run,))
        if findings.is_missing:
            continue

        row = (
            claim.id,
            cite(claim.passages[0]),
            claim.statement,
            str(claim.kind),
            str(findings.verdict(claim.kind)),
            findings.measured,
            findings.expected,
        )
        rows.append(row)
    columns = [
        "id",
        "source",
        "statement",
        "evidence",
        "verdict",
        "measured",
        "expected",
    ]
    return pd.DataFrame(rows, columns=columns)
