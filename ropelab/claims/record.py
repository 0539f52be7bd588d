"""Claims, findings, and the verdict that follows from the findings.

A claim is a statement from a publication. Its check is a function that measures
something, and adds findings. A finding is a part of the claim, without which the claim
does not hold, or a limit, which puts a condition on it.

There are two kinds of evidence, which are never mixed. A claim is wrong if a
computation, program code or a dated document refutes it. A claim that small trained
models do not show may well hold elsewhere.
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

from ropelab.claims.arrays import write_magnitude, write_zero
from ropelab.claims.margins import Number, margin_above, margin_below

Role = Literal["part", "limit"]
# Whether a finding agrees with the claim; None if nothing could be measured, or if the
# measurement leaves the answer open.
Agrees = bool | None
# A check takes `Findings`, to which it adds its own, and the inputs of the claim.
Check = Callable[..., None]


class Kind(StrEnum):
    """The evidence that decides a claim."""

    ARITHMETIC = "arithmetic"
    TRAINED = "trained models"


class Verdict(StrEnum):
    """The outcomes for a claim. REPRODUCED, PARTLY and NOT_REPRODUCED are the outcomes
    for claims about trained models.
    """

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    WRONG = "wrong"
    REPRODUCED = "reproduced here"
    PARTLY = "reproduced here with a condition"
    NOT_REPRODUCED = "not reproduced here"
    UNDECIDED = "not decidable here"


# The four verdicts of each kind of evidence: the verdict if all parts agree, if a limit
# disagrees, if a part disagrees, and if a part is open.
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
# The findings that decide, by role and answer, the strongest first. The number is the
# index of the verdict in OUTCOMES.
DECIDES: dict[tuple[Role, Agrees], int] = {
    ("part", False): 2,
    ("part", None): 3,
    ("limit", False): 1,
    ("part", True): 0,
}


@dataclass(frozen=True, kw_only=True)
class ClaimFinding:
    """One measurement and whether it agrees with the claim."""

    # The measured quantity, in words.
    what: str
    # The result in words and numbers, rounded for reading; the reason if it is open.
    measured: str
    agrees: Agrees
    role: Role
    # The deciding number at full precision; None if no single number decides.
    value: Number = None
    # How far the number is from a number that would give the opposite answer
    # (`ropelab.claims.margins`); None if the answer has no threshold, such as a count
    # that is complete or not.
    margin: Number = None
    # The number of random draws that `measured` is a mean of, with its interval; None if
    # another seed gives the same text.
    draws: int | None = None
    # True if there was nothing to measure.
    missing: bool = False
    # True if the finding is open because a model did not learn the task, or because the
    # run cannot answer. Another run may answer.
    mute: bool = False
    # True if the run does not meet a condition that the claim names. Another run may meet
    # it.
    unmet_by_run: bool = False


@dataclass
class Findings:
    """The result of a check, built finding by finding.

    A finding is a part of the claim, without which the claim does not hold, or a limit,
    which puts a condition on the claim if it disagrees. Each says in words what was
    measured and the result, and whether the result agrees with the claim.
    """

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
        """Add a finding; the arguments are the fields of `ClaimFinding`."""
        finding = ClaimFinding(
            what=what,
            measured=measured,
            agrees=agrees,
            role=role,
            value=value,
            margin=margin,
        )
        self.findings.append(finding)

    def add_part(
        self,
        what: str,
        measured: str,
        agrees: Agrees,
        value: Number = None,
        margin: Number = None,
    ) -> None:
        """Add a finding without which the claim does not hold."""
        self.add("part", what, measured, agrees, value, margin)

    def add_limit(
        self, what: str, measured: str, agrees: Agrees, value: Number = None
    ) -> None:
        """Add a finding that puts a condition on the claim if it disagrees."""
        self.add("limit", what, measured, agrees, value)

    def add_missing(self, what: str, measured: str = "none") -> None:
        """Add a part that could not be measured."""
        finding = ClaimFinding(
            what=what, measured=measured, agrees=None, role="part", missing=True
        )
        self.findings.append(finding)

    def add_unmet(self, what: str, measured: str, agrees: Agrees) -> None:
        """Add a limit on a condition that the claim names and that the run does not meet."""
        finding = ClaimFinding(
            what=what, measured=measured, agrees=agrees, role="limit", unmet_by_run=True
        )
        self.findings.append(finding)

    def leave_open(self, why: str, count: int = 1, mute: bool = False) -> None:
        """Set the answers of the last findings to None, and append the reason to each.

        Args:
            why: the reason.
            count: the number of last findings that are left open.
            mute: True if this run cannot answer, and another run may.
        """
        first = len(self.findings) - count
        for i in range(first, len(self.findings)):
            finding = self.findings[i]
            measured = f"{finding.measured}; {why}"
            self.findings[i] = replace(
                finding, agrees=None, measured=measured, mute=mute
            )

    def add_at_most(
        self,
        what: str,
        value: float,
        bound: float,
        template: str = "{} apart",
        role: Role = "part",
    ) -> None:
        """Add a finding on a number that must not exceed a bound.

        Args:
            what: what was measured, in words.
            value: the number.
            bound: the largest value that agrees with the claim.
            template: the result in words. `{}` in it stands for the magnitude of the number
                (`3.2e-16`), and `{:...}` for the number in that format.
            role: whether the finding is a part of the claim, or a limit.
        """
        measured = _write_number(value, template)
        self._add_below(role, what, measured, value, bound)

    def add_above(
        self,
        what: str,
        value: float,
        bound: float,
        template: str = "{} apart",
        role: Role = "part",
    ) -> None:
        """Add a finding on a number that must exceed a bound; see `add_at_most`."""
        measured = _write_number(value, template)
        self._add_above(role, what, measured, value, bound)

    def add_zero(
        self,
        what: str,
        value: float,
        bound: float,
        role: Role = "part",
        otherwise: str = "more than rounding",
    ) -> None:
        """Add a finding on a difference that must be 0 within rounding.

        The digits of a residue depend on the vectors and on the machine and say nothing,
        so they are not written.

        Args:
            what: what was compared, in words.
            value: the largest difference.
            bound: the largest difference that rounding makes.
            role: whether the finding is a part of the claim, or a limit.
            otherwise: the result in words if the difference is larger.
        """
        measured = write_zero(value, bound, otherwise)
        self._add_below(role, what, measured, value, bound)

    def add_nonzero(
        self,
        what: str,
        value: float,
        bound: float,
        text: str = "more than rounding",
        role: Role = "part",
    ) -> None:
        """Add a finding on a difference that must be more than rounding; see `add_zero`.
        `text` is the result in words if the difference is more than rounding.
        """
        measured = write_zero(value, bound, text)
        self._add_above(role, what, measured, value, bound)

    def _add_below(
        self, role: Role, what: str, measured: str, value: float, bound: float
    ) -> None:
        margin = margin_below(value, bound)
        self.add(role, what, measured, value <= bound, value, margin)

    def _add_above(
        self, role: Role, what: str, measured: str, value: float, bound: float
    ) -> None:
        margin = margin_above(value, bound)
        self.add(role, what, measured, value > bound, value, margin)

    def mark_drawn(self, draws: int) -> None:
        """Say that the last finding is a mean of this many random draws."""
        self.findings[-1] = replace(self.findings[-1], draws=draws)

    def add_count(self, what: str, hits: int, total: int, role: Role = "part") -> None:
        """Add a finding on a count of `total` things, all of which must be hits."""
        is_complete = hits == total
        self.add(role, what, f"{hits} of {total}", is_complete, hits)

    @property
    def parts(self) -> list[ClaimFinding]:
        return [finding for finding in self.findings if finding.role == "part"]

    def verdict(self, kind: Kind) -> Verdict:
        """Return the verdict that follows from the deciding finding."""
        if not self.parts:
            raise ValueError("evidence needs at least one part")
        deciding = self.deciding
        index = DECIDES[deciding.role, deciding.agrees]
        return OUTCOMES[kind][index]

    @property
    def measured(self) -> str:
        """All findings in words."""
        texts = [f"{finding.what}: {finding.measured}" for finding in self.findings]
        return "; ".join(texts)

    @property
    def deciding(self) -> ClaimFinding:
        """The finding that the verdict follows from: the first of the findings that come
        earliest in the order of DECIDES. If all parts agree and no limit disagrees, it is
        the part that is closest to failing.
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
                return min(candidates, key=_find_margin)
            return candidates[0]
        raise ValueError("evidence needs at least one part")

    @property
    def is_missing(self) -> bool:
        """True if no part could be measured."""
        return all(finding.missing for finding in self.parts)

    @property
    def gaps(self) -> tuple[bool, bool, int]:
        """A rank that is smaller for findings that leave less open."""
        has_mute_part = any(finding.mute for finding in self.parts)
        unanswered = 0
        for finding in self.findings:
            # A number that was not measured is nan.
            is_unmeasured = finding.value is not None and math.isnan(finding.value)
            if finding.missing or finding.unmet_by_run or is_unmeasured:
                unanswered += 1
        return self.is_missing, has_mute_part, unanswered

    def take_best(self, answers: "list[Findings]", what: str) -> None:
        """Take over the findings of the answer that leaves least open, or of the first of
        several such answers. Without answers, a finding says that `what` is missing.
        """
        if answers:
            best = min(answers, key=lambda answer: answer.gaps)
            self.models = best.models
            self.findings = best.findings
        else:
            self.add_missing(what)

    def has(self, words: str) -> bool:
        """Return True if a finding has these words in `what`, or if no part was measured:
        `find` then has something to return.
        """
        return self.is_missing or any(
            words in finding.what for finding in self.findings
        )

    def find(self, words: str) -> ClaimFinding:
        """Return the finding with these words in `what`; if no part was measured, the
        finding that says so.

        ValueError: no finding has the words, or several have them.
        """
        if self.is_missing:
            return self.deciding
        with_words = [finding for finding in self.findings if words in finding.what]
        if len(with_words) != 1:
            raise ValueError(f"{len(with_words)} findings have the words '{words}'")
        return with_words[0]

    def select(self, by: str) -> "Findings":
        """Select the findings with the words `by` in `what`, which decide one passage.

        If no finding has the words, all findings are selected. If all selected findings
        are limits, they count as parts.
        """
        chosen_findings = [finding for finding in self.findings if by in finding.what]
        if not chosen_findings:
            chosen_findings = self.findings
        if all(finding.role == "limit" for finding in chosen_findings):
            chosen_findings = [
                replace(finding, role="part") for finding in chosen_findings
            ]
        return replace(self, findings=chosen_findings)

    def to_json(self) -> str:
        """Write all but the tables of figures."""
        fields = asdict(self)
        del fields["series"]
        # Some numbers are numpy's, which json cannot write. `item` makes them Python's.
        return json.dumps(fields, default=lambda number: number.item())

    @classmethod
    def from_json(cls, text: str, series: dict[str, pd.DataFrame]) -> "Findings":
        """Read what `to_json` wrote; `series` are the tables of figures."""
        fields = json.loads(text)
        fields["findings"] = [ClaimFinding(**finding) for finding in fields["findings"]]
        return cls(**fields, series=series)


