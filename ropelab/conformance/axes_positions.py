"""Positions on several axes (time, row, column) at which an implementation is asked.

There are two sets. In the first set one axis moves at a time. The second set has the
patches of an image row by row, for an implementation that takes only whole images.
"""

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.math.axes import Positions
from ropelab.runs.arrays import Float

# What frequencies are multiplied by: positions, or shares of an image.
Coordinates = Float[np.ndarray, "axes n"]
# The rows and columns of the image, in patches. Both are even, since some encoders merge
# 2 x 2 patches.
GRID = (12, 28)
# The first position, and the steps from there along one axis while the other axes stay.
START = (5, 3, 2)
STEPS = (1, 7, 61, 509)
# The number of random positions after these, and the number below which each coordinate
# of them is.
RANDOM_COUNT = 64
RANDOM_LIMIT = 4096
# The length in tokens of the longest text in which slow pairs are looked at. The limit
# keeps the tables small that an implementation makes with a row for each position.
LONGEST_TEXT = 2**18


def choose_axes_positions(expected: Expected, is_grid: bool) -> Positions:
    """Return positions of which one axis moves at a time, and then random positions.

    With ``is_grid`` the positions are instead the patches of an image, row by row.
    """
    spec = expected.spec
    axes = spec.axes
    assert axes is not None
    if is_grid:
        return np.indices(GRID).reshape(2, -1)

    # An encoder of images (one or two axes) may have tables only for the rows and columns
    # that it was trained on, so that no position may be beyond them. A text with images
    # (three axes) is longer. Its steps lead to the claimed length, where the slowest pairs
    # move.
    if axes.count == 3:
        random_limit = RANDOM_LIMIT
        step_limit = max(RANDOM_LIMIT, min(expected.length, LONGEST_TEXT))
    else:
        random_limit = min(RANDOM_LIMIT, spec.trained_len)
        step_limit = random_limit

    start = np.array(START[: axes.count])[:, None]
    columns = [start]
    for axis in range(axes.count):
        for step in list_steps(step_limit):
            moved = start.copy()
            moved[axis] += step
            if moved.max() < step_limit:
                columns.append(moved)
    random = np.random.default_rng(0)
    columns.append(random.integers(0, random_limit, (axes.count, RANDOM_COUNT)))
    return np.concatenate(columns, axis=1)


def list_steps(step_limit: int) -> tuple[int, ...]:
    """Return the steps along one axis.

    If the positions below ``step_limit`` reach farther than STEPS, one more step is
    added. It takes the axis that starts farthest to the last of these positions.
    """
    step_to_last = step_limit - 1 - max(START)
    if step_to_last <= max(STEPS):
        return STEPS
    return (*STEPS, step_to_last)


def order_in_blocks(positions: Positions, size: int) -> Positions:
    """Return the patches of a whole image block by block.

    A block has ``size`` rows and columns. Positions that are not the patches of a whole
    image, row by row, are returned unchanged.
    """
    if len(positions) != 2:
        return positions
    rows, columns = (positions.max(axis=1) + 1).tolist()
    if positions.shape[1] != rows * columns:
        return positions
    patches = np.indices((rows, columns)).reshape(2, -1)
    is_image = np.array_equal(patches, positions)
    if not is_image or rows % size or columns % size:
        return positions
    # The axes: row or column, block rows, rows in a block, block columns, columns in a
    # block. Patches of a block follow each other once the block columns come before the
    # rows in a block.
    in_blocks = patches.reshape(2, rows // size, size, columns // size, size)
    return in_blocks.swapaxes(2, 3).reshape(2, -1)
