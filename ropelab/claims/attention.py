"""Checks of attention: its view of the order of tokens, without positions and with
rotation.
"""

import math
from collections.abc import Mapping, Sequence
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
# The two score matrices of note 001, §2.2: I like you, and you like I.
FIRST = ((1.25, 1.00, 0.95), (1.00, 1.25, 0.70), (0.95, 0.70, 0.73))
SECOND = ((0.73, 0.70, 0.95), (0.70, 1.25, 1.00), (0.95, 1.00, 1.25))

# The features of a head, and the base of its frequencies.
HEAD = 64
BASE = 10000.0
# The number of random pairs of a query and a key, and the number for a quantile.
DRAWS = 256
MANY = 1 << 17
# The tokens of a random text, and the features of a token.
TOKENS = 16
WIDTH = 32
# The numbers of tokens by which both positions are moved.
SHIFTS = (1, 100, 4096)
# How attention learns the positions: queries and keys are rotated, codes are added to
# them, or values are rotated, too.
Placed = Literal["rotated", "added", "values too"]


def attention(
    q: Float[arrays.Array, "tokens width"],
    k: Float[arrays.Array, "tokens width"],
    v: Float[arrays.Array, "tokens width"],
    causal: bool = False,
) -> Float[arrays.Array, "tokens width"]:
    """Return softmax(q k^T / sqrt(width)) v, without positions."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        # Above the diagonal are the keys after the query.
        scores = np.where(np.triu(np.ones_like(scores), 1) > 0, -math.inf, scores)
    return arrays.softmax(scores) @ v


def attend_in_order(
    order: NDArray[np.intp], causal: bool, seed: int
) -> tuple[Float[arrays.Array, "t t"], Float[arrays.Array, "t w"]]:
    """Return scores and attention outputs of random tokens put into `order`."""
    # The weights are divided by sqrt(width), so that queries and keys have the size of
    # the tokens.
    x = arrays.gaussian(seed, len(order), WIDTH)[order]
    wq, wk, wv = arrays.gaussian(seed + 1, 3, WIDTH, WIDTH) / math.sqrt(WIDTH)
    return (x @ wq) @ (x @ wk).T, attention(x @ wq, x @ wk, x @ wv, causal)


@claim("order-blind", bound=SUMS)
def order_blind(findings: Findings, causal: bool = False, seed: int = 0) -> None:
    straight = np.arange(12)
    # Each token takes the place of the next one in a random cycle through all of them,
    # so that no token stays at its place.
    cycle = np.random.default_rng(seed).permutation(len(straight))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)
    scores, outputs = attend_in_order(straight, causal, seed)
    new_scores, new_outputs = attend_in_order(order, causal, seed)

    off = arrays.largest(new_scores - scores[order][:, order])
    findings.part(
        "scores against rearranged scores", arrays.write_magnitude(off), off <= SUMS
    )
    off = arrays.largest(new_outputs - outputs[order])
    findings.within("outputs against rearranged outputs", off, SUMS, "{}")
    # Under a causal mask a token at another place sees other tokens.
    _, masked = attend_in_order(straight, True, seed)
    _, new_masked = attend_in_order(order, True, seed)
    off = arrays.largest(new_masked - masked[order])
    what = "the same outputs under a causal mask"
    findings.within(what, off, SUMS, "{:.2f} apart", "limit")


@claim("same-output")
def same_output(findings: Findings, tokens: int = 3, seed: int = 0) -> None:
    straight = np.arange(tokens)
    _, forwards = attend_in_order(straight, False, seed)
    _, backwards = attend_in_order(straight[::-1], False, seed)

    off = arrays.largest(backwards - forwards)
    findings.within("row by row", off, SUMS, "{:.2f} apart")
    off = arrays.largest(backwards[::-1] - forwards)
    findings.within("row against mirrored row", off, SUMS, role="limit")
    off = arrays.largest(backwards.sum(0) - forwards.sum(0))
    findings.within("summed over the rows", off, SUMS, role="limit")


@claim("scores-without-order")
def order_in_scores(findings: Findings, tokens: int = 3, seed: int = 0) -> None:
    q, k = arrays.gaussian(seed, 2, tokens, WIDTH)
    scores = q @ k.T
    other = q[::-1] @ k[::-1].T
    findings.within("the two matrices", arrays.largest(other - scores), SUMS)
    off = arrays.largest(np.sort(other, None) - np.sort(scores, None))
    what = "the numbers in them, whatever their places"
    findings.within(what, off, SUMS, role="limit")


@claim("softmax-as-printed")
def softmax_as_printed(findings: Findings, inside: bool = True, seed: int = 0) -> None:
    x = arrays.gaussian(seed, 3, WIDTH)
    scores = x @ x.T
    if inside:
        printed = arrays.softmax(scores @ x)
    else:
        printed = arrays.softmax(scores / math.sqrt(WIDTH)) @ x
    off = arrays.largest(printed - attention(x, x, x))
    findings.within("the two outputs", off, SUMS, "{:.2f} apart")


@claim("score-example")
def score_example(findings: Findings, order: Sequence[int] = (2, 1, 0)) -> None:
    first = np.array(FIRST)
    second = np.array(SECOND)
    off = arrays.largest(second - first[np.ix_(order, order)])

    findings.within("largest difference after rearranging", off, 0, "{:g}")
    # The products of real vectors with each other are a symmetric matrix without
    # negative eigenvalues, and each such matrix is one of products.
    lowest = float(np.linalg.eigvalsh(first)[0])
    what = "such scores exist with q = k (no negative eigenvalue)"
    text = f"smallest eigenvalue {arrays.write_magnitude(lowest)}"
    symmetric = bool((first == first.T).all())
    findings.limit(what, text, symmetric and lowest >= -SUMS, lowest)

    words = ("I", "like", "you")
    reordered = tuple(words[i] for i in order)
    rows = []
    for name, matrix, said in (("first", FIRST, words), ("second", SECOND, reordered)):
        for row, line in enumerate(matrix):
            for column, score in enumerate(line):
                rows.append((name, row, column, said[row], said[column], score))
    columns = ["sentence", "row", "column", "query", "key", "score"]
    findings.series["permutation"] = pd.DataFrame(rows, columns=columns)


@claim("script-scores-scrambled", "script-positions-help")
def one_hot_orders_differ(
    findings: Findings, width: int = 3, offsets: Sequence[float] = (0.0, 0.0, 0.0)
) -> None:
    """Compare x x^T of one-hot words in both orders; ``offsets`` are added by
    position.
    """
    words = np.eye(len(offsets), width)
    positions = np.array(offsets)[:, None]
    straight = words + positions
    reversed_ = words[::-1] + positions
    forwards = straight @ straight.T
    backwards = reversed_ @ reversed_.T
    apart = arrays.largest(forwards - backwards)
    findings.beyond("largest difference between the matrices", apart, SUMS, "{}")


def scores(
    q: Float[arrays.Array, "draws d"],
    k: Float[arrays.Array, "draws d"],
    m: int,
    n: int,
    sign: int = 1,
    pairing: arrays.Pairing = "half",
) -> Float[arrays.Array, " draws"]:
    """Return the scores of queries at position m with keys at position n.

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
    # Angles of 4e3 rad are known to 5e-13, so that EXACT suffices for shifts of a few
    # thousand tokens.
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    near = scores(q, k, 0, 3)
    moved = max(arrays.largest(scores(q, k, s, s + 3) - near) for s in shifts)
    farther = arrays.largest(scores(q, k, 0, 4) - near)
    findings.within(
        f"change when both positions move by up to {max(shifts)}", moved, EXACT, "{}"
    )
    findings.beyond("change with one more token between", farther, EXACT, "{:.1f}")


