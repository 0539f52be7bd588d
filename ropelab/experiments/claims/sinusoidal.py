"""Claims about sinusoidal position codes: their shifts, columns, periods and scores."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ropelab.experiments.claims.randoms import gaussian, largest
from ropelab.experiments.claims.record import Claim, Evidence, limit, part, tiny
from ropelab.rope.frequencies import inverse_frequencies

EXACT = 1e-10


@dataclass(frozen=True, kw_only=True)
class Code:
    """A sinusoidal position code: interleaved sines and cosines of a set of frequencies."""

    width: int = 512
    base: float = 10000.0
    spacing: Literal["exponential", "harmonic"] = "exponential"
    length: int = 512
    seed: int = 0

    @property
    def frequencies(self) -> Float[Tensor, "pairs"]:
        """Radians per token: base^(-2i/d), or whole multiples of 2 pi / length."""
        if self.spacing == "exponential":
            return torch.from_numpy(inverse_frequencies(self.width, self.base))
        steps = torch.arange(1, self.width // 2 + 1, dtype=torch.float64)
        return steps * (2 * math.pi / self.length)

    def at(self, positions: Shaped[Tensor, "n"]) -> Float[Tensor, "n width"]:
        """(sin, cos, sin, cos, ...) at the given positions, which need not be whole."""
        angles = positions.to(torch.float64)[:, None] * self.frequencies
        return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


def shift_is_rotation(given: Code, shift: int = 7) -> Evidence:
    """Build the block-diagonal rotation for a shift and apply it at many positions."""
    positions = torch.arange(given.length)
    angle = given.frequencies * shift
    cos, sin = angle.cos(), angle.sin()
    blocks = torch.stack((torch.stack((cos, sin), -1), torch.stack((-sin, cos), -1)), -2)
    matrix = torch.block_diag(*blocks)
    off = largest(given.at(positions) @ matrix.T - given.at(positions + shift))
    unitary = largest(matrix @ matrix.T - torch.eye(given.width, dtype=torch.float64))
    return Evidence(
        expected="one rotation matrix fits all positions",
        findings=(
            part(
                f"PE(p + {shift}) against one fixed matrix times PE(p), p < {given.length}",
                f"{tiny(off)} apart, turning clockwise by w delta in (sin, cos) order",
                off <= EXACT,
                off,
            ),
            part("the matrix times its transpose", f"{tiny(unitary)} from 1", unitary <= EXACT),
        ),
    )


def columns_orthogonal(given: Code) -> Evidence:
    """Cosines of the angles between all columns of the code over the positions."""
    columns = given.at(torch.arange(given.length))
    columns = columns / columns.norm(dim=0).clamp_min(EXACT)
    overlap = (columns.T @ columns).abs().fill_diagonal_(0)
    share = float((overlap > 0.1).double().sum() / (given.width * (given.width - 1)))
    return Evidence(
        expected="cosines of 0 between different columns",
        findings=(
            part(
                f"largest |cosine| between two columns over {given.length} positions",
                f"{largest(overlap):.6f} ({share:.0%} of the pairs of columns exceed 0.1)",
                largest(overlap) <= EXACT,
                largest(overlap),
            ),
        ),
    )


def slowest_period_repeats(given: Code) -> Evidence:
    """Move by one period of the slowest pair: does the whole code come back?"""
    period = 2 * math.pi / float(given.frequencies.min())
    positions = torch.arange(64, dtype=torch.float64)
    off = largest(given.at(positions + period) - given.at(positions))
    ratios = given.frequencies / given.frequencies.min()
    whole = int(((ratios - ratios.round()).abs() < 1e-9).sum())
    return Evidence(
        expected=f"the code repeats after {period:,.0f} tokens",
        findings=(
            part(
                f"largest change of a feature after {period:,.0f} tokens, d = {given.width}",
                f"{off:.2g} ({whole} of {len(ratios)} are whole multiples of the least frequency)",
                off <= 1e-6,
                off,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class TwoCodes:
    """A code and one with the frequencies that the note holds responsible for its period."""

    broken: Code = Code()
    harmonic: Code = Code(spacing="harmonic", width=64, length=4096)
    small: Code = Code(width=8)


def period_needs_multiples(given: TwoCodes) -> Evidence:
    """Try the slowest period on whole multiples, and on the spacing of the Transformer."""
    multiples, powers, broken = (
        slowest_period_repeats(code).findings[0]
        for code in (given.harmonic, given.small, given.broken)
    )
    return Evidence(
        expected="the slowest period repeats the code exactly where frequencies are multiples",
        findings=(
            part("whole multiples", multiples.measured, multiples.agrees, multiples.value),
            part(
                f"d = {given.small.width}, base 10000: every ratio is a power of 10",
                powers.measured,
                powers.agrees,
                powers.value,
            ),
            part(
                f"d = {given.broken.width}, base 10000",
                broken.measured,
                not broken.agrees,
                broken.value,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Spacing:
    """Two spacings of frequencies between 1 and (for the uniform one) 2 / d, and a range."""

    width: int = 128
    base: float = 10000.0
    tokens: int = 16384


def exponential_repeats_less(given: Spacing) -> Evidence:
    """How near any two different positions come, for uniform and for exponential frequencies."""
    pairs = given.width // 2
    uniform = torch.arange(1, pairs + 1, dtype=torch.float64) / pairs
    findings = []
    for name, frequencies in (
        ("uniform", uniform),
        ("exponential", torch.from_numpy(inverse_frequencies(given.width, given.base))),
    ):
        distance = _distances(frequencies, given.tokens)
        nearest = int(distance[1:].argmin()) + 2
        repeats = bool(distance[nearest - 1] < distance[0])
        findings.append(
            part(
                f"{name} frequencies, positions nearest in code within {given.tokens}",
                f"{nearest} tokens apart at {float(distance[nearest - 1]):.3f}, "
                f"neighbours at {float(distance[0]):.3f}",
                repeats == (name == "uniform"),
                float(distance[nearest - 1] / distance[0]),
            )
        )
    return Evidence(
        expected="only with uniform frequencies do far positions look nearer than neighbours",
        findings=tuple(findings),
    )


def _distances(frequencies: Float[Tensor, "pairs"], tokens: int) -> Float[Tensor, "tokens"]:
    """Distance between the codes of positions 1, 2, ... apart, per square root of the pairs."""
    lags = torch.arange(1, tokens, dtype=torch.float64)[:, None]
    return (2 - 2 * (lags * frequencies).cos()).mean(-1).sqrt()


@dataclass(frozen=True, kw_only=True)
class Summed:
    """Scores of embeddings to which a sinusoidal code was added."""

    code: Code = Code(width=64)
    query: int = 11
    key: int = 3
    shift: int = 100
    seed: int = 0

    def terms(
        self, query: int, key: int, weights: Float[Tensor, "w w"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The four products of content x and position p under W_q^T W_k."""
        contents = gaussian(self.seed, 2, self.code.width)
        positions = self.code.at(torch.tensor([query, key]))
        return {
            f"{a}-{b}": left[0] @ weights @ right[1]
            for a, left in (("content", contents), ("position", positions))
            for b, right in (("content", contents), ("position", positions))
        }

    def weights(self) -> Float[Tensor, "w w"]:
        """A random W_q^T W_k."""
        width = self.code.width
        wq, wk = gaussian(self.seed + 1, 2, width, width) / math.sqrt(width)
        return wq.T @ wk

    def score(self, query: int, key: int, weights: Float[Tensor, "w w"]) -> Float[Tensor, ""]:
        """The score itself."""
        summed = gaussian(self.seed, 2, self.code.width) + self.code.at(torch.tensor([query, key]))
        return summed[0] @ weights @ summed[1]


