"""Scores that depend on a query and a distance: Shaw, Transformer-XL, DeBERTa.

For n consecutive queries and m consecutive keys only n + m distances occur, so one
product with n + m rows of a table holds every score, and row i only has to move left by
n - 1 - i. That relative shift is a slice and a change of strides (arXiv:1901.02860,
appendix B; here also for caches).
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ropelab.models.encoding.absolute import sinusoid
from ropelab.models.encoding.base import Encoding, Heads, Positions, Scores, encoding

# Distances (query minus key) of a call, falling, as `distances` returns them.
Falling = Int[Tensor, "columns"]
ByColumn = Float[Tensor, "*batch queries columns"]
ByKey = Float[Tensor, "*batch queries keys"]
ByRow = Float[Tensor, "*batch queries rows"]
Rows = Float[Tensor, "heads rows head_dim"]


def distances(at_q: Positions, at_k: Positions) -> Falling:
    """Return the queries + keys distances that `relative_shift` expects, falling.

    They begin with that of the last query to the first key. Those below 0 are masked,
    and the very last one is not used.
    """
    largest = at_q[-1] - at_k[0]
    count = len(at_q) + len(at_k)
    return largest - torch.arange(count, device=at_q.device)


def relative_shift(by_distance: ByColumn, keys: int) -> ByKey:
    """Turn columns that are `distances` into columns that are keys.

    A contiguous input is not copied.
    """
    queries, columns = by_distance.shape[-2:]
    # If rows are read as one column shorter, each row starts one column further left than
    # the row above.
    shorter = columns - 1
    start = queries - 1
    stop = start + queries * shorter
    flat = by_distance.flatten(-2)[..., start:stop]
    shifted = flat.unflatten(-1, (queries, shorter))
    return shifted[..., :keys]


def relative_unshift(by_key: ByKey) -> ByColumn:
    """Invert `relative_shift`; columns without a key are 0."""
    queries = by_key.shape[-2]
    shift = queries - 1
    flat = pad(by_key, (0, shift)).flatten(-2)
    flat = pad(flat, (shift, 1))
    return flat.unflatten(-1, (queries, -1))


class DistanceTable:
    """Rows [..., distance, feature], computed by a function of distances.

    While decoding, rows are kept until one of the `parameters` changes that they are
    computed from.
    """

    def __init__(
        self,
        compute: Callable[[Int[Tensor, "distances"]], Tensor],
        parameters: Iterable[Tensor],
    ) -> None:
        self._compute = compute
        self._parameters = tuple(parameters)
        self._state: tuple[object, ...] = ()
        self._rows = torch.empty(0)

    def __call__(self, falling: Falling) -> Float[Tensor, "*heads columns head_dim"]:
        """Return the rows of `distances`; those below 0 get the row of 0."""
        largest = max(int(falling[0]), 0)
        # The table is made for the next power of two, so that a text that grows needs
        # few tables.
        length = 1 << largest.bit_length()
        table = self._table(length, falling.device)
        start = length - 1 - largest
        rows = table[..., start:, :]

        count = len(falling)
        missing = count - rows.shape[-2]
        if missing <= 0:
            return rows[..., :count, :]

        row_of_0 = rows[..., -1:, :]
        spare = row_of_0.expand(*rows.shape[:-2], missing, -1)
        return torch.cat((rows, spare), dim=-2)

    def _table(self, length: int, device: torch.device) -> Tensor:
        """Return the rows of length - 1, ..., 1, 0 and once more 0."""
        # Gradients need a table made anew each time. Without them the last one is kept
        # until its length or a parameter changes, so that decoding a token does not
        # project all distances again.
        state: tuple[object, ...] = (length, device)
        for parameter in self._parameters:
            state += (parameter.data_ptr(), parameter._version, parameter.dtype)
        if state == self._state and not torch.is_grad_enabled():
            return self._rows

        falling = torch.arange(length - 1, -2, -1, device=device)
        falling = falling.clamp(min=0)
        # Positions are not computed in 16 bits, whatever the autocast around the model.
        with torch.autocast(device.type, enabled=False):
            rows = self._compute(falling)

        if not torch.is_grad_enabled():
            self._rows = rows
            self._state = state
        return rows


@encoding("shaw")
class Shaw(Encoding):
    """scores = q_i (k_j + a^K_ij) / sqrt(head_dim), output = sum w_ij (v_j + a^V_ij).

    Shaw et al. 2018, arXiv:1803.02155: a_ij is row min(i - j, CLIP) of a table all
    heads share.
    """

    # The paper's k, the distance from which on all keys share a row. The paper has
    # 2 CLIP + 1 rows; those of later keys are left out, as these are masked.
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
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        q = q * q.shape[-1] ** -0.5
        content = q @ k.mT

        keys_of_rows = self.keys.to(q.dtype)
        by_row = q @ keys_of_rows.T
        by_column = self._to_columns(by_row, distances(at_q, at_k))
        return content + relative_shift(by_column, len(at_k))

    def mix(
        self,
        weights: Scores,
        v: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Heads:
        by_column = relative_unshift(weights)
        falling = distances(at_q, at_k)
        far, near = self._far_and_near(falling)

        # Distances that share a row are added up.
        beyond = by_column[..., :far].sum(dim=-1, keepdim=True)
        within = by_column[..., far : far + near].flip(-1)
        within = pad(within, (0, self.CLIP - near))
        by_row = torch.cat((within, beyond), dim=-1)

        values_of_rows = self.values.to(weights.dtype)
        return weights @ v + by_row @ values_of_rows

    def _to_columns(self, by_row: ByRow, falling: Falling) -> ByColumn:
        """Return row min(distance, CLIP) at every distance.

        Later keys, which are masked, get row 0.
        """
        far, near = self._far_and_near(falling)
        later = len(falling) - far - near
        shape = by_row.shape[:-1]

        of_far = by_row[..., self.CLIP :].expand(*shape, far)
        of_near = by_row[..., :near].flip(-1)
        of_later = by_row[..., :1].expand(*shape, later)
        return torch.cat((of_far, of_near, of_later), dim=-1)

    def _far_and_near(self, falling: Falling) -> tuple[int, int]:
        """Count the distances that are clipped, and those with a row of their own."""
        # The distances largest, ..., 1, 0.
        count = int(falling[0]) + 1
        far = max(0, count - self.CLIP)
        near = min(count, self.CLIP)
        return far, near


@encoding("transformer_xl")
class TransformerXL(Encoding):
    """scores = ((q_i + u) k_j + (q_i + v) W R_(i-j)) / sqrt(head_dim).

    Dai et al. 2019, arXiv:1901.02860, section 3.3, without the recurrence over
    segments. R is the fixed sinusoid of the distance; W, and u and v per head, are
    learned for every layer (`untie_r`).
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

    def project_rows(self, distance: Int[Tensor, " rows"]) -> Rows:
        """Return W R for every distance, split into heads."""
        waves = sinusoid(distance, self.width)
        waves = waves.to(self.project.weight.dtype)
        return split_heads(self.project(waves), self.heads)

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        scale = q.shape[-1] ** -0.5
        q_for_content = ((q + self.u) * scale).to(k.dtype)
        content = q_for_content @ k.mT

        rows = self.rows(distances(at_q, at_k))
        q_for_position = ((q + self.v) * scale).to(k.dtype)
        by_column = q_for_position @ rows.mT.to(k.dtype)
        return content + relative_shift(by_column, len(at_k))


