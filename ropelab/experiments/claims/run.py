"""From a config to the ledger: check every claim, keep the findings and the series of figures."""

from dataclasses import fields
from typing import Any

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.claims.config import ClaimsConfig
from ropelab.experiments.claims.ledger import CLAIMS, find
from ropelab.experiments.claims.record import Claim, Evidence


def run(config: ClaimsConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Check the claims.

    Returns:
        claims: one row per claim: number, id, source, statement, verdict, measured, expected,
            command, and `decided_by` and `decided_at`, the finding that the verdict rests on.
        findings: one row per finding, with the deciding number at full precision.
        further tables: the series behind the figures.
    """
    chosen = [find(config.id)] if config.id else list(CLAIMS)
    found: dict[str, Evidence] = {}
    with context.progress("checking claims", total=len(chosen)) as advance:
        for claim in chosen:
            found[claim.id] = claim.evidence(**changes(claim, config, context))
            advance(1, note=claim.id)
    series = {name: table for evidence in found.values() for name, table in evidence.series.items()}
    return {
        "claims": pd.DataFrame([_row(claim, found[claim.id]) for claim in chosen]),
        "findings": pd.DataFrame([row for id_, e in found.items() for row in _findings(id_, e)]),
        **series,
    }


def changes(claim: Claim, config: ClaimsConfig, context: Context) -> dict[str, Any]:
    """What a run puts into a claim's inputs: the seed, and the stored runs it reads."""
    takes = {field.name for field in fields(claim.inputs)}
    seed = {"seed": config.seed} if "seed" in takes else {}
    return {**seed, "runs": tuple(context.stored(claim.reads))} if claim.reads else seed


def _row(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    return {
        "number": CLAIMS.index(claim) + 1,
        "id": claim.id,
        "source": claim.source,
        "statement": claim.statement,
        "verdict": str(evidence.verdict),
        "measured": evidence.measured,
        "expected": evidence.expected,
        "command": claim.explore,
        "decided_by": evidence.deciding.what,
        "decided_at": evidence.deciding.measured,
    }


def _findings(id_: str, evidence: Evidence) -> list[dict[str, Any]]:
    words = {True: "yes", False: "no", None: "unknown"}
    return [
        {
            "id": id_,
            "role": finding.role,
            "what": finding.what,
            "measured": finding.measured,
            "value": finding.value,
            "agrees": words[finding.agrees],
        }
        for finding in evidence.findings
    ]
