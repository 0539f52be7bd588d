"""The positions of several axes at which a code is asked, such as times, rows and columns.

There are two sets: positions of which one axis moves at a time, and the patches of an
image row by row, for code that takes whole images alone.
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
# The first position, and the steps from there along one axis alone.
START = (5, 3, 2)
STEPS = (1, 7, 61, 509)
# The number of random positions that follow, and the number that they stay below.
RANDOM = 64
FARTHEST = 4096
# Slow pairs are looked at in texts up to this length. Codes may make a table with a row
# for each position of the text.
LONGEST_TEXT = 2**18


def choose_axes_positions(expected: Expected, is_grid: bool) -> Positions:
    """Return positions of which one axis moves at a time, and then random ones.

    With ``is_grid`` they are the patches of an image row by row.
    """
    spec = expected.spec
    axes = spec.axes
    assert axes is not None
    if is_grid:
        return np.indices(GRID).reshape(2, -1)

    # Encoders of images may have tables for the rows and columns of their training alone.
    # Three axes are those of a text with images, whose steps may lead to its claimed
    # length, where the slowest pairs move.
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
    """Return the steps along one axis, with one to the farthest position if that is far."""
    step_to_end = farthest - 1 - max(START)
    if step_to_end <= max(STEPS):
        return STEPS
    return (*STEPS, step_to_end)


def order_in_blocks(positions: Positions, size: int) -> Positions:
    """Return the patches of a whole image block by block.

    A block has ``size`` rows and columns. Positions that are no patches of a whole image
    row by row are returned as they are.
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
