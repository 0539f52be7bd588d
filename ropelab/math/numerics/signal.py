"""How much an attention score changes from one token to the next, and what is left of that.

A score of query and key at distance D is sum_i (a_i cos(D theta_i) + b_i sin(D theta_i)) / sqrt(d),
with a_i the dot product and b_i the cross product of their features in pair i. One token on it
changes by

    sum_i 2 sin(theta_i / 2) (b_i cos((D + 1/2) theta_i) - a_i sin((D + 1/2) theta_i)) / sqrt(d),

which is computed so, without cancellation. For vectors of length sqrt(d) it is at most
sqrt(d) max_i 2 |sin(theta_i / 2)|: both vectors then lie in one pair, at right angles.

The format decides whether the change survives when the score is stored. Softmax decides what it is
worth: of two keys that differ only in standing one token apart, one gets exp(change) times the
weight of the other.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.math.numerics.formats import FloatFormat, spacing
from ropelab.math.numerics.scores import Alignment, Draws, draw, unchanged

Vectors = Literal["aligned at 0", "aligned", "random", "largest"]
Scores = Float[np.ndarray, "draws distances"]


@dataclass(frozen=True)
class Signal:
    """The change of a score over one token in one number format; medians over draws and distances.

    vectors: `aligned`: the query is the key; `aligned at 0`: so, from distance 0 to 1; `random`:
        independent; `largest`: the two vectors of length sqrt(d) whose score changes most.
    score_step: the size of the change, in nats (scores are what softmax exponentiates).
    rounding: the largest error of storing such a score: half the spacing of the format there. For
        `largest` that of the largest score of the two vectors, sqrt(d).
    step_to_rounding: the one over the other.
    unchanged_fraction: of draws and distances whose stored score stays the same number.
    weight_change: exp(score_step) - 1, by which share one of two neighbours outweighs the other.
    """

    vectors: Vectors
    format: str
    score_step: float
    rounding: float
    step_to_rounding: float
    unchanged_fraction: float
    weight_change: float

    @property
    def status(self) -> str:
        """Whether any score changes, and whether the typical one does by more than its rounding."""
        if self.unchanged_fraction == 1:
            return "every score stays equal"
        return "above the rounding" if self.step_to_rounding > 1 else "below the rounding"


def signals(
    inv_freq: Float[np.ndarray, " pairs"],
    formats: Sequence[FloatFormat],
    distances: Float[np.ndarray, " distances"],
    count: int,
    seed: int,
) -> Iterator[Signal]:
    """The signals of a scheme of frequencies, by vectors and format.

    Args:
        distances: whole numbers of tokens, from each of which one more is taken.
        count: how many queries and keys are drawn.
    """
    wanted: tuple[tuple[Vectors, Alignment, Float[np.ndarray, distances]], ...] = (
        ("aligned at 0", "aligned", np.zeros(1)),
        ("aligned", "aligned", distances),
        ("random", "random", distances),
    )
    for vectors, alignment, where in wanted:
        score, step = score_and_step(inv_freq, draw(count, len(inv_freq), alignment, seed), where)
        for fmt in formats:
            yield _signal(vectors, fmt, score, score + step, step, np.abs(score))
    half = largest_step(inv_freq) / 2
    score, width = np.full((1, 1), half), math.sqrt(2 * len(inv_freq))
    for fmt in formats:
        yield _signal("largest", fmt, -score, score, 2 * score, np.full((1, 1), width))


def score_and_step(
    inv_freq: Float[np.ndarray, " pairs"], draws: Draws, distances: Float[np.ndarray, " distances"]
) -> tuple[Scores, Scores]:
    """The exact scores at some distances, and how much each changes one token further."""
    (q1, q2), (k1, k2) = draws.query, draws.key
    dot, cross = q1 * k1 + q2 * k2, q1 * k2 - q2 * k1
    theta = inv_freq[:, None]
    angle, middle = theta * distances, theta * (distances + 0.5)
    width = math.sqrt(2 * len(inv_freq))
    score = (dot * np.cos(angle) + cross * np.sin(angle)).sum(1) / width
    turn = cross * np.cos(middle) - dot * np.sin(middle)
    return score, (2 * np.sin(theta / 2) * turn).sum(1) / width


def largest_step(inv_freq: Float[np.ndarray, " pairs"]) -> float:
    """The most that a score of two vectors of length sqrt(d) can change over one token."""
    return math.sqrt(2 * len(inv_freq)) * float(np.abs(2 * np.sin(inv_freq / 2)).max())


def _signal(
    vectors: Vectors,
    fmt: FloatFormat,
    here: Scores,
    there: Scores,
    step: Scores,
    scale: Scores,
) -> Signal:
    rounding = spacing(scale, fmt) / 2
    size = float(np.median(np.abs(step)))
    return Signal(
        vectors,
        fmt.name,
        size,
        float(np.median(rounding)),
        float(np.median(np.abs(step) / rounding)),
        float(unchanged(here, there, fmt).mean()),
        math.expm1(size),
    )
