"""A law: two computations that must agree, and by how much they differ.

A law is tested by trials. A trial runs on a case, which is a model with its tokens in
one number format, and returns a `Comparison` of two computations, or a `Statement`. The
differences in float32, float64 and the model's own format tell whether a violation is
rounding; `make_row` makes the verdict from these differences.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.subject import Stages, Subject, Tokens
from ropelab.runs.errors import InputError, describe_error
from ropelab.runs.files import read_table_beside

Verdict = Literal["holds", "rounding only", "broken", "cannot be asked", "cost"]
# The length of the text that models read.
TOKENS = 48
# The least factor by which a violation from rounding is smaller in float64 than in
# float32. Rounding itself is smaller by 2^29 = 5e8.
LEAST_SHRINKING = 2.0**12
# The largest violation in float64 that may come from a table of sines in float32. Such
# a table stays as it is when the model is converted.
LARGEST_TABLE_ERROR = 2.0**-18
# The rounding of angles in float32 grows with the position. It explains violations up
# to this number of steps of float32, times the largest position. The number is 16 times
# what was seen. Larger violations come from rounding to a smaller format.
EXPLAINED_STEPS = 64.0
# The least variation of logits from token to token, as a share of the largest logit.
# With less a model does not read its tokens.
LEAST_VARIATION = 1e-6
# The largest difference of logits between two readings of the same text, as a share of
# their spread. With more the model has dropout.
LARGEST_REPETITION_ERROR = 1e-2
# The largest violation, as a share of the spread of logits, that is not reported: one
# pass in float32 rounds this much.
LARGEST_UNREPORTED = 3e-5
# Errors of a model's code that mean that it cannot be asked a question.
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
# The most characters of an error's text that are reported.
DESCRIBED = 90
# The same where the text ends a sentence.
DESCRIBED_IN_SENTENCE = 60
# What a violation means that comes from a smaller format, and the advice.
SMALLER_FORMAT = "float32 explains less: something is computed in a smaller format"
WIDER_FORMAT = (
    "compute positions, angles, cosines and sines in float32, outside autocast"
)
KNOWN_VIOLATIONS = read_table_beside(__file__, "explanations")["known"]


class Comparison(NamedTuple):
    """Two computations of the same answers: hidden states after each layer, then
    logits.
    """

    got: Stages
    expected: Stages
    # The number of each token in its text.
    places: Sequence[int] = range(TOKENS)
    # True if the two computations must agree bit for bit.
    exact: bool = False
    # The largest position at which a token was read, with which rounding grows.
    largest_position: int = TOKENS
    # Which right answer was found, in words, where a law allows more than one.
    says: str = ""
    # Is called if the two computations differ. It returns the mistake in words, or an
    # empty text if no known mistake explains the difference.
    explain: Callable[[], str] | None = None

    @property
    def size(self) -> float:
        """The largest difference of logits, over their spread."""
        return measure_size(self.got[-1], self.expected[-1])


class Statement(NamedTuple):
    """The finding of a trial that does not compare logits."""

    verdict: Verdict
    says: str
    size: float = 0.0
    layer: int | None = None
    position: int | None = None


class Trial(NamedTuple):
    """One way to ask a law."""

    name: str
    ask: Callable[["Case"], Comparison | Statement]
    # True if the two computations may differ: by how much is the price of an approximation.
    cost: bool = False
    # True if the trial runs only in float32.
    once: bool = False


class Law(NamedTuple):
    name: str
    question: str
    trials: tuple[Trial, ...]


class Violation(NamedTuple):
    """The largest difference of logits over their spread, and where it begins."""

    size: float
    # None: the two computations do not differ.
    position: int | None = None
    # The first layer with a difference. None: the difference shows in the logits only.
    layer: int | None = None
    # The largest size that rounding to float32 explains.
    explained: float = math.inf
    # The mistake in words, or which right answer was found; may be empty.
    says: str = ""


@dataclass
class Case:
    """A model with the tokens that it is asked about, in one number format."""

    subject: Subject
    dtype: torch.dtype
    # The recovered rotation of each layer that rotates.
    layers: list[dict[str, Any]] = field(default_factory=list)
    # The rotations of each layer's cache, by their distances in positions.
    turns: dict[tuple[int, ...], Any] = field(default_factory=dict)

    @cached_property
    def tokens(self) -> Tokens:
        # The first ids mostly belong to special tokens, which are left out.
        ids = self.subject.vocabulary
        first = min(4, ids // 2)
        random = torch.Generator().manual_seed(0)
        return torch.randint(first, ids, (1, TOKENS), generator=random)

    @cached_property
    def whole(self) -> Stages:
        """The answers of the model for all tokens in one pass, with its own positions."""
        return self.subject.read(self.tokens)

    def with_tokens(self, tokens: Tokens) -> "Case":
        """Return a case of the same model with other tokens, and the same rotations."""
        other = copy(self)
        other.tokens = tokens
        # The answers belong to the tokens before.
        other.__dict__.pop("whole", None)
        return other

    def make_positions(self, first: int, length: int = TOKENS) -> Tensor:
        """Return positions [rows, length] that count from ``first``."""
        return torch.arange(first, first + length).expand(len(self.tokens), -1)


@torch.inference_mode()
def check_readable(case: Case) -> None:
    """Raise InputError unless the model reads the text, and twice with equal logits."""
    name = case.subject.name
    ids = case.subject.vocabulary
    if ids < 2:
        raise InputError(f"{name}: a vocabulary of {ids} tells no texts apart")
    try:
        *_, logits = case.subject.read(case.tokens)
        *_, second_logits = case.subject.read(case.tokens)
        first_result = logits.cpu().double()
        second_result = second_logits.cpu().double()
    # The user's code may raise anything.
    except Exception as error:
        said = describe_in_line(error)[:DESCRIBED]
        needed = f"{TOKENS} tokens with ids below {ids}"
        error_name = type(error).__name__
        raise InputError(f"{name} cannot read {needed}: {error_name}: {said}") from None

    if (
        first_result.shape[:2] != case.tokens.shape
        or second_result.shape != first_result.shape
    ):
        raise InputError(
            f"{name} gives an answer of shape {list(first_result.shape)} for tokens of shape"
            f" {list(case.tokens.shape)}: one row of logits per token is needed"
        )
    spread = float(first_result.std(dim=1).max())
    largest_difference = float((first_result - second_result).abs().max())
    if spread <= LEAST_VARIATION * float(first_result.abs().max()):
        raise InputError(
            f"{name}: every token has the same logits, so that no law can be asked"
        )
    if largest_difference > LARGEST_REPETITION_ERROR * spread:
        raise InputError(
            f"{name}: the same tokens have other logits the second time (dropout?)"
        )


def describe_in_line(error: BaseException) -> str:
    """Return what an error of the model's code says, in one line."""
    return " ".join(describe_error(error).split())


