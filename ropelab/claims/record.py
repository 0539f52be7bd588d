"""Claims, findings, and the verdict that follows from the findings.

A finding belongs to the claim (`part`) or asks where it ends (`limit`). Two kinds of
evidence are never mixed. What a computation, program code or a dated document refutes
is wrong; what small trained models do not show may well hold elsewhere.
"""

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from typing import Any, Literal

import pandas as pd

from ropelab.claims.arrays import write_magnitude

Role = Literal["part", "limit"]
Agrees = bool | None
Number = float | None
Check = Callable[..., None]


class Kind(StrEnum):
    """The evidence that decides a claim."""

    ARITHMETIC = "arithmetic"
    TRAINED = "trained models"


class Verdict(StrEnum):
    """The outcomes for a claim; REPRODUCED, PARTLY and NOT_REPRODUCED only of trained
    models.
    """

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    WRONG = "wrong"
    REPRODUCED = "reproduced here"
    PARTLY = "reproduced here with a condition"
    NOT_REPRODUCED = "not reproduced here"
    UNDECIDED = "not decidable here"


# The verdicts of each kind of evidence: agreed, agreed with a limit, disagreed, open.
OUTCOMES = {
    Kind.ARITHMETIC: (
        Verdict.HOLDS,
        Verdict.CONDITION,
        Verdict.WRONG,
        Verdict.UNDECIDED,
    ),
    Kind.TRAINED: (
        Verdict.REPRODUCED,
        Verdict.PARTLY,
        Verdict.NOT_REPRODUCED,
        Verdict.UNDECIDED,
    ),
}
# Findings by role and answer, in the order in which they decide, with the place of the
# verdict.
DECIDES = {
    ("part", False): 2,
    ("part", None): 3,
    ("limit", False): 1,
    ("part", True): 0,
}


@dataclass(frozen=True, kw_only=True)
class ClaimFinding:
    """One measurement and whether it agrees with the claim."""

    what: str
    measured: str  # the result in words and numbers, rounded for reading
    agrees: Agrees  # None if it could not be measured or is inside the noise
    role: Role
    value: Number = None  # the deciding number at full precision, where there is one
    missing: bool = False  # there was nothing to measure
    # decides nothing: the run cannot ask this, or a model did not learn it
    mute: bool = False


@dataclass
class Findings:
    """The result of a check, built finding by finding."""

    expected: str = ""  # the result if the claim were true
    # the trained models that were asked, in words; empty for arithmetic
    models: str = ""
    findings: list[ClaimFinding] = field(default_factory=list)
    # tables behind figures
    series: dict[str, pd.DataFrame] = field(default_factory=dict)

    def add(
        self, role: Role, what: str, measured: str, agrees: Agrees, value: Number = None
    ) -> None:
        new = ClaimFinding(
            what=what, measured=measured, agrees=agrees, role=role, value=value
        )
        self.findings.append(new)

    def part(
        self, what: str, measured: str, agrees: Agrees, value: Number = None
    ) -> None:
        """Add a finding without which the claim does not hold."""
        self.add("part", what, measured, agrees, value)

    def limit(
        self, what: str, measured: str, agrees: Agrees, value: Number = None
    ) -> None:
        """Add a finding that, where it disagrees, puts a condition on the claim."""
        self.add("limit", what, measured, agrees, value)

    def missing(self, what: str, measured: str = "none") -> None:
        new = ClaimFinding(
            what=what, measured=measured, agrees=None, role="part", missing=True
        )
        self.findings.append(new)

    def leave_open(self, why: str, last: int = 1, mute: bool = False) -> None:
        """Make the last findings undecided."""
        for i in range(-last, 0):
            text = f"{self.findings[i].measured}; {why}"
            self.findings[i] = replace(
                self.findings[i], agrees=None, measured=text, mute=mute
            )

    def within(
        self,
        what: str,
        value: float,
        bound: float,
        text: str = "{} apart",
        role: Role = "part",
    ) -> None:
        """Add a number that must not exceed a bound; `{}` in the text is its
        magnitude.
        """
        shown = text.format(write_magnitude(value) if "{}" in text else value)
        self.add(role, what, shown, value <= bound, value)

    def beyond(
        self,
        what: str,
        value: float,
        bound: float,
        text: str = "{} apart",
        role: Role = "part",
    ) -> None:
        shown = text.format(write_magnitude(value) if "{}" in text else value)
        self.add(role, what, shown, value > bound, value)

    def count(self, what: str, hits: int, total: int, role: Role = "part") -> None:
        self.add(role, what, f"{hits} of {total}", bool(hits == total), hits)

    def verdict(self, kind: Kind) -> Verdict:
        """Return the verdict: failed parts refute, unknown parts leave open, limits
        condition.
        """
        if all(finding.role == "limit" for finding in self.findings):
            raise ValueError("evidence needs at least one part")
        return OUTCOMES[kind][DECIDES[self.deciding.role, self.deciding.agrees]]

    @property
    def measured(self) -> str:
        return "; ".join(
            f"{finding.what}: {finding.measured}" for finding in self.findings
        )

    @property
    def deciding(self) -> ClaimFinding:
        return next(
            f for key in DECIDES for f in self.findings if (f.role, f.agrees) == key
        )

    @property
    def is_missing(self) -> bool:
        return all(
            finding.missing for finding in self.findings if finding.role == "part"
        )

    @property
    def gaps(self) -> tuple[bool, bool, int]:
        """A rank that is smaller for findings that leave less open."""
        mute = any(finding.mute for finding in self.findings if finding.role == "part")
        unknown = [
            one for one in self.findings if one.missing or math.isnan(one.value or 0)
        ]
        return self.is_missing, mute, len(unknown)

    def best_of(self, answers: "list[Findings]", of: str) -> None:
        """Take over the first answer that leaves least open; without any, `of` is
        missing.
        """
        if answers:
            best = min(answers, key=lambda answer: answer.gaps)
            self.models, self.findings = best.models, best.findings
        else:
            self.missing(of)

    def has(self, words: str) -> bool:
        """Return True if `named` has something to return, or too much."""
        return self.is_missing or any(words in each.what for each in self.findings)

    def named(self, words: str) -> ClaimFinding:
        """Return the finding whose `what` has these words; ValueError unless it is
        one.

        Where nothing was measured, that is the finding.
        """
        if self.is_missing:
            return self.deciding
        named = [finding for finding in self.findings if words in finding.what]
        if len(named) != 1:
            raise ValueError(f"{len(named)} findings have the words '{words}'")
        return named[0]

    def about(self, by: str) -> "Findings":
        """Select the findings on one sentence, by words of `what`; limits alone count
        as parts.
        """
        chosen = [
            finding for finding in self.findings if by in finding.what
        ] or self.findings
        if all(finding.role == "limit" for finding in chosen):
            chosen = [replace(finding, role="part") for finding in chosen]
        return replace(self, findings=chosen)

    def to_json(self) -> str:
        # Findings hold numpy's numbers, too, which json does not know.
        kept = {name: value for name, value in asdict(self).items() if name != "series"}
        return json.dumps(kept, default=lambda number: number.item())

    @classmethod
    def from_json(cls, text: str, series: dict[str, pd.DataFrame]) -> "Findings":
        kept = json.loads(text)
        kept["findings"] = [ClaimFinding(**finding) for finding in kept["findings"]]
        return cls(**kept, series=series)


