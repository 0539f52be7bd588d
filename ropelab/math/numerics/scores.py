"""Attention scores: their errors under a cast plan, and their change over one token.

A cast plan has the number format to which each stage of the rotation is rounded. A chain
is a cast plan on the frequencies of a head; it computes stored angles, cos and sin.

Queries and keys are drawn: their features are standard normal, rounded to bfloat16 as
real activations are. In `aligned` draws the key equals the query. A score at distance D
is

    sum_i (a_i cos(D theta_i) + b_i sin(D theta_i)) / sqrt(d),

with a_i the dot and b_i the cross product of the features in pair i. From distance D to
D + 1 a score changes by

    sum_i 2 sin(theta_i / 2) (b_i cos((D + 1/2) theta_i) - a_i sin((D + 1/2) theta_i)) / sqrt(d),

which is computed in this form, since a difference of two scores would lose digits. Here d
counts the features of the whole head, and a pair that does not rotate has theta_i = 0. For
vectors of length sqrt(d) the change is at most sqrt(d) max_i 2 |sin(theta_i / 2)|. The
two vectors that reach this are in one pair, at right angles.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Positions, Spectrum, list_positions
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to, spacing
from ropelab.runs.arrays import Float

if TYPE_CHECKING:
    import pandas as pd

Alignment = Literal["random", "aligned"]
Vectors = Literal["aligned at 0", "aligned", "random", "largest"]
# The first and the second features of all pairs, each [draws, pairs, 1].
Features = tuple[np.ndarray, np.ndarray]
Rotated = Float[np.ndarray, "draws pairs n"]
Scores = Float[np.ndarray, "draws distances"]
Frequencies = Float[np.ndarray, " pairs"]
Distances = Float[np.ndarray, " distances"]


def sample_positions(offset: int, length: int, samples: int) -> Positions:
    """Return evenly spaced whole positions, the first and the last among them.

    If there are at most ``samples`` positions, all of them are returned.
    """
    if length <= samples:
        return list_positions(offset, offset + length)
    places = np.linspace(0, length - 1, samples)
    return np.unique(np.round(places)) + offset


def draw_earlier_keys(queries: Positions, offset: int, seed: int) -> Positions:
    """Return the position of a key before every query.

    The logarithms of the distances are uniform, from 0 (a distance of 1) to the
    logarithm of the distance to the first position.
    """
    random = np.random.default_rng(seed)
    share = random.random(queries.shape)
    farthest = np.maximum(queries - offset, 1)
    # farthest^share = exp(share * ln(farthest))
    distance = np.round(farthest**share)
    return np.maximum(queries - distance, offset)


class Draws(NamedTuple):
    """Queries and keys before they are rotated."""

    query: Features
    key: Features


def draw(count: int, pairs: int, alignment: Alignment, seed: int) -> Draws:
    """Return `count` random queries and keys; an `aligned` key equals its query."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((4, count, pairs, 1))
    rounded = round_to(features, FORMATS["bfloat16"])
    query_first, query_second, key_first, key_second = rounded
    query = (query_first, query_second)
    if alignment == "aligned":
        return Draws(query, key=query)
    return Draws(query, key=(key_first, key_second))


@np.errstate(invalid="ignore", over="ignore")
def compute_scores(
    chain: Chain,
    draws: Draws,
    query_positions: Positions,
    key_positions: Positions,
) -> Float[np.ndarray, "draws n"]:
    """Return the score of every drawn query and key, at each of n pairs of positions.

    Draws have the features of the whole head. Those beyond the pairs of the spectrum do
    not rotate.
    """
    # Products and sums of the rotation are rounded to the plan's format `rotation`, and
    # the rotated vectors and the score, which is divided by sqrt(d), to its `score`.
    q1, q2 = _rotate(chain, draws.query, query_positions)
    k1, k2 = _rotate(chain, draws.key, key_positions)
    product = (q1 * k1 + q2 * k2).sum(1)  # over the pairs: [draws, n]
    if chain.spectrum.rotated_share < 1:
        product = product + _multiply_unrotated(chain, draws)

    head_dim = 2 * chain.spectrum.head_pairs
    score = product / math.sqrt(head_dim)
    return round_to(score, chain.plan.score)


def _multiply_unrotated(chain: Chain, draws: Draws) -> Float[np.ndarray, "draws 1"]:
    """Return the part of q.k that is from the features that do not rotate.

    No stage of the rotation touches these features. They are rounded only as parts of a
    query or a key.
    """
    pairs = chain.spectrum.pairs
    score_format = chain.plan.score
    product = np.zeros((len(draws.query[0]), 1))
    for query, key in zip(draws.query, draws.key, strict=True):
        stored_query = round_to(query[:, pairs:], score_format)
        stored_key = round_to(key[:, pairs:], score_format)
        product += (stored_query * stored_key).sum(1)
    return product


