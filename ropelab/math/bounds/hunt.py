"""Finding positions that exclude the bases just above a given one.

Nothing is proved by the choice of positions, only by ``cells.excluded_upto``; so they are looked
for where they are cheap to find, from coarse to fine: pairs slower than a radian in n tokens are
the same for n neighbours, and where the whole sum is negative theirs must already be low.
"""

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.cells import Tangents
from ropelab.math.bounds.similarity import Floats, Similarity
from ropelab.math.bounds.survey import block_sums, block_tangents

BLOCK = 1024
"""Tokens in a block of the first look; contexts of a few blocks are looked at throughout."""
BLOCKS = 32
"""How many blocks are looked at more closely."""
STRIDE = 32
"""Distance in tokens between the positions of the second look."""
PLACES = 24
"""How many of them are looked at token by token."""
HIGHEST = 3.0
"""Sums above this do not become negative near the base that is looked at."""


def promising(similarity: Similarity, u: float, reach: int) -> Tangents:
    """Positions below ``reach`` where S is low at u, in no order."""
    starts = np.arange(1, reach, BLOCK, dtype=np.float64)
    if len(starts) > BLOCKS:
        middles = starts + BLOCK // 2
        starts = starts[_lowest(_slow_sums(similarity, u, middles, 1, BLOCK)[:, 0], BLOCKS)]
    starts = np.minimum(starts, max(1, reach - BLOCK))
    coarse = _slow_sums(similarity, u, starts + STRIDE // 2, BLOCK // STRIDE, STRIDE)
    rows, columns = np.divmod(_lowest(coarse.ravel(), PLACES), BLOCK // STRIDE)
    places = starts[rows] + STRIDE * columns
    positions = (places[:, None] + np.arange(STRIDE)).ravel()
    sums, slopes = (part.ravel() for part in block_tangents(similarity, u, places, STRIDE))
    low = np.flatnonzero((sums < HIGHEST) & (positions < reach))
    return Tangents(positions[low], sums[low], slopes[low] * positions[low])


def _slow_sums(
    similarity: Similarity, u: float, starts: Floats, columns: int, step: int
) -> NDArray[np.float32]:
    """The sum of the pairs slower than a radian in ``step`` tokens: [starts, columns]."""
    faster = int((similarity.inv_freq(u) > 1 / step).sum())
    return block_sums(similarity, u, starts, columns, step, faster)


def _lowest(sums: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Places of the ``count`` lowest sums, in no order."""
    if len(sums) <= count:
        return np.arange(len(sums))
    return np.argpartition(sums, count)[:count]
