"""A law: a question whose two computations must agree, and by how much they do not."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import UnaskedError
from ropelab.conformance.laws.subject import Stages, Subject, Tokens
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
# What one pass in float32 rounds, as a share of the spread of logits, is not worth a
# word.
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
    """Two computations of the same: hidden states after each layer, then logits."""

    got: Stages
    expected: Stages
    # The position in its text of each token.
    places: Sequence[int] = range(TOKENS)
    # Set where the two must agree bit for bit.
    exact: bool = False
    # The largest position.
    reach: int = TOKENS
    # What the two were found to be, where a law allows more than one answer.
    says: str = ""
    # Returns the mistake in words, or none that is known; it is called if the two differ.
    explain: Callable[[], str] | None = None


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
    # It is asked in float32 alone.
    once: bool = False


class Law(NamedTuple):
    name: str
    question: str
    trials: tuple[Trial, ...]


class Violation(NamedTuple):
    """The largest difference of logits over their spread, and where it begins."""

    size: float
    position: int | None = None
    # None: it shows in the logits only.
    layer: int | None = None
    # The size that rounding to float32 explains.
    explained: float = math.inf
    # What was found to be computed, or the mistake.
    says: str = ""


@dataclass
class Case:
    """A subject with the tokens that it is asked about, in one number format."""

    subject: Subject
    dtype: torch.dtype
    # What was recovered of each layer that rotates.
    layers: list[dict[str, Any]] = field(default_factory=list)
    # The rotations of each layer's cache, by their distances in positions.
    turns: dict[tuple[int, ...], Any] = field(default_factory=dict)

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
    """Raise InputError unless laws can be asked.

    The model has to read the text, and twice alike.
    """
    name = case.subject.name
    ids = case.subject.vocabulary
    if ids < 2:
        raise InputError(f"{name}: a vocabulary of {ids} tells no texts apart")
    try:
        once = case.subject.read(case.tokens)[-1].cpu().double()
        again = case.subject.read(case.tokens)[-1].cpu().double()
    # The user's code may raise anything.
    except Exception as error:
        said = " ".join(str(error).split())[:DESCRIBED]
        asked = f"{TOKENS} tokens with ids below {ids}"
        kind = type(error).__name__
        raise InputError(f"{name} cannot read {asked}: {kind}: {said}") from None

    if once.shape[:2] != case.tokens.shape or again.shape != once.shape:
        raise InputError(
            f"{name} gives an answer of shape {list(once.shape)} for tokens of shape"
            f" {list(case.tokens.shape)}: one row of logits per token is needed"
        )
    spread = float(once.std(dim=1).max())
    apart = float((once - again).abs().max())
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


def measure_violation(comparison: Comparison) -> Violation:
    """Measure a violation.

    It begins where a tenth of the largest difference is reached.
    """
    differences = []
    for got, expected in zip(comparison.got, comparison.expected, strict=True):
        differences.append(measure_differences(got, expected))
    of_layers = differences[:-1]
    of_logits = differences[-1]
    size = float(of_logits.max())
    if not size > 0:
        return Violation(size)

    is_large = ~(of_logits < size / 10)
    first = int(is_large.nonzero()[0])
    begins = None
    for layer, of_layer in enumerate(of_layers):
        if not float(of_layer.max()) < size / 100:
            begins = layer
            break

    float32_step = torch.finfo(torch.float32).eps
    explained = EXPLAINED * float32_step * abs(comparison.reach)
    return Violation(size, comparison.places[first], begins, explained)


def measure_differences(got: Tensor, expected: Tensor) -> Tensor:
    """Return the largest difference of each token, over the spread of all."""
    got = got.double().flatten(0, -2)
    expected = expected.double().flatten(0, -2)
    spread = max(float(expected.std()), 1e-30)
    differences = (got - expected).abs().amax(dim=-1) / spread
    return differences.nan_to_num(nan=math.inf)


@torch.inference_mode()
def ask_trial(trial: Trial, case: Case) -> Violation | Found:
    """Ask one trial in one format.

    Errors of the model's code say why it cannot be asked.
    """
    try:
        answer = trial.ask(case)
    except (UnaskedError, InputError) as error:
        return Found("cannot be asked", str(error))
    except REFUSALS as error:
        said = " ".join(str(error).split()) or "no message"
        says = f"raises {type(error).__name__}: {said}"
        return Found("cannot be asked", says[:DESCRIBED])

    if isinstance(answer, Found):
        return answer
    violation = measure_violation(answer)
    if not answer.exact:
        return violation._replace(says=describe_comparison(case, answer, violation))

    size = violation.size
    if not size:
        return Found("holds", "")
    if not math.isfinite(size):
        size = 0.0
    return Found("broken", "not bit for bit", size, violation.layer, violation.position)


def describe_comparison(case: Case, answer: Comparison, violation: Violation) -> str:
    """Return the mistake of a comparison that differs, else what was found."""
    # A smaller format explains a larger difference: mistakes are sought in float32.
    is_sought = case.dtype == torch.float32
    is_rounding = violation.size <= violation.explained
    if answer.explain is None or is_rounding or not is_sought:
        return answer.says
    try:
        return answer.explain()
    # The search asks the model's code what it may not know.
    except (UnaskedError, InputError, *REFUSALS):
        return ""


def judge_violation(
    words: dict[str, str],
    own: float,
    single: Violation,
    exact: float | None,
) -> tuple[Verdict, dict[str, str]]:
    """Decide from the sizes of a violation in several formats.

    They are the model's own format, float32 and, where the model can be converted,
    float64.
    """
    least = max(TABLE, single.size / SHRINKS)
    if exact is not None and not exact <= least:
        return "broken", words

    if not single.size <= single.explained:
        # Code that cannot be converted has only the step of float32 to go by.
        if exact is None:
            return "broken", words
        return "broken", {"says": SMALLER, "fix": WIDER}
    if own <= ROUNDED:
        return "holds", {}
    return "rounding only", {}


def explain_violation(
    law: str,
    trial: str,
    kinds: Sequence[str] = ("any",),
) -> dict[str, str]:
    """Return what a violation means and the way out.

    It is said in general, or as known of kinds of models.
    """
    for row in KNOWN:
        if set(kinds).isdisjoint(row["models"]) or law not in row["laws"]:
            continue
        if trial in row.get("trials", [trial]):
            return {name: row[name] for name in ("kind", "says", "fix") if name in row}
    return {}


def make_row(
    law: Law,
    trial: Trial,
    own: str,
    answers: dict[str, Violation | Found],
) -> dict[str, Any]:
    """Return a row of the table: the answers of one trial in each format, judged."""
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

    findings = []
    violations = {}
    for name, answer in answers.items():
        if isinstance(answer, Violation):
            violations[name] = answer
        # Code whose kernels know no float64 is judged by float32 alone.
        elif name != "float64" or own == "float64":
            findings.append(answer)
    if findings:
        return row | describe_findings(findings, words)

    single = violations["float32"]
    exact = violations.get("float64")
    size = violations.get(own, single).size
    exact_size = exact.size if exact else None
    verdict, said = judge_violation(words, size, single, exact_size)
    for name in ("float32", "float64"):
        if name in violations:
            row[name] = violations[name].size
    row["size"] = size
    row["verdict"] = "cost" if trial.cost else verdict

    if row["verdict"] != "broken":
        row["says"] = single.says
    else:
        # Where float64 decided, it says where the violation begins.
        where = exact if exact is not None and said == words else single
        row |= {"layer": where.layer, "position": where.position, **said}
        if said == words and single.size > single.explained:
            row["says"] = single.says or words.get("says", "")
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
        sentences = [worst.says, words.get("says", "")]
        says = ": ".join(sentence for sentence in sentences if sentence)
        row |= words | {"says": says}
    return row