@claim("rotation-factor")
def rotation_factor(findings: Findings, distance: int = 3, seed: int = 0) -> None:
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    after = scores(q, k, 0, distance)
    # The matrix rotates pairs of neighbours. `scores` has the features of a pair in the
    # two halves, so the features are reordered for the matrix.
    q_pairs = arrays.join(*arrays.split(q, "half"), "interleaved")
    k_pairs = arrays.join(*arrays.split(k, "half"), "interleaved")
    matrix = arrays.rotation_matrix(distance * arrays.frequencies(HEAD, BASE))
    off = arrays.largest(((q_pairs @ matrix) * k_pairs).sum(-1) - after)
    # The divisor can be near 0, so that the ratio of two products has no mean. Its
    # quantiles are compared. So many draws give them to a tenth, and they are printed to
    # a whole number.
    q, k = arrays.gaussian(seed, 2, MANY, HEAD)
    ratios = scores(q, k, 0, distance) / scores(q, k, 0, 0)
    low, high = np.quantile(ratios, (0.05, 0.95)).tolist()

    findings.within(
        f"as a rotation matrix between q and k, at distance {distance}", off, EXACT
    )
    what = "as a number behind the finished product q.k, 5 to 95 % of random q, k"
    findings.limit(what, f"{low:.0f} to {high:.0f}", high - low <= EXACT, high - low)


