"""Checks of claims about attention: what it knows of the order of tokens, without
positions and with rotation.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).

Texts, queries, keys and values are [tokens, width].
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ropelab.claims import arrays
from ropelab.claims.record import Findings, claim
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import EXACT

# An upper bound of the difference between two float64 sums of the same few hundred numbers
# of size one, added in different orders. Sums of rotated numbers may differ by more, since
# angles are less exact.
SUM_TOLERANCE = 1e-12
# The two score matrices that note 001, §2.2 prints: of "I like you" and "you like I".
FIRST_SCORES = ((1.25, 1.00, 0.95), (1.00, 1.25, 0.70), (0.95, 0.70, 0.73))
SECOND_SCORES = ((0.73, 0.70, 0.95), (0.70, 1.25, 1.00), (0.95, 1.00, 1.25))

# The features of a head, and the base of its frequencies.
HEAD = 64
BASE = 10000.0
# The number of random pairs of a query and a key, and of queries where quantiles are
# compared.
DRAWS = 256
QUERIES_FOR_QUANTILES = 1 << 14
# The tokens of a random text, and the features of a token.
TOKENS = 16
WIDTH = 32
# The keys among which a softmax shares its weight.
KEYS = 32
# The numbers of tokens by which the positions of a query and its key are moved.
SHIFTS = (1, 100, 4096)
# A difference of two scores below this counts as rounding. The scores of random tokens of
# HEAD features differ by about sqrt(2 HEAD), which is 11.
EQUAL_SCORES = 1e-3
# How attention gets the positions: queries and keys are rotated, codes are added to
# queries and keys, or values are rotated like queries and keys.
PositionMethod = Literal["rotated", "added", "values too"]


def compute_attention(
    q: Float[arrays.Array, "tokens width"],
    k: Float[arrays.Array, "tokens width"],
    v: Float[arrays.Array, "tokens width"],
    causal: bool = False,
) -> Float[arrays.Array, "tokens width"]:
    """Return softmax(q k^T / sqrt(width)) v, without positions."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        # The scores above the diagonal belong to keys after the query.
        is_after_query = np.triu(np.ones_like(scores), 1) > 0
        scores = np.where(is_after_query, -math.inf, scores)
    return arrays.softmax(scores) @ v


def attend_in_order(
    order: NDArray[np.intp], causal: bool, seed: int
) -> tuple[Float[arrays.Array, "tokens tokens"], Float[arrays.Array, "tokens width"]]:
    """Return the scores and the outputs of attention for random tokens in an order: the
    token at place i is the token number `order[i]`.

    The tokens and the weights of queries, keys and values follow from the seed.
    """
    tokens = arrays.gaussian(seed, len(order), WIDTH)[order]
    # The weights are divided by sqrt(width), so that queries and keys have the size of
    # the tokens.
    weights = arrays.gaussian(seed + 1, 3, WIDTH, WIDTH) / math.sqrt(WIDTH)
    query_weights, key_weights, value_weights = weights
    q = tokens @ query_weights
    k = tokens @ key_weights
    v = tokens @ value_weights
    return q @ k.T, compute_attention(q, k, v, causal)


@claim("order-blind", bound=SUM_TOLERANCE)
def check_order_blind(findings: Findings, causal: bool = False, seed: int = 0) -> None:
    """Put the tokens of a text into another order, and rearrange its scores and outputs
    the same way.
    """
    original_order = np.arange(12)
    # Each token takes the place of the next token in a random cycle through all tokens,
    # so that no token stays at its place.
    cycle = np.random.default_rng(seed).permutation(len(original_order))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)
    scores, outputs = attend_in_order(original_order, causal, seed)
    new_scores, new_outputs = attend_in_order(order, causal, seed)

    # Rows are queries and columns are keys: both are rearranged.
    difference = arrays.max_abs(new_scores - scores[order][:, order])
    findings.add_zero("scores less rearranged scores", difference, SUM_TOLERANCE)
    difference = arrays.max_abs(new_outputs - outputs[order])
    findings.add_zero("outputs less rearranged outputs", difference, SUM_TOLERANCE)
    # Under a causal mask a token at another place sees other tokens.
    _, masked_outputs = attend_in_order(original_order, causal=True, seed=seed)
    _, new_masked_outputs = attend_in_order(order, causal=True, seed=seed)
    difference = arrays.max_abs(new_masked_outputs - masked_outputs[order])
    what = "outputs less rearranged outputs under a causal mask"
    findings.add_zero(what, difference, SUM_TOLERANCE, role="limit")


