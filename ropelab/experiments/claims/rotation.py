"""Claims about the rotation itself: what a rotated score depends on."""

import cmath
import math
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.experiments.claims.attention_order import attention
from ropelab.experiments.claims.randoms import gaussian, largest
from ropelab.experiments.claims.record import Claim, Evidence, limit, part
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.rotary import Pairing, cos_sin, join_pairs, rotate
from ropelab.rope.scaling import RopePlan

EXACT = 1e-10
"""Angles up to 1e4 rad are known to 2e-12 in float64; a score sums a few hundred such products."""


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """Random queries and keys under RoPE."""

    head_dim: int = 64
    base: float = 10000.0
    pairing: Pairing = "half"
    draws: int = 256
    seed: int = 0
    distance: int = 3
    shifts: tuple[int, ...] = (1, 100, 4096)

    def draw(self) -> tuple[Float[Tensor, "draws d"], Float[Tensor, "draws d"]]:
        """Queries and keys of independent standard normal features."""
        q, k = gaussian(self.seed, 2, self.draws, self.head_dim)
        return q, k

    def at(self, x: Float[Tensor, "draws d"], position: int, sign: int = 1) -> Tensor:
        """Every row of `x` rotated to one position."""
        plan = RopePlan(inverse_frequencies(self.head_dim, self.base))
        cos, sin = cos_sin(torch.full((len(x),), position), plan)
        return rotate(x, cos, sin, pairing=self.pairing, sign=sign)

    def scores(self, m: int, n: int) -> Float[Tensor, "draws"]:
        """(R(m) q) . (R(n) k) for every draw."""
        q, k = self.draw()
        return (self.at(q, m) * self.at(k, n)).sum(-1)


