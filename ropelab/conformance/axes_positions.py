"""The positions of several axes at which a code is asked, such as times, rows and columns.

There are two sets. In the first, one axis moves at a time. The second has the patches of
an image row by row, for code that takes only whole images.
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
# The number of random positions that follow, and the number that they stay below.
RANDOM = 64
RANDOM_LIMIT = 4096
# Slow pairs are looked at in texts up to this length. Codes may make a table with a row
# for each position of the text.
LONGEST_TEXT = 2**18


def choose_axes_positions(expected: Expected, is_grid: bool) -> Positions:
    """Return positions of which one axis moves at a time, and then random ones.

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
    columns.append(random.integers(0, random_limit, (axes.count, RANDOM)))
    return np.concatenate(columns, axis=1)


def list_steps(step_limit: int) -> tuple[int, ...]:
    """Return the steps along one axis.

    If the positions below ``step_limit`` reach farther than STEPS, one more step leads to
    the last of them.
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
    rows, columns = (positions[-2:].max(axis=1) + 1).tolist()
    if positions.shape != (2, rows * columns):
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
