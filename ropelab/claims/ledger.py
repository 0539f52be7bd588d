"""All claims in order, their sources, and the questions of the notes, as the TOML files
of this folder have them.

A source is a publication. A note is a source that was read sentence by sentence: every
sentence that makes a claim is listed, and every question that the note asks is
answered.
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
from ropelab.runs.files import read_table_beside

# The families of claims in the order of the ledger: first claims of the notes, then of
# papers, and last the claims that trained models decide. A family is a TOML file, and
# the module of its checks.
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


# The words that an answer has in the place of a finding that the stored runs do not have.
ABSENT = "not measured in these runs"


@dataclass(frozen=True)
class Question:
    """A question that a note asks, with our answer.

    The answer names findings, whose measurements are put in their place: `{id:words}` is
    the finding of the claim `id` that has these words, which no other finding of the
    claim has. `{id}` is the only finding of a claim.
    """

    # The passage of the note that asks.
    asked: Passage
    answer: str

    @property
    def insertions(self) -> list[tuple[str, str]]:
        """The findings that the answer names: the id of the claim, and the words."""
        # `parse` splits the text at braces, as it does for str.format.
        parsed = Formatter().parse(self.answer)
        return [(id_, words or "") for _, id_, words, _ in parsed if id_]

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(id_ for id_, _ in self.insertions)

    def write_answer(self, findings: Mapping[str, Findings]) -> str:
        """Return the answer with the measurement of each finding that it names.

        A stored run may lack the finding, in whose place the answer then says so.
        """
        answer = ""
        for text, id_, words, _ in Formatter().parse(self.answer):
            answer += text
            # The text after the last brace has no id.
            if not id_:
                continue

            findings_of_claim = findings[id_]
            if findings_of_claim.has(words or ""):
                answer += findings_of_claim.find(words or "").measured
            else:
                answer += ABSENT
        return answer


def _make_claim(family: str, record: dict[str, Any]) -> Claim:
    """Make a claim of its table in a TOML file, with defaults for the fields that the
    table lacks.
    """
    passages = tuple(Passage(**passage) for passage in record.pop("passages"))
    # The command that decides the claim: it makes a run of a config, or computes the check.
    if "config" in record:
        command = f"ropelab run {record['config']}"
    else:
        command = f"ropelab claims --id {record['id']}"
    # Claims about encodings are decided with the code of the encodings, which uses torch.
    defaults: dict[str, Any] = {
        "command": command,
        "needs_torch": family == "encodings",
    }
    return Claim(family=family, passages=passages, **{**defaults, **record})


def _read_sources() -> dict[str, Source]:
    sources = {}
    for key, record in read_table_beside(__file__, "sources").items():
        sections = tuple(record.pop("sections", ()))
        sources[key] = Source(sections=sections, **record)
    return sources


def _read_claims() -> tuple[Claim, ...]:
    claims = []
    for family in FAMILIES:
        for record in read_table_beside(__file__, family)["claim"]:
            claims.append(_make_claim(family, record))
    return tuple(claims)


def _read_questions() -> tuple[Question, ...]:
    questions = []
    for record in read_table_beside(__file__, "questions")["question"]:
        answer = record.pop("answer")
        questions.append(Question(asked=Passage(**record), answer=answer))
    return tuple(questions)


SOURCES = _read_sources()
CLAIMS = _read_claims()
QUESTIONS = _read_questions()


def find_claim(id_: str) -> Claim:
    """Return a claim by its id; InputError with the nearest ids if there is none."""
    for claim in CLAIMS:
        if claim.id == id_:
            return claim
    # The cutoff is lower than the default of 0.6, since a poor guess does no harm.
    ids = [claim.id for claim in CLAIMS]
    near_ids = get_close_matches(id_.lower(), ids, n=3, cutoff=0.4)
    guess = ""
    if near_ids:
        guess = f"did you mean {' or '.join(near_ids)}? "
    raise InputError(
        f"unknown claim '{id_}'; {guess}allowed: an id that `ropelab claims` lists"
    )


def choose_claims(id_: str = "", source: str = "") -> Sequence[Claim]:
    """Return the claim with an id, or else the claims of a source, or else all claims."""
    if id_:
        return (find_claim(id_),)
    if source:
        return select_claims(source)
    return CLAIMS


def select_claims(source: str) -> tuple[Claim, ...]:
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

        first_passage, *_ = claim.passages
        row = {
            "id": claim.id,
            "source": cite(first_passage),
            "statement": claim.statement,
            "evidence": str(claim.kind),
            "verdict": str(findings.verdict(claim.kind)),
            "measured": findings.measured,
            "expected": findings.expected,
        }
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
