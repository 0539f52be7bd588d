"""What a claim is, what a check finds, and how a verdict follows from the findings.

A claim is one record beside its check. A check is a function whose keyword defaults are what it is
applied to; it returns `Evidence`, and nobody types a verdict. Each finding either belongs to the
claim as it is stated (`part`) or asks where the claim ends (`limit`).

Two kinds of evidence are never mixed. What a computation, program code or a dated document refutes
is wrong. What small trained models do not show is not reproduced here, and may well hold elsewhere.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pandas as pd


class Kind(StrEnum):
    """What decides a claim."""

    ARITHMETIC = "arithmetic"
    TRAINED = "trained models"


class Verdict(StrEnum):
    """What can be said about a claim; the middle three only of trained models."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    WRONG = "wrong"
    REPRODUCED = "reproduced here"
    PARTLY = "reproduced here with a condition"
    NOT_REPRODUCED = "not reproduced here"
    UNDECIDED = "not decidable here"


OUTCOMES = {
    Kind.ARITHMETIC: (Verdict.HOLDS, Verdict.CONDITION, Verdict.WRONG, Verdict.UNDECIDED),
    Kind.TRAINED: (Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED, Verdict.UNDECIDED),
}
"""The verdicts of each kind of evidence: agreed, agreed with a limit, disagreed, open."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measurement and whether it agrees with the claim.

    Attributes:
        what: what was measured.
        measured: the result in words and numbers, rounded for reading.
        agrees: True, False, or None where it could not be measured or lies inside the noise.
        role: `part` if the claim needs it, `limit` if it asks how far the claim reaches.
        value: the deciding number at full precision, where there is one.
        missing: nothing was there to measure.
        unlearned: a model that it is about did not learn the task, so it says nothing.
    """

    what: str
    measured: str
    agrees: bool | None
    role: Literal["part", "limit"]
    value: float | None = None
    missing: bool = False
    unlearned: bool = False

    @property
    def text(self) -> str:
        """The finding as a phrase."""
        return f"{self.what}: {self.measured}"


def part(what: str, measured: str, agrees: bool | None, value: float | None = None) -> Finding:
    """A finding without which the claim, as it is stated, does not hold."""
    return Finding(what=what, measured=measured, agrees=agrees, role="part", value=value)


def limit(what: str, measured: str, agrees: bool | None, value: float | None = None) -> Finding:
    """A finding that, where it disagrees, puts a condition on the claim."""
    return Finding(what=what, measured=measured, agrees=agrees, role="limit", value=value)


def missing(what: str, measured: str = "none") -> Finding:
    """A part that nothing was there to measure for."""
    return Finding(what=what, measured=measured, agrees=None, role="part", missing=True)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a check found.

    Attributes:
        expected: what the findings would be if the claim were true.
        findings: what they are.
        models: the trained models that were asked, in words; empty for arithmetic.
        series: tables behind a figure that explains the claim, by name.
    """

    expected: str
    findings: tuple[Finding, ...]
    models: str = ""
    series: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def verdict(self, kind: Kind) -> Verdict:
        """A failed part disagrees, an unknown part leaves open, a failed limit conditions."""
        holds, conditioned, refuted, open_ = OUTCOMES[kind]
        parts = [finding.agrees for finding in self.findings if finding.role == "part"]
        if not parts:
            raise ValueError("evidence needs at least one part")
        if False in parts:
            return refuted
        if None in parts:
            return open_
        limits = [finding.agrees for finding in self.findings if finding.role == "limit"]
        return conditioned if False in limits else holds

    @property
    def measured(self) -> str:
        """All findings in one line."""
        return "; ".join(finding.text for finding in self.findings)

    @property
    def deciding(self) -> Finding:
        """The finding that the verdict rests on: the first that refutes, else conditions, ..."""
        ranks = {("part", False): 0, ("part", None): 1, ("limit", False): 2, ("part", True): 3}
        return min(self.findings, key=lambda f: ranks.get((f.role, f.agrees), 4))

    @property
    def is_missing(self) -> bool:
        """Whether there was nothing to measure at all."""
        return all(finding.missing for finding in self.findings if finding.role == "part")

    @property
    def is_unlearned(self) -> bool:
        """Whether one of the models that it takes did not learn the task."""
        return any(finding.unlearned for finding in self.findings if finding.role == "part")


@dataclass(frozen=True)
class Passage:
    """Where something is said.

    Attributes:
        source: a key of `sources.SOURCES`.
        place: section, equation or table; empty where there is none.
        line: line of the text as it was read, for the notes.
        quote: what is written there, in its own language; empty where it is not quoted.
        english: a rendering of the quotation, if it is not English.
    """

    source: str
    place: str = ""
    line: int | None = None
    quote: str = ""
    english: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, where it is made, and the computation that decides it.

    Attributes:
        id: stable and readable.
        passages: where it is said, the first one first.
        statement: the claim in one sentence of ours.
        check: keyword inputs, all with defaults, to evidence.
        kind: what decides it.
        command: what shows more, or makes the claim decidable; `ropelab claims --id ID` if empty.
        reads: the experiment whose stored runs the check takes as `runs`; empty for none.
    """

    id: str
    passages: tuple[Passage, ...]
    statement: str
    check: Callable[..., Evidence]
    kind: Kind = Kind.ARITHMETIC
    command: str = ""
    reads: str = ""

    @property
    def takes_seed(self) -> bool:
        """Whether the check draws random numbers."""
        return "seed" in inspect.signature(self.check).parameters

    def evidence(self, **changes: Any) -> Evidence:
        """Check the claim, with some of its inputs changed."""
        return self.check(**changes)

    def verdict(self, **changes: Any) -> Verdict:
        """The verdict, with some of the inputs changed."""
        return self.evidence(**changes).verdict(self.kind)

    @property
    def explore(self) -> str:
        """The command that shows more."""
        return self.command or f"ropelab claims --id {self.id}"