def _rotate(
    chain: Chain,
    features: Features,
    positions: Positions,
) -> tuple[Rotated, Rotated]:
    """Rotate features to positions, rounded as code in the formats of the plan does."""
    cos, sin = chain.table(positions)  # [pairs, n]
    pairs = chain.spectrum.pairs
    first, second = (feature[:, :pairs] for feature in features)
    rotation_format = chain.plan.rotation
    score_format = chain.plan.score

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return round_to(a * b, rotation_format)

    rotated_first = multiply(first, cos) - multiply(second, sin)
    rotated_second = multiply(first, sin) + multiply(second, cos)
    rotated_first = round_to(rotated_first, rotation_format)
    rotated_second = round_to(rotated_second, rotation_format)
    return round_to(rotated_first, score_format), round_to(rotated_second, score_format)


@np.errstate(invalid="ignore", over="ignore")
def measure_shift_errors(
    chain: Chain,
    draws: Draws,
    start: int,
    deltas: Float[np.ndarray, " deltas"],
    shifts: Float[np.ndarray, " shifts"],
) -> Float[np.ndarray, "shifts draws deltas"]:
    """Return score(m + shift, n + shift) - score(m, n).

    The key is at n = start, the query at m = start + delta. Without rounding the result
    is exactly 0.
    """
    # The first shift is 0: the scores without a shift are subtracted from all other
    # scores.
    key_positions = start + np.concatenate(([0.0], shifts))
    keys = np.repeat(key_positions[:, None], deltas.size, axis=1)  # [shifts, deltas]
    queries = keys + deltas

    rows = compute_scores(chain, draws, queries.ravel(), keys.ravel())
    draw_count = rows.shape[0]
    table = rows.reshape(draw_count, *keys.shape)  # [draws, shifts, deltas]
    by_shift = table.swapaxes(0, 1)
    unshifted = by_shift[:1]
    return by_shift[1:] - unshifted


def compute_neighbouring_scores(
    spectrum: Spectrum,
    draws: Draws,
    deltas: Positions,
) -> tuple[Scores, Scores]:
    """Return the exact scores at each distance delta and at delta + 1."""
    exact_chain = Chain(CastPlan(), spectrum)
    zero = np.zeros_like(deltas)
    scores = compute_scores(exact_chain, draws, deltas, zero)
    next_scores = compute_scores(exact_chain, draws, deltas + 1, zero)
    return scores, next_scores


@np.errstate(invalid="ignore", over="ignore")
def rms_error(rounded: Scores, exact: Scores) -> float:
    """Return the root mean square error of rounded scores; nan if a score overflows."""
    squares = (rounded - exact) ** 2
    return float(np.sqrt(np.mean(squares)))


def measure_score_margins(
    inv_freq: Frequencies,
    formats: Sequence[FloatFormat],
    distances: Distances,
    count: int,
    seed: int,
) -> "pd.DataFrame":
    """Return how scores change from each distance (tokens) to the next.

    There is a row for each kind of vectors in each format. The kinds are `aligned` (the
    query is the key), `aligned at 0` (the same, from distance 0 to 1), `random`, and
    `largest` (the two vectors of length sqrt(d) whose score changes most).

    score_step: the root mean square change over standard normal vectors and over the
        distances, in nats. It is exact.
    rounding: half of the format's spacing at the root mean square score, or at sqrt(d)
        for `largest`.
    unchanged_fraction: the share of `count` drawn scores that are stored as the same
        number at both distances.
    weight_change: exp(score_step) - 1, by how much softmax weighs the two differently.
    """
    # The scores themselves need no pandas, which is slow to import.
    import pandas as pd

    at_zero = np.zeros(1)
    margins = [
        _drawn_margin("aligned at 0", inv_freq, at_zero, count, seed),
        _drawn_margin("aligned", inv_freq, distances, count, seed),
        _drawn_margin("random", inv_freq, distances, count, seed),
        _largest_margin(inv_freq),
    ]

    rows = []
    for margin in margins:
        next_scores = margin.scores + margin.steps
        for fmt in formats:
            scale = np.array(margin.scale)
            rounding = float(spacing(scale, fmt)) / 2
            ratio = margin.step / rounding
            is_equal = round_to(margin.scores, fmt) == round_to(next_scores, fmt)
            unchanged_fraction = float(is_equal.mean())

            status = "above the rounding" if ratio > 1 else "below the rounding"
            if unchanged_fraction == 1:
                status = "every score stays equal"
            row = {
                "vectors": margin.vectors,
                "format": fmt.name,
                "score_step": margin.step,
                "rounding": rounding,
                "step_to_rounding": ratio,
                "unchanged_fraction": unchanged_fraction,
                "weight_change": math.expm1(margin.step),
                "status": status,
            }
            rows.append(row)
    return pd.DataFrame(rows)


