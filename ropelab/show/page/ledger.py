"""The ledger of claims: each statement with its source, its verdict and the number that decides."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ropelab.show.page.shown import Shown

# The columns without which a table `claims` is not a ledger.
COLUMNS = {"id", "statement", "source", "verdict", "expected", "decided_by", "decided_at"}


def ledger_of(runs: Sequence[Shown]) -> Shown | None:
    """Return the newest run with a ledger, None if there is none."""
    found = [run for run in runs if set(run.tables.get("claims", pd.DataFrame())) >= COLUMNS]
    return max(found, key=lambda run: str(run.manifest.get("start", "")), default=None)


def statements_of(run: Shown) -> list[dict[str, Any]]:
    """Return the claims of a ledger, each with its quotations and all that was measured for it."""
    found = _by_claim(run, "findings")
    said = _by_claim(run, "passages")
    statements = []
    for claim in _rows(run, "claims"):
        findings = [
            (f"{row['what']}: {row['measured']}", row["agrees"])
            for row in found.get(claim["id"], ())
        ]
        decided = f"{claim['decided_by']}: {claim['decided_at']}"
        quotations = [{**row, "where": _where(row)} for row in said.get(claim["id"], ())]
        statement = {"evidence": "", "decided": decided, "findings": findings, **claim}
        statements.append({**statement, "quotations": quotations})
    return statements


def notes_of(run: Shown) -> list[dict[str, Any]]:
    """Return the notes of a ledger, each sentence with its verdict, and the questions they ask."""
    claims = {claim["id"]: claim for claim in _rows(run, "claims")}
    notes: dict[str, dict[str, Any]] = {}
    for row in _rows(run, "passages"):
        key = _key(row)
        if not key.isdecimal():  # papers and code are cited, not read sentence by sentence
            continue
        about = {"key": key, "title": row["title"], "about": f"{row['author']} {row['year']}"}
        note = notes.setdefault(
            key, {**about, "link": row["link"], "sentences": [], "questions": []}
        )
        claim = claims[row["id"]]
        why = f"{claim['decided_by']}: {claim['decided_at']}"
        sentence = {"section": row["place"], "sentence": row["quote"] or claim["statement"]}
        verdict = {"verdict": claim["verdict"], "why": why, "claim": row["id"]}
        note["sentences"].append({**sentence, "english": row["english"], **verdict})
    for row in _rows(run, "questions"):
        if _key(row) in notes:
            notes[_key(row)]["questions"].append((row["quote"], row["english"], row["answer"]))
    return [notes[key] for key in sorted(notes)]


def _rows(run: Shown, table: str) -> list[dict[str, str]]:
    """Return the rows of a table as texts, empty for missing values, with links that are safe."""
    if table not in run.tables:
        return []
    rows = run.tables[table].astype(object)
    texts = rows.where(rows.notna(), "").map(lambda x: f"{x:g}" if isinstance(x, float) else str(x))
    if "link" in texts:
        # A link comes from a table that anybody may have written: no javascript: in the page.
        texts["link"] = texts["link"].where(texts["link"].str.match("https?://"), "")
    return texts.to_dict(orient="records")  # type: ignore[return-value]


def _by_claim(run: Shown, table: str) -> dict[str, list[dict[str, str]]]:
    groups: dict[str, list[dict[str, str]]] = {}
    for row in _rows(run, table):
        groups.setdefault(row["id"], []).append(row)
    return groups


def _key(row: dict[str, str]) -> str:
    """Return the key of a source: those of notes are digits, numbers to a reader of CSV."""
    source = row.get("source", "")
    return source.zfill(3) if source.isdecimal() else source


def _where(row: dict[str, str]) -> str:
    return ", ".join(filter(None, (row.get(n, "") for n in ("author", "year", "title", "place"))))
