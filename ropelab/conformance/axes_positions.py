"""Positions of several axes at which a code is asked, and whole images of patches."""

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.math.axes import Positions
from ropelab.runs.arrays import Float

Coordinates = Float[np.ndarray, "axes n"]
# Rows and columns of patches, both even, as encoders that merge 2 x 2 patches need.
GRID = (12, 28)
# Steps along one axis alone, from the first position, and the positions behind them.
STEPS = (1, 7, 61, 509)
START = (5, 3, 2)
RANDOM = 64
FARTHEST = 4096
# Tokens of the longest text in which slow pairs are looked at: codes may make a table of
# so many rows.
LONGEST_TEXT = 2**18


def choose_axes_positions(expected: Expected, is_grid: bool) -> Positions:
    """Return positions [axes, n]: one axis moves at a time, then all.

    ``is_grid``: the patches of an image row by row instead.
    """
    spec = expected.spec
    axes = spec.axes
    assert axes is not None
    if is_grid:
        return np.indices(GRID).reshape(2, -1)

    # Encoders of images may have tables of the rows and columns that they were made
    # for. Texts go on to their claimed length, where the slowest pairs move.
    end = min(FARTHEST, spec.trained_len)
    farthest = end
    if axes.count == 3:
        end = FARTHEST
        farthest = max(end, min(expected.length, LONGEST_TEXT))

    start = np.array(START[: axes.count])[:, None]
    columns = [start]
    for axis in range(axes.count):
        for step in list_steps(farthest):
            moved = start.copy()
            moved[axis] += step
            if moved.max() < farthest:
                columns.append(moved)
    random = np.random.default_rng(0)
    columns.append(random.integers(0, end, (axes.count, RANDOM)))
    return np.concatenate(columns, axis=1)


def list_steps(farthest: int) -> tuple[int, ...]:
    """Return the steps along one axis; the last leads to the end of the text."""
    last = farthest - 1 - max(START)
    if last <= STEPS[-1]:
        return STEPS
    return (*STEPS, last)


def order_in_blocks(positions: Positions, size: int) -> Positions:
    """Return the patches of a whole image in blocks of so many rows and columns.

    Other positions stay as they are.
    """
    rows, columns = (positions[-2:].max(axis=1) + 1).tolist()
    if positions.shape != (2, rows * columns):
        return positions
    patches = np.indices((rows, columns)).reshape(2, -1)
    is_image = np.array_equal(patches, positions)
    if not is_image or rows % size or columns % size:
        return positions
    blocks = patches.reshape(2, rows // size, size, columns // size, size)
    return blocks.swapaxes(2, 3).reshape(2, -1)
