"""The rotation of queries and keys: its angles, pairs of features, and axes.

Convention: at position m a pair (x1, x2) becomes ``(x1 cos(m theta) - x2 sin(m theta),
x1 sin(m theta) + x2 cos(m theta))``, the product of x1 + i x2 and exp(+i m theta)
(arXiv:2104.09864, eq. 13 and 34). Some codebases rotate in the other direction. Scores
are the same if queries and keys rotate in the same direction.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ropelab.math.models import Layout
from ropelab.math.scaling.plan import RopePlan
from ropelab.runs.arrays import Float, Int, Shaped

# Features i and i + d/2 form a pair ("half": GPT-NeoX, Llama in Hugging Face layout),
# or features 2 i and 2 i + 1 ("interleaved": the paper, GPT-J, Llama as released by
# Meta).
Pairing = Literal["half", "interleaved"]

# The names of the axes of a position, by the number of axes. Time comes first, then
# height and width, as in the sections of Qwen2-VL.
AXES = {
    1: ("position",),
    2: ("height", "width"),
    3: ("time", "height", "width"),
}

Table = Float[np.ndarray, "tokens pairs"]


def cos_sin(
    positions: Shaped[np.ndarray, " tokens"],
    plan: RopePlan,
) -> tuple[Table, Table]:
    """Return cos(m theta_i) and sin(m theta_i) in float64.

    ``plan`` has the frequencies theta_i, after any scaling method. Its factor on cos and
    sin, ``plan.attention_factor``, is left out.
    """
    # Integer positions are exact up to 2^53, and the relative error of an angle is
    # about 2^-52.
    angle = positions.astype(np.float64)[:, None] * plan.inv_freq
    return np.cos(angle), np.sin(angle)


def name_axes(axes: int) -> tuple[str, ...]:
    """Name the axes of a position.

    >>> name_axes(2), name_axes(4)
    (('height', 'width'), ('axis 0', 'axis 1', 'axis 2', 'axis 3'))
    """
    if axes in AXES:
        return AXES[axes]
    return tuple(f"axis {axis}" for axis in range(axes))


def find_axis_of_pairs(
    layout: Layout,
    sections: Sequence[int],
) -> Int[NDArray[np.int_], " pairs"]:
    """Return the index of the axis that each pair reads, the head's fastest pair first.

    ``sections`` has the number of pairs of each axis. In "mrope_interleaved", axis a of
    n gets the pairs a, a + n, a + 2 n, ... up to its number of pairs, and the first
    axis gets all pairs that remain.

    >>> find_axis_of_pairs("mrope", (1, 2, 2)).tolist()
    [0, 1, 1, 2, 2]
    >>> find_axis_of_pairs("mrope_interleaved", (3, 1, 2)).tolist()
    [0, 1, 2, 0, 0, 2]
    """
    axes = len(sections)
    if layout != "mrope_interleaved":
        # Axial layouts have runs too: they differ from mrope in their frequencies.
        return np.repeat(np.arange(axes), sections)

    # The array begins as zeros, so that axis 0 has every pair that no other axis takes.
    axis_of_pair = np.zeros(sum(sections), dtype=int)
    for axis in range(1, axes):
        stop = sections[axis] * axes
        axis_of_pair[axis:stop:axes] = axis
    return axis_of_pair
