"""Claims about one pair of features: the forms of its rotation, its sign and its direction."""

import cmath
import math
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.experiments.claims.record import Claim, Evidence, part
from ropelab.experiments.claims.rotation import EXACT


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


def clockwise(given: Plane) -> Evidence:
    """Turn (1, 0) by a small positive angle: clockwise would move it below the axis."""
    y = float((_turn(min(given.theta, 1.0)) @ torch.tensor([1.0, 0.0], dtype=torch.float64))[1])
    return Evidence(
        expected="a positive angle moves (1, 0) downwards",
        findings=(part("second coordinate of the turned (1, 0)", f"{y:+.3f}", y < 0, y),),
    )


CLAIMS = (
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
        id="clockwise",
        source="rope_multi_frequency.py",
        statement="RoPE turns clockwise, by positive angles.",
        inputs=Plane(),
        check=clockwise,
    ),
)