class DebertaLayer(Encoding):
    """scores = (q_i k_j + q_i Kr[d] + k_j Qr[d]) / sqrt(3 head_dim), d = min(i - j, last).

    Equation 4, with Kr = P W_kr and Qr = P W_qr for a `table` P [rows, width] that all
    layers share, whose last row serves all farther distances.
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
    ) -> Rows:
        """Return Kr or Qr at every distance, split into heads."""
        last = len(self.table) - 1
        projected = projection(self.table)
        rows = projected[distance.clamp(max=last)]
        return split_heads(rows, self.heads)

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        distance = distances(at_q, at_k)
        scale = (3 * q.shape[-1]) ** -0.5
        q = q * scale
        scaled_k = k * scale
        content = q @ k.mT

        key_rows = self.key_rows(distance)
        by_column = q @ key_rows.mT.to(q.dtype)
        to_position = relative_shift(by_column, len(at_k))

        # The distance is from query to key here, too: the paper prints the reverse, but
        # the code that trained its models (and transformers') gathers the rows over
        # keys before it transposes: i - j.
        query_rows = self.query_rows(distance)
        from_position = position_to_content(scaled_k, query_rows, len(at_q))
        return content + to_position + from_position


def split_heads(
    rows: Float[Tensor, "rows features"],
    heads: int,
) -> Rows:
    """Return rows of features as rows of each head."""
    return rows.unflatten(-1, (heads, -1)).transpose(0, 1)


def position_to_content(
    k: Heads,
    rows: Float[Tensor, "heads columns head_dim"],
    queries: int,
) -> Scores:
    """Return k_j . rows[i - j] for every query i and key j.

    `rows` belong to falling `distances`.
    """
    keys = k.shape[2]
    if queries == 1:
        # A single query needs no shift, and products of single rows would be slow.
        return (k * rows[:, :keys]).sum(dim=-1).unsqueeze(2)

    # The keys take the part of the queries in `relative_shift`, and the distances rise.
    # Keys are taken in chunks, a quarter as long as the queries, which needs little more
    # memory than the scores themselves.
    size = max(1, queries // 4)
    chunks = -(-keys // size)
    spare = chunks * size - keys
    chunked = pad(k, (0, 0, 0, spare)).unflatten(2, (chunks, size))

    # A chunk that starts at key c meets rows c .. c + queries + size - 2, and row c - 1
    # where the shift wants a column that it does not use. pad() with -1 drops a last
    # row that nobody meets.
    padded = pad(rows, (0, 0, 1, spare - 1))
    rows_of_chunks = padded.unfold(1, queries + size, size).flip(-1)
    by_column = chunked @ rows_of_chunks.to(k.dtype)

    by_query = relative_shift(by_column, queries)
    joined = by_query.flatten(2, 3)
    return joined[:, :, :keys].transpose(-1, -2)


@encoding("deberta")
class Deberta(Encoding):
    """Disentangled attention: the table P once for all layers, projections per layer.

    He et al. 2020, arXiv:2006.03654, for a causal model, without later keys and the
    enhanced mask decoder.
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
        # The paper too has a row for every trained distance.
        self.table = nn.Embedding(trained_len, width)
        inner = heads * head_dim
        to_key = [nn.Linear(width, inner, bias=False) for _ in range(layers)]
        to_query = [nn.Linear(width, inner, bias=False) for _ in range(layers)]
        self.to_key = nn.ModuleList(to_key)
        self.to_query = nn.ModuleList(to_query)

        # A tuple, so that the table is registered once and not again by every layer.
        self._layers = tuple(
            DebertaLayer(self.table.weight, heads, to_key[layer], to_query[layer])
            for layer in range(layers)
        )

    def for_layer(self, layer: int) -> Encoding:
        return self._layers[layer]
