"""Checks of claims about forms of the rotation of one pair and of a whole head: complex
numbers, matrices, elementwise, and rotate_half.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import cmath
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.claims import arrays
from ropelab.claims.attention import compute_scores
from ropelab.claims.record import Findings, claim
from ropelab.runs.thresholds import EXACT

# The example of a script, rope_basics.py: the query (1, 0) and the key (0.8, 0.6) as
# complex numbers, rotated by 30 degrees per token, at two pairs of positions of query and
# key. The distance is 3 in both.
Q = complex(1.0, 0.0)
K = complex(0.8, 0.6)
THETA = math.radians(30)
POSITION_PAIRS = ((5, 8), (3, 6))

# The features of a head, the base of its frequencies, and the number of random vectors.
HEAD = 32
BASE = 10000.0
DRAWS = 96
# The position of a query, and the distance of its key.
POSITION = 1000
DISTANCE = 3


# One pair of features


def _name_example(theta: float) -> str:
    """Name the vectors of the example, and the turn of a token."""
    q = f"({Q.real:g}, {Q.imag:g})"
    k = f"({K.real:g}, {K.imag:g})"
    return f"q = {q} and k = {k}, {math.degrees(theta):.4g} degrees per token"


def _rotate(v: complex, angle: float) -> complex:
    """Multiply (re, im) by the matrix [[cos, -sin], [sin, cos]]."""
    # A product of complex numbers would be the form that the matrix is compared with.
    cos = math.cos(angle)
    sin = math.sin(angle)
    return complex(cos * v.real - sin * v.imag, sin * v.real + cos * v.imag)


def _compute_dot(a: complex, b: complex) -> float:
    return a.real * b.real + a.imag * b.imag


@claim("three-forms")
def check_three_forms(findings: Findings, positions: Sequence[int] = (5, 8)) -> None:
    """Compute a score by complex numbers, by matrices, and by real numbers."""
    m, n = positions
    theta = 0.7
    rotated_q = Q * cmath.exp(1j * m * theta)
    rotated_k = K * cmath.exp(1j * n * theta)
    product = rotated_q * rotated_k.conjugate()
    angle = (m - n) * theta
    cross = Q.real * K.imag - Q.imag * K.real
    forms = {
        "complex": product.real,
        "matrix": _compute_dot(_rotate(Q, m * theta), _rotate(K, n * theta)),
        "real": _compute_dot(Q, K) * math.cos(angle) + cross * math.sin(angle),
    }
    spread = max(forms.values()) - min(forms.values())

    numbers = ", ".join(f"{name} {score:.6f}" for name, score in forms.items())
    findings.add_part(
        f"score of positions {m} and {n}, {_name_example(theta)}",
        numbers,
        spread <= EXACT,
        spread,
    )


@claim("thirty-degrees")
def check_thirty_degrees(
    findings: Findings, positions: Sequence[tuple[int, int]] = POSITION_PAIRS
) -> None:
    """Compute the score of the example at several pairs of positions."""
    scores = {}
    # The table for the figure has a row per vector.
    rows = []
    for m, n in positions:
        pair = f"{m} and {n}"
        query = _rotate(Q, m * THETA)
        key = _rotate(K, n * THETA)
        scores[pair] = _compute_dot(query, key)
        rows.append((f"positions {pair}", "query", m, query.real, query.imag))
        rows.append((f"positions {pair}", "key", n, key.real, key.imag))
    findings.series["rotation"] = pd.DataFrame(
        rows, columns=["case", "vector", "position", "x", "y"]
    )

    spread = max(scores.values()) - min(scores.values())
    numbers = ", ".join(f"{pair} {score:.4f}" for pair, score in scores.items())
    findings.add_part("scores by positions", numbers, spread <= EXACT, spread)


@claim("relative-matrix-sign")
def check_sign_of_matrix(findings: Findings, theta: float = THETA) -> None:
    """Write the score with one matrix between q and k, for both signs of its angle."""
    (m, n), _ = POSITION_PAIRS
    true_score = _compute_dot(_rotate(Q, m * theta), _rotate(K, n * theta))
    findings.expected = f"{true_score:.4f}, the score of the rotated vectors"
    for words, sign in (("as introduced", 1), ("that the proof ends in", -1)):
        score = _compute_dot(Q, _rotate(K, sign * (m - n) * theta))
        error = score - true_score
        what = f"with the matrix {words}, {_name_example(theta)}"
        findings.add_part(what, f"{score:.4f}", abs(error) <= EXACT, error)


@claim("unrotated-query")
def check_unrotated_query(findings: Findings, theta: float = THETA) -> None:
    """Compute the scores of equal distances if only the key is rotated."""
    first, second = POSITION_PAIRS
    _, first_key = first
    _, second_key = second
    first_score = _compute_dot(Q, _rotate(K, first_key * theta))
    second_score = _compute_dot(Q, _rotate(K, second_key * theta))
    difference = first_score - second_score
    what = (
        f"scores of positions {first} and {second} with the query as it is,"
        f" {_name_example(theta)}"
    )
    measured = f"{first_score:.4f} and {second_score:.4f}"
    findings.add_part(what, measured, abs(difference) <= EXACT, difference)


@claim("counterclockwise", "clockwise")
def check_direction(findings: Findings, clockwise: bool, theta: float = THETA) -> None:
    """Rotate (1, 0) by a positive angle: clockwise if its second coordinate becomes
    negative. `clockwise` is what the claim says.
    """
    y = _rotate(Q, theta).imag
    is_clockwise = y < 0
    what = "second coordinate of the turned (1, 0)"
    findings.add_part(what, f"{y:+.3f}", is_clockwise == clockwise, y)


# All pairs of a head


def rotate_elementwise(
    x: Float[arrays.Array, "... d"],
    angles: Float[arrays.Array, "... d"],
    swap: arrays.Pairing,
) -> arrays.Array:
    """Rotate vectors as a printed listing does, which has an angle for each feature.

    `swap` is the pairing by which the listing swaps features.
    """
    return x * np.cos(angles) + arrays.swap_pairs(x, swap) * np.sin(angles)


@claim("sparse-elementwise", "elementwise-as-printed", bound=EXACT)
def check_elementwise_form(
    findings: Findings,
    last_pair: Literal["as printed", "as meant"] = "as meant",
    seed: int = 0,
) -> None:
    """Compare the elementwise form with the matrix."""
    x = arrays.gaussian(seed, DRAWS, HEAD)
    angles = POSITION * arrays.frequencies(HEAD, BASE)
    swapped = arrays.swap_pairs(x, "interleaved")
    # The note prints (-x[d-1], x[d]) for the last pair, in the place of (-x[d], x[d-1]).
    if last_pair == "as printed":
        swapped[:, -2:] = np.stack((-x[:, -2], x[:, -1]), axis=-1)
    # Each angle twice, for the two features of its pair.
    angle_of_feature = np.repeat(angles, 2)
    rotated = x * np.cos(angle_of_feature) + swapped * np.sin(angle_of_feature)
    errors = np.abs(rotated - x @ arrays.rotation_matrix(angles).T)  # [draws, features]
    error_of_feature = errors.max(axis=0)
    error_of_pair = error_of_feature.reshape(-1, 2).max(axis=-1)
    wrong_pairs = int((error_of_pair > EXACT).sum())
    largest_error = float(error_of_pair.max())

    what = f"pairs that differ at position {POSITION}"
    measured = f"{wrong_pairs} of {len(angles)}"
    findings.add_part(what, measured, wrong_pairs == 0, largest_error)


@claim("dense-product")
def check_dense_product(findings: Findings, head_dim: int = 64) -> None:
    """Count the zeros of the matrix, and the multiplications with and without it."""
    matrix = arrays.rotation_matrix(arrays.frequencies(head_dim, BASE))
    entries = matrix.size
    zeros = int((matrix == 0).sum())
    share = zeros / entries
    findings.add_part(
        "zeros in the matrix", f"{zeros} of {entries}", share > 0.5, share
    )
    # The matrix needs a multiplication for each entry. The elementwise form multiplies
    # each feature by a cosine and by a sine.
    multiplications = 2 * head_dim
    ratio = entries / multiplications
    what = f"multiplications for a head of {head_dim}, matrix and elementwise"
    measured = f"{entries} and {multiplications}"
    findings.add_part(what, measured, multiplications < entries, ratio)


@claim("one-rotation")
def check_one_rotation(findings: Findings) -> None:
    """Test that the matrix of all pairs is a rotation: its transpose is its inverse, and
    its determinant is 1.
    """
    matrix = arrays.rotation_matrix(POSITION * arrays.frequencies(HEAD, BASE))
    difference = arrays.max_abs(matrix @ matrix.T - np.eye(HEAD))
    what = "difference of the matrix times its transpose from 1"
    findings.add_zero(what, difference, EXACT)
    determinant = float(np.linalg.det(matrix))
    is_one = abs(determinant - 1) <= EXACT
    findings.add_part("determinant", f"{determinant:.12f}", is_one, determinant)


@claim("rotate-half")
def check_rotate_half(findings: Findings, head_dim: int = HEAD, seed: int = 0) -> None:
    """Compare the scores of pairs of neighbours with the scores of pairs across the
    halves (rotate_half): for reordered features, for the same features, and for tables
    of the other pairing.
    """
    q, k = arrays.gaussian(seed, 2, DRAWS, head_dim)
    inv_freq = arrays.frequencies(head_dim, BASE)
    query_position = POSITION
    key_position = POSITION + DISTANCE
    neighbour_scores = compute_scores(
        q, k, query_position, key_position, pairing="interleaved"
    )
    reordered_q = arrays.join(*arrays.split(q, "interleaved"), "half")
    reordered_k = arrays.join(*arrays.split(k, "interleaved"), "half")
    half_scores = compute_scores(reordered_q, reordered_k, query_position, key_position)
    difference = arrays.max_abs(half_scores - neighbour_scores)
    what = "difference of scores, features reordered once"
    findings.add_zero(what, difference, EXACT)

    half_scores = compute_scores(q, k, query_position, key_position)
    difference = arrays.max_abs(half_scores - neighbour_scores)
    what = "difference of scores, features as they are"
    findings.add_zero(what, difference, EXACT, role="limit")

    def score_with_mixed_pairings(position: int) -> arrays.Array:
        # It is a common mistake to use rotate_half with tables that repeat each cos and
        # sin for two neighbours.
        q_angles = np.repeat(position * inv_freq, 2)
        k_angles = np.repeat((position + DISTANCE) * inv_freq, 2)
        rotated_q = rotate_elementwise(q, q_angles, "half")
        rotated_k = rotate_elementwise(k, k_angles, "half")
        return (rotated_q * rotated_k).sum(-1)

    scores_at_start = score_with_mixed_pairings(0)
    moved_scores = score_with_mixed_pairings(POSITION)
    what = (
        "rotate_half with tables for neighbouring features, change of scores when both"
        f" positions move by {POSITION}"
    )
    change = arrays.max_abs(moved_scores - scores_at_start)
    findings.add_zero(what, change, EXACT, role="limit")


@claim("rotate-half-efficient")
def check_cost_of_rotate_half(findings: Findings) -> None:
    """Count the operations of both pairings; only a machine could say which is faster."""
    # Each feature is multiplied by a cosine and by a sine, and the two are added.
    operations = 3 * HEAD
    what = f"operations for a head of {HEAD}, halves and neighbours"
    measured = f"{operations} and {operations}; their time depends on the machine"
    findings.add_part(what, measured, agrees=None)
