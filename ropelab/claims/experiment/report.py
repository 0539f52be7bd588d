"""The answer in words and the short table for the terminal, both from the tables alone."""

from textwrap import shorten

import pandas as pd

from ropelab.claims.page import page
from ropelab.claims.record import OUTCOMES, Kind, Verdict
from ropelab.runs.tables import Tables

WIDTH = 26


def answer(tables: Tables) -> str:
    """How many claims got which verdict; for one claim or one source, what it says first."""
    claims = tables["claims"]
    if len(claims) == 1:
        return _one(claims.iloc[0], tables["passages"])
    head = _heading(tables["passages"]) if is_page(tables) else ""
    sentences = [_counted(claims, kind) for kind in Kind]
    return " ".join(filter(None, (head, *sentences, *_answers(tables))))


def summary(tables: Tables) -> pd.DataFrame:
    """The ledger, a row per claim; of one source, a row per sentence; of one claim, per finding."""
    claims = tables["claims"]
    if len(claims) == 1:
        return tables["findings"][["role", "what", "measured", "agrees"]]
    if is_page(tables):
        return page(tables)
    short = claims["decided_at"].map(lambda text: shorten(text, WIDTH, placeholder=" …"))
    return claims[["id", "verdict"]].assign(measured=short)


def is_page(tables: Tables) -> bool:
    """Whether the run is about a single source."""
    return tables["passages"]["source"].nunique() == 1 and len(tables["claims"]) > 1


def _counted(claims: pd.DataFrame, kind: Kind) -> str:
    mine = claims[claims["evidence"] == str(kind)]
    if mine.empty:
        return ""
    counts = mine["verdict"].value_counts()
    told = ", ".join(_told(int(counts.get(str(v), 0)), v) for v in OUTCOMES[kind])
    return f"Of {len(mine)} statements {ABOUT[kind]} {told}."


def _told(count: int, verdict: Verdict) -> str:
    """How many statements got a verdict.

    >>> _told(1, Verdict.WRONG), _told(2, Verdict.HOLDS)
    ('1 is wrong', '2 hold')
    """
    return f"{count} {SINGULAR[verdict] if count == 1 else PLURAL[verdict]}"


ABOUT = {
    Kind.ARITHMETIC: "that arithmetic decides,",
    Kind.TRAINED: "about trained models, asked of small ones,",
}
PLURAL = {
    Verdict.HOLDS: "hold",
    Verdict.CONDITION: "hold with a condition",
    Verdict.WRONG: "are wrong",
    Verdict.REPRODUCED: "are reproduced here",
    Verdict.PARTLY: "are reproduced with a condition",
    Verdict.NOT_REPRODUCED: "are not reproduced here",
    Verdict.UNDECIDED: "are not decidable here",
}


SINGULAR = {
    verdict: f"is{said.removeprefix('are')}" if said.startswith("are") else str(verdict)
    for verdict, said in PLURAL.items()
}


def _one(claim: pd.Series, passages: pd.DataFrame) -> str:
    """Our wording as ours, quotations as quotations, then the verdict and what was found."""
    said = " ".join(_quoted(passage) for _, passage in passages.iterrows())
    models = f" ({claim['models']})" if pd.notna(claim["models"]) and claim["models"] else ""
    return (
        f"{claim['id']}, in our words: {claim['statement']} {said} "
        f"Verdict: {claim['verdict']}{models}. {claim['measured']}."
    )


def _quoted(stored: pd.Series) -> str:
    passage = stored.astype(object).where(stored.notna(), "")
    where = f"{_named(passage)}{f', {passage.place}' if passage.place else ''}"
    where += f", line {int(passage.line)}" if passage.line else ""
    if not passage.quote:
        return f"Said in {where}."
    meaning = f" ({passage.english})" if passage.english else ""
    return f"Said in {where}: “{passage.quote}”{meaning}."


def _named(passage: pd.Series) -> str:
    about = " ".join(filter(None, (passage.author, f"{passage.year:.0f}" if passage.year else "")))
    return f"“{passage.title}”" + (f" ({about})" if about else "")


def _heading(passages: pd.DataFrame) -> str:
    first = passages.astype(object).where(passages.notna(), "").iloc[0]
    return f"{_named(first)}{f', {first.link}' if first.link else ''}."


def _answers(tables: Tables) -> list[str]:
    """The questions that a single source asks, with their answers."""
    if not is_page(tables) or "questions" not in tables:
        return []
    asked = tables["questions"]
    return [f"\n“{row.quote}” ({row.english}) {row.answer}" for row in asked.itertuples()]
