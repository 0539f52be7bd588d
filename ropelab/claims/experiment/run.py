"""From a config to the ledger: check every claim, keep the findings and the series of figures."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pandas as pd

from ropelab.claims.experiment.config import ClaimsConfig
from ropelab.claims.ledger import CLAIMS, find, said_in
from ropelab.claims.questions import QUESTIONS
from ropelab.claims.record import Claim, Evidence, Passage
from ropelab.claims.rest import REST
from ropelab.claims.sources import SOURCES, cited
from ropelab.runs.cell import Values

PAGE = ["source", "title", "author", "year", "link", "place", "line", "quote", "english", "id"]


def run(config: ClaimsConfig, context: Values) -> dict[str, pd.DataFrame]:
    """Check the claims.

    Returns:
        claims: one row per claim: id, source, statement, evidence, verdict, models, measured,
            expected, command, and `decided_by` and `decided_at`, the finding that the verdict
            rests on.
        findings: one row per finding, with the deciding number at full precision.
        passages: where each claim is said: source, title, author, year, link, place, line, quote,
            english, id.
        questions: what the notes ask their readers, with answers from this run.
        rest: the other lines of the notes: source, line, last_line, about, claims.
        further tables: the series behind the figures.
    """
    chosen = _chosen(config)
    asked = [q for q in QUESTIONS if not config.id and config.source in ("", q.asked.source)]
    needed = {find(id_).id: find(id_) for question in asked for id_ in question.claims}
    everything = {claim.id: claim for claim in chosen} | needed
    found: dict[str, Evidence] = {}
    context = replace(context, stored=cache(context.stored))
    with context.progress("checking claims", total=len(everything)) as advance:
        for claim in everything.values():
            found[claim.id] = claim.evidence(**changes(claim, config, context))
            advance(1, note=claim.id)
    answers = [(*_place(q.asked), q.answered(found), ", ".join(q.claims)) for q in asked]
    rest = [] if config.id else [r for r in REST if config.source in ("", r.source)]
    series = {name: table for claim in chosen for name, table in found[claim.id].series.items()}
    tables = {
        "claims": pd.DataFrame([_row(claim, found[claim.id]) for claim in chosen]),
        "findings": pd.DataFrame([row for c in chosen for row in _findings(c.id, found[c.id])]),
        "passages": pd.DataFrame(_passages(chosen, config.source), columns=PAGE).astype(
            {"line": "Int64", "year": "Int64"}
        ),
        "questions": pd.DataFrame(answers, columns=[*PAGE[:-1], "answer", "claims"]).astype(
            {"line": "Int64", "year": "Int64"}
        ),
        "rest": pd.DataFrame(
            [(r.source, r.first, r.last, r.about, ", ".join(r.claims)) for r in rest],
            columns=["source", "line", "last_line", "about", "claims"],
        ),
        **series,
    }
    return {name: table for name, table in tables.items() if len(table)}


def _chosen(config: ClaimsConfig) -> list[Claim]:
    if config.id:
        return [find(config.id)]
    return list(said_in(config.source)) if config.source else list(CLAIMS)


def changes(claim: Claim, config: ClaimsConfig, context: Values) -> dict[str, Any]:
    """What a run puts into a claim's inputs: the seed, and the stored runs it reads.

    What a model given by --hf does is no evidence about models trained here.
    """
    seed = {"seed": config.seed} if claim.takes_seed else {}
    if not claim.reads:
        return seed
    runs = (run for run in context.stored(claim.reads) if not run.config.get("hf"))
    return {**seed, "runs": tuple(runs)}


def _row(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    return {
        "id": claim.id,
        "source": "; ".join(cited(passage) for passage in claim.passages),
        "statement": claim.statement,
        "evidence": str(claim.kind),
        "verdict": str(evidence.verdict(claim.kind)),
        "models": evidence.models,
        "measured": evidence.measured,
        "expected": evidence.expected,
        "command": claim.explore,
        "decided_by": evidence.deciding.what,
        "decided_at": evidence.deciding.measured,
    }


def _findings(id_: str, evidence: Evidence) -> Iterator[Mapping[str, Any]]:
    words = {True: "yes", False: "no", None: "unknown"}
    for finding in evidence.findings:
        yield {
            "id": id_,
            "role": finding.role,
            "what": finding.what,
            "measured": finding.measured,
            "value": finding.value,
            "agrees": words[finding.agrees],
        }


def _passages(chosen: list[Claim], only: str) -> list[tuple[Any, ...]]:
    """Where the claims are said, in the order of the text if there is one source only."""
    rows = [(passage, claim.id) for claim in chosen for passage in claim.passages]
    if only:
        rows = [(passage, id_) for passage, id_ in rows if passage.source == only]
        rows.sort(key=lambda row: row[0].line or 0)
    return [(*_place(passage), id_) for passage, id_ in rows]


def _place(passage: Passage) -> tuple[Any, ...]:
    source = SOURCES[passage.source]
    about = (passage.source, source.title, source.author, source.year, source.link)
    return (*about, passage.place, passage.line, passage.quote, passage.english)
