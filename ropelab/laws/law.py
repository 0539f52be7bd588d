"""A law: a question whose two computations must agree, and the size of their disagreement."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from ropelab.laws.subject import Stages, Subject, Tokens, UnaskedError
from ropelab.runs.errors import InputError

Verdict = Literal["holds", "rounding only", "broken", "cannot be asked", "cost"]
TOKENS = 48
# A violation that shrinks by less than this from float32 to float64 is no rounding: that shrinks by
# 2^29 = 5e8.
SHRINKS = 2.0**12
# A table of sines in float32, which no conversion makes better, explains this much in float64.
TABLE = 2.0**-18
# Rounding of angles grows with the position: the step of float32 times the largest one, and this,
# explain all that was seen, by a factor of 16. More comes from a smaller format.
EXPLAINED = 64.0
# Violations in float64 that rounding explains, as a multiple of its step.
STEPS = 2.0**16
# A model whose logits vary less between tokens reads none; one whose logits vary more from one
# reading to the next has dropout.
STILL, UNLIKE = 1e-6, 1e-2
# Of the spread of logits: what one pass in float32 rounds is not worth a word.
ROUNDED = 3e-5
# Errors of code that a question does not suit: they are reported as such, with their words.
REFUSALS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError),
    *(RuntimeError, TypeError, ValueError),
)
DESCRIBED = 90
SMALLER = "float32 explains less: something is computed in a smaller format"
WIDER = "compute positions, angles, cosines and sines in float32, outside autocast"


@dataclass(frozen=True)
class Pair:
    """Two computations of the same: hidden states after each layer and logits [tokens, width]."""

    got: Stages
    expected: Stages
    # The position in its text of each token.
    places: Sequence[int]
    # Set where the two must agree bit for bit.
    exact: bool = False
    reach: int = TOKENS  # the largest position


@dataclass(frozen=True)
class Found:
    """A finding that is no comparison of logits."""

    verdict: Verdict
    says: str
    size: float = 0.0
    layer: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class Trial:
    """One way to ask a law. `cost`: the difference is a price to know, not a law."""

    name: str
    ask: Callable[["Case"], Pair | Found]
    means: str = ""
    fix: str = ""
    cost: bool = False
    once: bool = False  # in float32 alone


@dataclass(frozen=True)
class Law:
    name: str
    question: str
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Violation:
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
    tokens: Tokens = field(init=False)
    # What was recovered of each layer that rotates.
    layers: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        # Ids of special tokens are mostly the first ones.
        ids = self.subject.vocabulary
        if ids < 2:
            raise InputError(f"{self.subject.name}: a vocabulary of {ids} tells no texts apart")
        low = min(4, ids // 2)
        self.tokens = torch.randint(low, ids, (1, TOKENS), generator=random)

    @cached_property
    def whole(self) -> Stages:
        """All tokens in one pass, positions left to the model."""
        return self.subject.read(self.tokens)

    def at(self, first: int, length: int = TOKENS) -> Tensor:
        return torch.arange(first, first + length)[None]


@torch.inference_mode()
def readable(case: Case) -> None:
    """Raise InputError unless laws can be asked: the model reads the text, and twice alike."""
    name, ids = case.subject.name, case.subject.vocabulary
    try:
        read, again = (case.subject.read(case.tokens)[-1].cpu().double() for _ in range(2))
        spread, apart = float(read.std(dim=1).max()), float((read - again).abs().max())
    except Exception as error:  # the user's code may raise anything
        said = " ".join(str(error).split())[:DESCRIBED]
        asked_for = f"{TOKENS} tokens with ids below {ids}"
        raise InputError(
            f"{name} cannot read {asked_for}: {type(error).__name__}: {said}"
        ) from None
    if spread <= STILL * float(read.abs().max()):
        raise InputError(f"{name}: every token has the same logits, so that no law can be asked")
    if apart > UNLIKE * spread:
        raise InputError(f"{name}: the same tokens have other logits the second time (dropout?)")


def rows_of(stages: Stages, spans: Sequence[tuple[int, int, int]]) -> Stages:
    """Return the tokens [first, end) of rows, one behind another, of each stage."""
    return [torch.cat([s[row, first:end] for row, first, end in spans]) for s in stages]


def places_of(spans: Sequence[tuple[int, int, int]]) -> list[int]:
    return [place for _, first, end in spans for place in range(end - first)]


def violation_of(pair: Pair) -> Violation:
    """Measure a pair; it begins where a tenth of the largest difference is reached."""
    apart = [_apart(got, expected) for got, expected in zip(pair.got, pair.expected, strict=True)]
    size = float(apart[-1].max())
    explained = EXPLAINED * torch.finfo(torch.float32).eps * abs(pair.reach)
    if not size > 0:
        return Violation(size)
    position = pair.places[int((~(apart[-1] < size / 10)).nonzero()[0])]
    layers = [n for n, each in enumerate(apart[:-1]) if not float(each.max()) < size / 100]
    return Violation(size, position, layers[0] if layers else None, explained)


def _apart(got: Tensor, expected: Tensor) -> Tensor:
    got, expected = got.double(), expected.double()
    spread = max(float(expected.std()), 1e-30)
    apart = (got - expected).abs().amax(dim=-1) / spread
    return apart.nan_to_num(nan=math.inf)


@torch.inference_mode()
def asked(trial: Trial, case: Case) -> Violation | Found:
    """Ask one trial in one format; errors of the model's code say why it cannot be asked."""
    try:
        answer = trial.ask(case)
    except UnaskedError as error:
        return Found("cannot be asked", str(error))
    except REFUSALS as error:
        said = " ".join(str(error).split()) or "no message"
        return Found("cannot be asked", f"raises {type(error).__name__}: {said}"[:DESCRIBED])
    return answer if isinstance(answer, Found) else _bitwise(answer, trial.means)


