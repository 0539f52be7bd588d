"""Checks of the forms of the rotation: one pair, matrix, elementwise, printed code and
tables.
"""

import cmath
import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.claims import arrays
from ropelab.claims.attention import scores
from ropelab.claims.record import Findings, claim
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.runs.files import table_beside
from ropelab.runs.thresholds import EXACT, FLOAT32_SCORES

# The example of rope_basics.py, experiment 4: the query (1, 0) and the key (0.8, 0.6) as
# complex numbers, rotated by 30 degrees per token. The positions of query and key are
# 3 apart in both pairs.
Q = complex(1.0, 0.0)
K = complex(0.8, 0.6)
THETA = math.radians(30)
PLACES = ((5, 8), (3, 6))

# The features of a head, the base of its frequencies, and the number of random vectors.
HEAD = 32
BASE = 10000.0
DRAWS = 96
# The position of a query, and the distance of its key.
POSITION = 1000
DISTANCE = 3
# The tensors with which a listing is tried: batch, heads, tokens, features.
SHAPE = (8, 12, 10, 32)
# The number of tokens by which all positions are moved.
SHIFT = 5
# The vectors of a worked example, and the rotated ones that it prints.
EXAMPLE = table_beside(__file__)["example"]
VECTORS = np.array(EXAMPLE["vectors"])
PRINTED = np.array(EXAMPLE["printed"])


def _rotate(v: complex, angle: float) -> complex:
    # This multiplies (re, im) by the matrix [[cos, -sin], [sin, cos]]. A product of
    # complex numbers would be the form that the matrix is compared with.
    cos = math.cos(angle)
    sin = math.sin(angle)
    return complex(cos * v.real - sin * v.imag, sin * v.real + cos * v.imag)


def _dot(a: complex, b: complex) -> float:
    return a.real * b.real + a.imag * b.imag


@claim("three-forms")
def three_forms(findings: Findings, positions: Sequence[int] = (5, 8)) -> None:
    (m, n) = positions
    theta = 0.7
    rotated_q = Q * cmath.exp(1j * m * theta)
    rotated_k = K * cmath.exp(1j * n * theta)
    product = rotated_q * rotated_k.conjugate()
    angle = (m - n) * theta
    cross = Q.real * K.imag - Q.imag * K.real
    forms = {
        "complex": product.real,
        "matrix": _dot(_rotate(Q, m * theta), _rotate(K, n * theta)),
        "real": _dot(Q, K) * math.cos(angle) + cross * math.sin(angle),
    }
    spread = max(forms.values()) - min(forms.values())

    numbers = ", ".join(f"{name} {score:.6f}" for name, score in forms.items())
    findings.part(f"score of positions {m} and {n}", numbers, spread <= EXACT, spread)


@claim("thirty-degrees")
def thirty_degrees(
    findings: Findings, positions: Sequence[tuple[int, int]] = PLACES
) -> None:
    scores = {}
    rows = []
    for m, n in positions:
        case = f"{m} and {n}"
        query = _rotate(Q, m * THETA)
        key = _rotate(K, n * THETA)
        scores[case] = _dot(query, key)
        for vector, at, end in (("query", m, query), ("key", n, key)):
            rows.append((f"positions {case}", vector, at, end.real, end.imag))
    findings.series["rotation"] = pd.DataFrame(
        rows, columns=["case", "vector", "position", "x", "y"]
    )
    spread = max(scores.values()) - min(scores.values())

    numbers = ", ".join(f"{case} {score:.4f}" for case, score in scores.items())
    findings.part("scores by positions", numbers, spread <= EXACT, spread)


@claim("relative-matrix-sign")
def sign_of_relative_matrix(findings: Findings, theta: float = THETA) -> None:
    m, n = PLACES[0]
    true = _dot(_rotate(Q, m * theta), _rotate(K, n * theta))
    findings.expected = f"{true:.4f}, the score of the rotated vectors"
    for what, sign in (("as introduced", 1), ("that the proof ends in", -1)):
        score = _dot(Q, _rotate(K, sign * (m - n) * theta))
        agrees = abs(score - true) <= EXACT
        findings.part(f"with the matrix {what}", f"{score:.4f}", agrees, score - true)