def relative_only(given: Rotated) -> Evidence:
    """Shift both positions and look for a change; change the distance and look for one."""
    near = given.scores(0, given.distance)
    moved = max(largest(given.scores(s, s + given.distance) - near) for s in given.shifts)
    farther = largest(given.scores(0, given.distance + 1) - near)
    return Evidence(
        expected=f"equal distances give equal scores, to {EXACT:g}",
        findings=(
            part(
                f"change when both positions move by up to {max(given.shifts)}",
                f"{moved:.1e}",
                moved <= EXACT,
                moved,
            ),
            part("change with one more token between", f"{farther:.1f}", farther > EXACT, farther),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Plane:
    """One pair of features, a frequency and two positions; the default is a script's example."""

    q: tuple[float, float] = (1.0, 0.0)
    k: tuple[float, float] = (0.8, 0.6)
    theta: float = math.radians(30)
    positions: tuple[tuple[int, int], ...] = ((5, 8), (3, 6))


def three_forms(given: Plane) -> Evidence:
    """Compute the score by complex numbers, by matrices and by the sum of two cosines."""
    m, n = given.positions[0]
    forms = {
        "complex": _complex_score(given, m, n),
        "matrix": _matrix_score(given, m, n),
        "real": _real_score(given, m, n),
    }
    spread = max(forms.values()) - min(forms.values())
    numbers = ", ".join(f"{name} {score:.6f}" for name, score in forms.items())
    return Evidence(
        expected="one number",
        findings=(part(f"score of positions {m} and {n}", numbers, spread <= EXACT, spread),),
    )


def _complex_score(given: Plane, m: int, n: int) -> float:
    q = complex(*given.q) * cmath.exp(1j * m * given.theta)
    k = complex(*given.k) * cmath.exp(1j * n * given.theta)
    return (q * k.conjugate()).real


def _turn(angle: float) -> Float[Tensor, "2 2"]:
    """The matrix that turns a column vector counterclockwise."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)


def _columns(given: Plane) -> Float[Tensor, "2 2"]:
    return torch.tensor([given.q, given.k], dtype=torch.float64)


def _matrix_score(given: Plane, m: int, n: int) -> float:
    q, k = _columns(given)
    return float((_turn(m * given.theta) @ q) @ (_turn(n * given.theta) @ k))


def _real_score(given: Plane, m: int, n: int) -> float:
    (q1, q2), (k1, k2), angle = given.q, given.k, (m - n) * given.theta
    return (q1 * k1 + q2 * k2) * math.cos(angle) + (q1 * k2 - q2 * k1) * math.sin(angle)


def thirty_degrees(given: Plane) -> Evidence:
    """The example of the script: two pairs of positions at the same distance."""
    scores = [_matrix_score(given, m, n) for m, n in given.positions]
    spread = max(scores) - min(scores)
    numbers = ", ".join(
        f"{m} and {n} {score:.4f}" for (m, n), score in zip(given.positions, scores, strict=True)
    )
    return Evidence(
        expected="equal scores",
        findings=(part("scores by positions", numbers, spread <= EXACT, spread),),
        series={"rotation": _turned(given)},
    )


def _turned(given: Plane) -> pd.DataFrame:
    """Both vectors at their positions."""
    q, k = _columns(given)
    rows = [
        (f"positions {m} and {n}", name, position, *(_turn(position * given.theta) @ v).tolist())
        for m, n in given.positions
        for name, v, position in (("query", q, m), ("key", k, n))
    ]
    return pd.DataFrame(rows, columns=["case", "vector", "position", "x", "y"])


def sign_of_relative_matrix(given: Plane) -> Evidence:
    """Put (m - n) theta into the matrix as printed, and with the sines exchanged."""
    m, n = given.positions[0]
    q, k = _columns(given)
    true, angle = _matrix_score(given, m, n), (m - n) * given.theta
    printed, proved = (float(q @ _turn(sign * angle) @ k) for sign in (1, -1))
    return Evidence(
        expected=f"{true:.4f}, the score of the rotated vectors",
        findings=(
            part(
                "with the matrix as introduced",
                f"{printed:.4f}",
                abs(printed - true) <= EXACT,
                printed - true,
            ),
            part(
                "with the matrix that the proof ends in",
                f"{proved:.4f}",
                abs(proved - true) <= EXACT,
                proved - true,
            ),
        ),
    )


def scalar_factor(given: Rotated) -> Evidence:
    """Divide rotated scores by unrotated ones: a factor of the distance is one number."""
    ratio = given.scores(0, given.distance) / given.scores(0, 0)
    low, high = (float(ratio.quantile(p)) for p in (0.05, 0.95))
    return Evidence(
        expected="one number for all queries and keys",
        findings=(
            part(
                f"score at distance {given.distance} over score at 0, 5 to 95 % of random q, k",
                f"{low:.2f} to {high:.2f}",
                high - low <= EXACT,
                high - low,
            ),
        ),
    )


def knows_absolute(given: Rotated) -> Evidence:
    """Compare rotated vectors at two positions, and what attention makes of shifted tokens."""
    q, _ = given.draw()
    codes = largest(given.at(q, 10) - given.at(q, 5))
    shifted = max(largest(_attended(given, s) - _attended(given, 0)) for s in given.shifts)
    return Evidence(
        expected="something that attention puts out changes when all positions move",
        findings=(
            part("the rotated vectors at positions 5 and 10", f"{codes:.1f} apart", codes > EXACT),
            part(
                f"attention's output after all positions move by up to {max(given.shifts)}",
                f"{shifted:.1e} apart",
                shifted > EXACT,
                shifted,
            ),
        ),
    )


def _attended(given: Rotated, shift: int, tokens: int = 16) -> Float[Tensor, "tokens d"]:
    """Causal attention over tokens at positions shift, shift + 1, ..."""
    q, k, v = gaussian(given.seed, 3, tokens, given.head_dim)
    plan = RopePlan(inverse_frequencies(given.head_dim, given.base))
    cos, sin = cos_sin(torch.arange(shift, shift + tokens), plan)
    q, k = (rotate(x, cos, sin, pairing=given.pairing) for x in (q, k))
    return attention(q, k, v, causal=True)


def clockwise(given: Plane) -> Evidence:
    """Turn (1, 0) by a small positive angle: clockwise would move it below the axis."""
    y = float((_turn(min(given.theta, 1.0)) @ torch.tensor([1.0, 0.0], dtype=torch.float64))[1])
    return Evidence(
        expected="a positive angle moves (1, 0) downwards",
        findings=(part("second coordinate of the turned (1, 0)", f"{y:+.3f}", y < 0, y),),
    )


def either_direction(given: Rotated) -> Evidence:
    """Turn the other way, with the same and with mirrored queries and keys."""
    q, k = given.draw()
    there = (given.at(q, 0) * given.at(k, given.distance)).sum(-1)
    back = (given.at(q, 0, -1) * given.at(k, given.distance, -1)).sum(-1)
    ones = torch.ones(given.head_dim // 2, dtype=torch.float64)
    mirror = join_pairs(ones, -ones, given.pairing)
    q, k = q * mirror, k * mirror
    mirrored = (given.at(q, 0, -1) * given.at(k, given.distance, -1)).sum(-1)
    same, apart = largest(mirrored - there), largest(back - there)
    return Evidence(
        expected="equal scores",
        findings=(
            part(
                "with the second feature of each pair mirrored", f"{same:.1e} apart", same <= EXACT
            ),
            limit("with the same features", f"{apart:.1f} apart", apart <= EXACT, apart),
        ),
    )


def same_distance_same_score(given: Rotated) -> Evidence:
    """Scores of different random tokens at equal distance, as the script prints them."""
    q, k = gaussian(given.seed, 2, 2, given.draws, given.head_dim)
    apart = [(given.at(q[i], i) * given.at(k[i], i)).sum(-1) for i in (0, 1)]
    typical = float((apart[0] - apart[1]).square().mean().sqrt())
    return Evidence(
        expected="q0.k0 is about q1.k1",
        findings=(
            part(
                "typical difference, q and k drawn anew for each position",
                f"{typical:.1f}",
                typical <= 1e-3,
                typical,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="relative-only",
        source="note 000 (proof); note 001 §4.2; note 002 §3; note 003 (RoPE)",
        statement="The score of a rotated query and a rotated key depends on n - m only.",
        inputs=Rotated(),
        check=relative_only,
    ),
    Claim(
        id="three-forms",
        source="note 000 (proof); note 002 §3",
        statement="The complex form, the matrix form and the real form of the rotated score are "
        "the same number.",
        inputs=Plane(theta=0.7, positions=((5, 8),)),
        check=three_forms,
    ),
    Claim(
        id="thirty-degrees",
        source="rope_basics.py, experiment 4",
        statement="Turning by 30 degrees per token, (1, 0) and (0.8, 0.6) score the same at "
        "positions 5 and 8 as at 3 and 6.",
        inputs=Plane(),
        check=thirty_degrees,
    ),
    Claim(
        id="relative-matrix-sign",
        source="note 000 (formulas)",
        statement="The rotated score is q^T [[cos, -sin], [sin, cos]] k at the angle "
        "(m - n) theta, as the formula is introduced, and equals what the proof ends in.",
        inputs=Plane(),
        check=sign_of_relative_matrix,
    ),
    Claim(
        id="scalar-factor",
        source="note 003 §8, §9; MiniMind knowledge base §2.3",
        statement="RoPE multiplies the score q.k by a factor that depends on the distance only.",
        inputs=Rotated(),
        check=scalar_factor,
    ),
    Claim(
        id="absolute-too",
        source="note 001 §4.3",
        statement="RoPE holds absolute positions too: the model can tell that a word stands at "
        "position 5.",
        inputs=Rotated(),
        check=knows_absolute,
    ),
    Claim(
        id="clockwise",
        source="rope_multi_frequency.py",
        statement="RoPE turns clockwise, by positive angles.",
        inputs=Plane(),
        check=clockwise,
    ),
    Claim(
        id="either-direction",
        source="rope_multi_frequency.py",
        statement="Turning clockwise or counterclockwise has the same effect.",
        inputs=Rotated(),
        check=either_direction,
    ),
    Claim(
        id="script-equal-scores",
        source="rope_explained.py",
        statement="With random q and k at every position, q0.k0 is about q1.k1 because the "
        "distance is the same.",
        inputs=Rotated(),
        check=same_distance_same_score,
    ),
)
