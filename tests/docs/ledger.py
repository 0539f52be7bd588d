"""Entries for the counts of the ledger."""

from collections.abc import Iterator
from pathlib import Path

from tests.docs.entry import Entry
from tests.docs.reference import run, table


def verdicts(kind: str, *wanted: str) -> list[str]:
    """How many claims of a kind there are, and how many have each verdict."""
    claims = table(newest_claims(), "claims")
    counts = claims[claims["evidence"] == kind]["verdict"].value_counts()
    return [str(counts.sum()), *(str(counts.get(verdict, 0)) for verdict in wanted)]


def newest_claims() -> Path:
    """The one committed ledger."""
    return run("claims", ("id", ""), ("source", ""))


def claims_entries() -> Iterator[Entry]:
    """The last section of the findings."""
    yield Entry(
        "docs/findings.md",
        "Of {} statements that arithmetic, program code or a dated document decides, {} hold, "
        "{} hold with a condition, {} are wrong and {} cannot be decided here.",
        lambda: verdicts(
            "arithmetic", "holds", "holds with a condition", "wrong", "not decidable here"
        ),
    )
    yield Entry(
        "docs/findings.md",
        "Of {} about trained models the small ones here reproduce {}, {} with a condition, do not "
        "reproduce {} and leave {} open.",
        lambda: verdicts(
            "trained models",
            "reproduced here",
            "reproduced here with a condition",
            "not reproduced here",
            "not decidable here",
        ),
    )