@claim("unrotated-query")
def only_key_rotated(findings: Findings, theta: float = THETA) -> None:
    (_, near_key), (_, far_key) = PLACES
    near = _dot(Q, _rotate(K, near_key * theta))
    far = _dot(Q, _rotate(K, far_key * theta))
    what = f"scores of positions {PLACES[0]} and {PLACES[1]} with the query as it is"
    findings.part(
        what, f"{near:.4f} and {far:.4f}", abs(near - far) <= EXACT, near - far
    )


@claim("counterclockwise", "clockwise")
def direction(findings: Findings, clockwise: bool, theta: float = THETA) -> None:
    y = _rotate(Q, theta).imag
    findings.part(
        "second coordinate of the turned (1, 0)", f"{y:+.3f}", (y < 0) == clockwise, y
    )


@claim("sparse-elementwise", "elementwise-as-printed", bound=EXACT)
def elementwise_form(
    findings: Findings,
    last_pair: Literal["as printed", "as meant"] = "as meant",
    seed: int = 0,
) -> None:
    x = arrays.gaussian(seed, DRAWS, HEAD)
    angles = POSITION * arrays.frequencies(HEAD, BASE)
    other = arrays.swap_pairs(x, "interleaved")
    # The note prints (-x[d-1], x[d]) for the last pair, in the place of (-x[d], x[d-1]).
    if last_pair == "as printed":
        other[:, -2:] = np.stack((-x[:, -2], x[:, -1]), -1)
    doubled = np.repeat(angles, 2)
    written = x * np.cos(doubled) + other * np.sin(doubled)
    off = np.abs(written - x @ arrays.rotation_matrix(angles).T).max(0)
    wrong = int((off.reshape(-1, 2).max(-1) > EXACT).sum())

    text = f"{wrong} of {len(angles)}, by up to {arrays.write_magnitude(arrays.largest(off))}"
    findings.part(
        f"pairs that differ at position {POSITION}",
        text,
        wrong == 0,
        arrays.largest(off),
    )


@claim("dense-product")
def dense_product(findings: Findings, head_dim: int = 64) -> None:
    matrix = arrays.rotation_matrix(arrays.frequencies(head_dim, BASE))
    # The elementwise form multiplies each feature by a cosine and by a sine.
    zeros = int((matrix == 0).sum())
    dense = matrix.size
    elementwise = 2 * head_dim
    findings.part(
        "zeros in the matrix", f"{zeros} of {dense}", zeros > dense / 2, zeros / dense
    )
    what = f"multiplications for a head of {head_dim}, matrix and elementwise"
    findings.part(
        what, f"{dense} and {elementwise}", elementwise < dense, dense / elementwise
    )


@claim("one-rotation")
def is_one_rotation(findings: Findings) -> None:
    matrix = arrays.rotation_matrix(POSITION * arrays.frequencies(HEAD, BASE))
    off = arrays.largest(matrix @ matrix.T - np.eye(HEAD))
    determinant = float(np.linalg.det(matrix))
    findings.within("the matrix times its transpose", off, EXACT, "{} from 1")
    findings.part(
        "determinant", f"{determinant:.12f}", abs(determinant - 1) <= EXACT, determinant
    )


@claim("rotate-half")
def rotate_half_equivalent(
    findings: Findings, head_dim: int = HEAD, seed: int = 0
) -> None:
    q, k = arrays.gaussian(seed, 2, DRAWS, head_dim)
    inv_freq = arrays.frequencies(head_dim, BASE)

    def score_with_mixed_pairings(position: int) -> arrays.Array:
        # It is a common mistake to use rotate_half with tables that repeat each cos and
        # sin for two neighbours.
        q_angles = np.repeat(position * inv_freq, 2)
        k_angles = np.repeat((position + DISTANCE) * inv_freq, 2)
        rotated_q = _rotate_elementwise(q, q_angles, "half")
        rotated_k = _rotate_elementwise(k, k_angles, "half")
        return (rotated_q * rotated_k).sum(-1)

    here = POSITION
    there = POSITION + DISTANCE
    pairwise = scores(q, k, here, there, pairing="interleaved")
    new_q = arrays.join(*arrays.split(q, "interleaved"), "half")
    new_k = arrays.join(*arrays.split(k, "interleaved"), "half")
    same = arrays.largest(scores(new_q, new_k, here, there) - pairwise)
    apart = arrays.largest(scores(q, k, here, there) - pairwise)

    findings.within("features reordered once, scores", same, EXACT)
    findings.within(
        "features as they are, scores", apart, EXACT, "{:.1f} apart", "limit"
    )
    change = f"change of scores when both positions move by {POSITION}"
    what = f"rotate_half with tables for neighbouring features, {change}"
    findings.within(
        what,
        arrays.largest(
            score_with_mixed_pairings(POSITION) - score_with_mixed_pairings(0)
        ),
        EXACT,
        "{:.1f}",
        "limit",
    )


