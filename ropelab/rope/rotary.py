"""Rotating queries and keys, and nothing else.

Convention: at position m a pair (x1, x2) becomes, for ``sign=+1``,
``(x1 cos(m theta) - x2 sin(m theta), x1 sin(m theta) + x2 cos(m theta))``, which is multiplication
of x1 + i x2 by exp(+i m theta) (arXiv:2104.09864, eq. 13 and 34). Some codebases turn the other
way; scores are the same as long as queries and keys turn the same way.
"""

from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ropelab.errors import unknown_name
from ropelab.rope.scaling.plan import RopePlan

Pairing = Literal["half", "interleaved"]
"""Which features form a pair: i and i + d/2 ("half": GPT-NeoX, Llama in Hugging Face layout), or
2 i and 2 i + 1 ("interleaved": the paper, GPT-J, Llama as released by Meta)."""


def cos_sin(
    positions: Shaped[Tensor, "tokens"], plan: RopePlan
) -> tuple[Float[Tensor, "tokens pairs"], Float[Tensor, "tokens pairs"]]:
    """cos(m theta_i) and sin(m theta_i) in float64 for every position m and pair i.

    ``plan.attention_factor`` is NOT in these tables: whoever rotates applies it once, by name.
    Integer positions are exact here up to 2^53; the angle's relative error is about 2^-52.
    """
    inv_freq = plan.inv_freq.to(positions.device)
    angle = positions.to(torch.float64)[:, None] * inv_freq
    return torch.cos(angle), torch.sin(angle)


def rotate(
    x: Float[Tensor, "*batch tokens rotary_dim"],
    cos: Float[Tensor, "tokens pairs"],
    sin: Float[Tensor, "tokens pairs"],
    *,
    pairing: Pairing = "half",
    sign: int = 1,
) -> Float[Tensor, "*batch tokens rotary_dim"]:
    """Turn every feature pair of ``x`` by its angle; lengths of pairs do not change.

    ``pairing`` says which two features form a pair, ``sign=-1`` turns the other way (its inverse).
    Nothing is cast: torch's promotion decides, so hand in tables of the dtype to rotate in
    (float64 tables turn a float32 ``x`` into a float64 result).
    """
    if sign not in (1, -1):
        raise ValueError(f"sign must be +1 or -1, not {sign}")
    first, second = split_pairs(x, pairing)
    turned = sin if sign == 1 else -sin
    return join_pairs(first * cos - second * turned, first * turned + second * cos, pairing)


def split_pairs(
    x: Float[Tensor, "*batch rotary_dim"], pairing: Pairing
) -> tuple[Float[Tensor, "*batch pairs"], Float[Tensor, "*batch pairs"]]:
    """The first and the second feature of every pair."""
    if pairing == "half":
        first, second = x.chunk(2, dim=-1)
        return first, second
    if pairing == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    raise unknown_name("pairing", pairing, ("half", "interleaved"))


def join_pairs(
    first: Float[Tensor, "*batch pairs"], second: Float[Tensor, "*batch pairs"], pairing: Pairing
) -> Float[Tensor, "*batch rotary_dim"]:
    """The inverse of split_pairs."""
    if pairing == "half":
        return torch.cat((first, second), dim=-1)
    return torch.stack((first, second), dim=-1).flatten(-2)
