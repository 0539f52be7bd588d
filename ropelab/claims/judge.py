"""What one run of a lab says about the literature: the claims that read it, asked of it alone."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ropelab.claims.ledger import CLAIMS
from ropelab.claims.sources import cited
from ropelab.runs.cell import Stored

COLUMNS = ["id", "source", "statement", "evidence", "verdict", "measured", "expected"]


def judged(
    experiment: str, config: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """A row per claim that this run has something to say about: the ledger's verdict on this run.

    Args:
        experiment: the lab's name.
        config: its resolved config.
        tables: its tables; `trained.stored` says which columns are read.
    Returns:
        id, source, statement, evidence, verdict, measured, expected.
    """
    run = Stored(experiment, dict(config), dict(tables), "")
    rows = []
    for claim in CLAIMS:
        evidence = claim.evidence(runs=(run,)) if claim.reads == experiment else None
        if evidence is not None and not evidence.is_missing:
            about = (claim.id, cited(claim.passages[0]), claim.statement, str(claim.kind))
            verdict = str(evidence.verdict(claim.kind))
            rows.append((*about, verdict, evidence.measured, evidence.expected))
    return pd.DataFrame(rows, columns=COLUMNS)