@claim("rotate-half-efficient")
def cheaper(findings: Findings) -> None:
    # Each feature is multiplied by a cosine and by a sine, and the two are added.
    work = 3 * HEAD
    what = f"operations for a head of {HEAD}, halves and neighbours"
    findings.part(what, f"{work} and {work}; their time depends on the machine", None)


def _rotate_elementwise(
    x: Float[arrays.Array, "... d"],
    angles: Float[arrays.Array, "... d"],
    swap: arrays.Pairing,
) -> arrays.Array:
    """Rotate vectors as a printed listing does, which has an angle for each feature."""
    return x * np.cos(angles) + arrays.swap_pairs(x, swap) * np.sin(angles)


def _table(tokens: int, base: float, pairing: arrays.Pairing) -> arrays.Array:
    """Return the angles of all positions and features, as a listing tabulates them."""
    by_pair = np.arange(tokens, dtype=np.float32)[:, None]
    by_pair = by_pair * arrays.frequencies(SHAPE[-1], base).astype(np.float32)
    return arrays.join(by_pair, by_pair, pairing)


@claim("note-001-code", "note-004-code", bound=FLOAT32_SCORES)
def listing_is_relative(
    findings: Findings,
    base: float = 10000.0,
    tables: arrays.Pairing = "interleaved",
    swap: arrays.Pairing = "interleaved",
    seed: int = 0,
) -> None:
    """Give all positions the same q and k: equal distances must then score the same."""
    tokens, width = SHAPE[-2:]
    angles = _table(tokens, base, tables)
    drawn = arrays.gaussian(seed, 2, *SHAPE[:-2], 1, width).astype(np.float32)
    q = _rotate_elementwise(np.broadcast_to(drawn[0], SHAPE), angles, swap)
    k = _rotate_elementwise(np.broadcast_to(drawn[1], SHAPE), angles, swap)
    scores = q @ np.swapaxes(k, -1, -2)
    moved = arrays.largest(scores[..., :-SHIFT, :-SHIFT] - scores[..., SHIFT:, SHIFT:])

    what = f"change of scores when both positions move by {SHIFT}, shape {scores.shape}"
    findings.within(what, moved, FLOAT32_SCORES, "{}")


@claim("note-003-code", bound=FLOAT32_SCORES)
def listing_with_position_ids(
    findings: Findings, swap: arrays.Pairing = "half", seed: int = 0
) -> None:
    """Move the position ids by which the listing looks up cos and sin."""
    batch, _, tokens, _ = SHAPE
    table = _table(tokens + SHIFT, BASE, "half")[None, None]
    q, k = arrays.gaussian(seed, 2, *SHAPE).astype(np.float32)
    scores = []
    for start in (0, SHIFT):
        ids = np.tile(np.arange(start, start + tokens), (batch, 1))
        angles = table.squeeze(1).squeeze(0)[ids][:, None]
        rotated_q = _rotate_elementwise(q, angles, swap)
        rotated_k = _rotate_elementwise(k, angles, swap)
        scores.append(rotated_q @ np.swapaxes(rotated_k, -1, -2))

    what = (
        f"change of scores when all position ids grow by {SHIFT}, shape"
        f" {scores[0].shape}"
    )
    findings.within(what, arrays.largest(scores[1] - scores[0]), FLOAT32_SCORES, "{}")


