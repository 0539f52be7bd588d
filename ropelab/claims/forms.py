"""Checks of claims about forms of the rotation: one pair, a matrix, elementwise, printed
code and tables.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
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
from ropelab.claims.attention import compute_scores
from ropelab.claims.record import Findings, Role, claim
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.runs.files import read_table_beside
from ropelab.runs.thresholds import EXACT, FLOAT32_SCORES

# The example of a script, rope_basics.py: the query (1, 0) and the key (0.8, 0.6) as
# complex numbers, rotated by 30 degrees per token, at two pairs of positions of query and
# key. The distance is 3 in both.
Q = complex(1.0, 0.0)
K = complex(0.8, 0.6)
THETA = math.radians(30)
POSITION_PAIRS = ((5, 8), (3, 6))


def _name_example(theta: float = THETA) -> str:
    """Name the vectors of the example, and the turn of a token."""
    q = f"({Q.real:g}, {Q.imag:g})"
    k = f"({K.real:g}, {K.imag:g})"
    return f"q = {q} and k = {k}, {math.degrees(theta):.4g} degrees per token"


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
# The vectors of a worked example, and the rotated vectors that it prints: [positions,
# features].
EXAMPLE = read_table_beside(__file__)["example"]
VECTORS = np.array(EXAMPLE["vectors"])
PRINTED = np.array(EXAMPLE["printed"])


# One pair of features


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
    text = f"{first_score:.4f} and {second_score:.4f}"
    findings.add_part(what, text, abs(difference) <= EXACT, difference)


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
    text = f"{wrong_pairs} of {len(angles)}"
    findings.add_part(what, text, wrong_pairs == 0, largest_error)


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
    text = f"{entries} and {multiplications}"
    findings.add_part(what, text, multiplications < entries, ratio)


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
        rotated_q = _rotate_elementwise(q, q_angles, "half")
        rotated_k = _rotate_elementwise(k, k_angles, "half")
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
    text = f"{operations} and {operations}; their time depends on the machine"
    findings.add_part(what, text, agrees=None)


# Printed code


def _rotate_elementwise(
    x: Float[arrays.Array, "... d"],
    angles: Float[arrays.Array, "... d"],
    swap: arrays.Pairing,
) -> arrays.Array:
    """Rotate vectors as a printed listing does, which has an angle for each feature.

    `swap` is the pairing by which the listing swaps features.
    """
    return x * np.cos(angles) + arrays.swap_pairs(x, swap) * np.sin(angles)


def _tabulate_angles(
    tokens: int, base: float, pairing: arrays.Pairing
) -> Float[arrays.Array, "tokens width"]:
    """Return the angles of all positions and features, as a printed listing tabulates
    them. `pairing` says which two features get the angle of a pair.
    """
    *_, width = SHAPE
    inv_freq = arrays.frequencies(width, base).astype(np.float32)
    positions = np.arange(tokens, dtype=np.float32)
    angles = positions[:, None] * inv_freq  # [tokens, pairs]
    # Each angle twice, for the two features of its pair.
    return arrays.join(angles, angles, pairing)


@claim("note-001-code", "note-004-code", bound=FLOAT32_SCORES)
def check_listing_is_relative(
    findings: Findings,
    base: float = 10000.0,
    tables: arrays.Pairing = "interleaved",
    swap: arrays.Pairing = "interleaved",
    seed: int = 0,
) -> None:
    """Give all positions the same q and k: equal distances must then score the same.

    `tables` is the pairing of the listing's tables, and `swap` the pairing of its
    swapped features.
    """
    batch, heads, tokens, width = SHAPE
    angles = _tabulate_angles(tokens, base, tables)
    q, k = arrays.gaussian(seed, 2, batch, heads, 1, width).astype(np.float32)
    rotated_q = _rotate_elementwise(np.broadcast_to(q, SHAPE), angles, swap)
    rotated_k = _rotate_elementwise(np.broadcast_to(k, SHAPE), angles, swap)
    scores = rotated_q @ np.swapaxes(rotated_k, -1, -2)
    # The scores of the first tokens, and the scores at the same distances SHIFT tokens
    # later.
    first_scores = scores[..., :-SHIFT, :-SHIFT]
    moved_scores = scores[..., SHIFT:, SHIFT:]
    change = arrays.max_abs(first_scores - moved_scores)

    what = f"change of scores when both positions move by {SHIFT}, shape {scores.shape}"
    findings.add_zero(what, change, FLOAT32_SCORES)


@claim("note-003-code", bound=FLOAT32_SCORES)
def check_listing_with_position_ids(
    findings: Findings, swap: arrays.Pairing = "half", seed: int = 0
) -> None:
    """Move the position ids by which the listing looks up cos and sin."""
    batch, _, tokens, _ = SHAPE
    # As in the listing, the table has dimensions for the batch and the heads, which are
    # taken away before it is indexed.
    table = _tabulate_angles(tokens + SHIFT, BASE, "half")[None, None]
    q, k = arrays.gaussian(seed, 2, *SHAPE).astype(np.float32)

    def compute_scores(start: int) -> arrays.Array:
        position_ids = np.tile(np.arange(start, start + tokens), (batch, 1))
        # [batch, 1, tokens, features]
        angles = table.squeeze(1).squeeze(0)[position_ids][:, None]
        rotated_q = _rotate_elementwise(q, angles, swap)
        rotated_k = _rotate_elementwise(k, angles, swap)
        return rotated_q @ np.swapaxes(rotated_k, -1, -2)

    scores = compute_scores(0)
    change = arrays.max_abs(compute_scores(SHIFT) - scores)
    what = (
        f"change of scores when all position ids grow by {SHIFT}, shape {scores.shape}"
    )
    findings.add_zero(what, change, FLOAT32_SCORES)


@claim("rotate-half-words")
def check_halves_in_words(
    findings: Findings, vector: Sequence[float] = (1.0, 2.0, 3.0, 4.0)
) -> None:
    """Follow a vector through rotate_half, as the words of a note describe it."""
    result = arrays.swap_pairs(np.array(vector), "half").tolist()
    half = len(vector) // 2
    first_half = list(vector[:half])
    negated_second_half = [-x for x in vector[half:]]
    is_right = result == negated_second_half + first_half
    findings.add_part(f"{list(vector)} becomes", str(result), is_right)
    stays = result[:half] == first_half
    place = "in its place" if stays else "behind the other, not in its place"
    findings.add_limit("the first half, its numbers unchanged, stands", place, stays)


@claim("note-001-attention")
def check_transposed_scores(findings: Findings, shape: Sequence[int] = SHAPE) -> None:
    """Run a printed product of queries and keys on tensors of four dimensions."""
    import torch

    q = torch.zeros(*shape)
    k = torch.zeros(*shape)
    try:
        with warnings.catch_warnings():
            # torch warns that .T reverses all dimensions.
            warnings.simplefilter("ignore")
            scores = q @ k.T
            outcome = f"scores of shape {tuple(scores.shape)}"
    except RuntimeError:
        outcome = "a RuntimeError: .T reverses all dimensions"

    *batch_and_heads, tokens, _ = shape
    scores_shape = (*batch_and_heads, tokens, tokens)
    findings.expected = f"scores of shape {scores_shape}"
    what = f"q @ k.T on tensors of shape {tuple(shape)}"
    findings.add_part(what, outcome, outcome == findings.expected)


@claim("note-004-mask")
def check_mask(findings: Findings, filling: float = -1e9) -> None:
    """Mask one of two equal scores by a number, in three formats."""
    import torch

    # -1e9 fits bfloat16, but the largest float16 is 65504.
    is_masked = torch.tensor([False, True])
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        try:
            scores = torch.zeros(2, dtype=dtype).masked_fill(is_masked, filling)
            _, weight_of_masked = scores.float().softmax(dim=-1).tolist()
            outcome = f"{weight_of_masked:g}"
            is_hidden = weight_of_masked == 0
        except RuntimeError:
            outcome = "a RuntimeError: the number does not fit the format"
            is_hidden = False
        what = f"weight of a masked token in {str(dtype).removeprefix('torch.')}"
        role: Role = "part" if dtype == torch.float32 else "limit"
        findings.add(role, what, outcome, is_hidden)


@claim("squeeze-unsqueeze")
def check_squeeze(findings: Findings, batch: int = 2, tokens: int = 10) -> None:
    """Follow the shapes of a table of cosines through a printed listing."""
    # Only shapes matter, so zeros are enough.
    cos = np.zeros((1, 1, tokens, 4))
    table = cos.squeeze(1).squeeze(0)
    position_ids = np.zeros((batch, tokens), dtype=int)
    looked_up = table[position_ids]
    unsqueezed = np.expand_dims(looked_up, 1)
    text = f"{table.shape}: the {tokens} tokens are still there"
    findings.add_part(f"{cos.shape} squeezed", text, tokens not in table.shape)
    text = f"{unsqueezed.shape}: the batch was there, a dimension for the heads is new"
    findings.add_part(
        f"{looked_up.shape} unsqueezed", text, looked_up.shape[0] != batch
    )


@claim("t5-listing")
def check_negative_indices(
    findings: Findings, tokens: int = 5, rows: Sequence[int] = (11, 5)
) -> None:
    """Read the rows of a table of relative positions as a printed listing does, by
    distances that may be negative.

    The listing does not print how many rows the table has. `rows` has the sizes of two
    tables: with a row for each number from minus to plus the length, and with a row for
    each token.
    """
    distances = range(1 - tokens, tokens)
    roles: tuple[Role, ...] = ("part", "limit")
    for role, size in zip(roles, rows, strict=True):
        table = np.arange(size)  # each row holds its own number
        # Python counts negative indices from the end. A large table has rows there that no
        # other distance reads. In a small table two distances read the same row, and no
        # error shows it.
        distances_of_row: dict[int, list[int]] = {}
        for distance in distances:
            distances_of_row.setdefault(int(table[distance]), []).append(distance)
        texts = []
        for row, readers in distances_of_row.items():
            if len(readers) > 1:
                listed = " and ".join(map(str, readers))
                texts.append(f"{listed} both read row {row}")

        what = (
            f"the {len(distances)} distances of {tokens} tokens, read from a table of"
            f" {size} rows"
        )
        text = ", ".join(texts) or "each reads a row of its own"
        findings.add(role, what, text, not texts, len(texts))


@claim("rope-in-embeddings")
def check_embeddings(findings: Findings, name: str = "rope") -> None:
    """Measure what an encoding changes: embeddings, and queries."""
    import torch

    shape = Shape(layers=1, width=32, heads=2, head_dim=16, trained_len=8)
    encoding = make_encoding(name, shape, seed=0)
    positions = torch.arange(8)
    embeddings = torch.ones(1, 8, 32)  # [1, tokens, width]
    queries = torch.ones(1, 2, 8, 16)  # [1, heads, tokens, head_dim]
    with torch.no_grad():
        embedded = encoding.embed(embeddings, positions)
        encoded_queries = encoding.for_layer(0).query(queries, positions)
    change = arrays.max_abs((embedded - embeddings).numpy())
    what = "token embeddings, from position to position"
    findings.add_part(what, _write_change(change), change > 0, change)
    change = arrays.max_abs((encoded_queries - queries).numpy())
    what = "queries, from position to position"
    findings.add_limit(what, _write_change(change), change > 0, change)


def _write_change(change: float) -> str:
    return "unchanged" if change == 0 else "changed"


@claim("vector-on-score", "bias-of-vectors")
def check_vector_on_score(
    findings: Findings, width: int = 64, what: str = "vector R_2"
) -> None:
    """Add a vector to one score, as a printed formula does."""
    # NumPy adds a vector to a number without an error, so the size of the result tells.
    score = np.float64(0.5)
    size = (score + np.zeros(width)).size
    findings.add_part(f"one score plus the {what}", f"{size} numbers", size == 1, size)


@claim("index-range")
def check_last_index(findings: Findings, said: int = 16) -> None:
    """Find the last index of the pairs in a printed listing."""
    last_index = int(np.arange(0, HEAD // 2)[-1])
    what = f"last i of the printed listing, d = {HEAD}"
    findings.add_part(what, f"{last_index}", last_index == said, last_index)


# The worked example


def rotate_example(sign: int = 1) -> Float[arrays.Array, "positions features"]:
    """Rotate the vector of every position m by m base^(-2i/d) in every pair i, in full
    precision. `sign` is the sign of the angles.
    """
    tokens, width = VECTORS.shape
    inv_freq = BASE ** (-np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(tokens), inv_freq)
    return arrays.rotate(VECTORS, sign * angles, "interleaved")


@claim("worked-example")
def check_printed_table(findings: Findings, digits: int = 4) -> None:
    """Compare the printed table, cell by cell, with the rotated vectors."""
    true = rotate_example()
    errors = np.abs(PRINTED - true)
    unit_of_last_digit = 10.0**-digits
    is_rounded_right = errors <= unit_of_last_digit / 2

    # The table for the figure has a row per cell.
    rows = []
    wrong_texts = []
    for position, feature in np.ndindex(true.shape):
        cell = (position, feature)
        is_right = bool(is_rounded_right[cell])
        rows.append((*cell, VECTORS[cell], PRINTED[cell], true[cell], is_right))
        if not is_right:
            wrong_texts.append(
                f"position {position} feature {feature + 1} printed"
                f" {PRINTED[cell]:.{digits}f}, is {true[cell]:.{digits + 4}f}"
            )
    columns = ["position", "feature", "vector", "printed", "rotated", "rounded_right"]
    findings.series["worked_example"] = pd.DataFrame(rows, columns=columns)

    cells = errors.size
    cells_within_unit = int((errors <= unit_of_last_digit).sum())
    what = "cells right to one unit of the last digit"
    findings.add_part(
        what, f"{cells_within_unit} of {cells}", cells_within_unit == cells
    )
    cells_rounded_right = cells - len(wrong_texts)
    text = f"{cells_rounded_right} of {cells}"
    if wrong_texts:
        text += f" ({', '.join(wrong_texts)})"
    findings.add_limit(
        "cells that are rounded right",
        text,
        not wrong_texts,
        float(cells_rounded_right),
    )


@claim("worked-example-matrix")
def check_printed_matrix(
    findings: Findings,
    product: Literal["matrix times column", "row times matrix"] = "matrix times column",
    unit: float = 1e-4,
) -> None:
    """Compare the printed table with the printed matrix multiplied from either side."""
    # The matrix is printed for rows: multiplied from the left, it rotates in the
    # opposite direction.
    errors = {
        "matrix times column": arrays.max_abs(rotate_example(sign=-1) - PRINTED),
        "row times matrix": arrays.max_abs(rotate_example(sign=1) - PRINTED),
    }
    error = errors.pop(product)
    what = f"printed table less the product, {product}"
    findings.add_at_most(what, error, unit, "{:.2g}")
    ((other_product, other_error),) = errors.items()
    what = f"printed table less the product, {other_product}"
    findings.add_at_most(what, other_error, unit, "{:.2g}", role="limit")


@claim("base-frequency-formula")
def check_angle_formula(
    findings: Findings, f: float = 1 / 10000, angle: float = 1 / 100
) -> None:
    """Compute the angle of pair 1 at position 1 by a printed formula."""
    # With the printed f = 1/10000 the signs of both exponents cancel, and the angle
    # grows with the pair instead of falling.
    _, width = VECTORS.shape
    value = f ** (-2 / width)
    is_right = math.isclose(value, angle, rel_tol=1e-9)
    findings.add_part(
        "the formula at position 1, pair 1", f"{value:g}", is_right, value
    )


@claim("sinusoid-index")
def check_index_in_formula(findings: Findings, index: Literal["k", "i"] = "k") -> None:
    """Count the different codes of 5 positions by a formula with the printed index k, or
    with the position i in its place.
    """
    if index == "i":
        numbers = np.arange(5, dtype=float)
    else:
        # The printed index is not the position. A fixed number, here 1, stands for it, so
        # that all positions have the same code.
        numbers = np.ones(5)
    inv_freq = BASE ** (-np.arange(0, 4, 2) / 4)
    angles = np.outer(numbers, inv_freq)
    # Codes that differ by rounding only count as one.
    different_codes = len(np.unique(np.sin(angles).round(12), axis=0))
    what = f"codes p_i of 5 positions with sin({index} / 10000^(2t/d))"
    findings.add_part(
        what, f"{different_codes} different", different_codes == 5, different_codes
    )
