"""The cells and tables of the ledger: the verdict on each claim.

Each claim that arithmetic decides is a separate cell: a piece of work whose result is
kept. Claims about trained models are decided by stored runs, when the tables are made.
Evidence is the list of findings that a claim's check returns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, NamedTuple

import pandas as pd

from ropelab.claims.answer import answer, summarize_for_index, summary
from ropelab.claims.committed import (
    AGREES,
    COMMITTED,
    FINDINGS,
    HERE,
    WITHOUT_TORCH,
    lacks_torch,
    read_committed,
)
from ropelab.claims.experiment import VERSION, ClaimsConfig
from ropelab.claims.ledger import (
    QUESTIONS,
    SOURCES,
    Question,
    choose_claims,
    cite,
    find_claim,
)
from ropelab.claims.record import Claim, Findings, Kind, Passage, Verdict
from ropelab.runs.cell import Cell, Computation, Resources, Stored, Values

# The functions that `ropelab.experiments` calls.
__all__ = ["answer", "cells", "summarize_for_index", "summary", "tables"]

# The years of some sources are unknown. In a column of this type unknown years are
# missing, and all other years stay whole numbers.
YEAR = {"year": "Int64"}
# The resources of a claim: its share of the 5 s of all checks, and the memory of the
# libraries.
RESOURCES_OF_CLAIM = Resources(seconds=0.04, memory_bytes=600_000_000)


class Decided(NamedTuple):
    """The findings of a claim, and where they come from."""

    findings: Findings
    # HERE, COMMITTED or WITHOUT_TORCH.
    origin: str


def cells(config: ClaimsConfig) -> list[Cell]:
    """Return a computation for each claim that needs no stored run."""
    claims = [find_claim(id_) for id_ in list_needed(config)]
    computed = [claim for claim in claims if not claim.reads and not lacks_torch(claim)]
    return [_cell(claim, config) for claim in computed]


def list_needed(config: ClaimsConfig) -> list[str]:
    """List the claims of the run by id, then the claims that only answers to questions
    need.
    """
    needed = [claim.id for claim in choose_claims(config.id, config.source)]
    for question in list_questions(config):
        needed.extend(question.claims)
    return list(dict.fromkeys(needed))


def list_questions(config: ClaimsConfig) -> list[Question]:
    """List the questions of the chosen source, or of all sources; none in a run about a
    single claim.
    """
    if config.id:
        return []
    if not config.source:
        return list(QUESTIONS)
    return [
        question for question in QUESTIONS if question.asked.source == config.source
    ]


def _cell(claim: Claim, config: ClaimsConfig) -> Cell:
    inputs = dict(claim.inputs)
    if claim.takes_seed:
        inputs["seed"] = config.seed
    return Computation(
        kind="claims-check",
        version=VERSION,
        title=f"claim {claim.id}",
        function=check_claim,
        inputs={"claim": claim.id, "inputs": inputs},
        resources=RESOURCES_OF_CLAIM,
    )


def check_claim(claim: str, inputs: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Return the findings on a claim as the table `evidence`, and the tables of its
    figures.
    """
    findings = find_claim(claim).evidence(**inputs)
    # Findings are stored as JSON: in a CSV column a text such as 1.00 would be read back
    # as a number.
    evidence = pd.DataFrame({"evidence": [findings.to_json()]})
    return {"evidence": evidence, **findings.series}