@dataclass(frozen=True)
class Passage:
    """A place in a source, quoted or not."""

    source: str  # a key of sources.toml
    section: str = ""  # or equation, or table
    quote: str = ""  # in its own language
    # a translation of the quotation, or what is said there in our words
    english: str = ""
    # in `what` of the findings that decide this sentence; empty: all of the claim
    by: str = ""


@dataclass(frozen=True)
class Decision:
    """The function that decides a claim, and the bound that it applies, if any."""

    check: Check
    bound: Number = None


# What decides each claim, by its id. A module of checks adds its own when it is
# imported.
DECISIONS: dict[str, Decision] = {}


def claim(*ids: str, bound: Number = None) -> Callable[[Check], Check]:
    """Make a function the check of the claims with these ids.

    The sentence `expected` of their records may name the bound as `{bound}`.
    """

    def register(check: Check) -> Check:
        for id_ in ids:
            if id_ in DECISIONS:
                raise ValueError(f"claim '{id_}' has two checks")
            DECISIONS[id_] = Decision(check, bound)
        return check

    return register


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, the places that make it, and the computation that decides it."""

    id: str
    statement: str  # in one sentence of ours
    passages: tuple[Passage, ...]  # the first is cited where there is room for one
    family: str  # the module of its check, and the TOML file beside it
    # The result if it were true, with inputs and the bound of the check in braces.
    expected: str = ""
    # of the check, besides its defaults
    inputs: Mapping[str, Any] = field(default_factory=dict)
    reads: str = ""  # the experiment whose stored runs the check takes as `runs`
    # The config that comes with ropelab whose run decides the claim.
    config: str = ""
    command: str = ""  # shows more, or makes the claim decidable
    needs_torch: bool = False

    @property
    def decision(self) -> Decision:
        # Imported on demand, so that the ledger can be read without the libraries of
        # the checks.
        import_module(f"ropelab.claims.{self.family}")
        return DECISIONS[self.id]

    @property
    def kind(self) -> Kind:
        return Kind.TRAINED if self.family == "trained" else Kind.ARITHMETIC

    @property
    def takes_seed(self) -> bool:
        return "seed" in inspect.signature(self.decision.check).parameters

    def evidence(self, **changes: Any) -> Findings:
        """Return the findings of the check with the inputs of the claim, or changed
        ones.
        """
        decision = self.decision
        inputs = {**self.inputs, **changes}
        parameters = inspect.signature(decision.check).parameters
        defaults = {name: given.default for name, given in parameters.items()}

        named = {**defaults, **inputs, "bound": decision.bound}
        findings = Findings(self.expected.format(**named))
        decision.check(findings, **inputs)
        return findings

    def verdict(self, **changes: Any) -> Verdict:
        return self.evidence(**changes).verdict(self.kind)