def _bitwise(pair: Pair, means: str) -> Violation | Found:
    violation = violation_of(pair)
    if not pair.exact:
        return violation
    if not violation.size:
        return Found("holds", "")
    place = violation.layer, violation.position
    size = violation.size if math.isfinite(violation.size) else 0.0
    return Found("broken", f"not bit for bit: {means}", size, *place)


def judged(trial: Trial, own: float, single: Violation, exact: float | None) -> tuple[Verdict, str]:
    """Decide from a violation in the model's format, in float32 and, if it can be, in float64."""
    # Code that cannot be converted has only the step of float32 to go by.
    least = max(STEPS * torch.finfo(torch.float64).eps, TABLE, single.size / SHRINKS)
    if exact is not None and not exact <= least:
        return "broken", trial.means
    if not single.size <= single.explained:
        return "broken", trial.means if exact is None else SMALLER
    return "holds" if own <= ROUNDED else "rounding only", ""


def row_of(law: Law, trial: Trial, own: str, found: dict[str, Violation | Found]) -> dict[str, Any]:
    """Return a row of the table: the answers of one trial in each format, and the verdict."""
    row: dict[str, Any] = {"law": law.name, "trial": trial.name, "verdict": "", "size": None}
    row |= {"float32": None, "float64": None, "layer": None, "position": None}
    row |= {"kind": "", "says": "", "fix": ""}
    if unasked := [each for each in found.values() if isinstance(each, Found)]:
        worst = next((each for each in unasked if each.verdict == "broken"), unasked[0])
        return row | vars(worst) | {"fix": trial.fix if worst.verdict == "broken" else ""}
    sizes = {name: each for name, each in found.items() if isinstance(each, Violation)}
    single, exact = sizes["float32"], sizes.get("float64")
    size = sizes.get(own, single).size
    verdict, says = judged(trial, size, single, exact.size if exact else None)
    row |= {name: sizes[name].size for name in ("float32", "float64") if name in sizes}
    row |= {"size": size, "verdict": "cost" if trial.cost else verdict}
    if row["verdict"] == "broken":
        where = single if says == SMALLER or exact is None else exact
        row |= {"layer": where.layer, "position": where.position, "says": says}
        row["fix"] = trial.fix if says == trial.means else WIDER
    if not math.isfinite(size):
        row |= dict.fromkeys(("size", "float32", "float64"))
        row |= {"says": "its logits are no numbers", "fix": "look for overflow, or rows all masked"}
    return row