def tables(config: ClaimsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the tables of the ledger: claims, findings, passages, questions, and the
    tables that figures are drawn from.
    """
    decided = _decide_claims(config, values)
    chosen_claims = choose_claims(config.id, config.source)
    claim_rows = []
    finding_rows = []
    for claim in chosen_claims:
        findings = decided[claim.id].findings
        claim_rows.append(_make_claim_row(claim, decided[claim.id]))
        for finding in findings.findings:
            agrees = AGREES[finding.agrees]
            finding_rows.append({"id": claim.id, **asdict(finding), "agrees": agrees})

    evidence = {id_: decision.findings for id_, decision in decided.items()}
    passage_rows = _list_passages(chosen_claims, config.source, evidence)
    tables = {
        "claims": pd.DataFrame(claim_rows),
        "findings": pd.DataFrame(finding_rows, columns=FINDINGS),
        "passages": pd.DataFrame(passage_rows).astype(YEAR),
    }
    question_rows = _list_answers(config, evidence)
    if question_rows:
        tables["questions"] = pd.DataFrame(question_rows).astype(YEAR)
    for claim in chosen_claims:
        tables |= evidence[claim.id].series
    return {name: table for name, table in tables.items() if len(table)}


def _decide_claims(config: ClaimsConfig, values: Values) -> dict[str, Decided]:
    """Return the findings of each claim that the run needs, by its id."""
    # Many claims read the runs of one experiment, which are files.
    read_runs = cache(values.find_stored_runs)
    needed = list_needed(config)

    decided = {}
    with values.context.progress("checking claims", total=len(needed)) as advance:
        for id_ in needed:
            claim = find_claim(id_)
            if lacks_torch(claim):
                decided[id_] = Decided(read_committed()[id_], WITHOUT_TORCH)
            elif claim.reads:
                runs = tuple(read_runs(claim.reads))
                decided[id_] = _decide_by_runs(claim, runs)
            else:
                series = dict(values[_cell(claim, config)])
                evidence = series.pop("evidence")
                text = evidence["evidence"].iloc[0]
                decided[id_] = Decided(Findings.from_json(text, series), HERE)
            advance(1, note=id_)
    return decided


def _decide_by_runs(claim: Claim, runs: tuple[Stored, ...]) -> Decided:
    """Return the findings that stored runs give, or the committed findings if no run
    decides.
    """
    findings = claim.evidence(runs=runs)
    # What arithmetic decides is the same in every run that has the numbers for it. Of
    # trained models, an open answer is the answer of these models.
    is_undecided = (
        claim.kind is Kind.ARITHMETIC
        and findings.verdict(claim.kind) is Verdict.UNDECIDED
    )
    is_open = is_undecided or not runs or findings.is_missing
    committed = read_committed().get(claim.id)
    if not is_open or committed is None:
        return Decided(findings, HERE)
    return Decided(replace(committed, expected=findings.expected), COMMITTED)


def _list_answers(
    config: ClaimsConfig, evidence: Mapping[str, Findings]
) -> list[dict[str, Any]]:
    """Return a row of `questions` for each question of the run, with its answer."""
    rows = []
    for question in list_questions(config):
        row = _make_source_columns(question.asked)
        row["answer"] = question.write_answer(evidence)
        row["claims"] = ", ".join(question.claims)
        rows.append(row)
    return rows


def _make_claim_row(claim: Claim, decided: Decided) -> dict[str, Any]:
    """Return the row of `claims` for a claim."""
    findings = decided.findings
    # Two sentences of one section have the same citation, which is given once.
    citations = dict.fromkeys(cite(passage) for passage in claim.passages)

    return {
        "id": claim.id,
        "source": "; ".join(citations),
        "statement": claim.statement,
        "evidence": str(claim.kind),
        "models": findings.models,
        "decided_from": decided.origin,
        "measured": findings.measured,
        "expected": findings.expected,
        "command": claim.command,
        **_make_verdict_columns(claim, findings),
    }


def _list_passages(
    chosen: Sequence[Claim], only_source: str, evidence: Mapping[str, Findings]
) -> list[dict[str, Any]]:
    """Return a row for each passage of the chosen claims.

    Args:
        chosen: the claims.
        only_source: the source whose passages are chosen; empty for all sources.
        evidence: the findings of each claim, by its id.
    """
    passages = []
    for claim in chosen:
        for passage in claim.passages:
            if not only_source or passage.source == only_source:
                passages.append((passage, claim))
    if only_source and SOURCES[only_source].sections:
        # Passages of a note are in the order of its text.
        sections = SOURCES[only_source].sections
        passages.sort(key=lambda pair: sections.index(pair[0].section))

    rows = []
    for passage, claim in passages:
        # A passage may be about some of the findings on its claim.
        findings = evidence[claim.id].select(passage.by)
        verdict = _make_verdict_columns(claim, findings)
        rows.append({**_make_source_columns(passage), "id": claim.id, **verdict})
    return rows


def _make_verdict_columns(claim: Claim, findings: Findings) -> dict[str, str]:
    deciding = findings.deciding
    return {
        "verdict": str(findings.verdict(claim.kind)),
        "decided_by": deciding.what,
        "decided_at": deciding.measured,
    }


def _make_source_columns(passage: Passage) -> dict[str, Any]:
    source = SOURCES[passage.source]
    return {
        "source": passage.source,
        "title": source.title,
        "author": source.author,
        "year": source.year,
        "link": source.link,
        "place": passage.section,
        "quote": passage.quote,
        "english": passage.english,
    }
