"""Claims about one pair of features: the forms of its rotation, its sign and its direction."""

import cmath
import math
from functools import partial

import pandas as pd

from ropelab.claims.record import Claim, Evidence, Passage, part
from ropelab.runs.thresholds import EXACT

Q, K = complex(1.0, 0.0), complex(0.8, 0.6)
"""The vectors of a script's example, (1, 0) and (0.8, 0.6)."""
THETA = math.radians(30)
POSITIONS = ((5, 8), (3, 6))
Positions = tuple[tuple[int, int], ...]


def _turn(v: complex, angle: float) -> complex:
    """The matrix [[cos, -sin], [sin, cos]] applied to (re, im)."""
    cos, sin = math.cos(angle), math.sin(angle)
    return complex(cos * v.real - sin * v.imag, sin * v.real + cos * v.imag)


def _dot(a: complex, b: complex) -> float:
    return a.real * b.real + a.imag * b.imag


def _matrix_score(m: int, n: int, theta: float) -> float:
    return _dot(_turn(Q, m * theta), _turn(K, n * theta))


def three_forms(*, positions: tuple[int, int] = (5, 8), theta: float = 0.7) -> Evidence:
    """Compute the score by complex numbers, by matrices and by the sum of two cosines."""
    m, n = positions
    product = Q * cmath.exp(1j * m * theta) * (K * cmath.exp(1j * n * theta)).conjugate()
    angle, cross = (m - n) * theta, Q.real * K.imag - Q.imag * K.real
    forms = {
        "complex": product.real,
        "matrix": _matrix_score(m, n, theta),
        "real": _dot(Q, K) * math.cos(angle) + cross * math.sin(angle),
    }
    spread = max(forms.values()) - min(forms.values())
    numbers = ", ".join(f"{name} {score:.6f}" for name, score in forms.items())
    return Evidence(
        expected="one number",
        findings=(part(f"score of positions {m} and {n}", numbers, spread <= EXACT, spread),),
    )


def thirty_degrees(*, positions: Positions = POSITIONS) -> Evidence:
    """The example of the script: two pairs of positions at the same distance."""
    scores = [_matrix_score(m, n, THETA) for m, n in positions]
    spread = max(scores) - min(scores)
    numbers = ", ".join(
        f"{m} and {n} {score:.4f}" for (m, n), score in zip(positions, scores, strict=True)
    )
    return Evidence(
        expected="equal scores",
        findings=(part("scores by positions", numbers, spread <= EXACT, spread),),
        series={"rotation": _turned(positions)},
    )


def _turned(positions: Positions) -> pd.DataFrame:
    """Both vectors at their positions."""
    rows = []
    for m, n in positions:
        for name, vector, position in (("query", Q, m), ("key", K, n)):
            at = _turn(vector, position * THETA)
            rows.append((f"positions {m} and {n}", name, position, at.real, at.imag))
    return pd.DataFrame(rows, columns=["case", "vector", "position", "x", "y"])


def sign_of_relative_matrix(*, theta: float = THETA) -> Evidence:
    """Put (m - n) theta into the matrix as printed, and with the sines exchanged."""
    m, n = POSITIONS[0]
    true, angle = _matrix_score(m, n, theta), (m - n) * theta
    printed, proved = (_dot(Q, _turn(K, sign * angle)) for sign in (1, -1))
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


def direction(*, clockwise: bool, theta: float = THETA) -> Evidence:
    """Turn (1, 0) by a small positive angle: clockwise would move it below the axis."""
    y = _turn(Q, theta).imag
    return Evidence(
        expected=f"a positive angle moves (1, 0) {'downwards' if clockwise else 'upwards'}",
        findings=(
            part("second coordinate of the turned (1, 0)", f"{y:+.3f}", (y < 0) == clockwise, y),
        ),
    )


CLAIMS = (
    Claim(
        id="three-forms",
        passages=(
            Passage(
                "002",
                "§3",
                61,
                "将基于复数旋转的位置编码转换为实数空间中的向量运算",
                "turns the encoding by complex rotation into operations on real vectors",
            ),
            Passage(
                "000",
                "§3, proof",
                38,
                "类比到实数坐标和虚数坐标",
                "by analogy to a real and an imaginary coordinate",
            ),
            Passage(
                "001",
                "§6.2",
                415,
                "这本质上是复数旋转的实数实现",
                "in essence this is complex rotation carried out in real numbers",
            ),
        ),
        statement="The complex form, the matrix form and the real form of the rotated score are "
        "the same number.",
        check=three_forms,
    ),
    Claim(
        id="thirty-degrees",
        passages=(Passage("rope_basics", "experiment 4"),),
        statement="Turning by 30 degrees per token, (1, 0) and (0.8, 0.6) score the same at "
        "positions 5 and 8 as at 3 and 6.",
        check=thirty_degrees,
    ),
    Claim(
        id="relative-matrix-sign",
        passages=(
            Passage(
                "000",
                "§3, formulas",
                34,
                r"\begin{pmatrix} cos((m-n)\theta) & -sin((m-n)\theta) \\ sin((m-n)\theta)",
            ),
        ),
        statement="The rotated score is q^T [[cos, -sin], [sin, cos]] k at the angle "
        "(m - n) theta, as the formula is introduced, and equals what the proof ends in.",
        check=sign_of_relative_matrix,
    ),
    Claim(
        id="counterclockwise",
        passages=(
            Passage(
                "004",
                "§1",
                9,
                "等价于将一个向量逆时针旋转",
                "equals turning a vector counterclockwise",
            ),
        ),
        statement="The rotation matrix turns a vector counterclockwise.",
        check=partial(direction, clockwise=False),
    ),
    Claim(
        id="clockwise",
        passages=(Passage("rope_multi_frequency"),),
        statement="RoPE turns clockwise, by positive angles.",
        check=partial(direction, clockwise=True),
    ),
)
