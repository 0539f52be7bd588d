"""Bisecting intervals of bases, many at once, until each is excluded, admissible, or an edge.

A cell in which some position has S < 0 throughout is excluded; one that no position threatens is
admissible; any other is halved, with the positions that could still fail in it, down to ``EDGE``.
Cells come in hundreds of thousands with a few positions each, so a level is one pass over arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.cells import half_width, value_and_slope
from ropelab.math.bounds.similarity import Floats, Similarity

EDGE = 1e-11
"""Width in ln b at which a change of sign is taken as located."""
BLOCK = 1 << 9
"""Positions in cells looked at in one go."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Open:
    """Cells of ln b that are not decided yet, and the positions that could fail in them.

    ``cells``: [6, cells]: low, high, the width that counts, the width below which float64 decides,
    and the two curvature bounds that hold there.
    ``positions``, ``owner``: every position that threatens a cell, with the number of the cell,
    ascending.
    """

    cells: Floats
    positions: Floats
    owner: NDArray[np.intp]

    @classmethod
    def one(
        cls, similarity: Similarity, positions: Floats, low: float, high: float, fine: float
    ) -> "Open":
        """One cell and what threatens it."""
        c1, c2 = similarity.curvature_bounds(np.array(low))
        cells = np.array([[low], [high], [high - low], [fine], [float(c1)], [float(c2)]])
        return cls(cells, positions, np.zeros(len(positions), dtype=np.intp))

    @classmethod
    def joined(cls, parts: Sequence["Open"]) -> "Open":
        """The cells of all parts."""
        if len(parts) == 1:
            return parts[0]
        counts = [part.cells.shape[1] for part in parts]
        offsets = np.cumsum([0, *counts[:-1]])
        return cls(
            np.concatenate([part.cells for part in parts], axis=1),
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.owner + at for part, at in zip(parts, offsets, strict=True)]),
        )

    def halves(self, cells: NDArray[np.bool_], pairs: NDArray[np.bool_]) -> "Open":
        """The chosen cells, each cut in two, with the chosen positions threatening both halves."""
        chosen = self.cells[:, cells]
        count = chosen.shape[1]
        both = np.concatenate((chosen, chosen), axis=1)
        middle = (chosen[0] + chosen[1]) / 2
        both[1, :count] = both[0, count:] = middle
        both[2, :count] = both[2, count:] = middle - chosen[0]
        kept = np.flatnonzero(pairs & cells[self.owner])
        positions, owner = self.positions[kept], (cells.cumsum() - 1)[self.owner[kept]]
        return Open(
            both, np.concatenate((positions, positions)), np.concatenate((owner, owner + count))
        )


def decided(similarity: Similarity, open_: Open) -> tuple[list[Interval], Open]:
    """The admissible cells, and the halves of those that remain open; the others are dropped."""
    count = open_.cells.shape[1]
    lowest, highest = _ranges(similarity, open_)
    failing, threatened = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    failing[open_.owner[highest < 0]] = True
    threatened[open_.owner[lowest < 0]] = True
    low, high, width = open_.cells[:3]
    standing = ~(failing | (width < EDGE))
    clear = standing & ~threatened
    pieces = list(zip(low[clear].tolist(), high[clear].tolist(), strict=True))
    return pieces, open_.halves(standing & threatened, lowest < 0)


def finished(similarity: Similarity, open_: Open) -> list[Interval]:
    """All admissible cells, once nothing is open any more."""
    found: list[Interval] = []
    while open_.cells.size:
        pieces, open_ = decided(similarity, open_)
        found += pieces
    return found


def _ranges(similarity: Similarity, open_: Open) -> tuple[Floats, Floats]:
    """Bounds (lowest, highest) of S for every position over the cell that it threatens."""
    low, high, width, fine, c1, c2 = open_.cells
    m, owner = open_.positions, open_.owner
    exact = width < fine
    inv_freq = similarity.inv_freq((low + high) / 2)
    value, slope = _values(similarity, m, inv_freq, owner, exact)
    error = np.full(len(low), similarity.single_error)
    if exact.any():
        longest = np.maximum.reduceat(m, owner.searchsorted(np.arange(len(low))))
        error[exact] = similarity.rounding_error(longest[exact])
    half = half_width(low, high)[owner]
    steepest = m * (similarity.a * inv_freq).sum(-1)[owner]
    bent = m * c1[owner] + m**2 * c2[owner]
    radius = np.abs(slope) * half + bent * half**2 / 2 + error[owner] * (1 + steepest * half)
    return value - radius, value + radius


def _values(
    similarity: Similarity,
    positions: Floats,
    inv_freq: Floats,
    owner: NDArray[np.intp],
    exact: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """S and its slope for every position at the centre of its cell."""
    if len(inv_freq) == 1:
        return value_and_slope(similarity, positions, inv_freq, bool(exact[0]))
    value, slope = np.empty_like(positions), np.empty_like(positions)
    for in_float64 in set(exact.tolist()):
        chosen = np.flatnonzero(exact[owner] == in_float64)
        for at in range(0, len(chosen), BLOCK):
            some = chosen[at : at + BLOCK]
            value[some], slope[some] = value_and_slope(
                similarity, positions[some], inv_freq[owner[some]], in_float64
            )
    return value, slope
