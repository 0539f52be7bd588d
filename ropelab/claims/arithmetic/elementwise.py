"""Claims about the ways to write the rotation: sparse matrix, elementwise form, rotate_half."""

from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.claims.arithmetic.turning import Pairing, join, rotation_matrix, split, swapped, turned
from ropelab.claims.numbers import Array, frequencies, gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.runs.thresholds import EXACT

HEAD, BASE, DRAWS, POSITION, DISTANCE = 32, 10000.0, 96, 1000, 3


def elementwise_form(
    *, last_pair: Literal["as printed", "as meant"] = "as meant", seed: int = 0
) -> Evidence:
    """Compare the matrix product with x cos + swapped(x) sin, pair by pair."""
    x, angles = gaussian(seed, DRAWS, HEAD), POSITION * frequencies(HEAD, BASE)
    other = swapped(x, "interleaved")
    if last_pair == "as printed":
        other[:, -2:] = np.stack((-x[:, -2], x[:, -1]), -1)
    doubled = np.repeat(angles, 2)
    written = x * np.cos(doubled) + other * np.sin(doubled)
    off = np.abs(written - x @ rotation_matrix(angles).T).max(0)
    wrong = int((off.reshape(-1, 2).max(-1) > EXACT).sum())
    return Evidence(
        expected=f"agreement to {EXACT:g} in every pair",
        findings=(
            part(
                f"pairs that differ at position {POSITION}",
                f"{wrong} of {len(angles)}, by up to {tiny(largest(off))}",
                wrong == 0,
                largest(off),
            ),
        ),
    )


def dense_product(*, head_dim: int = 64) -> Evidence:
    """Count multiplications of the matrix product and of the elementwise form."""
    matrix = rotation_matrix(frequencies(head_dim, BASE))
    zeros = int((matrix == 0).sum())
    dense, elementwise = matrix.size, 2 * head_dim
    return Evidence(
        expected="most entries are zero, and the elementwise form needs fewer multiplications",
        findings=(
            part("zeros in the matrix", f"{zeros} of {dense}", zeros > dense / 2, zeros / dense),
            part(
                f"multiplications for a head of {head_dim}, matrix and elementwise",
                f"{dense} and {elementwise}",
                elementwise < dense,
                dense / elementwise,
            ),
        ),
    )


def is_one_rotation(*, head_dim: int = HEAD) -> Evidence:
    """Lengths and orientation under the whole matrix: orthogonal, determinant 1."""
    matrix = rotation_matrix(POSITION * frequencies(head_dim, BASE))
    off = largest(matrix @ matrix.T - np.eye(head_dim))
    determinant = float(np.linalg.det(matrix))
    return Evidence(
        expected="an orthogonal matrix of determinant 1",
        findings=(
            part("the matrix times its transpose", f"{tiny(off)} from 1", off <= EXACT, off),
            part(
                "determinant",
                f"{determinant:.12f}",
                abs(determinant - 1) <= EXACT,
                determinant,
            ),
        ),
    )


def rotate_half_equivalent(*, head_dim: int = HEAD, seed: int = 0) -> Evidence:
    """Scores of both pairings: after a fixed permutation, as they are, and with mixed tables."""
    q, k = gaussian(seed, 2, DRAWS, head_dim)
    pairwise = _score(q, k, "interleaved")
    ordered_q, ordered_k = (join(*split(x, "interleaved"), "half") for x in (q, k))
    permuted, unpermuted = _score(ordered_q, ordered_k, "half"), _score(q, k, "half")
    near, far = (_mixed_score(q, k, m) for m in (0, POSITION))
    same, apart, moved = (
        largest(x) for x in (permuted - pairwise, unpermuted - pairwise, far - near)
    )
    return Evidence(
        expected="the same scores as rotating neighbouring features",
        findings=(
            part("features reordered once, scores", f"{tiny(same)} apart", same <= EXACT, same),
            limit("features as they are, scores", f"{apart:.1f} apart", apart <= EXACT, apart),
            limit(
                "rotate_half with tables for neighbouring features, "
                f"change of scores when both positions move by {POSITION}",
                f"{moved:.1f}",
                moved <= EXACT,
                moved,
            ),
        ),
    )


def _score(
    q: Float[Array, "draws d"], k: Float[Array, "draws d"], pairing: Pairing
) -> Float[Array, " draws"]:
    """Scores of q at POSITION and k at DISTANCE more."""
    inv_freq = frequencies(q.shape[-1], BASE)
    at_q, at_k = POSITION * inv_freq, (POSITION + DISTANCE) * inv_freq
    return (turned(q, at_q, pairing) * turned(k, at_k, pairing)).sum(-1)


def _mixed_score(
    q: Float[Array, "draws d"], k: Float[Array, "draws d"], m: int
) -> Float[Array, " draws"]:
    """Scores with rotate_half, but with each cos and sin repeated for two neighbours."""
    sides = []
    for x, position in ((q, m), (k, m + DISTANCE)):
        angles = np.repeat(position * frequencies(q.shape[-1], BASE), 2)
        sides.append(x * np.cos(angles) + swapped(x, "half") * np.sin(angles))
    return (sides[0] * sides[1]).sum(-1)


CLAIMS = (
    Claim(
        id="sparse-elementwise",
        passages=(
            Passage(
                "000",
                "§3, many dimensions",
                47,
                "这个公式也可修改为等值的",
                "the formula can be changed into an equal one",
            ),
            Passage(
                "003",
                "RoPE",
                464,
                "实际上更简洁的n维表示",
                "in fact a more compact n-dimensional form",
            ),
            Passage(
                "004",
                "§2",
                31,
                "考虑到该矩阵为稀疏矩阵,我们可以直接转换成如下形式",
                "as the matrix is sparse, it can be turned into the following form",
            ),
        ),
        statement="The product with the sparse block-diagonal matrix equals the elementwise form "
        "x cos + (-x2, x1, -x4, x3, ...) sin.",
        check=elementwise_form,
    ),
    Claim(
        id="dense-product",
        passages=(
            Passage(
                "000",
                "§3, many dimensions",
                47,
                "因为矩阵中大部分数字是0会导致多余的计算量",
                "because most numbers of the matrix are 0, work is wasted",
            ),
        ),
        statement="Multiplying by the whole matrix wastes work, because most of it is zero.",
        check=dense_product,
    ),
    Claim(
        id="one-rotation",
        passages=(
            Passage(
                "002",
                "§3, end",
                126,
                "该旋转由多个相互正交的二维旋转组成",
                "this rotation consists of several mutually orthogonal plane rotations",
            ),
        ),
        statement="Rotating every pair by its own angle is one rotation of the whole vector, "
        "made of rotations in planes at right angles.",
        check=is_one_rotation,
    ),
    Claim(
        id="elementwise-as-printed",
        passages=(
            Passage(
                "003",
                "RoPE, the n-dimensional form",
                466,
                r"-x_{d - 1} \\ x_d \end{pmatrix} \otimes",
            ),
        ),
        statement="The elementwise form as printed, whose sine vector ends in (-x_(d-1), x_d), "
        "is the rotation.",
        check=partial(elementwise_form, last_pair="as printed"),
    ),
    Claim(
        id="rotate-half",
        passages=(
            Passage(
                "003",
                "RoPE, why rotate_half",
                560,
                "这种做法等价于逐对旋转,但计算更高效",
                "this is equivalent to rotating pair by pair, but cheaper to compute",
            ),
        ),
        statement="rotate_half, which pairs the two halves of a head, is equivalent to rotating "
        "neighbouring features.",
        check=rotate_half_equivalent,
    ),
)