def _write_number(value: float, template: str) -> str:
    """Write a number into a text, as `Findings.add_at_most` describes it."""
    if "{}" in template:
        return template.format(write_magnitude(value))
    return template.format(value)


def _find_margin(finding: ClaimFinding) -> float:
    """Return the margin of a finding; inf for one without a threshold, which is far from
    failing.
    """
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
    """The check of a claim, and the bound that the check applies, if it applies one."""

    check: Check
    bound: Number = None


# The decision of each claim, by its id. A module of checks adds the decisions of its
# claims when it is imported.
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
    # The config that comes with ropelab whose run decides the claim; empty if no run does.
    config: str = ""
    # The command that shows more about the claim, or makes the run that decides.
    command: str = ""
    needs_torch: bool = False

    @property
    def decision(self) -> Decision:
        # The module of the check is imported here, so that the ledger can be read without
        # the libraries of the checks. The import adds the decision.
        import_module(f"ropelab.claims.{self.family}")
        return DECISIONS[self.id]

    @property
    def kind(self) -> Kind:
        return Kind.TRAINED if self.family == "trained" else Kind.ARITHMETIC

    @property
    def takes_seed(self) -> bool:
        """True if the check draws random numbers."""
        return "seed" in inspect.signature(self.decision.check).parameters

    def evidence(self, **changes: Any) -> Findings:
        """Return the findings of the check, with the inputs of the claim except for
        `changes`.
        """
        decision = self.decision
        inputs = {**self.inputs, **changes}
        parameters = inspect.signature(decision.check).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()}

        # `expected` may name any input, given or not, and the bound.
        words = {**defaults, **inputs, "bound": decision.bound}
        findings = Findings(expected=self.expected.format(**words))
        decision.check(findings, **inputs)
        return findings

    def verdict(self, **changes: Any) -> Verdict:
        """Return the verdict of `evidence`."""
        return self.evidence(**changes).verdict(self.kind)