@claim("rotate-half-words")
def halves_in_words(
    findings: Findings, vector: Sequence[float] = (1.0, 2.0, 3.0, 4.0)
) -> None:
    result = arrays.swap_pairs(np.array([vector]), "half")[0].tolist()
    half = len(vector) // 2
    first = [*vector[:half]]
    negated = [-x for x in vector[half:]]
    stays = result[:half] == first
    place = "in its place" if stays else "behind the other, not in its place"
    findings.part(f"{list(vector)} becomes", str(result), result == negated + first)
    findings.limit("the first half, its numbers unchanged, stands", place, stays)


@claim("note-001-attention")
def transposed_scores(findings: Findings, shape: Sequence[int] = SHAPE) -> None:
    import torch

    q = torch.zeros(*shape)
    k = torch.zeros(*shape)
    try:
        with warnings.catch_warnings():
            # torch warns that .T reverses all dimensions
            warnings.simplefilter("ignore")
            outcome = f"scores of shape {tuple((q @ k.T).shape)}"
    except RuntimeError:
        outcome = "a RuntimeError: .T reverses all dimensions"
    wanted = f"scores of shape {(*shape[:-2], shape[-2], shape[-2])}"
    findings.expected = wanted

    findings.part(
        f"q @ k.T on tensors of shape {tuple(shape)}", outcome, outcome == wanted
    )


@claim("note-004-mask")
def mask_hides(findings: Findings, filling: float = -1e9) -> None:
    import torch

    # Of two equal scores one is masked. -1e9 fits bfloat16, but the largest float16 is
    # 65504.
    masked = torch.tensor([False, True])
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        try:
            scores = torch.zeros(2, dtype=dtype).masked_fill(masked, filling)
            left = float(scores.float().softmax(-1)[1])
            outcome = f"{left:g}"
            good = left == 0
        except RuntimeError:
            outcome = "a RuntimeError: the number does not fit the format"
            good = False
        what = f"weight of a masked token in {str(dtype).removeprefix('torch.')}"
        findings.add("part" if dtype == torch.float32 else "limit", what, outcome, good)


@claim("squeeze-unsqueeze")
def squeeze_and_unsqueeze(findings: Findings, batch: int = 2, tokens: int = 10) -> None:
    # Only shapes matter, so zeros are enough.
    cos = np.zeros((1, 1, tokens, 4))
    table = cos.squeeze(1).squeeze(0)
    looked_up = table[np.zeros((batch, tokens), dtype=int)]
    unsqueezed = np.expand_dims(looked_up, 1)
    text = f"{table.shape}: the {tokens} tokens are still there"
    findings.part(f"{cos.shape} squeezed", text, tokens not in table.shape)
    text = f"{unsqueezed.shape}: the batch was there, a dimension for the heads is new"
    findings.part(f"{looked_up.shape} unsqueezed", text, looked_up.shape[0] != batch)


@claim("t5-listing")
def negative_indices(findings: Findings, tokens: int = 5) -> None:
    distances = np.arange(tokens) - (tokens - 1)
    # Python counts negative indices from the end, so no error shows the missing rows.
    rows = np.arange(tokens)[distances]
    wrapped = [(d, row) for d, row in zip(distances, rows, strict=True) if d < 0 <= row]
    shown = ", ".join(f"{distance} reads row {row}" for distance, row in wrapped)
    what = (
        f"rows read for the negative distances of {tokens} tokens from a table of"
        f" {tokens}"
    )
    findings.part(what, shown, not wrapped, len(wrapped))


@claim("rope-in-embeddings")
def embeddings_untouched(findings: Findings, name: str = "rope", seed: int = 0) -> None:
    import torch

    shape = Shape(layers=1, width=32, heads=2, head_dim=16, trained_len=8)
    encoding = make_encoding(name, shape, seed)
    positions = torch.arange(8)
    x = torch.ones(1, 8, 32)
    q = torch.ones(1, 2, 8, 16)
    with torch.no_grad():
        embedded = arrays.largest((encoding.embed(x, positions) - x).numpy())
        query = arrays.largest((encoding.for_layer(0).query(q, positions) - q).numpy())
    findings.beyond("change of the embeddings", embedded, 0, "{}")
    findings.beyond("change of queries", query, 0, "{:.1f}", "limit")