@claim("same-output")
def check_same_output(findings: Findings, tokens: int = 3, seed: int = 0) -> None:
    """Compare the outputs of a text with the outputs of the same text read backwards."""
    order = np.arange(tokens)
    _, forwards = attend_in_order(order, causal=False, seed=seed)
    _, backwards = attend_in_order(order[::-1], causal=False, seed=seed)

    difference = arrays.max_abs(backwards - forwards)
    what = "differences row by row, of a text and the same read backwards"
    findings.add_zero(what, difference, SUM_TOLERANCE)
    difference = arrays.max_abs(backwards[::-1] - forwards)
    what = "differences of row and mirrored row"
    findings.add_zero(what, difference, SUM_TOLERANCE, role="limit")
    difference = arrays.max_abs(backwards.sum(axis=0) - forwards.sum(axis=0))
    what = "differences of the sums over all rows"
    findings.add_zero(what, difference, SUM_TOLERANCE, role="limit")


@claim("scores-without-order")
def check_order_in_scores(findings: Findings, tokens: int = 3, seed: int = 0) -> None:
    """Compare the scores of a text with the scores of the same text read backwards."""
    q, k = arrays.gaussian(seed, 2, tokens, WIDTH)
    scores = q @ k.T
    backward_scores = q[::-1] @ k[::-1].T
    difference = arrays.max_abs(backward_scores - scores)
    findings.add_zero("difference of the two matrices", difference, SUM_TOLERANCE)
    # Sorted numbers of a matrix show nothing of their places.
    sorted_scores = np.sort(scores, axis=None)
    sorted_backward_scores = np.sort(backward_scores, axis=None)
    difference = arrays.max_abs(sorted_backward_scores - sorted_scores)
    what = "difference of the numbers in the two, whatever their places"
    findings.add_zero(what, difference, SUM_TOLERANCE, role="limit")


@claim("softmax-as-printed")
def check_printed_softmax(
    findings: Findings, inside: bool = True, seed: int = 0
) -> None:
    """Compare attention with a printed formula.

    ``inside``: True if the formula takes the softmax after the product with the values,
    False if it takes the softmax of the scores before the product.
    """
    x = arrays.gaussian(seed, 3, WIDTH)
    scores = x @ x.T
    if inside:
        printed_output = arrays.softmax(scores @ x)
    else:
        printed_output = arrays.softmax(scores / math.sqrt(WIDTH)) @ x
    difference = arrays.max_abs(printed_output - compute_attention(x, x, x))
    findings.add_zero("difference of the two outputs", difference, SUM_TOLERANCE)


@claim("score-example")
def check_score_example(findings: Findings, order: Sequence[int] = (2, 1, 0)) -> None:
    """Rearrange the rows and columns of the first printed matrix, and compare it with the
    second.
    """
    first = np.array(FIRST_SCORES)
    second = np.array(SECOND_SCORES)
    rearranged = first[np.ix_(order, order)]
    difference = arrays.max_abs(second - rearranged)
    findings.add_at_most("largest difference after rearranging", difference, 0, "{:g}")

    # The products of real vectors with each other form a symmetric matrix without
    # negative eigenvalues, and each matrix of this kind consists of products of some
    # vectors.
    eigenvalues = np.linalg.eigvalsh(first)
    lowest = float(eigenvalues.min())
    what = "such scores exist with q = k (no negative eigenvalue)"
    size = arrays.write_zero(abs(lowest), SUM_TOLERANCE, f"{lowest:.2g}")
    measured = f"smallest eigenvalue {size}"
    is_symmetric = bool((first == first.T).all())
    findings.add_limit(
        what, measured, is_symmetric and lowest >= -SUM_TOLERANCE, lowest
    )

    # The table for the figure has a row per score.
    words = ("I", "like", "you")
    other_words = tuple(words[i] for i in order)
    sentences = {"first": (words, FIRST_SCORES), "second": (other_words, SECOND_SCORES)}
    rows = []
    for name, (sentence, matrix) in sentences.items():
        for row, scores_of_query in enumerate(matrix):
            for column, score in enumerate(scores_of_query):
                query = sentence[row]
                key = sentence[column]
                rows.append((name, row, column, query, key, score))
    columns = ["sentence", "row", "column", "query", "key", "score"]
    findings.series["permutation"] = pd.DataFrame(rows, columns=columns)


