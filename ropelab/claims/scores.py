"""Checks of claims about scores: codes of positions that are joined to embeddings, the
terms of the resulting scores, and the decay of scores with distance.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from ropelab.claims import arrays
from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.sinusoids import encode_positions
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import EXACT, ROUNDING

# The features of an embedding, and the tokens of a text.
WIDTH = 64
TOKENS = 512
# The features of a code from which a layer is to pick out positions. This number is enough
# to pick out each of a few positions.
CODE_WIDTH = 512
# The base of the frequencies of codes.
BASE = 10000.0
# The positions of a query and of a key. Any two would do.
QUERY = 11
KEY = 3
# The largest distance of a curve and the number of octaves up to it, and a distance far
# beyond.
FARTHEST = 4096
NEAR_OCTAVES = 12
FAR = 65536
# The number of distances whose waves are computed at a time.
BLOCK = 2048


# Embeddings and codes joined


def _make_first_codes(width: int, tokens: int) -> Float[arrays.Array, "tokens width"]:
    """Return the sinusoidal codes of the first positions."""
    return encode_positions(np.arange(tokens), arrays.frequencies(width, BASE))


@claim("concatenation-wider")
def check_concatenation(findings: Findings, seed: int = 0) -> None:
    """Compare two inputs of a layer: embeddings and codes side by side, and the sum of
    both.
    """
    embeddings = arrays.gaussian(seed, TOKENS, WIDTH)
    codes = _make_first_codes(WIDTH, TOKENS)
    concatenated = np.concatenate((embeddings, codes), axis=-1)
    weights = arrays.gaussian(seed + 1, 2 * WIDTH, WIDTH)
    projected_sum = embeddings @ weights[:WIDTH] + codes @ weights[WIDTH:]
    difference = arrays.max_abs(concatenated @ weights - projected_sum)

    width = concatenated.shape[-1]
    measured = f"{WIDTH} for a sum, {width} side by side"
    findings.add_part("inputs of the next layer", measured, width > WIDTH, width)
    what = (
        "what a layer on the longer vector puts out, less what it puts out on the sum of x"
        " and a projected code"
    )
    measured = arrays.write_zero(difference, EXACT, "more than rounding")
    # The claim is about the width alone. What the layer puts out is for the answer to the
    # question of the page.
    findings.add_limit(what, measured, None, difference)


@claim("multiplication-stronger")
def check_multiplication(
    findings: Findings, sizes: Sequence[float] = (1.0, 0.02)
) -> None:
    """Compare how much codes change embeddings of several sizes when they are multiplied
    and when they are added: root mean squares over normal embeddings.
    """
    codes = _make_first_codes(WIDTH, TOKENS)
    # A feature x becomes c x or x + c, where c is the feature of the code, and so changes
    # by (c - 1) x or by c. The mean squares of both changes over normal x, divided by the
    # mean square of x, follow from the code alone.
    # `fsum` rounds once, so that the sums are the same on every machine.
    multiplied = math.sqrt(math.fsum(np.square(codes - 1).ravel()) / codes.size)
    code_size = math.sqrt(math.fsum(np.square(codes).ravel()) / codes.size)
    # Embeddings have unit size, or 0.02, with which they are usually initialized.
    for size in sizes:
        added = code_size / size
        what = (
            f"change of embeddings of size {size:g} by {TOKENS} codes of {WIDTH} features,"
            " of their length"
        )
        measured = f"{multiplied:.2f} multiplied, {added:.2f} added"
        # The first size decides, and all other sizes are limits.
        role: Role = "part" if size == sizes[0] else "limit"
        findings.add(role, what, measured, multiplied > added, multiplied / added)


@claim("rope-multiplies")
def check_rope_multiplies(
    findings: Findings, position: int = 17, seed: int = 0
) -> None:
    """Write the rotation as a complex factor for each pair, and try to write it as a real
    factor for each feature.
    """
    x = arrays.gaussian(seed, TOKENS, WIDTH)
    angles = position * arrays.frequencies(WIDTH, BASE)
    rotated = arrays.rotate(x, angles, "interleaved")

    def to_complex(vectors: arrays.Array) -> arrays.Array:
        first, second = arrays.split(vectors, "interleaved")
        return first + 1j * second

    factors = np.exp(1j * angles)
    difference = arrays.max_abs(to_complex(rotated) - to_complex(x) * factors)
    what = "difference of turned vectors and one complex factor for each pair"
    findings.add_zero(what, difference, EXACT)

    # A feature x beside y becomes x cos - y sin: its factor is cos - (y / x) sin. The ratio
    # of two normal numbers has a Cauchy distribution, with quantiles tan(pi (p - 1/2)).
    quantile = math.tan(0.45 * math.pi)
    spreads = 2 * quantile * np.abs(np.sin(angles))
    what = (
        f"one real factor for each feature at position {position}, 5 to 95 % of normal"
        " vectors"
    )
    template = "up to {:.1f} apart"
    findings.add_at_most(what, arrays.max_abs(spreads), EXACT, template, role="limit")


@claim("code-coefficients")
def check_fixed_coefficients(
    findings: Findings, encoding: str = "sinusoidal", tokens: int = 16
) -> None:
    """Count the parameters of an encoding.

    A layer behind the encoding learns instead: it can pick out positions from their codes.
    """
    from ropelab.claims.encodings import count_trained

    codes = _make_first_codes(CODE_WIDTH, tokens)
    one_hot = np.eye(tokens)
    # The weights with which a linear layer picks the positions out best.
    weights, *_ = np.linalg.lstsq(codes, one_hot, rcond=None)
    difference = arrays.max_abs(codes @ weights - one_hot)
    count = count_trained(encoding)

    findings.add_part("numbers that the code trains", f"{count:,}", count == 0, count)
    what = (
        f"a learned projection of the code picks out each of {tokens} positions, d ="
        f" {CODE_WIDTH}"
    )
    picks_out = difference <= ROUNDING
    measured = f"off by {difference:.2g}"
    if picks_out:
        measured = "within rounding: it learns the coefficients instead"
    findings.add_limit(what, measured, not picks_out, difference)


@claim("only-at-the-product")
def check_only_at_product(
    findings: Findings, name: str = "rope", seed: int = 0
) -> None:
    """Compare the scores of an encoding with the products of its encoded queries and
    keys.
    """
    from ropelab.claims.encodings import (
        draw_queries_and_keys,
        encode,
        make_small_encoding,
    )

    layer = make_small_encoding(name).for_layer(0)
    shift = 100
    q, k = draw_queries_and_keys(16, seed)
    encoded_q, encoded_k, *positions = encode(layer, q, k)
    # Keys after the query do not count: `tril` sets their scores to 0.
    scores = layer.scores(encoded_q, encoded_k, *positions).detach().tril()
    products = (encoded_q @ encoded_k.mT / q.shape[-1] ** 0.5).tril()
    moved_arguments = encode(layer, q, k, start=shift)
    moved_scores = layer.scores(*moved_arguments).detach().tril()
    change = arrays.max_abs((moved_scores - scores).numpy())
    added_to_product = arrays.max_abs((scores - products).numpy())

    change_in_words = arrays.write_zero(change, ROUNDING, "more than rounding")
    what = (
        f"{name}: what is done to the product, while moving both tokens by"
        f" {shift} changes the score by {change_in_words}"
    )
    measured = "nothing" if added_to_product <= ROUNDING else "scores change"
    findings.add_part(what, measured, added_to_product > ROUNDING, added_to_product)


@claim("polynomial-distance")
def check_polynomial(findings: Findings, degree: int = 3) -> None:
    """Fit polynomials of the distance to two biases, and follow one fit farther."""
    fitted_tokens = 128
    far_distance = 512
    distance = np.arange(fitted_tokens)
    # The fit would be badly conditioned in powers of the distance itself, so that the
    # distance is divided by its range.
    x = distance / fitted_tokens

    def explain_share(bias: Float[arrays.Array, " distances"]) -> float:
        """Return the share of the variance of a bias that a polynomial explains."""
        fit = np.polyval(np.polyfit(x, bias, degree), x)
        return float(1 - np.var(bias - fit) / np.var(bias))

    log_bias = -np.log1p(distance)
    share = explain_share(log_bias)
    what = (
        f"share of -ln(1 + r) that degree {degree} explains over {fitted_tokens} tokens"
    )
    findings.add_part(what, f"{share:.0%}", share >= 0.9, share)

    token_before = np.where(distance == 1, 1.0, 0.0)
    share = explain_share(token_before)
    what = f"share of a bias for the token before that degree {degree} explains"
    findings.add_limit(what, f"{share:.0%}", share >= 0.9, share)

    fit_at_far = float(
        np.polyval(np.polyfit(x, log_bias, degree), far_distance / fitted_tokens)
    )
    bias_at_far = -float(np.log1p(far_distance))
    what = f"fit of -ln(1 + r) by degree {degree} at {far_distance} tokens"
    measured = f"{fit_at_far:.0f}, should be {bias_at_far:.1f}"
    findings.add_limit(what, measured, abs(fit_at_far - bias_at_far) <= 1, fit_at_far)


# The terms of a score of embeddings to which a code was added. With embeddings x and codes
# p of a query i and a key j, the score is (x_i + p_i)^T W (x_j + p_j), W = W_q^T W_k.


def _make_weights(seed: int) -> Float[arrays.Array, "WIDTH WIDTH"]:
    """Return random W."""
    q_weights, k_weights = arrays.gaussian(seed + 1, 2, WIDTH, WIDTH) / math.sqrt(WIDTH)
    return q_weights.T @ k_weights


def _draw_embeddings(seed: int) -> Float[arrays.Array, "2 WIDTH"]:
    """Return random embeddings of the query and of the key."""
    return arrays.gaussian(seed, 2, WIDTH)


def _make_codes(shift: int) -> Float[arrays.Array, "2 WIDTH"]:
    """Return the codes of the query and of the key, both moved by `shift` tokens."""
    return encode_positions(
        [QUERY + shift, KEY + shift], arrays.frequencies(WIDTH, BASE)
    )


def _compute_terms(
    shift: int, weights: Float[arrays.Array, "WIDTH WIDTH"], seed: int
) -> dict[str, float]:
    """Return the four products of content (embeddings) and position (codes)."""
    sides = {"content": _draw_embeddings(seed), "position": _make_codes(shift)}
    terms = {}
    for query_name, (query, _) in sides.items():
        for key_name, (_, key) in sides.items():
            terms[f"{query_name}-{key_name}"] = float(query @ weights @ key)
    return terms


@claim("four-terms")
def check_four_terms(findings: Findings, seed: int = 0) -> None:
    """Compare the sum of the four terms with the score."""
    weights = _make_weights(seed)
    terms = _compute_terms(0, weights, seed)
    query, key = _draw_embeddings(seed) + _make_codes(0)
    score = float(query @ weights @ key)

    difference = abs(sum(terms.values()) - score)
    what = f"difference of the score and the sum of {', '.join(terms)}"
    findings.add_zero(what, difference, EXACT)


@claim("position-terms-absolute")
def check_position_terms(findings: Findings, shift: int = 100, seed: int = 0) -> None:
    """Move the query and the key, under random weights and under W = 1."""

    def measure_changes(
        weights: Float[arrays.Array, "WIDTH WIDTH"],
    ) -> dict[str, float]:
        terms = _compute_terms(0, weights, seed)
        moved_terms = _compute_terms(shift, weights, seed)
        changes = {}
        for name, term in terms.items():
            if "position" in name:
                changes[name] = abs(moved_terms[name] - term)
        return changes

    changes = measure_changes(_make_weights(seed))
    smallest = min(changes.values())
    changing = [name for name, change in changes.items() if change > EXACT]
    what = f"terms that change when both move by {shift}, random weights"
    listed = ", ".join(changing) or "none"
    findings.add_part(what, listed, smallest > EXACT, smallest)

    changes = measure_changes(np.eye(WIDTH))
    what = f"change of position-position when both move by {shift}, W_q^T W_k = 1"
    change = changes["position-position"]
    findings.add_nonzero(what, change, EXACT, "more", role="limit")


@claim("query-bias")
def check_query_bias(findings: Findings, seed: int = 0) -> None:
    """Add a bias per query to the scores, and one per distance."""
    tokens = 16
    q, k = arrays.gaussian(seed, 2, tokens, WIDTH)
    scores = q @ k.T
    weights = arrays.softmax(scores)
    query_bias = arrays.gaussian(seed + 1, tokens, 1)
    positions = np.arange(tokens)
    distance_bias = 0.1 * (positions[:, None] - positions)

    with_distance = arrays.softmax(scores + distance_bias)
    change = arrays.max_abs(with_distance - weights)
    what = "weights with c_(q-k) and without"
    findings.add_nonzero(what, change, EXACT)
    # The softmax of a row does not change if one number is added to all its scores.
    with_query = arrays.softmax(scores + query_bias)
    change = arrays.max_abs(with_query - weights)
    what = "change of the weights by b_q, which the softmax of a row cancels"
    findings.add_nonzero(what, change, EXACT, role="limit")


@claim("relative-table")
def check_relative_table(
    findings: Findings, rows: int = 1024, said: int = 512, tokens: int = 512
) -> None:
    """Compare the farthest distance in a text with the one that it is said to reach at
    most, and the number of distances with the rows of a table of relative positions.
    """
    positions = np.arange(tokens)
    distances = np.unique(positions[:, None] - positions)
    farthest = int(distances.max())
    what = f"farthest distance in {tokens} tokens"
    measured = f"{farthest}, said to be at most {said}"
    findings.add_part(what, measured, farthest <= said, farthest)
    count = len(distances)
    what = "different distances, which the table has to hold"
    findings.add_part(what, f"{count:,}, rows {rows:,}", count <= rows, count)


@claim("deberta-distance", "deberta-as-noted")
def check_deberta_distance(
    findings: Findings,
    printed: Literal["from key to query", "from query to key"] = "from key to query",
    seed: int = 0,
) -> None:
    """Compare DeBERTa's position-to-content term, as its code computes it, with formulas
    that are printed.

    The term is the product of a key and a row of a table of relative positions. The table
    has 2 * `rows` rows; larger distances share the first and the last row.
    """
    rows = 4
    tokens = 5
    query = np.arange(tokens)[:, None]
    key = np.arange(tokens)
    # The product of each key and each row of the table: [keys, 2 * rows].
    products = arrays.gaussian(seed, tokens, 2 * rows)
    # The code takes the row delta(i, j) for each key, as in the content-to-position term,
    # and transposes the result.
    coded_rows = np.clip(rows - (query - key), 0, 2 * rows - 1)
    coded = np.take_along_axis(products, coded_rows, axis=1).T

    differences = {}
    distances = {"from key to query": key - query, "from query to key": query - key}
    for name, distance in distances.items():
        printed_rows = np.clip(distance + rows, 0, 2 * rows - 1)
        differences[name] = arrays.max_abs(coded - products[key, printed_rows])

    texts = []
    for name, difference in differences.items():
        result = arrays.write_zero(difference, EXACT, "another number")
        texts.append(f"{name} {result.replace('0 within rounding', 'the same')}")
    what = "position-to-content term as coded, and K_j . Q at the distance"
    difference = differences[printed]
    findings.add_part(what, "; ".join(texts), difference <= EXACT, difference)


# Decay with distance: the bound of the RoFormer paper, and the scores themselves. A curve
# has a value for each distance from 0 on.


def _compute_curve(
    measure: Callable[[np.ndarray], np.ndarray], head_dim: int, farthest: int
) -> Float[arrays.Array, " distances"]:
    """Compute a curve of the waves e^(i distance theta) of all frequencies theta.

    `measure` takes the waves of some distances, [distances, pairs].
    """
    inv_freq = arrays.frequencies(head_dim, BASE)
    blocks = []
    # The waves of a few thousand distances at a time fit the cache of a processor.
    for start in range(0, farthest + 1, BLOCK):
        stop = min(start + BLOCK, farthest + 1)
        distances = np.arange(start, stop)[:, None]
        blocks.append(measure(np.exp(1j * distances * inv_freq)))
    return np.concatenate(blocks)


def compute_bound_curve(
    head_dim: int, farthest: int = FARTHEST
) -> Float[arrays.Array, " distances"]:
    """Compute (2/d) sum_j |S_j|, where S_j is the sum of the first j waves
    (arXiv:2104.09864, eq. 37).
    """

    def average_partial_sums(waves: np.ndarray) -> np.ndarray:
        return np.abs(waves.cumsum(axis=-1)).mean(axis=-1)

    return _compute_curve(average_partial_sums, head_dim, farthest)


def compute_aligned_curve(
    head_dim: int, farthest: int = FARTHEST
) -> Float[arrays.Array, " distances"]:
    """Return the mean score of a random vector with itself: the mean of cos(distance
    theta_i).
    """

    def average_cosines(waves: np.ndarray) -> np.ndarray:
        return waves.real.mean(axis=-1)

    return _compute_curve(average_cosines, head_dim, farthest)


def compute_independent_curve(head_dim: int) -> Float[arrays.Array, " distances"]:
    """Return the root mean square of the score of independent normal q and k, divided by
    the root mean square at distance 0.
    """
    # If a pair of features is written as a complex number, its part of the score is the
    # real part of q conj(k) times a wave. The real and the imaginary part of q conj(k) have
    # the same variance and are uncorrelated. The variance of the score is therefore in
    # proportion to cos^2 + sin^2 of the wave.

    def average_squares(waves: np.ndarray) -> np.ndarray:
        return (waves.real**2 + waves.imag**2).mean(axis=-1)

    mean_squares = _compute_curve(average_squares, head_dim, FARTHEST)
    return np.sqrt(mean_squares / mean_squares[0])


def compute_octave_means(curve: Float[arrays.Array, " distances"]) -> list[float]:
    """Return the means of a curve over the distances [1, 2), [2, 4), [4, 8), ...

    The curve itself goes up and down from one distance to the next, with the pairs that
    rotate fast.
    """
    means = []
    low = 1
    while 2 * low <= len(curve):
        means.append(float(curve[low : 2 * low].mean()))
        low *= 2
    return means


def _is_falling(means: list[float]) -> bool:
    return bool((np.diff(means) < 0).all())


@claim("decay-bound")
def check_decay_of_bound(findings: Findings, head_dim: int = 128) -> None:
    """Follow the bound on scores over distance."""
    curve = compute_bound_curve(head_dim, FAR)
    octaves = compute_octave_means(curve)
    means = octaves[:NEAR_OCTAVES]
    what = f"mean over octaves from 1 to {FARTHEST:,}"
    measured = " ".join(f"{mean:.1f}" for mean in means)
    ratio = means[-1] / means[0]
    findings.add_part(what, measured, _is_falling(means), ratio)

    # The first limit that disagrees is the condition that a reader sees. Limits within the
    # distances that the claim is about therefore come before the limit beyond them.
    rises = int((np.diff(curve[: FARTHEST + 1]) > 0).sum())
    measured = f"{rises:,} of {FARTHEST:,}"
    what = f"steps up to {FARTHEST:,} at which the bound rises"
    findings.add_limit(what, measured, rises == 0, rises)

    far_means = octaves[NEAR_OCTAVES:]
    what = f"mean over octaves beyond, from {FARTHEST:,} to {FAR:,}"
    measured = " ".join(f"{mean:.2f}" for mean in far_means)
    findings.add_limit(what, measured, _is_falling(far_means), far_means[-1])
    findings.series["decay"] = make_decay_series(head_dim)


@claim("decay-scores")
def check_decay_of_scores(findings: Findings, head_dim: int = 128) -> None:
    """Follow the scores of a vector with itself over distance, and those of independent
    vectors.
    """
    aligned = compute_aligned_curve(head_dim, FAR)
    octaves = compute_octave_means(aligned)
    means = octaves[:NEAR_OCTAVES]
    what = f"q = k, mean score over octaves from 1 to {FARTHEST:,}, score at 0 is 1"
    measured = " ".join(f"{mean:.2f}" for mean in means)
    findings.add_part(what, measured, _is_falling(means), means[-1])

    # As in `check_decay_of_bound`, the limit beyond the distances of the claim comes last.
    # The scores of independent vectors stand for tokens that have nothing to do with each
    # other.
    ratio = float(compute_independent_curve(head_dim)[-1])
    what = f"independent q and k, typical |score| at {FARTHEST:,} over that at 0"
    findings.add_limit(what, f"{ratio:.6g}, exactly", ratio < 1 - EXACT, ratio)

    negative = np.flatnonzero(aligned[: FARTHEST + 1] < 0)
    is_never_negative = len(negative) == 0
    measured = "nowhere"
    if not is_never_negative:
        measured = f"first at distance {int(negative[0]):,}"
    what = f"q = k, below zero up to {FARTHEST:,}"
    findings.add_limit(what, measured, is_never_negative)

    far_means = octaves[NEAR_OCTAVES:]
    what = f"q = k, mean score over octaves beyond, from {FARTHEST:,} to {FAR:,}"
    measured = " ".join(f"{mean:.3f}" for mean in far_means)
    findings.add_limit(what, measured, _is_falling(far_means), far_means[-1])

    findings.series["decay"] = make_decay_series(head_dim)


def make_decay_series(head_dim: int, points: int = 512) -> pd.DataFrame:
    """Return the curves over distance, each divided by its value at distance 0: a row per
    curve and distance.
    """
    # The distances are evenly spaced on the logarithmic axis of the figure.
    distances = np.unique(np.geomspace(1, FARTHEST, points).astype(int))
    bound = compute_bound_curve(head_dim)

    curves = {
        "bound": (bound / bound[0])[distances],
        # At distance 0 this curve is 1.
        "equal q and k": compute_aligned_curve(head_dim)[distances],
        "independent q and k": compute_independent_curve(head_dim)[distances],
    }

    table = pd.DataFrame({"distance_tokens": distances, **curves})
    table = table.melt("distance_tokens", var_name="curve", value_name="relative")
    return table[["curve", "distance_tokens", "relative"]]
