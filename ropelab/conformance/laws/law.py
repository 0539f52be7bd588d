"""A law: a question whose two computations must agree, and the size of their
disagreement.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.subject import Stages, Subject, Tokens, UnaskedError
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside

Verdict = Literal["holds", "rounding only", "broken", "cannot be asked", "cost"]
TOKENS = 48
# A violation that shrinks by less than this from float32 to float64 is no rounding:
# that shrinks by 2^29 = 5e8.
SHRINKS = 2.0**12
# A table of sines in float32, which no conversion makes better, explains this much in
# float64.
TABLE = 2.0**-18
# Rounding of angles grows with the position: the step of float32 times the largest one,
# and this, explain all that was seen, by a factor of 16. More comes from a smaller
# format.
EXPLAINED = 64.0
# A model whose logits vary less between tokens reads none; one whose logits vary more
# from one reading to the next has dropout.
STILL = 1e-6
UNLIKE = 1e-2
# Of the spread of logits: what one pass in float32 rounds is not worth a word.
ROUNDED = 3e-5
# Errors of code that a question does not suit: they are reported as such, with their
# words.
REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
DESCRIBED = 90
SMALLER = "float32 explains less: something is computed in a smaller format"
WIDER = "compute positions, angles, cosines and sines in float32, outside autocast"
KNOWN = table_beside(__file__, "explanations")["known"]


class Comparison(NamedTuple):
    """Two computations of the same: hidden states after each layer and logits [...,
    width].
    """

    got: Stages
    expected: Stages
    # The position in its text of each token.
    places: Sequence[int] = range(TOKENS)
    # Set where the two must agree bit for bit.
    exact: bool = False
    reach: int = TOKENS  # the largest position


class Found(NamedTuple):
    """A finding that is no comparison of logits."""

    verdict: Verdict
    says: str
    size: float = 0.0
    layer: int | None = None
    position: int | None = None


class Trial(NamedTuple):
    """One way to ask a law. `cost`: the difference is a price to know, not a law."""

    name: str
    ask: Callable[["Case"], Comparison | Found]
    cost: bool = False
    once: bool = False  # in float32 alone


class Law(NamedTuple):
    name: str
    question: str
    trials: tuple[Trial, ...]


class Violation(NamedTuple):
    """The largest difference of logits over their spread, and where it begins."""

    size: float
    position: int | None = None
    layer: int | None = None  # None: in the logits only
    explained: float = math.inf  # by rounding to float32


@dataclass
class Case:
    """A subject with the tokens that it is asked about, in one number format."""

    subject: Subject
    dtype: torch.dtype
    # What was recovered of each layer that rotates.
    layers: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def tokens(self) -> Tokens:
        # Ids of special tokens are mostly the first ones.
        ids = self.subject.vocabulary
        first = min(4, ids // 2)
        random = torch.Generator().manual_seed(0)
        return torch.randint(first, ids, (1, TOKENS), generator=random)

    @cached_property
    def whole(self) -> Stages:
        """All tokens in one pass, positions left to the model."""
        return self.subject.read(self.tokens)

    def make_positions(self, first: int, length: int = TOKENS) -> Tensor:
        return torch.arange(first, first + length)[None]


@torch.inference_mode()
def check_readable(case: Case) -> None:
    """Raise InputError unless laws can be asked: the model reads the text, and twice
    alike.
    """
    name = case.subject.name
    ids = case.subject.vocabulary
    if ids < 2:
        raise InputError(f"{name}: a vocabulary of {ids} tells no texts apart")
    try:
        once = case.subject.read(case.tokens)[-1].cpu().double()
        again = case.subject.read(case.tokens)[-1].cpu().double()
        spread = float(once.std(dim=1).max())
        apart = float((once - again).abs().max())
    except Exception as error:  # the user's code may raise anything
        said = " ".join(str(error).split())[:DESCRIBED]
        asked = f"{TOKENS} tokens with ids below {ids}"
        raise InputError(
            f"{name} cannot read {asked}: {type(error).__name__}: {said}"
        ) from None

    if spread <= STILL * float(once.abs().max()):
        raise InputError(
            f"{name}: every token has the same logits, so that no law can be asked"
        )
    if apart > UNLIKE * spread:
        raise InputError(
            f"{name}: the same tokens have other logits the second time (dropout?)"
        )


def join_passes(parts: Sequence[Stages]) -> Stages:
    """Put the tokens of several passes one behind another, stage by stage."""
    return [torch.cat(stages, dim=1) for stages in zip(*parts, strict=True)]


def measure_violation(pair: Comparison) -> Violation:
    """Measure a pair; it begins where a tenth of the largest difference is reached."""
    apart = []
    for stages in zip(pair.got, pair.expected, strict=True):
        got, expected = (each.double().flatten(0, -2) for each in stages)
        spread = max(float(expected.std()), 1e-30)
        off = (got - expected).abs().amax(dim=-1) / spread
        apart.append(off.nan_to_num(nan=math.inf))
    size = float(apart[-1].max())
    explained = EXPLAINED * torch.finfo(torch.float32).eps * abs(pair.reach)
    if not size > 0:
        return Violation(size)

    first = int((~(apart[-1] < size / 10)).nonzero()[0])
    begins = None
    for layer, off in enumerate(apart[:-1]):
        if begins is None and not float(off.max()) < size / 100:
            begins = layer
    return Violation(size, pair.places[first], begins, explained)


@torch.inference_mode()
def ask_trial(trial: Trial, case: Case) -> Violation | Found:
    """Ask one trial in one format; errors of the model's code say why it cannot be
    asked.
    """
    try:
        answer = trial.ask(case)
    except (UnaskedError, InputError) as error:
        return Found("cannot be asked", str(error))
    except REFUSALS as error:
        said = " ".join(str(error).split()) or "no message"
        return Found(
            "cannot be asked", f"raises {type(error).__name__}: {said}"[:DESCRIBED]
        )

    if isinstance(answer, Found):
        return answer
    violation = measure_violation(answer)
    if not answer.exact:
        return violation
    if not violation.size:
        return Found("holds", "")
    size = violation.size if math.isfinite(violation.size) else 0.0
    return Found("broken", "not bit for bit", size, violation.layer, violation.position)


def judge_violation(
    words: dict[str, str],
    own: float,
    single: Violation,
    exact: float | None,
) -> tuple[Verdict, dict[str, str]]:
    """Decide from a violation in the model's format, in float32 and, if it can be, in
    float64.
    """
    # Code that cannot be converted has only the step of float32 to go by.
    least = max(TABLE, single.size / SHRINKS)
    if exact is not None and not exact <= least:
        return "broken", words
    if not single.size <= single.explained:
        return "broken", words if exact is None else {"says": SMALLER, "fix": WIDER}
    return ("holds" if own <= ROUNDED else "rounding only"), {}


def explain_violation(
    law: str,
    trial: str,
    kinds: Sequence[str] = ("any",),
) -> dict[str, str]:
    """Return what a violation means and the way out, in general or as known of kinds of
    models.
    """
    for row in KNOWN:
        here = set(kinds) & set(row["models"])
        if here and law in row["laws"] and trial in row.get("trials", [trial]):
            return {name: row[name] for name in ("kind", "says", "fix") if name in row}
    return {}


def make_row(
    law: Law,
    trial: Trial,
    own: str,
    found: dict[str, Violation | Found],
) -> dict[str, Any]:
    """Return a row of the table: the answers of one trial in each format, and the
    verdict.
    """
    row: dict[str, Any] = {
        "law": law.name,
        "trial": trial.name,
        "verdict": "",
        "size": None,
    }
    row |= {"float32": None, "float64": None, "layer": None, "position": None}
    row |= {"kind": "", "says": "", "fix": ""}
    words = explain_violation(law.name, trial.name)
    # Code whose kernels know no float64 is judged by float32 alone.
    if own != "float64" and isinstance(found.get("float64"), Found):
        found = {name: answer for name, answer in found.items() if name != "float64"}
    findings = [answer for answer in found.values() if isinstance(answer, Found)]
    if findings:
        return row | describe_findings(findings, words)

    sizes = {name: v for name, v in found.items() if isinstance(v, Violation)}
    single = sizes["float32"]
    exact = sizes.get("float64")
    size = sizes.get(own, single).size
    verdict, said = judge_violation(words, size, single, exact.size if exact else None)
    row |= {name: sizes[name].size for name in ("float32", "float64") if name in sizes}
    row |= {"size": size, "verdict": "cost" if trial.cost else verdict}
    if row["verdict"] == "broken":
        where = single if said != words or exact is None else exact
        row |= {"layer": where.layer, "position": where.position, **said}
    if not math.isfinite(size):
        row |= dict.fromkeys(("size", "float32", "float64"))
        row["says"] = "its logits are no numbers"
        row["fix"] = "look for overflow, or rows all masked"
    return row


def describe_findings(
    findings: Sequence[Found],
    words: dict[str, str],
) -> dict[str, Any]:
    """Return the worst of what is no comparison of logits, with what it means."""
    worst = findings[0]
    for finding in findings:
        if finding.verdict == "broken":
            worst = finding
            break
    row = worst._asdict()
    if worst.verdict == "broken":
        says = ": ".join(filter(None, (worst.says, words.get("says"))))
        row |= words | {"says": says}
    return row
