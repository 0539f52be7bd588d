"""What a claim is, what a check finds, and how a verdict follows from the findings.

A claim is one record beside its check. A check is a function from a small frozen record of inputs
to `Evidence`; nobody types a verdict. What a check measured is a list of findings, each of which
either belongs to the claim as it is stated (`part`) or asks where the claim ends (`limit`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

import pandas as pd


class Verdict(StrEnum):
    """What a computation can say about a claim."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    WRONG = "wrong"
    UNDECIDED = "not decidable here"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measurement and whether it agrees with the claim.

    Attributes:
        what: what was measured.
        measured: the result in words and numbers, rounded for reading.
        agrees: True, False, or None where it could not be measured or lies inside the noise.
        role: `part` if the claim needs it, `limit` if it asks how far the claim reaches.
        value: the deciding number at full precision, where there is one.
    """

    what: str
    measured: str
    agrees: bool | None
    role: Literal["part", "limit"]
    value: float | None = None

    @property
    def text(self) -> str:
        """The finding as a phrase."""
        return f"{self.what}: {self.measured}"


def part(what: str, measured: str, agrees: bool | None, value: float | None = None) -> Finding:
    """A finding without which the claim, as it is stated, is wrong."""
    return Finding(what=what, measured=measured, agrees=agrees, role="part", value=value)


def limit(what: str, measured: str, agrees: bool | None, value: float | None = None) -> Finding:
    """A finding that, where it disagrees, puts a condition on the claim."""
    return Finding(what=what, measured=measured, agrees=agrees, role="limit", value=value)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a check found.

    Attributes:
        expected: what the findings would be if the claim were true.
        findings: what they are.
        series: tables behind a figure that explains the claim, by name.
    """

    expected: str
    findings: tuple[Finding, ...]
    series: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """A failed part refutes, an unknown part leaves open, a failed limit conditions."""
        parts = [finding.agrees for finding in self.findings if finding.role == "part"]
        if not parts:
            raise ValueError("evidence needs at least one part")
        if False in parts:
            return Verdict.WRONG
        if None in parts:
            return Verdict.UNDECIDED
        limits = [finding.agrees for finding in self.findings if finding.role == "limit"]
        return Verdict.CONDITION if False in limits else Verdict.HOLDS

    @property
    def measured(self) -> str:
        """All findings in one line."""
        return "; ".join(finding.text for finding in self.findings)

    @property
    def deciding(self) -> Finding:
        """The finding that the verdict rests on: the first that refutes, else conditions, ..."""
        ranks = {("part", False): 0, ("part", None): 1, ("limit", False): 2, ("part", True): 3}
        return min(self.findings, key=lambda f: ranks.get((f.role, f.agrees), 4))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence somebody wrote, and the computation that decides it.

    Attributes:
        id: stable and readable.
        source: where it is written: note and section, script, or paper.
        statement: the claim in one sentence.
        inputs: what the check is applied to; a frozen dataclass.
        check: inputs to evidence.
        command: what shows more, or makes the claim decidable; `ropelab claims --id ID` if empty.
        reads: the experiment whose stored runs the check takes as `inputs.runs`; empty for none.
    """

    id: str
    source: str
    statement: str
    inputs: Any
    check: Callable[[Any], Evidence]
    command: str = ""
    reads: str = ""

    def evidence(self, **changes: Any) -> Evidence:
        """Check the claim, with some of its inputs changed."""
        return self.check(replace(self.inputs, **changes))

    @property
    def explore(self) -> str:
        """The command that shows more."""
        return self.command or f"ropelab claims --id {self.id}"


def tiny(value: float) -> str:
    """A number that should be zero, by its order of magnitude.

    >>> tiny(0.0), tiny(3.21e-16)
    ('0', '3.2e-16')
    """
    return f"{value:.1e}" if value else "0"


def count_of(hits: int, total: int) -> str:
    """Hits among a total, as people say it.

    >>> count_of(0, 3), count_of(2, 3), count_of(3, 3)
    ('none of 3', '2 of 3', 'all 3')
    """
    if hits == total:
        return f"all {total}"
    return f"{hits} of {total}" if hits else f"none of {total}"