class _Margin(NamedTuple):
    """Scores of one kind of vectors, and their changes over one token."""

    vectors: Vectors
    # The root mean squares of the changes and of the scores. For `largest`, the largest
    # change and the largest score, sqrt(d).
    step: float
    scale: float
    # Scores of drawn vectors, and the change of each.
    scores: Scores
    steps: Scores


def _drawn_margin(
    vectors: Vectors,
    inv_freq: Frequencies,
    distances: Distances,
    count: int,
    seed: int,
) -> _Margin:
    alignment: Alignment = "random" if vectors == "random" else "aligned"
    drawn = draw(count, len(inv_freq), alignment, seed)
    scores, steps = compute_scores_and_steps(inv_freq, drawn, distances)

    if alignment == "random":
        # Scores of random vectors have deviation 1.
        return _Margin(vectors, compute_typical_step(inv_freq), 1.0, scores, steps)
    step, scale = compute_aligned_step_and_score(inv_freq, distances)
    return _Margin(vectors, step, scale, scores, steps)


def _largest_margin(inv_freq: Frequencies) -> _Margin:
    # The two vectors whose score changes most are at right angles between the two
    # distances, so that their score goes from -step/2 to step/2.
    step = compute_largest_step(inv_freq)
    steps = np.full((1, 1), step)
    largest_score = math.sqrt(2 * len(inv_freq))
    return _Margin("largest", step, largest_score, -steps / 2, steps)


def compute_scores_and_steps(
    inv_freq: Frequencies,
    draws: Draws,
    distances: Distances,
) -> tuple[Scores, Scores]:
    """Return exact scores at some distances, and their changes to the next distance."""
    q1, q2 = draws.query
    k1, k2 = draws.key
    dot = q1 * k1 + q2 * k2  # [draws, pairs, 1]
    cross = q1 * k2 - q2 * k1
    theta = inv_freq[:, None]
    root_of_d = math.sqrt(2 * len(inv_freq))

    angle = theta * distances  # [pairs, distances]
    products = dot * np.cos(angle) + cross * np.sin(angle)
    scores = products.sum(1) / root_of_d

    middle = theta * (distances + 0.5)
    slopes = cross * np.cos(middle) - dot * np.sin(middle)
    changes = 2 * np.sin(theta / 2) * slopes
    return scores, changes.sum(1) / root_of_d


def compute_typical_step(inv_freq: Frequencies) -> float:
    """Return the root mean square change of a score over one token, for random vectors.

    The number is exact, and the same from every distance to the next: dot and cross
    products have variance 2 and are uncorrelated. Scores themselves have deviation 1,
    whatever the number of pairs.
    """
    squares = 4 * np.sin(inv_freq / 2) ** 2
    return math.sqrt(float(squares.mean()))


def compute_aligned_step_and_score(
    inv_freq: Frequencies,
    distances: Distances,
) -> tuple[float, float]:
    """Return the root mean squares of a change over one token, and of the score.

    The key equals the query, and the numbers are exact for standard normal vectors. The
    score is the sum of the squared lengths of the pairs, weighted by w_i = cos(D
    theta_i). A squared length has mean 2 and variance 4, so that the mean square of the
    sum is 4 sum(w^2) + 4 sum(w)^2.
    """
    theta = inv_freq[:, None]
    angles = theta * distances
    middle = angles + theta / 2
    # The weights of the change are cos(D theta) - cos((D + 1) theta).
    step_weights = 2 * np.sin(theta / 2) * np.sin(middle)
    features = 2 * len(inv_freq)

    def root_mean_square(weights: Float[np.ndarray, "pairs distances"]) -> float:
        of_each = 4 * (weights**2).sum(0)
        of_sums = 4 * weights.sum(0) ** 2
        mean_square = float((of_each + of_sums).mean())
        return math.sqrt(mean_square / features)

    return root_mean_square(step_weights), root_mean_square(np.cos(angles))


def compute_largest_step(inv_freq: Frequencies) -> float:
    """Return the largest change over one token, for two vectors of length sqrt(d)."""
    chords = np.abs(2 * np.sin(inv_freq / 2))
    root_of_d = math.sqrt(2 * len(inv_freq))
    return root_of_d * float(chords.max())
