"""Finding positions that exclude an interval of bases.

Nothing is proved by the choice of positions, only by ``cells.excluded``; so they are looked for
where they are cheap to find and exclude much. Shorter positions exclude wider intervals, and far
below the first admissible base there are many of them.
"""

import numpy as np

from ropelab.rope.bounds.cells import Cells, excluded
from ropelab.rope.bounds.similarity import Floats, Similarity
from ropelab.rope.bounds.survey import scan, single

STRIDE = 8
"""Distance in tokens between the positions that are looked at first."""
BATCH = 24
MOST = 150


def survivors(similarity: Similarity, low: float, high: float, reach: int) -> Cells:
    """The parts of [low, high] that no promising position below ``reach`` excludes."""
    cells = Cells.parts(low, high, 16)
    half = reach // 2
    for first, last in ((half, reach), (1, half)):
        positions = promising(similarity, (low + high) / 2, first, last)
        cells = _left_by(similarity, positions, cells)
        if not len(cells):
            break
    return cells


def promising(similarity: Similarity, u: float, start: int, stop: int) -> Floats:
    """Positions in [start, stop) where S is low, lowest first (at most MOST).

    Pairs slower than a radian in STRIDE tokens are the same for neighbours, and where S is negative
    they must already be low: they are summed on every STRIDE-th position, and only the neighbours
    of the lowest sums are looked at.
    """
    slow = int((similarity.inv_freq(u) > 1 / STRIDE).sum())
    coarse = scan(similarity, u, start, max(stop, start + 1), STRIDE, slow)
    places = np.arange(len(coarse))
    if len(coarse) > 256:
        places = np.flatnonzero(coarse <= coarse.mean() - 2.8 * coarse.std())
        places = places[np.argsort(coarse[places])[:96]]
    near = start + STRIDE * places[:, None] + np.arange(STRIDE) - STRIDE // 2
    positions = np.unique(near[(near >= start) & (near < stop)]).astype(np.float64)
    sums = single(similarity, positions, u)
    order = np.argsort(sums)[:MOST]
    return positions[order][sums[order] < 3]


def _left_by(similarity: Similarity, positions: Floats, cells: Cells) -> Cells:
    """The cells, at last halved three times, that none of the positions excludes."""
    for batch in range(0, len(positions), BATCH):
        if len(cells):
            chosen = positions[batch : batch + BATCH]
            cells = cells.where(~excluded(similarity, chosen, cells))
    for _ in range(3):
        if len(cells) and len(positions):
            cells = cells.halved()
            cells = cells.where(~excluded(similarity, positions, cells))
    return cells