def four_terms(given: Summed) -> Evidence:
    """Add up the four terms and compare with the score."""
    weights = given.weights()
    terms = given.terms(given.query, given.key, weights)
    score = given.score(given.query, given.key, weights)
    off = abs(float(sum(terms.values()) - score))
    listed = ", ".join(f"{name} {float(term):.3f}" for name, term in terms.items())
    return Evidence(
        expected=f"the score, {float(score):.3f}",
        findings=(part("sum against score", f"{tiny(off)} apart ({listed})", off <= EXACT, off),),
    )


def position_terms_absolute(given: Summed) -> Evidence:
    """Move query and key together and see which position terms change."""
    identity = torch.eye(given.code.width, dtype=torch.float64)
    changes = {}
    for name, weights in (("random", given.weights()), ("identity", identity)):
        here = given.terms(given.query, given.key, weights)
        there = given.terms(given.query + given.shift, given.key + given.shift, weights)
        changes[name] = {term: abs(float(there[term] - here[term])) for term in here}
    random, identity_change = changes["random"], changes["identity"]["position-position"]
    moved = {term: change for term, change in random.items() if "position" in term}
    listed = ", ".join(f"{term} by {change:.2f}" for term, change in moved.items())
    return Evidence(
        expected="all three change when query and key move together",
        findings=(
            part(
                f"terms that change when both move by {given.shift}, random weights",
                listed,
                all(change > EXACT for change in moved.values()),
                min(moved.values()),
            ),
            limit(
                "position-position with W_q^T W_k = 1",
                f"changes by {tiny(identity_change)}",
                identity_change > EXACT,
                identity_change,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="sinusoid-shift",
        source="note 003 §4",
        statement="The sinusoidal code of position p + delta is a fixed block-diagonal rotation "
        "of the code of p, the same for all p.",
        inputs=Code(),
        check=shift_is_rotation,
    ),
    Claim(
        id="sinusoid-orthogonal",
        source="note 003 §4",
        statement="The columns of the sinusoidal code are orthogonal to each other.",
        inputs=Code(),
        check=columns_orthogonal,
    ),
    Claim(
        id="sinusoid-periodic",
        source="note 003 §3",
        statement="The sinusoidal code is a periodic function whose period is 2 pi over its least "
        "frequency.",
        inputs=Code(),
        check=slowest_period_repeats,
    ),
    Claim(
        id="period-needs-multiples",
        source="note 003 §3",
        statement="The sum of the waves has that common period only if all frequencies are whole "
        "multiples of the least.",
        inputs=TwoCodes(),
        check=period_needs_multiples,
    ),
    Claim(
        id="exponential-spacing",
        source="note 003 §4",
        statement="Evenly spaced frequencies would repeat codes within a long text; exponential "
        "spacing keeps them apart over 10,000 tokens and more.",
        inputs=Spacing(),
        check=exponential_repeats_less,
    ),
    Claim(
        id="four-terms",
        source="note 002 §2; note 003 (relative encodings, §4)",
        statement="With sinusoids added to the embeddings a score splits into content-content, "
        "content-position, position-content and position-position terms.",
        inputs=Summed(),
        check=four_terms,
    ),
    Claim(
        id="position-terms-absolute",
        source="note 003 (relative encodings, §4)",
        statement="The three terms with positions depend on the query's and the key's positions "
        "separately, not on their difference.",
        inputs=Summed(),
        check=position_terms_absolute,
    ),
)