def attend_from(
    start: int, positions: Placed, seed: int
) -> Float[arrays.Array, "tokens d"]:
    """Return the outputs of causal attention for random tokens at the positions start,
    start + 1, ...
    """
    q, k, v = arrays.gaussian(seed, 3, TOKENS, HEAD)
    angles = np.arange(start, start + TOKENS)[:, None] * arrays.frequencies(HEAD, BASE)
    if positions == "added":
        code = arrays.join(np.sin(angles), np.cos(angles), "half")
        return attention(q + code, k + code, v, causal=True)
    if positions == "values too":
        v = arrays.rotate(v, angles)
    q = arrays.rotate(q, angles)
    k = arrays.rotate(k, angles)
    return attention(q, k, v, causal=True)


@claim("absolute-too")
def knows_absolute(
    findings: Findings,
    positions: Placed = "rotated",
    causal: bool = True,
    seed: int = 0,
) -> None:
    """Tell positions apart by the rotation, and by the number of tokens before them."""
    # If all scores are equal, each of the n + 1 visible tokens has the weight 1/(n + 1).
    # The weight of the first token alone then tells the number of tokens before n. The
    # output is that weight if only the first value is 1.
    only_first = np.eye(TOKENS)[:, :1]
    nothing = np.zeros((TOKENS, 1))
    weights = attention(nothing, nothing, only_first, causal)[:, 0]
    # Weights that differ by rounding only count as one.
    different = len(np.unique(weights.round(12)))
    q = arrays.gaussian(seed, 1, HEAD)
    inv_freq = arrays.frequencies(HEAD, BASE)
    codes = arrays.largest(
        arrays.rotate(q, 10 * inv_freq) - arrays.rotate(q, 5 * inv_freq)
    )
    here = attend_from(0, positions, seed)
    moved = max(arrays.largest(attend_from(s, positions, seed) - here) for s in SHIFTS)

    findings.part(
        "the rotated vectors at positions 5 and 10", f"{codes:.1f} apart", codes > EXACT
    )
    what = "weight of the first of n + 1 equal tokens under a causal mask"
    text = f"1/(n + 1): {different} values at {TOKENS} positions"
    findings.part(what, text, different == TOKENS, different)
    what = (
        "what the rotation adds to that: attention's output after all positions move by"
        " up to"
    )
    findings.beyond(f"{what} {max(SHIFTS)}", moved, EXACT, role="limit")


@claim("values-left-alone")
def values_left_alone(findings: Findings, shift: int = 100, seed: int = 0) -> None:
    def change_by_moving(positions: Placed) -> float:
        here = attend_from(0, positions, seed)
        return arrays.largest(attend_from(shift, positions, seed) - here)

    unrotated_values = change_by_moving("rotated")
    rotated_values = change_by_moving("values too")
    findings.within(
        f"output after all positions move by {shift}, values as they are",
        unrotated_values,
        EXACT,
    )
    findings.beyond(
        "the same with rotated values", rotated_values, EXACT, "{:.2f} apart"
    )