def join_passes(parts: Sequence[Stages]) -> Stages:
    """Put the tokens of several passes one behind another, stage by stage."""
    return [torch.cat(stages, dim=1) for stages in zip(*parts, strict=True)]


def measure_violation(comparison: Comparison) -> Violation:
    """Measure by how much two computations differ, and where the difference begins.

    It begins with the first token that has a tenth of the largest difference, and in the
    first layer that has a hundredth of it.
    """
    differences = []
    for got, expected in zip(comparison.got, comparison.expected, strict=True):
        differences.append(measure_differences(got, expected))
    *layer_differences, logit_differences = differences
    size = float(logit_differences.max())
    if size == 0:
        return Violation(size)

    # An infinite difference is not below a share of an infinite size, so that it counts as
    # large.
    is_large = ~(logit_differences < size / 10)
    first_token = int(is_large.nonzero()[0])
    first_layer = None
    for layer, differences_of_tokens in enumerate(layer_differences):
        is_small = float(differences_of_tokens.max()) < size / 100
        if not is_small:
            first_layer = layer
            break

    float32_step = torch.finfo(torch.float32).eps
    explained = EXPLAINED_STEPS * float32_step * abs(comparison.largest_position)
    position = comparison.places[first_token]
    return Violation(size, position, first_layer, explained)


def measure_differences(got: Tensor, expected: Tensor) -> Tensor:
    """Return the largest difference of each token [tokens], over the spread of all.

    Differences that are NaN are infinite.
    """
    got = got.double().flatten(0, -2)
    expected = expected.double().flatten(0, -2)
    spread = max(float(expected.std()), 1e-30)
    differences = (got - expected).abs().amax(dim=-1) / spread
    return differences.nan_to_num(nan=math.inf)


def measure_size(got: Tensor, expected: Tensor) -> float:
    """Return the largest difference of all tokens, over the spread."""
    return float(measure_differences(got, expected).max())


@torch.inference_mode()
def ask_trial(trial: Trial, case: Case) -> Violation | Statement:
    """Ask one trial in one format.

    If the model's code raises an error, the trial cannot be asked for this reason.
    """
    try:
        answer = trial.ask(case)
    except (CannotAskError, InputError) as error:
        return Statement("cannot be asked", str(error))
    except REFUSALS as error:
        said = describe_in_line(error) or "no message"
        says = f"raises {type(error).__name__}: {said}"
        return Statement("cannot be asked", says[:DESCRIBED])

    if isinstance(answer, Statement):
        return answer
    violation = measure_violation(answer)
    if not answer.exact:
        return violation._replace(says=describe_comparison(case, answer, violation))

    size = violation.size
    if not size:
        return Statement("holds", "")
    if not math.isfinite(size):
        size = 0.0
    return Statement(
        "broken", "not bit for bit", size, violation.layer, violation.position
    )


