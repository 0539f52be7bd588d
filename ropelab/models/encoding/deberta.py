"""Disentangled attention of DeBERTa (He et al. 2020, arXiv:2006.03654), for a causal model."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ropelab.models.encoding.base import (
    Encoding,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    Scores,
)
from ropelab.models.encoding.relative import DistanceTable, distances, relative_shift


class DebertaLayer(Encoding):
    """scores = (q_i k_j + q_i Kr[d] + k_j Qr[d]) / sqrt(3 head_dim), d = min(i - j, rows - 1).

    Content to content, content to position and position to content (equation 4 of the paper), with
    Kr = P W_kr and Qr = P W_qr for a table P of distances that all layers share. Distances from
    the last row on look the same, so it is defined everywhere.

    The third term takes the distance from query to key, i - j, as the second does. The paper prints
    the one from key to query there, but the code that its models were trained with (and that of
    transformers) gathers the rows over keys before it transposes, which is i - j; so is this.

    Args:
        table: P [rows, width], which belongs to the whole encoding.
        to_key, to_query: W_kr and W_qr of this layer.
    """

    name: ClassVar[str] = "deberta"
    fused: bool = False

    def __init__(
        self, table: nn.Parameter, heads: int, to_key: nn.Linear, to_query: nn.Linear
    ) -> None:
        super().__init__()
        self.table, self.heads = table, heads
        self.to_key, self.to_query = to_key, to_query
        self.key_rows = DistanceTable(self.projected_keys, (table, to_key.weight))
        self.query_rows = DistanceTable(self.projected_queries, (table, to_query.weight))

    def projected_keys(
        self, distance: Int[Tensor, " rows"]
    ) -> Float[Tensor, "heads rows head_dim"]:
        """Kr at every distance, split into heads."""
        return self._projected(self.to_key, distance)

    def projected_queries(
        self, distance: Int[Tensor, " rows"]
    ) -> Float[Tensor, "heads rows head_dim"]:
        """Qr at every distance, split into heads."""
        return self._projected(self.to_query, distance)

    def _projected(self, projection: nn.Linear, distance: Tensor) -> Tensor:
        last = len(self.table) - 1
        rows = projection(self.table)[distance.clamp(max=last)]
        return rows.unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def scores(
        self,
        q: Queries,
        k: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Scores:
        distance = distances(q_positions, k_positions)
        q = q * (3 * q.shape[-1]) ** -0.5
        k_scaled = k * (3 * k.shape[-1]) ** -0.5
        to_position = q @ self.key_rows(distance).mT.to(q.dtype)
        from_position = position_to_content(k_scaled, self.query_rows(distance), len(q_positions))
        return (
            q @ k.transpose(-1, -2) + relative_shift(to_position, len(k_positions)) + from_position
        )


def position_to_content(
    k: Keys,
    rows: Float[Tensor, "heads columns head_dim"],
    queries: int,
) -> Scores:
    """k_j . rows[i - j] for every query i and key j, where `rows` belong to falling `distances`.

    Seen from a key it is the query that moves, so here the keys are the rows of a `relative_shift`
    and the distances rise. Keys are taken in chunks, each with the distances that it meets; a
    quarter as long as the queries, they need little more memory than the scores themselves.
    """
    keys, size = k.shape[2], max(1, queries // 4)
    if queries == 1:  # nothing to shift, and products of single rows would be slow
        return (k * rows[:, :keys]).sum(dim=-1).unsqueeze(2)
    chunks = -(-keys // size)
    spare = chunks * size - keys
    chunked = pad(k, (0, 0, 0, spare)).unflatten(2, (chunks, size))
    # A chunk that starts at key c meets rows c .. c + queries + size - 2, and row c - 1 where the
    # shift wants a column that it does not use. pad() with -1 drops a last row that nobody meets.
    met = pad(rows, (0, 0, 1, spare - 1)).unfold(1, queries + size, size).flip(-1)
    shifted = relative_shift(chunked @ met.to(k.dtype), queries)
    return shifted.flatten(2, 3)[:, :, :keys].transpose(-1, -2)


class Deberta(Encoding):
    """Disentangled attention for a whole model: the table P once, projections per layer.

    The paper's table has 2 * rows entries, for distances in both directions; the half for later
    keys is left out. Its absolute positions before the last layer (the enhanced mask decoder) are
    not part of it either.

    Args:
        rows: how many distances P tells apart; the paper takes its trained length.
    """

    name: ClassVar[str] = "deberta"
    fused: bool = False

    def __init__(self, layers: int, width: int, heads: int, head_dim: int, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, width))
        inner = heads * head_dim
        self.to_key = nn.ModuleList(nn.Linear(width, inner, bias=False) for _ in range(layers))
        self.to_query = nn.ModuleList(nn.Linear(width, inner, bias=False) for _ in range(layers))
        # A tuple, so that the table is registered once and not again by every layer.
        self._layers = tuple(
            DebertaLayer(self.table, heads, to_key, to_query)  # type: ignore[arg-type]
            for to_key, to_query in zip(self.to_key, self.to_query, strict=True)
        )

    def for_layer(self, layer: int) -> Encoding:
        return self._layers[layer]
