"""Checks of claims about attention: what it knows of the order of tokens, without
positions and with rotation.

A check adds findings to `findings`. `part` adds one without which the claim does not
hold, `limit` one that puts a condition on it: in words what was measured and the result,
whether the result agrees with the claim, and the number. `within` and `beyond` compare a
number with a bound, and write it into a text: `{}` is its magnitude.

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

# Two float64 sums of a few hundred numbers of size one, added in different orders, differ
# by less than this. Sums of rotated numbers may differ by more: angles are less exact.
SUMS = 1e-12
# The two score matrices that note 001, §2.2 prints: of "I like you" and "you like I".
FIRST_SCORES = ((1.25, 1.00, 0.95), (1.00, 1.25, 0.70), (0.95, 0.70, 0.73))
SECOND_SCORES = ((0.73, 0.70, 0.95), (0.70, 1.25, 1.00), (0.95, 1.00, 1.25))

# The features of a head, and the base of its frequencies.
HEAD = 64
BASE = 10000.0
# The number of random pairs of a query and a key, and their number where quantiles are
# compared.
DRAWS = 256
DRAWS_FOR_QUANTILES = 1 << 17
# The tokens of a random text, and the features of a token.
TOKENS = 16
WIDTH = 32
# The numbers of tokens by which the positions of a query and its key are moved.
SHIFTS = (1, 100, 4096)
# How attention gets the positions: queries and keys are rotated, codes are added to
# queries and keys, or values are rotated like queries and keys.
PositionMethod = Literal["rotated", "added", "values too"]


def attention(
    q: Float[arrays.Array, "tokens width"],
    k: Float[arrays.Array, "tokens width"],
    v: Float[arrays.Array, "tokens width"],
    causal: bool = False,
) -> Float[arrays.Array, "tokens width"]:
    """Return softmax(q k^T / sqrt(width)) v, without positions."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        # The scores above the diagonal are those of keys after the query.
        is_after_query = np.triu(np.ones_like(scores), 1) > 0
        scores = np.where(is_after_query, -math.inf, scores)
    return arrays.softmax(scores) @ v


