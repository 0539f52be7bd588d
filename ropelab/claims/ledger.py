"""All claims in order, their sources, and the questions of the notes, from the TOML
files here.
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

# The order of the ledger: what the notes say, what papers say, what trained models
# show.
FAMILIES = (
    *("attention", "forms", "periods", "sinusoids", "scores", "encodings"),
    *("published", "theories", "trained"),
)


@dataclass(frozen=True)
class Source:
    """One publication; what is unknown is left empty."""

    title: str  # as printed there
    author: str = ""  # or the site
    year: int | None = None
    link: str = ""
    characters: int = 0  # of a note, without white space
    licence: str = ""  # with its address, where quotations have to name it
    sections: tuple[str, ...] = ()  # of a note, in the order of the text

    @property
    def label(self) -> str:
        return (
            " ".join(str(x) for x in (self.author, self.year) if x) or f"“{self.title}”"
        )


# In the place of a finding that the runs at hand do not have.
ABSENT = "not measured in these runs"


@dataclass(frozen=True)
class Question:
    """A question that a note asks, and an answer with findings in braces: {id:words}."""

    asked: Passage
    answer: str

    @property
    def insertions(self) -> list[tuple[str, str]]:
        """The claims of the answer, each with words of the finding that is meant."""
        parsed = Formatter().parse(self.answer)
        return [(id_, words or "") for _, id_, words, _ in parsed if id_]

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(id_ for id_, _ in self.insertions)

    def answered(self, findings: Mapping[str, Findings]) -> str:
        """Return the answer with what was measured in each finding that it names.

        Runs differ in the schemes that they have, so that a finding may be absent.
        """
        said = ""
        for text, id_, words, _ in Formatter().parse(self.answer):
            said += text
            if not id_:
                continue
            asked = findings[id_]
            if asked.has(words or ""):
                said += asked.named(words or "").measured
            else:
                said += ABSENT
        return said


def _claim(family: str, record: dict[str, Any]) -> Claim:
    passages = tuple(Passage(**passage) for passage in record.pop("passages"))
    # Encodings are tried as they are programmed.
    if "config" in record:
        command = f"ropelab run {record['config']}"
    else:
        command = f"ropelab claims --id {record['id']}"
    # Encodings are tried as they are programmed.
    usual: dict[str, Any] = {"command": command, "needs_torch": family == "encodings"}
    return Claim(family=family, passages=passages, **usual | record)


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
    for claim in CLAIMS:
        if claim.id == id_:
            return claim
    # More forgiving than the default of 0.6: a poor guess costs nothing.
    near = get_close_matches(
        id_.lower(), [claim.id for claim in CLAIMS], n=3, cutoff=0.4
    )
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"unknown claim '{id_}'; {guess}allowed: an id that `ropelab claims` lists"
    )


def choose(id_: str = "", source: str = "") -> Sequence[Claim]:
    """Return one claim, those of a source, or all."""
    if id_:
        return (find(id_),)
    return said_in(source) if source else CLAIMS


def said_in(source: str) -> tuple[Claim, ...]:
    return tuple(
        c for c in CLAIMS if source in {passage.source for passage in c.passages}
    )


def cited(passage: Passage) -> str:
    return ", ".join(filter(None, (SOURCES[passage.source].label, passage.section)))


def judge_run(
    experiment: str, config: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return the ledger's verdicts on one run: a row per claim that it can decide."""
    # `claims.stored` lists the columns that are used.
    # A run that was just made is judged before it is written, so it has no path.
    run = Stored(experiment, dict(config), dict(tables), "")
    rows = []
    for claim in CLAIMS:
        found = claim.evidence(runs=(run,)) if claim.reads == experiment else None
        if found is not None and not found.is_missing:
            about = (
                claim.id,
                cited(claim.passages[0]),
                claim.statement,
                str(claim.kind),
            )
            rows.append(
                (*about, str(found.verdict(claim.kind)), found.measured, found.expected)
            )
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
