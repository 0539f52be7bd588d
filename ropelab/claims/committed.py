"""The findings of the committed results, which travel with the package.

Some claims are decided by stored runs, which a user may not have, and some by code that
needs torch, which may not be installed. For these claims the findings of the committed
results are used, which committed.csv has. tools/notes.py writes that file.
"""

from csv import DictReader
from functools import cache
from importlib.resources import files
from typing import cast

from ropelab.claims.margins import Number
from ropelab.claims.record import Agrees, Claim, Findings, Role
from ropelab.runs.errors import is_installed

COMMITTED_FILE = files("ropelab.claims") / "committed.csv"
# The columns of the table `findings` of a run. The file has these columns, and besides
# them `expected` and `models`.
FINDINGS = ["id", "role", "what", "measured", "value", "agrees", "margin", "draws"]
# The words for the answer of a finding.
AGREES: dict[Agrees, str] = {True: "yes", False: "no", None: "unknown"}
# The words for where the findings on a claim come from.
HERE = "here"
COMMITTED = "committed results"
WITHOUT_TORCH = "committed results, without torch"


@cache
def read_committed() -> dict[str, Findings]:
    """Return the committed findings of each claim that has some, by its id."""
    evidence: dict[str, Findings] = {}
    answers = {word: agrees for agrees, word in AGREES.items()}
    lines = COMMITTED_FILE.read_text(encoding="utf-8").splitlines()
    for row in DictReader(lines):
        # A row is one finding. The first one of a claim makes the entry of the claim.
        no_findings = Findings(row["expected"], row["models"])
        findings = evidence.setdefault(row["id"], no_findings)

        role = cast(Role, row["role"])
        agrees = answers[row["agrees"]]
        value = _read_number(row["value"])
        margin = _read_number(row["margin"])
        findings.add(role, row["what"], row["measured"], agrees, value, margin)
        draws = _read_number(row["draws"])
        if draws is not None:
            findings.mark_drawn(int(draws))
    return evidence


def _read_number(number_text: str) -> Number:
    return float(number_text) if number_text else None


def lacks_torch(claim: Claim) -> bool:
    """Return True for a claim whose check needs torch, if torch is not installed."""
    return claim.needs_torch and not is_installed("torch")
