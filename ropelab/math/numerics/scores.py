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

    Medians over `count` draws and the distances. Vectors are `aligned` (the query is
    the key); `aligned at 0` (so, from distance 0 to 1); `random`; `largest`: the two
    vectors of length sqrt(d) whose score changes most. ``score_step``: nats;
    ``rounding``: half the format's spacing at the score, for `largest` at sqrt(d);
    ``unchanged_fraction``: of stored scores; ``weight_change``: exp(score_step) - 1,
    the relative weight of neighbours.
    """
    import pandas as pd  # not needed for scores themselves

    found: list[tuple[Vectors, Scores, Scores, Scores]] = []
    wanted: dict[Vectors, Float[np.ndarray, " distances"]]
    wanted = {"aligned at 0": np.zeros(1), "aligned": distances, "random": distances}
    for vectors, where in wanted.items():
        drawn = draw(
            count, len(inv_freq), "random" if vectors == "random" else "aligned", seed
        )
        score, step = score_and_step(inv_freq, drawn, where)
        found.append((vectors, score, step, np.abs(score)))
    # The two vectors whose score changes most have scores of -step/2 and step/2.
    step = np.full((1, 1), largest_step(inv_freq))
    width = math.sqrt(2 * len(inv_freq))
    found.append(("largest", -step / 2, step, np.full((1, 1), width)))
    rows = []
    for vectors, score, step, scale in found:
        size = float(np.median(np.abs(step)))
        for fmt in formats:
            rounding = spacing(scale, fmt) / 2
            ratio = float(np.median(np.abs(step) / rounding))
            stays = float((round_to(score, fmt) == round_to(score + step, fmt)).mean())
            margin = "above the rounding" if ratio > 1 else "below the rounding"
            row = {
                "vectors": vectors,
                "format": fmt.name,
                "score_step": size,
                "rounding": float(np.median(rounding)),
                "step_to_rounding": ratio,
                "unchanged_fraction": stays,
                "weight_change": math.expm1(size),
                "status": "every score stays equal" if stays == 1 else margin,
            }
            rows.append(row)
    return pd.DataFrame(rows)


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


def largest_step(inv_freq: Float[np.ndarray, " pairs"]) -> float:
    """Return the largest change of a score of two vectors of length sqrt(d) over one
    token.
    """
    return math.sqrt(2 * len(inv_freq)) * float(np.abs(2 * np.sin(inv_freq / 2)).max())