@claim("either-direction")
def either_direction(findings: Findings, distance: int = 3, seed: int = 0) -> None:
    q, k = arrays.gaussian(seed, 2, DRAWS, HEAD)
    there = scores(q, k, 0, distance)
    # A reflection of the plane makes a clockwise rotation of a counterclockwise one, and
    # keeps products. It changes the sign of the second feature of each pair.
    mirror = np.repeat([1.0, -1.0], HEAD // 2)
    same = arrays.largest(scores(q * mirror, k * mirror, 0, distance, sign=-1) - there)
    apart = arrays.largest(scores(q, k, 0, distance, sign=-1) - there)
    what = "with the second feature of each pair mirrored"
    findings.part(what, f"{arrays.write_magnitude(same)} apart", same <= EXACT)
    findings.within("with the same features", apart, EXACT, "{:.1f} apart", "limit")


@claim("script-equal-scores")
def same_distance_same_score(
    findings: Findings,
    tokens: Literal["different", "same"] = "different",
    seed: int = 0,
) -> None:
    q, k = arrays.gaussian(seed, 2, 2, DRAWS, HEAD)
    if tokens == "same":
        q = np.broadcast_to(q[:1], q.shape)
        k = np.broadcast_to(k[:1], k.shape)
    first = scores(q[0], k[0], 0, 0)
    second = scores(q[1], k[1], 1, 1)
    typical = float(np.sqrt(np.square(first - second).mean()))
    what = f"typical difference of q0.k0 and q1.k1, {tokens} tokens at 0 and 1"
    findings.within(what, typical, 1e-3, "{:.1f}")


@claim("scaled-scores")
def division_keeps_scores_small(
    findings: Findings, widths: Sequence[int] = (16, 64, 256, 1024), scaled: bool = True
) -> None:
    """Compare scores of vectors that grow longer, divided by sqrt(width) or not."""
    # The product of two standard normal features has a variance of 1, and a score is a
    # sum of as many as there are features.
    plain = {width: math.sqrt(width) for width in widths}
    divided = {width: plain[width] / math.sqrt(width) for width in widths}
    spreads = divided if scaled else plain

    def write_values(values: Mapping[int, float]) -> str:
        return ", ".join(f"{value:.2g}" for value in values.values())

    first = widths[0]
    last = widths[-1]
    width_list = ", ".join(map(str, widths))
    scores_stay_small = spreads[last] < 2 * spreads[first]

    what = f"deviation of the scores, widths {width_list}"
    findings.part(what, write_values(spreads), scores_stay_small, spreads[last])
    findings.limit(f"{what}, not divided", write_values(plain), True, plain[last])

    gradients = {width: _follow(spread) for width, spread in spreads.items()}
    gradients_stay = gradients[last] > gradients[first] / 2
    what = "mean change of a weight with its score, same widths"
    findings.part(what, write_values(gradients), gradients_stay, gradients[last])
    undivided = {width: _follow(spread) for width, spread in plain.items()}
    what = f"{what}, not divided"
    findings.limit(what, write_values(undivided), True, undivided[last])


def _follow(spread: float, keys: int = 32, queries: int = 2048) -> float:
    """Return the mean change of a softmax weight with its own score, by draws.

    The scores are normal and independent, with that deviation. A weight w follows its
    score by w (1 - w), which is 0 where one key has all the weight.
    """
    weights = arrays.softmax(spread * arrays.gaussian(0, queries, keys))
    return float((weights * (1 - weights)).mean())


@claim("segments-reach-further")
def recurrence_reaches_further(
    findings: Findings, cached: bool = True, layers: int = 3, segment: int = 8
) -> None:
    """Find the farthest token that changes the last output of a text read in segments.

    Each layer sees its segment and, if `cached`, the input that the layer had in the
    segment before.
    """
    tokens = 6 * segment

    def last_output(x: Float[arrays.Array, "tokens width"]) -> arrays.Array:
        memories: list[Any] = [np.empty((0, WIDTH))] * layers
        for start in range(0, tokens, segment):
            hidden = x[start : start + segment]
            for layer in range(layers):
                seen = np.concatenate((memories[layer], hidden))
                if cached:
                    memories[layer] = hidden
                mixed = attention(seen, seen, seen, causal=True)[-len(hidden) :]
                hidden = hidden + mixed
        return hidden[-1]

    x = arrays.gaussian(0, tokens, WIDTH) / math.sqrt(WIDTH)
    plain = last_output(x)
    farthest = 0
    for distance in range(tokens):
        changed = x.copy()
        changed[-1 - distance] *= -1
        if arrays.largest(last_output(changed) - plain) > 0:
            farthest = distance

    what = f"farthest token that the last output rests on, {layers} layers"
    text = f"{farthest} back, in segments of {segment}"
    findings.part(what, text, farthest >= segment, farthest)
    # If positions are counted in each segment, a token and the cached one a segment
    # before have the same code, and scores cannot tell them apart.
    places = np.arange(2 * segment) % segment
    alike = len(places) - len(set(places.tolist()))
    what = "positions of two segments that share a code, counted in each segment"
    findings.limit(
        what, f"{alike} of {len(places)}: it needs distances", alike == 0, alike
    )
