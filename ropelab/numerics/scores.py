"""The attention score under a cast plan: what the model sees of all the roundings.

Queries and keys are drawn from a standard normal distribution and rounded to bfloat16, as real
activations are, so that their own rounding is no part of the error; a score of two such vectors
divided by sqrt(d) has variance 1. `aligned` draws use the same vector for query and key.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.numerics.casts import CastPlan
from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.formats import FORMATS, FloatFormat, round_to

Alignment = Literal["random", "aligned"]


@dataclass(frozen=True)
class Draws:
    """Query and key pairs: features (x1, x2) of every pair, unrotated, [draws, pairs, 1]."""

    query: tuple[Tensor, Tensor]
    key: tuple[Tensor, Tensor]


def draw(count: int, pairs: int, alignment: Alignment, seed: int) -> Draws:
    """`count` random queries and keys; the same seed gives the same ones."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(4, count, pairs, 1, generator=generator, dtype=torch.float64)
    a, b, c, d = round_to(features, FORMATS["bfloat16"])
    return Draws((a, b), (a, b) if alignment == "aligned" else (c, d))


def scores(
    chain: Chain,
    draws: Draws,
    query_positions: Float[Tensor, "n"],
    key_positions: Float[Tensor, "n"],
) -> Float[Tensor, "draws n"]:
    """Rotate every drawn query to the one position and its key to the other, and multiply.

    Every product and sum of the rotation is rounded to the plan's `rotation`; the rotated vectors
    and the score, divided by sqrt(d), are rounded to its `score`.
    """
    query = _rotated(chain, draws.query, query_positions)
    key = _rotated(chain, draws.key, key_positions)
    product = sum((q * k).sum(1) for q, k in zip(query, key, strict=True))
    assert isinstance(product, Tensor)
    return round_to(product / math.sqrt(2 * chain.spectrum.pairs), chain.plan.score)


def _rotated(
    chain: Chain, features: tuple[Tensor, Tensor], positions: Float[Tensor, "n"]
) -> tuple[Float[Tensor, "draws pairs n"], Float[Tensor, "draws pairs n"]]:
    cos, sin = chain.table(positions)
    first, second = features
    inner, outer = chain.plan.rotation, chain.plan.score
    rotated = (
        round_to(first * cos, inner) - round_to(second * sin, inner),
        round_to(first * sin, inner) + round_to(second * cos, inner),
    )
    one, two = (round_to(round_to(part, inner), outer) for part in rotated)
    return one, two


def shift_errors(
    chain: Chain,
    draws: Draws,
    start: int,
    deltas: Float[Tensor, "deltas"],
    shifts: Float[Tensor, "shifts"],
) -> Float[Tensor, "shifts draws deltas"]:
    """score(m + shift, n + shift) - score(m, n) for n = start and m = start + delta.

    In exact arithmetic this is 0: a score depends on the distance only. A wrong but consistent
    frequency passes this test; only a comparison with exact scores finds it.
    """
    keys = (start + torch.cat((torch.zeros(1, dtype=shifts.dtype), shifts)))[:, None]
    keys = keys.expand(-1, deltas.numel())
    table = scores(chain, draws, (keys + deltas).flatten(), keys.flatten())
    table = table.reshape(table.shape[0], *keys.shape).transpose(0, 1)
    return table[1:] - table[:1]


def score_steps(
    spectrum: Spectrum, draws: Draws, deltas: Float[Tensor, "n"]
) -> tuple[Float[Tensor, "draws n"], Float[Tensor, "draws n"]]:
    """The exact scores at distance delta and at delta + 1."""
    exact = Chain(CastPlan(), spectrum)
    zero = torch.zeros_like(deltas)
    return scores(exact, draws, deltas, zero), scores(exact, draws, deltas + 1, zero)


def unchanged(here: Tensor, there: Tensor, fmt: FloatFormat) -> Tensor:
    """Whether both scores are the same number once stored."""
    return round_to(here, fmt) == round_to(there, fmt)
