"""Encodings that add a number to each score and touch nothing else: ALiBi, T5, Kerple, FIRE."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.models.encoding.base import (
    Encoding,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    Scores,
)
from ropelab.models.encoding.relative import distances


class AdditiveBias(Encoding):
    """scores = q k^T / sqrt(head_dim) + bias; the bias depends on head and positions alone.

    The bias exists for the queries and keys of one call only; a model that asks for a block of
    queries at a time never holds more than that block.
    """

    fused: bool = False

    def scores(
        self,
        q: Queries,
        k: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Scores:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        # Distances do not fit into 16 bits, so no autocast may reach them.
        with torch.autocast(q.device.type, enabled=False):
            bias = self.bias(q_positions, k_positions)
        return scores + bias.to(scores.dtype)

    def bias(
        self, q_positions: QueryPositions, k_positions: KeyPositions
    ) -> Float[Tensor, "heads queries keys"]:
        """The numbers to add; anything finite at later keys."""
        raise NotImplementedError


class DistanceBias(AdditiveBias):
    """A bias that depends on the distance alone, and so is computed once per distance."""

    def by_distance(self, distance: Int[Tensor, "distances"]) -> Float[Tensor, "heads distances"]:
        """The bias at distances (query minus key) of 0 and more."""
        raise NotImplementedError

    def bias(
        self, q_positions: QueryPositions, k_positions: KeyPositions
    ) -> Float[Tensor, "heads queries keys"]:
        falling = distances(q_positions, k_positions)[:-1].clamp(min=0)
        return toeplitz(self.by_distance(falling), len(q_positions))


def toeplitz(
    by_distance: Float[Tensor, "heads columns"], queries: int
) -> Float[Tensor, "heads queries keys"]:
    """From falling distances to the matrix of queries and keys: row i starts queries - 1 - i on."""
    keys = by_distance.shape[-1] - queries + 1
    return by_distance.unfold(-1, keys, 1).flip(-2)