@claim("script-scores-scrambled", "script-positions-help")
def check_one_hot_orders(
    findings: Findings, width: int = 3, offsets: Sequence[float] = (0.0, 0.0, 0.0)
) -> None:
    """Compare x x^T of one-hot words in both orders.

    ``offsets`` has a number for each position, which is added to all features of the word
    at that position.
    """
    words = np.eye(len(offsets), width)
    offset_of_position = np.array(offsets)[:, None]
    forwards = words + offset_of_position
    backwards = words[::-1] + offset_of_position
    difference = arrays.max_abs(forwards @ forwards.T - backwards @ backwards.T)
    what = "largest difference between the matrices"
    findings.add_nonzero(what, difference, SUM_TOLERANCE)


def compute_scores(
    q: Float[arrays.Array, "draws d"],
    k: Float[arrays.Array, "draws d"],
    m: int,
    n: int,
    sign: int = 1,
    pairing: arrays.Pairing = "half",
) -> Float[arrays.Array, " draws"]:
    """Return the products of rotated queries and keys, without a divisor.

    Args:
        q: the queries.
        k: the keys.
        m: the position of all queries.
        n: the position of all keys.
        sign: 1 to rotate counterclockwise, -1 to rotate clockwise.
        pairing: the places of the two features of a pair.
    """
    inv_freq = sign * arrays.frequencies(q.shape[-1], BASE)
    rotated_q = arrays.rotate(q, m * inv_freq, pairing)
    rotated_k = arrays.rotate(k, n * inv_freq, pairing)
    return (rotated_q * rotated_k).sum(-1)


@claim("relative-only", bound=EXACT)
def check_relative_only(
    findings: Findings, shifts: Sequence[int] = SHIFTS, seed: int = 0
) -> None:
    """Move both positions, and then only the key."""
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    distance = 3
    scores_at_start = compute_scores(q, k, m=0, n=distance)
    changes = []
    for shift in shifts:
        moved_scores = compute_scores(q, k, m=shift, n=shift + distance)
        changes.append(arrays.max_abs(moved_scores - scores_at_start))
    # The score of a pair of features is |q| |k| cos(angle), whose change from one angle to
    # another has the variance 2 (2 sin(half the angle between them))^2 over normal q and k.
    step_angles = arrays.frequencies(HEAD, BASE)
    typical_change = _compute_typical_change(step_angles)

    # Angles of 4e3 rad are known to 5e-13, so that EXACT suffices for shifts of a few
    # thousand tokens.
    what = f"change when both positions move by up to {max(shifts)}"
    findings.add_zero(what, max(changes), EXACT)
    what = "typical change with one more token between (root mean square over normal q and k)"
    template = f"{{:.2f}}, of a typical score of {math.sqrt(HEAD):g}"
    findings.add_above(what, typical_change, EXACT, template)


def _compute_typical_change(angles: Float[arrays.Array, " pairs"]) -> float:
    """Return how far a rotation by these angles moves a vector, as a root mean square
    over normal vectors. The same number is the root mean square of the change of a score,
    over normal queries and keys, if the rotation acts on one of them.
    """
    # A pair of standard normal features has a mean square of 2, and a rotation moves it by
    # 2 sin(angle / 2) times its length. For the change of a score the factor is
    # E|q|^2 E|k|^2 / 2, which is 2 as well.
    moves = 2 * np.sin(angles / 2)
    return math.sqrt(2 * float(np.square(moves).sum()))


@claim("rotation-factor")
def check_rotation_factor(findings: Findings, distance: int = 3, seed: int = 0) -> None:
    """Write the rotation as a matrix between q and k, and try to write it as a factor of
    their product.
    """
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    rotated_scores = compute_scores(q, k, m=0, n=distance)
    # The matrix rotates pairs of neighbouring features. `compute_scores` takes the features
    # of a pair from the two halves, so the features are reordered for the matrix.
    q_pairs = arrays.join(*arrays.split(q, "half"), "interleaved")
    k_pairs = arrays.join(*arrays.split(k, "half"), "interleaved")
    matrix = arrays.rotation_matrix(distance * arrays.frequencies(HEAD, BASE))
    matrix_scores = ((q_pairs @ matrix) * k_pairs).sum(-1)
    difference = arrays.max_abs(matrix_scores - rotated_scores)

    # The product without rotation can be near 0, so that the ratio has no mean. Its
    # quantiles are compared.
    low = _find_ratio_quantile(0.05, distance)
    high = _find_ratio_quantile(0.95, distance)

    what = f"a rotation matrix between q and k, at distance {distance}, is off by"
    findings.add_zero(what, difference, EXACT, otherwise="another score")
    what = (
        "the rotation as a number behind the finished product q.k, at distance"
        f" {distance}, 5 to 95 % of normal q and k of {HEAD} features"
    )
    findings.add_limit(
        what, f"{low:.1f} to {high:.1f}", high - low <= EXACT, high - low
    )


