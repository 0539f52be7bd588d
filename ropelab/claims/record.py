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
from ropelab.claims.margins import Number, margin_above, margin_below

Role = Literal["part", "limit"]
# None if nothing could be measured, or if the measurement leaves the answer open.
Agrees = bool | None
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
# The roles and answers that decide, the strongest first, each with the place of its
# verdict in OUTCOMES: a failed part refutes, an unknown part leaves open, a failed limit
# puts a condition.
DECIDES: dict[tuple[Role, Agrees], int] = {
    ("part", False): 2,
    ("part", None): 3,
    ("limit", False): 1,
    ("part", True): 0,
}


@dataclass(frozen=True, kw_only=True)
class ClaimFinding:
    """One measurement and whether it agrees with the claim."""

    what: str
    # The result in words and numbers, rounded for reading; the reason if it is open.
    measured: str
    agrees: Agrees
    role: Role
    # The deciding number at full precision, where there is one.
    value: Number = None
    # How far the number is from the other answer (`ropelab.claims.margins`); None if
    # the answer has no threshold, such as a count that is complete or not.
    margin: Number = None
    # True if there was nothing to measure.
    missing: bool = False
    # True if the finding is open because a model did not learn the task, or because the
    # run cannot show it. Another run may show it.
    mute: bool = False
    # True if the run does not meet a condition that the claim names. Another run may meet
    # it.
    unmet_by_run: bool = False


@dataclass
class Findings:
    """The result of a check, built finding by finding."""

    # The result if the claim were true.
    expected: str = ""
    # The trained models that were asked, in words; empty for arithmetic.
    models: str = ""
    findings: list[ClaimFinding] = field(default_factory=list)
    # The tables behind figures, by name.
    series: dict[str, pd.DataFrame] = field(default_factory=dict)

    def add(
        self,
        role: Role,
        what: str,
        measured: str,
        agrees: Agrees,
        value: Number = None,
        margin: Number = None,
    ) -> None:
        finding = ClaimFinding(
            what=what,
            measured=measured,
            agrees=agrees,
            role=role,
            value=value,
            margin=margin,
        )
        self.findings.append(finding)

    def part(
        self,
        what: str,
        measured: str,
        agrees: Agrees,
        value: Number = None,
        margin: Number = None,
    ) -> None:
        """Add a finding without which the claim does not hold."""
        self.add("part", what, measured, agrees, value, margin)

    def limit(
        self, what: str, measured: str, agrees: Agrees, value: Number = None
    ) -> None:
        """Add a finding that, where it disagrees, puts a condition on the claim."""
        self.add("limit", what, measured, agrees, value)

    def missing(self, what: str, measured: str = "none") -> None:
        """Add a part that could not be measured."""
        finding = ClaimFinding(
            what=what, measured=measured, agrees=None, role="part", missing=True
        )
        self.findings.append(finding)

    def unmet(self, what: str, measured: str, agrees: Agrees) -> None:
        """Add a limit that the run itself sets: it does not meet a condition of the
        claim.
        """
        finding = ClaimFinding(
            what=what, measured=measured, agrees=agrees, role="limit", unmet_by_run=True
        )
        self.findings.append(finding)

    def leave_open(self, why: str, last: int = 1, mute: bool = False) -> None:
        """Take back the answers of the last findings, and append the reason to each."""
        first = len(self.findings) - last
        for i in range(first, len(self.findings)):
            answered = self.findings[i]
            measured = f"{answered.measured}; {why}"
            self.findings[i] = replace(
                answered, agrees=None, measured=measured, mute=mute
            )

    def within(
        self,
        what: str,
        value: float,
        bound: float,
        text: str = "{} apart",
        role: Role = "part",
    ) -> None:
        """Add a number that must not exceed a bound.

        `{}` in the text stands for its magnitude, `{:...}` for the number so formatted.
        """
        measured = _write_number(value, text)
        margin = margin_below(value, bound)
        self.add(role, what, measured, value <= bound, value, margin)

    def beyond(
        self,
        what: str,
        value: float,
        bound: float,
        text: str = "{} apart",
        role: Role = "part",
    ) -> None:
        """Add a number that must exceed a bound, with a text as in `within`."""
        measured = _write_number(value, text)
        margin = margin_above(value, bound)
        self.add(role, what, measured, value > bound, value, margin)

    def count(self, what: str, hits: int, total: int, role: Role = "part") -> None:
        """Add a count that must be complete."""
        is_complete = hits == total
        self.add(role, what, f"{hits} of {total}", is_complete, hits)

    def verdict(self, kind: Kind) -> Verdict:
        """Return the verdict: failed parts refute, unknown parts leave open, limits
        condition.
        """
        if all(finding.role == "limit" for finding in self.findings):
            raise ValueError("evidence needs at least one part")
        deciding = self.deciding
        place = DECIDES[deciding.role, deciding.agrees]
        return OUTCOMES[kind][place]

    @property
    def measured(self) -> str:
        return "; ".join(
            f"{finding.what}: {finding.measured}" for finding in self.findings
        )

    @property
    def deciding(self) -> ClaimFinding:
        """The finding that the verdict rests on; where the claim holds, the part that
        is closest to failing.
        """
        for role, agrees in DECIDES:
            candidates = [
                finding
                for finding in self.findings
                if finding.role == role and finding.agrees == agrees
            ]
            if not candidates:
                continue
            if role == "part" and agrees:
                return min(candidates, key=_closeness)
            return candidates[0]
        raise ValueError("evidence needs at least one part")

    @property
    def is_missing(self) -> bool:
        """True if no part could be measured."""
        return all(
            finding.missing for finding in self.findings if finding.role == "part"
        )

    @property
    def gaps(self) -> tuple[bool, bool, int]:
        """A rank that is smaller for findings that leave less open."""
        parts = [finding for finding in self.findings if finding.role == "part"]
        has_mute_part = any(finding.mute for finding in parts)
        unanswered = 0
        for finding in self.findings:
            # A number that was not measured is nan.
            is_unmeasured = finding.value is not None and math.isnan(finding.value)
            if finding.missing or finding.unmet_by_run or is_unmeasured:
                unanswered += 1
        return self.is_missing, has_mute_part, unanswered

    def take_best(self, answers: "list[Findings]", of: str) -> None:
        """Take over the first answer that leaves least open; without any, `of` is
        missing.
        """
        if answers:
            best = min(answers, key=lambda answer: answer.gaps)
            self.models = best.models
            self.findings = best.findings
        else:
            self.missing(of)

    def has(self, words: str) -> bool:
        """Return False if `named` would find nothing with these words."""
        return self.is_missing or any(
            words in finding.what for finding in self.findings
        )

    def named(self, words: str) -> ClaimFinding:
        """Return the finding whose `what` has these words; ValueError unless exactly
        one has.

        Where no part was measured: the finding that says so.
        """
        if self.is_missing:
            return self.deciding
        named = [finding for finding in self.findings if words in finding.what]
        if len(named) != 1:
            raise ValueError(f"{len(named)} findings have the words '{words}'")
        return named[0]

    def about(self, by: str) -> "Findings":
        """Select the findings on one sentence, those with the words `by` in `what`; all
        if none has them.

        Limits that are alone count as parts.
        """
        chosen = [finding for finding in self.findings if by in finding.what]
        if not chosen:
            chosen = self.findings
        if all(finding.role == "limit" for finding in chosen):
            chosen = [replace(finding, role="part") for finding in chosen]
        return replace(self, findings=chosen)

    def to_json(self) -> str:
        """Write all but the tables."""
        kept = asdict(self)
        del kept["series"]
        # Findings hold numpy's numbers, too, which json does not know.
        return json.dumps(kept, default=lambda number: number.item())

    @classmethod
    def from_json(cls, text: str, series: dict[str, pd.DataFrame]) -> "Findings":
        kept = json.loads(text)
        kept["findings"] = [ClaimFinding(**finding) for finding in kept["findings"]]
        return cls(**kept, series=series)


