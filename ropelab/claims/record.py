"""Claims, findings, and the verdict that follows from the findings.

A claim is a TOML record beside its check. A check is a function that is applied to keyword inputs
and adds to the `Findings` that it is given; nobody types a verdict. Each finding either belongs to
the claim (`part`) or asks where the claim ends (`limit`).

Two kinds of evidence are never mixed. What a computation, program code or a dated document refutes
is wrong. What small trained models do not show is not reproduced here, and may well hold elsewhere.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any, Literal

import pandas as pd

from ropelab.claims.arrays import tiny

Role = Literal["part", "limit"]
Agrees = bool | None
Number = float | None


class Kind(StrEnum):
    """The evidence that decides a claim."""

    ARITHMETIC = "arithmetic"
    TRAINED = "trained models"


class Verdict(StrEnum):
    """The outcomes for a claim; REPRODUCED, PARTLY and NOT_REPRODUCED only of trained models."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    WRONG = "wrong"
    REPRODUCED = "reproduced here"
    PARTLY = "reproduced here with a condition"
    NOT_REPRODUCED = "not reproduced here"
    UNDECIDED = "not decidable here"


# The verdicts of each kind of evidence: agreed, agreed with a limit, disagreed, open.
OUTCOMES = {
    Kind.ARITHMETIC: (Verdict.HOLDS, Verdict.CONDITION, Verdict.WRONG, Verdict.UNDECIDED),
    Kind.TRAINED: (Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED, Verdict.UNDECIDED),
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measurement and whether it agrees with the claim."""

    what: str
    measured: str  # the result in words and numbers, rounded for reading
    agrees: Agrees  # None if it could not be measured or is inside the noise
    role: Role
    value: Number = None  # the deciding number at full precision, where there is one
    missing: bool = False  # there was nothing to measure
    unlearned: bool = False  # a model did not learn the task, so its result decides nothing


@dataclass
class Findings:
    """The result of a check, built finding by finding."""

    expected: str = ""  # the result if the claim were true
    models: str = ""  # the trained models that were asked, in words; empty for arithmetic
    findings: list[Finding] = field(default_factory=list)
    series: dict[str, pd.DataFrame] = field(default_factory=dict)  # tables behind figures

    def add(
        self, role: Role, what: str, measured: str, agrees: Agrees, value: Number = None
    ) -> None:
        new = Finding(what=what, measured=measured, agrees=agrees, role=role, value=value)
        self.findings.append(new)

    def part(self, what: str, measured: str, agrees: Agrees, value: Number = None) -> None:
        """Add a finding without which the claim does not hold."""
        self.add("part", what, measured, agrees, value)

    def limit(self, what: str, measured: str, agrees: Agrees, value: Number = None) -> None:
        """Add a finding that, where it disagrees, puts a condition on the claim."""
        self.add("limit", what, measured, agrees, value)

    def missing(self, what: str, measured: str = "none") -> None:
        """Add a part for which there was nothing to measure."""
        new = Finding(what=what, measured=measured, agrees=None, role="part", missing=True)
        self.findings.append(new)

    def within(
        self, what: str, value: float, bound: float, text: str = "{} apart", role: Role = "part"
    ) -> None:
        """Add a number that must not exceed a bound; `{}` in the text is its magnitude."""
        self.add(role, what, _in_words(text, value), value <= bound, value)

    def beyond(
        self, what: str, value: float, bound: float, text: str = "{} apart", role: Role = "part"
    ) -> None:
        """Add a number that must exceed a bound."""
        self.add(role, what, _in_words(text, value), value > bound, value)

    def count(self, what: str, hits: int, total: int, role: Role = "part") -> None:
        """Add a count that must be complete."""
        self.add(role, what, f"{hits} of {total}", bool(hits == total), hits)

    def verdict(self, kind: Kind) -> Verdict:
        """Return the verdict: failed parts refute, unknown parts leave open, limits condition."""
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
        return "; ".join(f"{finding.what}: {finding.measured}" for finding in self.findings)

    @property
    def deciding(self) -> Finding:
        """The finding that the verdict rests on."""
        # In the order in which `verdict` looks at them; the first of equals decides.
        ranks = {("part", False): 0, ("part", None): 1, ("limit", False): 2, ("part", True): 3}
        return min(self.findings, key=lambda f: ranks.get((f.role, f.agrees), 4))

    @property
    def is_missing(self) -> bool:
        """True if nothing could be measured."""
        return all(finding.missing for finding in self.findings if finding.role == "part")

    @property
    def is_unlearned(self) -> bool:
        """True if one of its models did not learn the task."""
        return any(finding.unlearned for finding in self.findings if finding.role == "part")

    def to_json(self) -> str:
        """Write everything but the series as text."""
        # Findings hold numpy's numbers, too, which json does not know.
        kept = {name: value for name, value in asdict(self).items() if name != "series"}
        return json.dumps(kept, default=lambda number: number.item())

    @classmethod
    def from_json(cls, text: str, series: dict[str, pd.DataFrame]) -> "Findings":
        """Undo `to_json`."""
        kept = json.loads(text)
        kept["findings"] = [Finding(**finding) for finding in kept["findings"]]
        return cls(**kept, series=series)


def _in_words(text: str, value: float) -> str:
    return text.format(tiny(value) if "{}" in text else value)


@dataclass(frozen=True)
class Passage:
    """A place in a source, quoted or not."""

    source: str  # a key of sources.toml
    section: str = ""  # or equation, or table
    quote: str = ""  # in its own language
    english: str = ""  # a translation of the quotation, if it is not English


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, the places that make it, and the computation that decides it."""

    id: str
    statement: str  # in one sentence of ours
    passages: tuple[Passage, ...]  # the first is cited where there is room for one
    family: str  # the module of its check, and the TOML file beside it
    check: str  # the function there
    expected: str = ""  # the result if it were true; a check that depends on inputs writes its own
    inputs: Mapping[str, Any] = field(default_factory=dict)  # of the check, besides its defaults
    kind: Kind = Kind.ARITHMETIC
    command: str = ""  # shows more, or makes the claim decidable
    reads: str = ""  # the experiment whose stored runs the check takes as `runs`

    @property
    def function(self) -> Callable[..., None]:
        """The check."""
        # Imported on demand, so that the ledger can be read without the libraries of the checks.
        module = import_module(f"ropelab.claims.{self.family}")
        return getattr(module, self.check)

    @property
    def takes_seed(self) -> bool:
        """True if the check draws random numbers."""
        return "seed" in inspect.signature(self.function).parameters

    def evidence(self, **changes: Any) -> Findings:
        """Check the claim, with some of its inputs changed."""
        found = Findings(self.expected)
        self.function(found, **{**self.inputs, **changes})
        return found

    def verdict(self, **changes: Any) -> Verdict:
        """Return the verdict, with some of the inputs changed."""
        return self.evidence(**changes).verdict(self.kind)