def _find_ratio_quantile(share: float, distance: int) -> float:
    """Return the quantile of the ratio of a rotated score and the score without rotation,
    over normal queries and keys.
    """
    # For a given query both scores are normal numbers of the same variance, and their
    # correlation is the mean of cos(distance theta), weighted by the squares of the query's
    # pairs. The ratio of two such numbers has a Cauchy distribution with the correlation c
    # as its middle and the width sqrt(1 - c^2). Only the mean over queries is sampled, with
    # the same queries in every run, which makes the quantile exact to 0.01.
    queries = arrays.gaussian(0, QUERIES_FOR_QUANTILES, HEAD)
    first, second = arrays.split(queries, "half")
    squares = first**2 + second**2
    cosines = np.cos(distance * arrays.frequencies(HEAD, BASE))
    correlations = (squares @ cosines) / squares.sum(axis=-1)
    if correlations.min() >= 1 - EXACT:
        # Without a rotation the two scores are equal.
        return 1.0
    widths = np.sqrt(1 - correlations**2)

    def find_share_below(ratio: float) -> float:
        shares = 0.5 + np.arctan((ratio - correlations) / widths) / math.pi
        return float(shares.mean())

    # The share grows with the ratio, so that halving an interval finds the quantile.
    low = -1e3
    high = 1e3
    for _ in range(60):
        middle = (low + high) / 2
        if find_share_below(middle) < share:
            low = middle
        else:
            high = middle
    return high


def attend_from(
    start: int, method: PositionMethod, seed: int
) -> Float[arrays.Array, "tokens d"]:
    """Return the outputs of causal attention for random tokens at the positions start,
    start + 1, ...
    """
    q, k, v = arrays.gaussian(seed, 3, TOKENS, HEAD)
    positions = np.arange(start, start + TOKENS)[:, None]
    angles = positions * arrays.frequencies(HEAD, BASE)  # [tokens, pairs]
    if method == "added":
        code = arrays.join(np.sin(angles), np.cos(angles), "half")
        return compute_attention(q + code, k + code, v, causal=True)
    if method == "values too":
        v = arrays.rotate(v, angles)
    q = arrays.rotate(q, angles)
    k = arrays.rotate(k, angles)
    return compute_attention(q, k, v, causal=True)


@claim("absolute-too")
def check_absolute_too(
    findings: Findings,
    positions: PositionMethod = "rotated",
    causal: bool = True,
    seed: int = 0,
) -> None:
    """Distinguish positions by the rotation, and by the number of tokens before them."""
    # If all scores are equal, a query with n tokens before it gives each of the n + 1
    # visible tokens the weight 1/(n + 1). The weight of the first token thus tells n. The
    # output is this weight if the first value is 1 and all other values are 0.
    values = np.eye(TOKENS)[:, :1]
    zeros = np.zeros((TOKENS, 1))
    weights_of_first = compute_attention(zeros, zeros, values, causal)[:, 0]
    # Weights that differ by rounding only count as one.
    distinct_weights = len(np.unique(weights_of_first.round(12)))

    # From position 5 to 10 a vector is rotated by five steps.
    five_steps = 5 * arrays.frequencies(HEAD, BASE)
    rotation_difference = _compute_typical_change(five_steps)

    outputs_at_start = attend_from(0, positions, seed)
    changes = []
    for shift in SHIFTS:
        moved_outputs = attend_from(shift, positions, seed)
        changes.append(arrays.max_abs(moved_outputs - outputs_at_start))

    what = "a rotated vector at positions 5 and 10 (root mean square)"
    template = f"{{:.2f}} apart, of a length of {math.sqrt(HEAD):g}"
    findings.add_above(what, rotation_difference, EXACT, template)
    what = "weight of the first of n + 1 equal tokens under a causal mask"
    measured = f"1/(n + 1): {distinct_weights} values at {TOKENS} positions"
    findings.add_part(what, measured, distinct_weights == TOKENS, distinct_weights)
    what = (
        "what the rotation shows of absolute positions: change of attention's output"
        f" after all positions move by up to {max(SHIFTS)}"
    )
    measured = "another output"
    findings.add_nonzero(what, max(changes), EXACT, measured, role="limit")