def _write_number(value: float, text: str) -> str:
    if "{}" in text:
        return text.format(write_magnitude(value))
    return text.format(value)


def _closeness(finding: ClaimFinding) -> float:
    """Return the margin of a finding; a finding without threshold is far from failing."""
    return math.inf if finding.margin is None else finding.margin


@dataclass(frozen=True)
class Passage:
    """A place in a source, quoted or not."""

    # A key of sources.toml.
    source: str
    # The section, equation or table.
    section: str = ""
    # The sentence in its own language.
    quote: str = ""
    # A translation of the quotation, or what is said there in our words.
    english: str = ""
    # Words in `what` of the findings that decide this sentence. Empty text is in every
    # `what`, so that all findings of the claim decide.
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
    # One sentence in our words.
    statement: str
    # The places that say it. The first is cited where there is room for one.
    passages: tuple[Passage, ...]
    # The name of the TOML file of the claim, and of the module or package of its check.
    family: str
    # The result if the claim were true, with inputs and the bound of the check in
    # braces.
    expected: str = ""
    # The arguments of the check that are not its defaults.
    inputs: Mapping[str, Any] = field(default_factory=dict)
    # The experiment whose stored runs the check takes as `runs`; empty if it needs none.
    reads: str = ""
    # The config that comes with ropelab whose run decides the claim; empty without runs.
    config: str = ""
    # The command that shows more, or makes the run that decides.
    command: str = ""
    needs_torch: bool = False

    @property
    def decision(self) -> Decision:
        # The module is imported here, so that the ledger can be read without the
        # libraries of the checks.
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
        """Return the verdict of the same findings."""
        return self.evidence(**changes).verdict(self.kind)
