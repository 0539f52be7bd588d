"""Rotating queries and keys, and nothing else; the convention is that of `ropelab.math.rotary`."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ropelab.errors import unknown_name
from ropelab.math import rotary
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan


def cos_sin(
    positions: Shaped[Tensor, " tokens"], plan: RopePlan
) -> tuple[Float[Tensor, "tokens pairs"], Float[Tensor, "tokens pairs"]]:
    """The float64 tables of ``ropelab.math.rotary.cos_sin`` as tensors, where the positions are."""
    cos, sin = rotary.cos_sin(positions.cpu().numpy(), plan)
    return torch.from_numpy(cos).to(positions.device), torch.from_numpy(sin).to(positions.device)


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