@claim("vector-on-score", "bias-of-vectors")
def vector_on_score(
    findings: Findings, width: int = 64, what: str = "vector R_2"
) -> None:
    # NumPy adds a vector to a number without an error, so the size of the result is
    # read.
    size = (np.float64(0.5) + np.zeros(width)).size
    findings.part(f"one score plus the {what}", f"{size} numbers", size == 1, size)


@claim("index-range")
def last_index(findings: Findings, said: int = 16) -> None:
    last = int(np.arange(0, HEAD // 2)[-1])
    findings.part(
        f"last i of the printed listing, d = {HEAD}", f"{last}", last == said, last
    )


# The worked example


def example(sign: int = 1) -> Float[arrays.Array, "5 4"]:
    """Rotate every vector by m base^(-2i/d) in every pair, in full precision."""
    width = VECTORS.shape[1]
    angles = np.outer(
        np.arange(len(VECTORS)), BASE ** (-np.arange(0, width, 2) / width)
    )
    return arrays.rotate(VECTORS, sign * angles, "interleaved")


@claim("worked-example")
def table_digits(findings: Findings, digits: int = 4) -> None:
    true = example()
    unit = 10.0**-digits
    off = np.abs(PRINTED - true)
    wrong = [(int(m), int(i)) for m, i in np.argwhere(off > unit / 2)]

    wrong_cells = ", ".join(
        f"position {m} feature {i + 1} printed {PRINTED[m, i]:.{digits}f}, "
        f"is {true[m, i]:.{digits + 4}f}"
        for m, i in wrong
    )
    close = int((off <= unit).sum())
    what = "cells right to one unit of the last digit"
    findings.part(what, f"{close} of {off.size}", close == off.size)
    right = off.size - len(wrong)
    text = f"{right} of {off.size}"
    if wrong:
        text += f" ({wrong_cells})"
    findings.limit("cells that are rounded right", text, not wrong, float(right))

    cells = [
        (m, i, VECTORS[m, i], PRINTED[m, i], true[m, i], bool(off[m, i] <= unit / 2))
        for m, i in np.ndindex(true.shape)
    ]
    columns = ["position", "feature", "vector", "printed", "rotated", "rounded_right"]
    findings.series["worked_example"] = pd.DataFrame(cells, columns=columns)


@claim("worked-example-matrix")
def printed_matrix(
    findings: Findings,
    product: Literal["matrix times column", "row times matrix"] = "matrix times column",
    unit: float = 1e-4,
) -> None:
    column = arrays.largest(example(-1) - PRINTED)
    row = arrays.largest(example(1) - PRINTED)
    if product == "matrix times column":
        stated, other = column, row
    else:
        stated, other = row, column
    findings.within(f"off as {product}", stated, unit, "{:.2g}")
    findings.within("off from the other side", other, unit, "{:.2g}", "limit")


@claim("base-frequency-formula")
def angle_formula(
    findings: Findings, f: float = 1 / 10000, angle: float = 1 / 100
) -> None:
    # With the printed f = 1/10000 the signs of both exponents cancel, and the angle
    # grows with the pair instead of falling.
    value = f ** (-2 / VECTORS.shape[1])
    right = math.isclose(value, angle, rel_tol=1e-9)
    findings.part("the formula at position 1, pair 1", f"{value:g}", right, value)


@claim("sinusoid-index")
def index_in_formula(findings: Findings, index: Literal["k", "i"] = "k") -> None:
    # The printed index is not the position. A fixed number, here 1, stands for it, and
    # all positions have the same code.
    positions = np.arange(5) if index == "i" else np.ones(5)
    angles = np.outer(positions, BASE ** (-np.arange(0, 4, 2) / 4))
    # Codes that differ by rounding only count as one.
    different = len(np.unique(np.sin(angles).round(12), axis=0))
    what = f"codes p_i of 5 positions with sin({index} / 10000^(2t/d))"
    findings.part(what, f"{different} different", different == 5, different)
