"""The attention score under a cast plan: what the model sees of all the roundings.

Queries and keys are drawn from a standard normal distribution and rounded to bfloat16, as real
activations are, so that their own rounding is not part of the error; a score of two such vectors
divided by sqrt(d) has variance 1. `aligned` draws use the same vector for query and key.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to

Alignment = Literal["random", "aligned"]


@dataclass(frozen=True)
class Draws:
    """Query and key pairs: features (x1, x2) of every pair, unrotated, [draws, pairs, 1]."""

    query: tuple[np.ndarray, np.ndarray]
    key: tuple[np.ndarray, np.ndarray]


def draw(count: int, pairs: int, alignment: Alignment, seed: int) -> Draws:
    """`count` random queries and keys; the same seed gives the same ones."""
    features = np.random.default_rng(seed).standard_normal((4, count, pairs, 1))
    a, b, c, d = round_to(features, FORMATS["bfloat16"])
    return Draws((a, b), (a, b) if alignment == "aligned" else (c, d))


@np.errstate(invalid="ignore", over="ignore")
def scores(
    chain: Chain,
    draws: Draws,
    query_positions: Float[np.ndarray, " n"],
    key_positions: Float[np.ndarray, " n"],
) -> Float[np.ndarray, "draws n"]:
    """Rotate every drawn query to the one position and its key to the other, and multiply.

    Every product and sum of the rotation is rounded to the plan's `rotation`; the rotated vectors
    and the score, divided by sqrt(d), are rounded to its `score`.
    """
    query = _rotated(chain, draws.query, query_positions)
    key = _rotated(chain, draws.key, key_positions)
    product = (query[0] * key[0] + query[1] * key[1]).sum(1)
    return round_to(product / math.sqrt(2 * chain.spectrum.pairs), chain.plan.score)


def _rotated(
    chain: Chain, features: tuple[np.ndarray, np.ndarray], positions: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "draws pairs n"], Float[np.ndarray, "draws pairs n"]]:
    cos, sin = chain.table(positions)
    first, second = features
    inner, outer = chain.plan.rotation, chain.plan.score
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
    """score(m + shift, n + shift) - score(m, n) for n = start and m = start + delta.

    In exact arithmetic this is 0: a score depends on the distance only. A wrong but consistent
    frequency passes this test; only a comparison with exact scores finds it.
    """
    keys = np.repeat(start + np.concatenate(([0.0], shifts))[:, None], deltas.size, axis=1)
    table = scores(chain, draws, (keys + deltas).ravel(), keys.ravel())
    table = table.reshape(table.shape[0], *keys.shape).swapaxes(0, 1)
    return table[1:] - table[:1]


def score_steps(
    spectrum: Spectrum, draws: Draws, deltas: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "draws n"], Float[np.ndarray, "draws n"]]:
    """The exact scores at distance delta and at delta + 1."""
    exact = Chain(CastPlan(), spectrum)
    zero = np.zeros_like(deltas)
    return scores(exact, draws, deltas, zero), scores(exact, draws, deltas + 1, zero)


def unchanged(
    here: Float[np.ndarray, "..."], there: Float[np.ndarray, "..."], fmt: FloatFormat
) -> Bool[np.ndarray, "..."]:
    """Whether both scores are the same number once stored."""
    return round_to(here, fmt) == round_to(there, fmt)