def describe_comparison(case: Case, answer: Comparison, violation: Violation) -> str:
    """Return the mistake in words, or which right answer was found."""
    # In other formats than float32 rounding may hide or explain a mistake.
    is_float32 = case.dtype == torch.float32
    is_rounding = violation.size <= violation.explained
    if answer.explain is None or is_rounding or not is_float32:
        return answer.says
    try:
        return answer.explain()
    # The search for the mistake asks the model's code further questions.
    except (CannotAskError, InputError, *REFUSALS):
        return ""


def judge_violation(
    words: dict[str, str],
    own_size: float,
    in_float32: Violation,
    size_in_float64: float | None,
) -> tuple[Verdict, dict[str, str]]:
    """Return the verdict on a violation, and its explanation.

    Args:
        words: the explanation of a law that is broken.
        own_size: the size in the model's own format.
        in_float32: the violation in float32.
        size_in_float64: its size in float64; None if the model cannot be converted.
    """
    # Sizes may be NaN, for which each of these comparisons is False.
    shrinks_as_rounding = False
    if size_in_float64 is not None:
        size_of_rounding = in_float32.size / LEAST_SHRINKING
        most = max(LARGEST_TABLE_ERROR, size_of_rounding)
        shrinks_as_rounding = size_in_float64 <= most
    if size_in_float64 is not None and not shrinks_as_rounding:
        return "broken", words

    is_explained = in_float32.size <= in_float32.explained
    if not is_explained and size_in_float64 is None:
        return "broken", words
    if not is_explained:
        return "broken", {"says": SMALLER_FORMAT, "fix": WIDER_FORMAT}
    if own_size <= LARGEST_UNREPORTED:
        return "holds", {}
    return "rounding only", {}


def explain_violation(
    law: str,
    trial: str,
    kinds: Sequence[str] = ("any",),
) -> dict[str, str]:
    """Return what a violation means and the way out; empty if nothing is known.

    ``kinds``: the kinds of the model; "any" for explanations that hold for all models.
    """
    for row in KNOWN_VIOLATIONS:
        if set(kinds).isdisjoint(row["models"]) or law not in row["laws"]:
            continue
        if trial in row.get("trials", [trial]):
            return {name: row[name] for name in ("kind", "says", "fix") if name in row}
    return {}


def make_row(
    law: Law,
    trial: Trial,
    own_format: str,
    answers: dict[str, Violation | Statement],
) -> dict[str, Any]:
    """Return the row of a trial: its verdict, from the answers in each format.

    ``own_format``: the model's own format.
    """
    row: dict[str, Any] = {
        "law": law.name,
        "trial": trial.name,
        "verdict": "",
        "size": None,
        "float32": None,
        "float64": None,
        "layer": None,
        "position": None,
        "kind": "",
        "says": "",
        "fix": "",
    }
    words = explain_violation(law.name, trial.name)

    statements = []
    violations = {}
    for name, answer in answers.items():
        if isinstance(answer, Violation):
            violations[name] = answer
        # Some kernels cannot compute in float64. The model is then judged only by
        # float32.
        elif name != "float64" or own_format == "float64":
            statements.append(answer)
    if statements:
        return row | describe_statements(statements, words)

    in_float32 = violations["float32"]
    in_float64 = violations.get("float64")
    size = violations.get(own_format, in_float32).size
    size_in_float64 = in_float64.size if in_float64 else None
    verdict, said = judge_violation(words, size, in_float32, size_in_float64)
    for name in ("float32", "float64"):
        if name in violations:
            row[name] = violations[name].size
    row["size"] = size
    row["verdict"] = "cost" if trial.cost else verdict

    if row["verdict"] != "broken":
        row["says"] = in_float32.says
    else:
        # If float64 decided, the violation begins where it begins in float64.
        deciding = in_float32
        if in_float64 is not None and said == words:
            deciding = in_float64
        row |= {"layer": deciding.layer, "position": deciding.position, **said}
        if said == words and in_float32.size > in_float32.explained:
            row["says"] = in_float32.says or words.get("says", "")
    if not math.isfinite(size):
        row |= dict.fromkeys(("size", "float32", "float64"))
        row["says"] = "its logits are no numbers"
        row["fix"] = "look for overflow, or rows all masked"
    return row


def describe_statements(
    statements: Sequence[Statement],
    words: dict[str, str],
) -> dict[str, Any]:
    """Return the columns of the first statement that a law is broken, else of the first
    statement.

    ``words``: what a violation of the law means.
    """
    worst = statements[0]
    for statement in statements:
        if statement.verdict == "broken":
            worst = statement
            break
    row = worst._asdict()
    if worst.verdict == "broken":
        sentences = [worst.says, words.get("says", "")]
        says = ": ".join(sentence for sentence in sentences if sentence)
        row |= words | {"says": says}
    return row
