"""Scores that depend on a query and a distance: Shaw, Transformer-XL, DeBERTa.

Each of these encodings has a table with a row of features for every distance (query
position minus key position). The score of query i and key j contains the product of
query i with the row of their distance.

For n consecutive queries and m consecutive keys fewer than n + m distances occur. So
the queries are multiplied with the rows of these distances once, which gives a matrix
[queries, distances]. `relative_shift` then turns it into a matrix [queries, keys]. For
the queries at positions 1 and 2 and the keys at positions 0, 1 and 2:

    columns before the shift: distances  2  1  0 -1 -2
    query 1 needs, for its three keys:      1  0 -1      (begin at column 1)
    query 2 needs, for its three keys:   2  1  0         (begin at column 0)

Query number i (from 0) thus begins at column n - 1 - i. The shift is a slice and a
change of strides (arXiv:1901.02860, appendix B; here also for caches, which hold more
keys than there are queries).
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ropelab.models.encoding.absolute import sinusoid
from ropelab.models.encoding.base import Encoding, Heads, Positions, Scores, encoding

# The distances of the columns, falling, as `distances` returns them.
FallingDistances = Int[Tensor, "columns"]
# A number for each query and distance, and for each query and key.
ByDistance = Float[Tensor, "*batch queries columns"]
ByKey = Float[Tensor, "*batch queries keys"]
# A number for each query and row of a table; several distances may share a row.
ByRow = Float[Tensor, "*batch queries rows"]
# The features of each row of a table, for each head.
TableRows = Float[Tensor, "heads rows head_dim"]


def distances(q_positions: Positions, k_positions: Positions) -> FallingDistances:
    """Return the distances that `relative_shift` expects as columns.

    The number of distances is the number of queries and keys together. Distances fall
    by 1 from the distance between the last query and the first key. Distances below 0
    belong to keys after the query, which are masked. The very last distance does not
    occur, but the shift needs its column.
    """
    largest = q_positions[-1] - k_positions[0]
    count = len(q_positions) + len(k_positions)
    return largest - torch.arange(count, device=q_positions.device)


def relative_shift(by_distance: ByDistance, keys: int) -> ByKey:
    """Turn columns that are `distances` into columns that are keys.

    A contiguous input is not copied.
    """
    queries, columns = by_distance.shape[-2:]
    # The rows are contiguous in memory. They are read again as rows that are one column
    # shorter, from column queries - 1 of the first row on. Each row then begins one
    # column further left in the original than the row above.
    shorter = columns - 1
    start = queries - 1
    stop = start + queries * shorter
    flat = by_distance.flatten(-2)[..., start:stop]
    shifted = flat.unflatten(-1, (queries, shorter))
    return shifted[..., :keys]


def relative_unshift(by_key: ByKey) -> ByDistance:
    """Invert `relative_shift`; columns of distances without a key are 0."""
    queries = by_key.shape[-2]
    start = queries - 1
    # The rows get the length of the shorter rows in `relative_shift`, and then, at both
    # ends, the numbers that `relative_shift` leaves out.
    shorter_rows = pad(by_key, (0, start)).flatten(-2)
    flat = pad(shorter_rows, (start, 1))
    return flat.unflatten(-1, (queries, -1))


class DistanceTable:
    """A table with a row of features for each distance.

    The rows are computed from parameters of a model. While a text is decoded, token by
    token, they are kept until a parameter changes.
    """

    def __init__(
        self,
        compute: Callable[[Int[Tensor, "distances"]], Tensor],
        parameters: Iterable[Tensor],
    ) -> None:
        """Make the table.

        Args:
            compute: returns the rows [..., distances, features] of given distances.
            parameters: the parameters that `compute` uses.
        """
        self._compute = compute
        self._parameters = tuple(parameters)
        # The rows that are kept, and the state from which they were computed.
        self._rows = torch.empty(0)
        self._state: tuple[object, ...] = ()

    def __call__(
        self, falling: FallingDistances
    ) -> Float[Tensor, "*heads columns head_dim"]:
        """Return the rows of falling distances.

        A distance below 0 gets the row of distance 0.
        """
        largest = max(int(falling[0]), 0)
        # The table is made for the next power of two, so that a text that grows needs
        # few tables.
        length = 1 << largest.bit_length()
        table = self._compute_or_reuse(length, falling.device)
        # The table begins with distance length - 1.
        start = length - 1 - largest
        rows = table[..., start:, :]

        count = len(falling)
        missing = count - rows.shape[-2]
        if missing <= 0:
            return rows[..., :count, :]

        row_of_0 = rows[..., -1:, :]
        repeated = row_of_0.expand(*rows.shape[:-2], missing, -1)
        return torch.cat((rows, repeated), dim=-2)

    def _compute_or_reuse(self, length: int, device: torch.device) -> Tensor:
        """Return the rows of the distances length - 1, ..., 1, 0, and of 0 once more.

        The second row of 0 stands for the distance -1. A single query has no other
        distance below 0, so that decoding a token needs no concatenation.
        """
        # With gradients the rows are computed in every call. Without gradients they are
        # kept until the length or a parameter changes, so that decoding a token does not
        # compute the rows of all distances again. torch raises `_version` whenever a
        # parameter is changed in place.
        state: tuple[object, ...] = (length, device)
        for parameter in self._parameters:
            state += (parameter.data_ptr(), parameter._version, parameter.dtype)
        if state == self._state and not torch.is_grad_enabled():
            return self._rows

        falling = torch.arange(length - 1, -2, -1, device=device)
        # The distance -1 at the end becomes the second 0.
        falling = falling.clamp(min=0)
        # Positions do not fit into 16 bits, so no autocast may reach them.
        with torch.autocast(device.type, enabled=False):
            rows = self._compute(falling)

        if not torch.is_grad_enabled():
            self._rows = rows
            self._state = state
        return rows


@encoding("shaw")
class Shaw(Encoding):
    """scores = q_i (k_j + a^K_ij) / sqrt(head_dim), output = sum_j w_ij (v_j + a^V_ij).

    Shaw et al. 2018, arXiv:1803.02155. w_ij are the attention weights. a^K and a^V come
    from two tables that all heads share: a_ij is row min(i - j, CLIP).
    """

    # The distance in tokens from which on all keys share a row; k in the paper. The
    # paper has 2 CLIP + 1 rows. The rows of keys after the query are left out here,
    # since these keys are masked.
    CLIP = 16
    fused: bool = False

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        rows = self.CLIP + 1
        deviation = head_dim**-0.5
        self.keys = nn.Parameter(torch.randn(rows, head_dim) * deviation)
        self.values = nn.Parameter(torch.randn(rows, head_dim) * deviation)

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        scaled_q = q * q.shape[-1] ** -0.5
        content = scaled_q @ k.mT

        key_rows = self.keys.to(scaled_q.dtype)
        by_row = scaled_q @ key_rows.T
        by_distance = self._spread_rows(by_row, distances(q_positions, k_positions))
        return content + relative_shift(by_distance, len(k_positions))

    def mix(
        self,
        weights: Scores,
        v: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Heads:
        # The weights of all keys at a distance are added up by row, so that each row of
        # values is multiplied once.
        by_distance = relative_unshift(weights)
        falling = distances(q_positions, k_positions)
        far, near = self._count_far_and_near(falling)

        # The far distances come first and share the last row. The near distances fall,
        # while the rows are in the order of rising distances.
        far_weights = by_distance[..., :far].sum(dim=-1, keepdim=True)
        near_weights = by_distance[..., far : far + near].flip(-1)
        near_weights = pad(near_weights, (0, self.CLIP - near))
        by_row = torch.cat((near_weights, far_weights), dim=-1)

        value_rows = self.values.to(weights.dtype)
        return weights @ v + by_row @ value_rows

    def _spread_rows(self, by_row: ByRow, falling: FallingDistances) -> ByDistance:
        """Return for every distance the entry of `by_row` at row min(distance, CLIP).

        A distance below 0 belongs to a masked key, and gets the entry at row 0.
        """
        far, near = self._count_far_and_near(falling)
        masked = len(falling) - far - near
        shape = by_row.shape[:-1]

        far_rows = by_row[..., self.CLIP :].expand(*shape, far)
        near_rows = by_row[..., :near].flip(-1)
        masked_rows = by_row[..., :1].expand(*shape, masked)
        return torch.cat((far_rows, near_rows, masked_rows), dim=-1)

    def _count_far_and_near(self, falling: FallingDistances) -> tuple[int, int]:
        """Count the distances from CLIP on, and the distances from 0 to CLIP - 1."""
        largest = int(falling[0])
        far = max(0, largest + 1 - self.CLIP)
        near = min(largest + 1, self.CLIP)
        return far, near


@encoding("transformer_xl")
class TransformerXL(Encoding):
    """scores = ((q_i + u) k_j + (q_i + v) W R_(i-j)) / sqrt(head_dim).

    Dai et al. 2019, arXiv:1901.02860, section 3.3, without the recurrence over
    segments. R is the fixed sinusoid of the distance. W, and vectors u and v for each
    head, are learned. Every layer has its own W, u and v, as with `untie_r` in the
    authors' code.
    """

    fused: bool = False

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.project = nn.Linear(width, heads * head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, 1, head_dim))
        self.v = nn.Parameter(torch.zeros(heads, 1, head_dim))
        self.rows = DistanceTable(self.project_rows, self.project.parameters())

    def project_rows(self, distance: Int[Tensor, " rows"]) -> TableRows:
        """Return W R for every distance, split into heads."""
        waves = sinusoid(distance, self.width)
        waves = waves.to(self.project.weight.dtype)
        return split_heads(self.project(waves), self.heads)

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        scale = q.shape[-1] ** -0.5
        q_for_content = ((q + self.u) * scale).to(k.dtype)
        content = q_for_content @ k.mT

        rows = self.rows(distances(q_positions, k_positions))
        q_for_position = ((q + self.v) * scale).to(k.dtype)
        by_distance = q_for_position @ rows.mT.to(k.dtype)
        return content + relative_shift(by_distance, len(k_positions))


class DebertaLayer(Encoding):
    """scores = (q_i k_j + q_i Kr[d] + k_j Qr[d]) / sqrt(3 head_dim), d = min(i - j, last).

    This is equation 4 of DeBERTa (see `Deberta` below). Kr = P W_kr and Qr = P W_qr are
    projections of a `table` P [rows, width] that all layers share. Distances beyond the
    last row use the last row.
    """

    fused: bool = False

    def __init__(
        self,
        table: Tensor,
        heads: int,
        to_key: nn.Linear,
        to_query: nn.Linear,
    ) -> None:
        super().__init__()
        self.table = table
        self.heads = heads
        self.to_key = to_key
        self.to_query = to_query

        project_keys = partial(self.project_rows, to_key)
        project_queries = partial(self.project_rows, to_query)
        self.key_rows = DistanceTable(project_keys, (table, to_key.weight))
        self.query_rows = DistanceTable(project_queries, (table, to_query.weight))

    def project_rows(
        self,
        projection: nn.Linear,
        distance: Int[Tensor, " rows"],
    ) -> TableRows:
        """Return Kr or Qr at every distance, split into heads."""
        last = len(self.table) - 1
        projected = projection(self.table)
        rows = projected[distance.clamp(max=last)]
        return split_heads(rows, self.heads)

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        falling = distances(q_positions, k_positions)
        scale = (3 * q.shape[-1]) ** -0.5
        scaled_q = q * scale
        scaled_k = k * scale
        content = scaled_q @ k.mT

        key_rows = self.key_rows(falling)
        by_distance = scaled_q @ key_rows.mT.to(scaled_q.dtype)
        content_to_position = relative_shift(by_distance, len(k_positions))

        # Here, too, d is the distance from query to key, i - j. The paper prints j - i,
        # but the authors' code and transformers use i - j: both gather the rows by key
        # before they transpose.
        query_rows = self.query_rows(falling)
        position_to_content = multiply_keys(scaled_k, query_rows, len(q_positions))
        return content + content_to_position + position_to_content


def split_heads(
    rows: Float[Tensor, "rows features"],
    heads: int,
) -> TableRows:
    """Split the features of each row among the heads."""
    return rows.unflatten(-1, (heads, -1)).transpose(0, 1)


def multiply_keys(
    k: Heads,
    rows: Float[Tensor, "heads columns head_dim"],
    queries: int,
) -> Scores:
    """Return the product of key j with the row of i - j, for every query i and key j.

    The columns of `rows` are the falling `distances`.
    """
    keys = k.shape[2]
    if queries == 1:
        # A single query needs no shift. Its distances to the keys are the first columns,
        # in the order of the keys.
        return (k * rows[:, :keys]).sum(dim=-1).unsqueeze(2)

    # The shift works here with queries and keys exchanged: keys are the rows of the
    # matrix, and queries become its columns. Keys are taken in chunks of `size` keys, a
    # quarter of the number of queries. This needs little more memory than the scores
    # themselves.
    size = max(1, queries // 4)
    # The number of chunks is rounded up, and zeros fill the last chunk.
    chunks = -(-keys // size)
    missing_keys = chunks * size - keys
    # [batch, heads, chunks, size, head_dim]
    k_of_chunks = pad(k, (0, 0, 0, missing_keys)).unflatten(2, (chunks, size))

    # A chunk that starts at key c needs the rows from c to c + queries + size - 2, and
    # one row in front of these rows, for the column that the shift does not use. So one
    # row of zeros is put before all rows. The end is padded to fit the last chunk. If
    # the last chunk lacks no key, the amount is -1, which drops the last, unused row.
    padded = pad(rows, (0, 0, 1, missing_keys - 1))
    # `unfold` cuts the rows of each chunk: [heads, chunks, head_dim, queries + size].
    # With the keys as rows the distances must rise, so they are flipped.
    rows_of_chunks = padded.unfold(1, queries + size, size).flip(-1)
    by_distance = k_of_chunks @ rows_of_chunks.to(k.dtype)

    # [batch, heads, chunks, size, queries], then all chunks in one sequence.
    by_query = relative_shift(by_distance, queries)
    joined = by_query.flatten(2, 3)
    return joined[:, :, :keys].transpose(-1, -2)


@encoding("deberta")
class Deberta(Encoding):
    """DeBERTa's disentangled attention (He et al. 2020, arXiv:2006.03654).

    All layers share the table P of distances, and each layer has its own projections of
    P (`DebertaLayer`). Keys after the query are masked, which the paper does not do.
    This implementation has no enhanced mask decoder.
    """

    fused: bool = False

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        head_dim: int,
        trained_len: int,
    ) -> None:
        super().__init__()
        # A row for every trained distance, as in the paper.
        self.table = nn.Embedding(trained_len, width)
        width_of_heads = heads * head_dim
        to_key = [nn.Linear(width, width_of_heads, bias=False) for _ in range(layers)]
        to_query = [nn.Linear(width, width_of_heads, bias=False) for _ in range(layers)]
        self.to_key = nn.ModuleList(to_key)
        self.to_query = nn.ModuleList(to_query)

        # torch does not register the members of a tuple as submodules. With a
        # ModuleList every layer would register the table once more.
        self._layers = tuple(
            DebertaLayer(self.table.weight, heads, to_key[layer], to_query[layer])
            for layer in range(layers)
        )

    def for_layer(self, layer: int) -> Encoding:
        return self._layers[layer]