@claim("values-left-alone")
def check_values_left_alone(
    findings: Findings, shift: int = 100, seed: int = 0
) -> None:
    """Move all positions, with values as they are and with rotated values."""

    def measure_change(method: PositionMethod) -> float:
        outputs_at_start = attend_from(0, method, seed)
        moved_outputs = attend_from(shift, method, seed)
        return arrays.max_abs(moved_outputs - outputs_at_start)

    what = f"change of outputs when all positions move by {shift}, values as they are"
    findings.add_zero(what, measure_change("rotated"), EXACT)
    what = f"change of outputs when all positions move by {shift}, values rotated, too"
    findings.add_nonzero(what, measure_change("values too"), EXACT)


@claim("either-direction")
def check_either_direction(
    findings: Findings, distance: int = 3, step: int = 1, seed: int = 0
) -> None:
    """Count the positions that each direction tells apart, and rotate in the opposite
    direction, with mirrored features and with the same features.

    Args:
        findings: the findings.
        distance: the distance between a query and its key.
        step: the distance between neighbours of the counted positions.
        seed: the seed of queries and keys.
    """
    angles = step * np.arange(max(SHIFTS))[:, None] * arrays.frequencies(HEAD, BASE)
    # The number of positions that each direction tells apart.
    distinct_counts = []
    for sign in (1, -1):
        codes = np.concatenate((np.cos(angles), np.sin(sign * angles)), axis=-1)
        distinct_counts.append(len(np.unique(codes, axis=0)))
    what = f"positions of {len(angles):,} that are told apart"
    measured = (
        f"{distinct_counts[0]:,} counterclockwise, {distinct_counts[1]:,} clockwise"
    )
    all_differ = min(distinct_counts) == len(angles)
    findings.add_part(what, measured, all_differ, min(distinct_counts))

    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    scores = compute_scores(q, k, m=0, n=distance)
    # A reflection changes the sign of the second feature of each pair. It turns a
    # counterclockwise rotation into a clockwise one, and changes no product of vectors.
    mirror = np.repeat([1.0, -1.0], HEAD // 2)
    mirrored_scores = compute_scores(q * mirror, k * mirror, m=0, n=distance, sign=-1)

    what = "difference of scores with the second feature of each pair mirrored"
    difference = arrays.max_abs(mirrored_scores - scores)
    findings.add_zero(what, difference, EXACT)
    # From one direction to the other every pair is rotated by twice its angle.
    what = (
        "difference of scores in both directions with the same features, at distance"
        f" {distance} (root mean square over normal q and k)"
    )
    typical = _compute_typical_change(2 * distance * arrays.frequencies(HEAD, BASE))
    template = f"{{:.2f}}, of a typical score of {math.sqrt(HEAD):g}"
    findings.add_at_most(what, typical, EXACT, template, role="limit")


@claim("script-equal-scores")
def check_equal_scores(
    findings: Findings, tokens: Literal["different", "same"] = "different"
) -> None:
    """Compare the scores of tokens with themselves at position 0 and at position 1.

    ``tokens``: says if the same token is at both positions, or two different tokens.
    """
    # A score of normal vectors has the variance HEAD at every distance. The difference of
    # two independent scores has twice this variance. The same tokens at the same distance
    # have equal scores.
    variance = 2 * HEAD if tokens == "different" else 0
    typical = math.sqrt(variance)
    what = (
        f"typical difference of q0.k0 and q1.k1, {tokens} tokens at 0 and 1 (root mean"
        " square over normal q and k)"
    )
    template = f"{{:.2f}}, of a typical score of {math.sqrt(HEAD):g}"
    findings.add_at_most(what, typical, EQUAL_SCORES, template)


@claim("scaled-scores")
def check_scaled_scores(
    findings: Findings, widths: Sequence[int] = (16, 64, 256, 1024), scaled: bool = True
) -> None:
    """Compare the scores of vectors of several widths, divided by sqrt(width) or not."""
    # The product of two standard normal features has a variance of 1, and a score is the
    # sum of the products of all features. Each of these lists has a number per width.
    undivided = [math.sqrt(width) for width in widths]
    # Scores that are divided by sqrt(width) have the deviation 1 at every width.
    divided = [1.0 for _ in widths]
    deviations = divided if scaled else undivided

    def write_values(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2g}" for value in values)

    width_list = ", ".join(map(str, widths))
    stay_small = deviations[-1] < 2 * deviations[0]
    what = f"deviation of the scores of normal vectors, widths {width_list}"
    findings.add_part(what, write_values(deviations), stay_small, deviations[-1])
    what = f"{what}, not divided"
    grow = undivided[-1] >= 2 * undivided[0]
    findings.add_limit(what, write_values(undivided), grow, undivided[-1])

    gradients = [_measure_mean_gradient(deviation) for deviation in deviations]
    stay_large = gradients[-1] > gradients[0] / 2
    what = f"mean change of a weight with its score, of {KEYS} keys, same widths"
    findings.add_part(what, write_values(gradients), stay_large, gradients[-1])
    undivided_gradients = [_measure_mean_gradient(deviation) for deviation in undivided]
    what = f"{what}, not divided"
    fall = undivided_gradients[-1] <= undivided_gradients[0] / 2
    findings.add_limit(
        what, write_values(undivided_gradients), fall, undivided_gradients[-1]
    )


def _measure_mean_gradient(deviation: float, keys: int = KEYS) -> float:
    """Return the mean derivative of a softmax weight by its own score.

    The scores are normal and independent, with that deviation. The derivative of a weight
    w is w (1 - w), which is 0 if one key has all the weight.
    """
    # The mean of w is 1 / keys. With e = exp(score) and their sum S, w^2 is e^2 / S^2, and
    # 1 / S^2 is the integral of t exp(-t S) over t from 0 on. Over independent scores this
    # is the integral of t E[e^2 exp(-t e)] E[exp(-t e)]^(keys - 1). Both means are sums
    # over a grid of normal scores, and t = exp(u) on a grid of u.
    z = np.linspace(-9, 9, 1441)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    score = deviation * z
    # The integrand is negligible where t times the largest e, or the sum of all, is far
    # from 1.
    u = np.linspace(-9.5 * deviation - 8, 9.5 * deviation + 8, 2001)
    t_times_e = np.exp((u[:, None] + score).clip(max=50))  # [t, scores]
    decays = np.exp(-t_times_e)
    # With t = exp(u), dt is t du: the integral over u has (t e)^2 in the place of t e^2.
    square = (t_times_e**2 * decays) @ density
    integrand = square * (decays @ density) ** (keys - 1)
    mean_square = float(integrand.sum() * (u[1] - u[0]))
    return 1 / keys - mean_square


@claim("segments-reach-further")
def check_reach_of_segments(
    findings: Findings, cached: bool = True, layers: int = 3, segment: int = 8
) -> None:
    """Find the farthest token that changes the last output of a text read in segments.

    Args:
        findings: the findings.
        cached: True if each layer also sees the input that it had in the segment before.
        layers: the number of layers.
        segment: the tokens of a segment.
    """
    tokens = 6 * segment

    def compute_last_output(
        embeddings: Float[arrays.Array, "tokens width"],
    ) -> Float[arrays.Array, " width"]:
        no_tokens = np.empty((0, WIDTH))
        previous_inputs: list[Any] = [no_tokens for _ in range(layers)]
        for start in range(0, tokens, segment):
            hidden = embeddings[start : start + segment]
            for layer in range(layers):
                visible = np.concatenate((previous_inputs[layer], hidden))
                if cached:
                    previous_inputs[layer] = hidden
                # Only the outputs of the segment itself go on to the next layer.
                outputs = compute_attention(visible, visible, visible, causal=True)
                hidden = hidden + outputs[-len(hidden) :]
        return hidden[-1]

    embeddings = arrays.gaussian(0, tokens, WIDTH) / math.sqrt(WIDTH)
    last_output = compute_last_output(embeddings)
    farthest = 0
    for distance in range(tokens):
        changed_embeddings = embeddings.copy()
        changed_embeddings[-1 - distance] *= -1
        changed_output = compute_last_output(changed_embeddings)
        if arrays.max_abs(changed_output - last_output) > 0:
            farthest = distance

    what = f"farthest token that the last output rests on, {layers} layers"
    measured = f"{farthest} back, in segments of {segment}"
    findings.add_part(what, measured, farthest >= segment, farthest)
    # If positions are counted in each segment, a token and the cached one a segment
    # before have the same code, and scores cannot tell them apart.
    positions = np.arange(2 * segment) % segment
    repeated = len(positions) - len(np.unique(positions))
    what = (
        "positions of two segments that share a code if they are counted in each segment, so"
        " that distances are needed"
    )
    measured = f"{repeated} of {len(positions)}"
    findings.add_limit(what, measured, repeated > 0, repeated)