def attend_in_order(
    order: NDArray[np.intp], causal: bool, seed: int
) -> tuple[Float[arrays.Array, "tokens tokens"], Float[arrays.Array, "tokens width"]]:
    """Return scores and attention outputs of random tokens put into `order`.

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
    return q @ k.T, attention(q, k, v, causal)


@claim("order-blind", bound=SUMS)
def order_blind(findings: Findings, causal: bool = False, seed: int = 0) -> None:
    """Put the tokens of a text into another order, and rearrange its scores and outputs
    the same way.
    """
    straight = np.arange(12)
    # Each token takes the place of the next one in a random cycle through all of them,
    # so that no token stays at its place.
    cycle = np.random.default_rng(seed).permutation(len(straight))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)
    scores, outputs = attend_in_order(straight, causal, seed)
    new_scores, new_outputs = attend_in_order(order, causal, seed)

    # Rows are queries and columns are keys: both are rearranged.
    difference = arrays.max_abs(new_scores - scores[order][:, order])
    findings.part(
        "scores against rearranged scores",
        arrays.write_magnitude(difference),
        difference <= SUMS,
    )
    difference = arrays.max_abs(new_outputs - outputs[order])
    findings.within("outputs against rearranged outputs", difference, SUMS, "{}")
    # Under a causal mask a token at another place sees other tokens.
    _, masked_outputs = attend_in_order(straight, True, seed)
    _, new_masked_outputs = attend_in_order(order, True, seed)
    difference = arrays.max_abs(new_masked_outputs - masked_outputs[order])
    what = "the same outputs under a causal mask"
    findings.within(what, difference, SUMS, "{:.2f} apart", "limit")


@claim("same-output")
def same_output(findings: Findings, tokens: int = 3, seed: int = 0) -> None:
    """Compare the outputs of a text with those of the same text read backwards."""
    straight = np.arange(tokens)
    _, forwards = attend_in_order(straight, False, seed)
    _, backwards = attend_in_order(straight[::-1], False, seed)

    difference = arrays.max_abs(backwards - forwards)
    findings.within("row by row", difference, SUMS, "{:.2f} apart")
    difference = arrays.max_abs(backwards[::-1] - forwards)
    findings.within("row against mirrored row", difference, SUMS, role="limit")
    difference = arrays.max_abs(backwards.sum(axis=0) - forwards.sum(axis=0))
    findings.within("summed over the rows", difference, SUMS, role="limit")


@claim("scores-without-order")
def order_in_scores(findings: Findings, tokens: int = 3, seed: int = 0) -> None:
    """Compare the scores of a text with those of the same text read backwards."""
    q, k = arrays.gaussian(seed, 2, tokens, WIDTH)
    scores = q @ k.T
    backward_scores = q[::-1] @ k[::-1].T
    difference = arrays.max_abs(backward_scores - scores)
    findings.within("the two matrices", difference, SUMS)
    # Sorted, the numbers of a matrix do not tell their places.
    sorted_scores = np.sort(scores, axis=None)
    sorted_backward_scores = np.sort(backward_scores, axis=None)
    difference = arrays.max_abs(sorted_backward_scores - sorted_scores)
    what = "the numbers in them, whatever their places"
    findings.within(what, difference, SUMS, role="limit")


@claim("softmax-as-printed")
def softmax_as_printed(findings: Findings, inside: bool = True, seed: int = 0) -> None:
    """Compare attention with a printed formula, whose softmax includes the product with
    the values (`inside`) or not.
    """
    x = arrays.gaussian(seed, 3, WIDTH)
    scores = x @ x.T
    if inside:
        printed = arrays.softmax(scores @ x)
    else:
        printed = arrays.softmax(scores / math.sqrt(WIDTH)) @ x
    difference = arrays.max_abs(printed - attention(x, x, x))
    findings.within("the two outputs", difference, SUMS, "{:.2f} apart")


@claim("score-example")
def score_example(findings: Findings, order: Sequence[int] = (2, 1, 0)) -> None:
    """Rearrange the rows and columns of the first printed matrix, and compare it with the
    second.
    """
    first = np.array(FIRST_SCORES)
    second = np.array(SECOND_SCORES)
    rearranged = first[np.ix_(order, order)]
    difference = arrays.max_abs(second - rearranged)
    findings.within("largest difference after rearranging", difference, 0, "{:g}")

    # The products of real vectors with each other form a symmetric matrix without
    # negative eigenvalues, and each such matrix consists of products of some vectors.
    eigenvalues = np.linalg.eigvalsh(first)
    lowest = float(eigenvalues.min())
    what = "such scores exist with q = k (no negative eigenvalue)"
    text = f"smallest eigenvalue {arrays.write_magnitude(lowest)}"
    is_symmetric = bool((first == first.T).all())
    findings.limit(what, text, is_symmetric and lowest >= -SUMS, lowest)

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
def one_hot_orders_differ(
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
    findings.beyond("largest difference between the matrices", difference, SUMS, "{}")


def scores(
    q: Float[arrays.Array, "draws d"],
    k: Float[arrays.Array, "draws d"],
    m: int,
    n: int,
    sign: int = 1,
    pairing: arrays.Pairing = "half",
) -> Float[arrays.Array, " draws"]:
    """Return the scores of queries at position m with keys at position n: the products of
    the rotated vectors, without a divisor.

    `sign` is 1 for the counterclockwise rotation and -1 for the clockwise one.
    """
    inv_freq = sign * arrays.frequencies(q.shape[-1], BASE)
    rotated_q = arrays.rotate(q, m * inv_freq, pairing)
    rotated_k = arrays.rotate(k, n * inv_freq, pairing)
    return (rotated_q * rotated_k).sum(-1)


@claim("relative-only", bound=EXACT)
def relative_only(
    findings: Findings, shifts: Sequence[int] = SHIFTS, seed: int = 0
) -> None:
    """Move both positions, and then only the key."""
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    at_start = scores(q, k, 0, 3)
    changes = []
    for shift in shifts:
        moved = scores(q, k, shift, shift + 3)
        changes.append(arrays.max_abs(moved - at_start))
    change_with_distance = arrays.max_abs(scores(q, k, 0, 4) - at_start)

    # Angles of 4e3 rad are known to 5e-13, so that EXACT suffices for shifts of a few
    # thousand tokens.
    what = f"change when both positions move by up to {max(shifts)}"
    findings.within(what, max(changes), EXACT, "{}")
    what = "change with one more token between"
    findings.beyond(what, change_with_distance, EXACT, "{:.1f}")


@claim("rotation-factor")
def rotation_factor(findings: Findings, distance: int = 3, seed: int = 0) -> None:
    """Write the rotation as a matrix between q and k, and try to write it as a factor of
    their product.
    """
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    rotated_scores = scores(q, k, 0, distance)
    # The matrix rotates pairs of neighbours. `scores` has the features of a pair in the
    # two halves, so the features are reordered for the matrix.
    q_pairs = arrays.join(*arrays.split(q, "half"), "interleaved")
    k_pairs = arrays.join(*arrays.split(k, "half"), "interleaved")
    matrix = arrays.rotation_matrix(distance * arrays.frequencies(HEAD, BASE))
    matrix_scores = ((q_pairs @ matrix) * k_pairs).sum(-1)
    difference = arrays.max_abs(matrix_scores - rotated_scores)

    # The product without rotation can be near 0, so that the ratio has no mean. Its
    # quantiles are compared. This many draws give them to a tenth, and they are printed
    # to a whole number.
    q, k = arrays.gaussian(seed, 2, DRAWS_FOR_QUANTILES, HEAD)
    ratios = scores(q, k, 0, distance) / scores(q, k, 0, 0)
    low, high = np.quantile(ratios, (0.05, 0.95)).tolist()

    what = f"as a rotation matrix between q and k, at distance {distance}"
    findings.within(what, difference, EXACT)
    what = "as a number behind the finished product q.k, 5 to 95 % of random q, k"
    findings.limit(what, f"{low:.0f} to {high:.0f}", high - low <= EXACT, high - low)


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
        return attention(q + code, k + code, v, causal=True)
    if method == "values too":
        v = arrays.rotate(v, angles)
    q = arrays.rotate(q, angles)
    k = arrays.rotate(k, angles)
    return attention(q, k, v, causal=True)


@claim("absolute-too")
def knows_absolute(
    findings: Findings,
    positions: PositionMethod = "rotated",
    causal: bool = True,
    seed: int = 0,
) -> None:
    """Distinguish positions by the rotation, and by the number of tokens before them."""
    # If all scores are equal, each of the n + 1 visible tokens has the weight 1/(n + 1).
    # The weight of the first token alone then tells the number of tokens before n. The
    # output is that weight if only the first value is 1.
    only_first = np.eye(TOKENS)[:, :1]
    zeros = np.zeros((TOKENS, 1))
    weights_of_first = attention(zeros, zeros, only_first, causal)[:, 0]
    # Weights that differ by rounding only count as one.
    different = len(np.unique(weights_of_first.round(12)))

    q = arrays.gaussian(seed, 1, HEAD)
    inv_freq = arrays.frequencies(HEAD, BASE)
    at_five = arrays.rotate(q, 5 * inv_freq)
    at_ten = arrays.rotate(q, 10 * inv_freq)
    rotation_difference = arrays.max_abs(at_ten - at_five)

    at_start = attend_from(0, positions, seed)
    changes = []
    for shift in SHIFTS:
        moved = attend_from(shift, positions, seed)
        changes.append(arrays.max_abs(moved - at_start))

    findings.part(
        "the rotated vectors at positions 5 and 10",
        f"{rotation_difference:.1f} apart",
        rotation_difference > EXACT,
    )
    what = "weight of the first of n + 1 equal tokens under a causal mask"
    text = f"1/(n + 1): {different} values at {TOKENS} positions"
    findings.part(what, text, different == TOKENS, different)
    what = (
        "what the rotation adds to that: attention's output after all positions move by"
        f" up to {max(SHIFTS)}"
    )
    findings.beyond(what, max(changes), EXACT, role="limit")


@claim("values-left-alone")
def values_left_alone(findings: Findings, shift: int = 100, seed: int = 0) -> None:
    """Move all positions, with values as they are and with rotated values."""

    def measure_change(method: PositionMethod) -> float:
        at_start = attend_from(0, method, seed)
        moved = attend_from(shift, method, seed)
        return arrays.max_abs(moved - at_start)

    what = f"output after all positions move by {shift}, values as they are"
    findings.within(what, measure_change("rotated"), EXACT)
    what = "the same with rotated values"
    findings.beyond(what, measure_change("values too"), EXACT, "{:.2f} apart")


@claim("either-direction")
def either_direction(findings: Findings, distance: int = 3, seed: int = 0) -> None:
    """Rotate the other way round, with mirrored features and with the same ones."""
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    counterclockwise = scores(q, k, 0, distance)
    # A reflection of the plane makes a clockwise rotation of a counterclockwise one, and
    # keeps products. It changes the sign of the second feature of each pair.
    mirror = np.repeat([1.0, -1.0], HEAD // 2)
    mirrored = scores(q * mirror, k * mirror, 0, distance, sign=-1)
    clockwise = scores(q, k, 0, distance, sign=-1)

    what = "with the second feature of each pair mirrored"
    difference = arrays.max_abs(mirrored - counterclockwise)
    text = f"{arrays.write_magnitude(difference)} apart"
    findings.part(what, text, difference <= EXACT)
    what = "with the same features"
    difference = arrays.max_abs(clockwise - counterclockwise)
    findings.within(what, difference, EXACT, "{:.1f} apart", "limit")


@claim("script-equal-scores")
def same_distance_same_score(
    findings: Findings,
    tokens: Literal["different", "same"] = "different",
    seed: int = 0,
) -> None:
    """Compare the score of a token with itself at position 0 and at position 1, for the
    same token at both positions or for two.
    """
    # Two queries and two keys for each draw: [draws, HEAD].
    (q0, q1), (k0, k1) = arrays.gaussian(seed, 2, 2, DRAWS, HEAD)
    if tokens == "same":
        q1 = q0
        k1 = k0
    first = scores(q0, k0, 0, 0)
    second = scores(q1, k1, 1, 1)
    typical = float(np.sqrt(np.square(first - second).mean()))
    what = f"typical difference of q0.k0 and q1.k1, {tokens} tokens at 0 and 1"
    findings.within(what, typical, 1e-3, "{:.1f}")


@claim("scaled-scores")
def division_keeps_scores_small(
    findings: Findings, widths: Sequence[int] = (16, 64, 256, 1024), scaled: bool = True
) -> None:
    """Compare the scores of vectors of several widths, divided by sqrt(width) or not."""
    # The product of two standard normal features has a variance of 1. A score is the sum
    # of as many products as there are features. Each list has a number per width.
    undivided = [math.sqrt(width) for width in widths]
    divided = [math.sqrt(width) / math.sqrt(width) for width in widths]
    deviations = divided if scaled else undivided

    def write_values(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2g}" for value in values)

    width_list = ", ".join(map(str, widths))
    stay_small = deviations[-1] < 2 * deviations[0]
    what = f"deviation of the scores, widths {width_list}"
    findings.part(what, write_values(deviations), stay_small, deviations[-1])
    what = f"{what}, not divided"
    findings.limit(what, write_values(undivided), True, undivided[-1])

    gradients = [_mean_gradient(deviation) for deviation in deviations]
    stay_large = gradients[-1] > gradients[0] / 2
    what = "mean change of a weight with its score, same widths"
    findings.part(what, write_values(gradients), stay_large, gradients[-1])
    undivided_gradients = [_mean_gradient(deviation) for deviation in undivided]
    what = f"{what}, not divided"
    findings.limit(
        what, write_values(undivided_gradients), True, undivided_gradients[-1]
    )


def _mean_gradient(deviation: float, keys: int = 32, queries: int = 2048) -> float:
    """Return the mean derivative of a softmax weight by its own score.

    The scores are random, normal and independent, with that deviation. The derivative of
    a weight w is w (1 - w), which is 0 if one key has all the weight.
    """
    weights = arrays.softmax(deviation * arrays.gaussian(0, queries, keys))
    return float((weights * (1 - weights)).mean())


@claim("segments-reach-further")
def recurrence_reaches_further(
    findings: Findings, cached: bool = True, layers: int = 3, segment: int = 8
) -> None:
    """Find the farthest token that changes the last output of a text read in segments.

    Each layer sees its segment of `segment` tokens and, if `cached`, the input that the
    layer had in the segment before.
    """
    tokens = 6 * segment

    def compute_last_output(
        text: Float[arrays.Array, "tokens width"],
    ) -> Float[arrays.Array, " width"]:
        no_tokens = np.empty((0, WIDTH))
        previous_inputs: list[Any] = [no_tokens for _ in range(layers)]
        for start in range(0, tokens, segment):
            hidden = text[start : start + segment]
            for layer in range(layers):
                visible = np.concatenate((previous_inputs[layer], hidden))
                if cached:
                    previous_inputs[layer] = hidden
                # Only the outputs of the segment itself go on to the next layer.
                outputs = attention(visible, visible, visible, causal=True)
                hidden = hidden + outputs[-len(hidden) :]
        return hidden[-1]

    text = arrays.gaussian(0, tokens, WIDTH) / math.sqrt(WIDTH)
    last_output = compute_last_output(text)
    farthest = 0
    for distance in range(tokens):
        changed_text = text.copy()
        changed_text[-1 - distance] *= -1
        changed_output = compute_last_output(changed_text)
        if arrays.max_abs(changed_output - last_output) > 0:
            farthest = distance

    what = f"farthest token that the last output rests on, {layers} layers"
    measured = f"{farthest} back, in segments of {segment}"
    findings.part(what, measured, farthest >= segment, farthest)
    # If positions are counted in each segment, a token and the cached one a segment
    # before have the same code, and scores cannot tell them apart.
    positions = np.arange(2 * segment) % segment
    shared = len(positions) - len(np.unique(positions))
    what = "positions of two segments that share a code, counted in each segment"
    measured = f"{shared} of {len(positions)}: it needs distances"
    findings.limit(what, measured, shared == 0, shared)
