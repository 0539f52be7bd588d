"""Attention scores: their errors under a cast plan, and how much they change over one
token.

Queries and keys are standard normal, rounded to bfloat16, as real activations are;
`aligned` draws use one vector for both. A score at distance D is sum_i (a_i cos(D
theta_i) + b_i sin(D theta_i)) / sqrt(d), with a_i the dot and b_i the cross product of
the features in pair i. One token on a score changes by

    sum_i 2 sin(theta_i / 2) (b_i cos((D + 1/2) theta_i) - a_i sin((D + 1/2) theta_i)) / sqrt(d),

which is computed so, without cancellation. For vectors of length sqrt(d) it is at most
sqrt(d) max_i 2 |sin(theta_i / 2)|: both vectors are then in one pair, at right angles.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Positions, Spectrum, span
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to, spacing
from ropelab.runs.arrays import Float

if TYPE_CHECKING:
    import pandas as pd

Alignment = Literal["random", "aligned"]
Vectors = Literal["aligned at 0", "aligned", "random", "largest"]
Features = tuple[np.ndarray, np.ndarray]
Scores = Float[np.ndarray, "draws distances"]


def sample_positions(offset: int, length: int, samples: int) -> Positions:
    """Return evenly spaced whole positions, the first and the last among them; all, if
    few.
    """
    if length <= samples:
        return span(offset, offset + length)
    return np.unique(np.round(np.linspace(0, length - 1, samples))) + offset


def earlier_keys(queries: Positions, offset: int, seed: int) -> Positions:
    """Return a key before every query, at a distance log-uniform from 1 to the
    largest.
    """
    share = np.random.default_rng(seed).random(queries.shape)
    farthest = np.maximum(queries - offset, 1)
    return np.maximum(queries - np.round(farthest**share), offset)


class Draws(NamedTuple):
    """Queries and keys: features (x1, x2) of every pair, unrotated, [draws, pairs,
    1].
    """

    query: Features
    key: Features


def draw(count: int, pairs: int, alignment: Alignment, seed: int) -> Draws:
    """Return `count` random queries and keys."""
    features = np.random.default_rng(seed).standard_normal((4, count, pairs, 1))
    a, b, c, d = round_to(features, FORMATS["bfloat16"])
    return Draws((a, b), (a, b) if alignment == "aligned" else (c, d))


@np.errstate(invalid="ignore", over="ignore")
def scores(
    chain: Chain,
    draws: Draws,
    query_positions: Positions,
    key_positions: Positions,
) -> Float[np.ndarray, "draws n"]:
    """Return the scores of every drawn query at its position and its key at the
    other.
    """
    # Products and sums of the rotation are rounded to the plan's `rotation`; the
    # rotated vectors and the score, divided by sqrt(d), to its `score`.
    query = _rotate(chain, draws.query, query_positions)
    key = _rotate(chain, draws.key, key_positions)
    product = (query[0] * key[0] + query[1] * key[1]).sum(1)
    return round_to(product / math.sqrt(2 * chain.spectrum.pairs), chain.plan.score)


def _rotate(
    chain: Chain,
    features: Features,
    positions: Positions,
) -> tuple[Float[np.ndarray, "draws pairs n"], Float[np.ndarray, "draws pairs n"]]:
    cos, sin = chain.table(positions)
    first, second = features
    inner = chain.plan.rotation
    outer = chain.plan.score
    rotated = (
        round_to(first * cos, inner) - round_to(second * sin, inner),
        round_to(first * sin, inner) + round_to(second * cos, inner),
    )
    one, two = (round_to(round_to(part, inner), outer) for part in rotated)
    return one, two


@np.errstate(invalid="ignore", over="ignore")
def shift_errors(
    chain: Chain,
    draws: Draws,
    start: int,
    deltas: Float[np.ndarray, " deltas"],
    shifts: Float[np.ndarray, " shifts"],
) -> Float[np.ndarray, "shifts draws deltas"]:
    """Return score(m + shift, n + shift) - score(m, n) for n = start and m = start +
    delta.
    """
    # Exactly 0 but for rounding.
    places = start + np.concatenate(([0.0], shifts))
    keys = np.repeat(places[:, None], deltas.size, axis=1)
    rows = scores(chain, draws, (keys + deltas).ravel(), keys.ravel())
    table = rows.reshape(rows.shape[0], *keys.shape).swapaxes(0, 1)
    return table[1:] - table[:1]


def score_steps(
    spectrum: Spectrum,
    draws: Draws,
    deltas: Positions,
) -> tuple[Float[np.ndarray, "draws n"], Float[np.ndarray, "draws n"]]:
    """Return the exact scores at distance delta and at delta + 1."""
    exact = Chain(CastPlan(), spectrum)
    zero = np.zeros_like(deltas)
    return scores(exact, draws, deltas, zero), scores(exact, draws, deltas + 1, zero)


@np.errstate(invalid="ignore", over="ignore")
def rms_error(rounded: Scores, exact: Scores) -> float:
    """Return the RMS error; nan: overflow."""
    return float(np.sqrt(np.mean((rounded - exact) ** 2)))


def score_margins(
    inv_freq: Float[np.ndarray, " pairs"],
    formats: Sequence[FloatFormat],
    distances: Float[np.ndarray, " distances"],
    count: int,
    seed: int,
) -> "pd.DataFrame":
    """Return the changes of scores from each distance (tokens) to the next, a row per
    format.

    Vectors are `aligned` (the query is the key); `aligned at 0` (so, from distance 0 to
    1); `random`; `largest`: the two vectors of length sqrt(d) whose score changes most.
    ``score_step``: nats, the root mean square over standard normal vectors and the
    distances, exactly; ``rounding``: half the format's spacing at the root mean square
    score, for `largest` at sqrt(d); ``weight_change``: exp(score_step) - 1, the relative
    weight of neighbours. ``unchanged_fraction``: of the stored scores of `count` draws.
    """
    import pandas as pd  # not needed for scores themselves

    at_zero = np.zeros(1)
    margins = [
        _drawn_margin("aligned at 0", inv_freq, at_zero, count, seed),
        _drawn_margin("aligned", inv_freq, distances, count, seed),
        _drawn_margin("random", inv_freq, distances, count, seed),
        _largest_margin(inv_freq),
    ]

    rows = []
    for margin in margins:
        after = margin.scores + margin.steps
        for fmt in formats:
            rounding = float(spacing(np.array(margin.scale), fmt)) / 2
            ratio = margin.step / rounding
            equal = round_to(margin.scores, fmt) == round_to(after, fmt)
            stays = float(equal.mean())

            status = "above the rounding" if ratio > 1 else "below the rounding"
            if stays == 1:
                status = "every score stays equal"
            row = {
                "vectors": margin.vectors,
                "format": fmt.name,
                "score_step": margin.step,
                "rounding": rounding,
                "step_to_rounding": ratio,
                "unchanged_fraction": stays,
                "weight_change": math.expm1(margin.step),
                "status": status,
            }
            rows.append(row)
    return pd.DataFrame(rows)


class _Margin(NamedTuple):
    """Scores of one kind of vectors, their steps, and the typical size of both."""

    vectors: Vectors
    step: float
    scale: float
    scores: Scores
    steps: Scores


def _drawn_margin(
    vectors: Vectors,
    inv_freq: Float[np.ndarray, " pairs"],
    distances: Float[np.ndarray, " distances"],
    count: int,
    seed: int,
) -> _Margin:
    alignment: Alignment = "random" if vectors == "random" else "aligned"
    drawn = draw(count, len(inv_freq), alignment, seed)
    rows, steps = score_and_step(inv_freq, drawn, distances)

    if alignment == "random":
        # Scores of random vectors have deviation 1.
        return _Margin(vectors, typical_step(inv_freq), 1.0, rows, steps)
    step, scale = aligned_step_and_score(inv_freq, distances)
    return _Margin(vectors, step, scale, rows, steps)


def _largest_margin(inv_freq: Float[np.ndarray, " pairs"]) -> _Margin:
    # The two vectors whose score changes most have scores of -step/2 and step/2.
    step = largest_step(inv_freq)
    steps = np.full((1, 1), step)
    width = math.sqrt(2 * len(inv_freq))
    return _Margin("largest", step, width, -steps / 2, steps)


def score_and_step(
    inv_freq: Float[np.ndarray, " pairs"],
    draws: Draws,
    distances: Float[np.ndarray, " distances"],
) -> tuple[Scores, Scores]:
    """Return the exact scores at some distances, and their changes one token
    further.
    """
    (q1, q2) = draws.query
    (k1, k2) = draws.key
    dot = q1 * k1 + q2 * k2
    cross = q1 * k2 - q2 * k1
    theta = inv_freq[:, None]
    angle = theta * distances
    middle = theta * (distances + 0.5)
    width = math.sqrt(2 * len(inv_freq))
    score = (dot * np.cos(angle) + cross * np.sin(angle)).sum(1) / width
    turn = cross * np.cos(middle) - dot * np.sin(middle)
    return score, (2 * np.sin(theta / 2) * turn).sum(1) / width


def typical_step(inv_freq: Float[np.ndarray, " pairs"]) -> float:
    """Return the root mean square change of a score over one token, for random vectors.

    Exact, and the same from every distance to the next: dot and cross products have
    variance 2 and are uncorrelated. Scores themselves have deviation 1, whatever the
    number of pairs.
    """
    return math.sqrt(float((4 * np.sin(inv_freq / 2) ** 2).mean()))


def aligned_step_and_score(
    inv_freq: Float[np.ndarray, " pairs"], distances: Float[np.ndarray, " distances"]
) -> tuple[float, float]:
    """Return the root mean squares of the change over one token, and of the score, where
    the key is the query.

    Exact, for standard normal vectors: the squared length of a pair has mean 2 and
    variance 4, so that the mean square of a sum of them, weighted by w, is
    4 sum(w^2) + 4 sum(w)^2.
    """
    theta = inv_freq[:, None]
    angles = theta * distances
    moved = 2 * np.sin(theta / 2) * np.sin(angles + theta / 2)
    features = 2 * len(inv_freq)

    sizes = []
    for weights in (moved, np.cos(angles)):
        squares = 4 * (weights**2).sum(0) + 4 * weights.sum(0) ** 2
        sizes.append(math.sqrt(float(squares.mean()) / features))
    step, score = sizes
    return step, score


def largest_step(inv_freq: Float[np.ndarray, " pairs"]) -> float:
    """Return the largest change of a score of two vectors of length sqrt(d) over one
    token.
    """
    return math.sqrt(2 * len(inv_freq)) * float(np.abs(2 * np.sin(inv_freq / 2)).max())
