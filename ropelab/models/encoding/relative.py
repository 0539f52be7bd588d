"""Scores that depend on a query and a distance, without a table of tokens x tokens x head_dim.

For n consecutive queries and m consecutive keys only n + m distances occur. So one product of the
n queries with the n + m rows of a distance table holds every score, each a few columns away from
where it belongs: row i must move left by n - 1 - i. That relative shift is a slice and a change of
strides (Transformer-XL, arXiv:1901.02860, appendix B; here for blocks of queries and for caches).
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from ropelab.models.encoding.base import KeyPositions, QueryPositions


def distances(q_positions: QueryPositions, k_positions: KeyPositions) -> Int[Tensor, " columns"]:
    """The queries + keys distances (query minus key) that `relative_shift` expects, falling.

    The first is that of the last query to the first key. Those below 0 belong to later keys, which
    are masked; the very last is not used at all.
    """
    columns = torch.arange(len(q_positions) + len(k_positions), device=q_positions.device)
    return q_positions[-1] - k_positions[0] - columns


def relative_shift(
    by_distance: Float[Tensor, "*batch queries columns"], keys: int
) -> Float[Tensor, "*batch queries keys"]:
    """From columns that are `distances` to columns that are keys; no copy of a contiguous input."""
    queries, columns = by_distance.shape[-2:]
    start = queries - 1
    flat = by_distance.flatten(-2)[..., start : start + queries * (columns - 1)]
    return flat.unflatten(-1, (queries, columns - 1))[..., :keys]


def relative_unshift(
    by_key: Float[Tensor, "*batch queries keys"],
) -> Float[Tensor, "*batch queries columns"]:
    """The inverse of `relative_shift`: what belongs to no key is 0."""
    queries = by_key.shape[-2]
    flat = pad(by_key, (0, queries - 1)).flatten(-2)
    return pad(flat, (queries - 1, 1)).unflatten(-1, (queries, -1))


class DistanceTable:
    """Rows per distance 0, 1, 2, ..., computed from parameters, and kept while decoding.

    A table for `length` distances is made for the next power of two. Where gradients are recorded
    it is made anew each time; elsewhere the last one is kept until its length or a parameter
    changes, so that decoding a token does not project all distances again. Kept and fresh tables
    are the same numbers.

    Args:
        make: from distances to rows; the last two axes of the rows are distance and feature.
        parameters: what `make` depends on.
    """

    def __init__(
        self, make: Callable[[Int[Tensor, "distances"]], Tensor], parameters: Iterable[Tensor]
    ) -> None:
        self._make, self._parameters = make, tuple(parameters)
        self._state: tuple[object, ...] = ()
        self._rows = torch.empty(0)

    def __call__(
        self, falling: Int[Tensor, " columns"]
    ) -> Float[Tensor, "*heads columns head_dim"]:
        """The rows of `distances`; those below 0 get the row of 0. A view, if only one is."""
        first = max(int(falling[0]), 0)
        length = 1 << first.bit_length()
        rows = self._table(length, falling.device)[..., length - 1 - first :, :]
        missing = len(falling) - rows.shape[-2]
        if missing <= 0:
            return rows[..., : len(falling), :]
        spare = rows[..., -1:, :].expand(*rows.shape[:-2], missing, -1)
        return torch.cat((rows, spare), dim=-2)

    def _table(self, length: int, device: torch.device) -> Tensor:
        """Rows of length - 1, ..., 1, 0 and once more 0."""
        state = (length, device, *((p.data_ptr(), p._version, p.dtype) for p in self._parameters))
        if torch.is_grad_enabled() or state != self._state:
            falling = torch.arange(length - 1, -2, -1, device=device).clamp(min=0)
            # Positions are not computed in 16 bits, whatever the autocast around the model.
            with torch.autocast(device.type, enabled=False):
                rows = self._make(falling)
            if torch.is_grad_enabled():
                return rows
            self._rows, self._state = rows, state
        return self._rows
