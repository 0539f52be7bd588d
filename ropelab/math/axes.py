"""Which axis of a position each pair reads, where a position is a time, a row and a column.

In text all axes of a token's position are the same number and every layout of shared frequencies is
plain RoPE.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ropelab.math.models import Layout

NAMES = {1: ("position",), 2: ("height", "width"), 3: ("time", "height", "width")}


def axis_names(axes: int) -> tuple[str, ...]:
    """What to call them.

    >>> axis_names(2), axis_names(4)
    (('height', 'width'), ('axis 0', 'axis 1', 'axis 2', 'axis 3'))
    """
    return NAMES.get(axes) or tuple(f"axis {axis}" for axis in range(axes))


def axis_of_pairs(layout: Layout, sections: Sequence[int]) -> Int[NDArray[np.int_], " pairs"]:
    """The axis that each pair reads, fastest pair of the head first.

    Args:
        sections: pairs per axis.
    Returns:
        Indices into the axes. In turns, axis a of n gets the pairs a, a + n, a + 2 n, ... as far as
        its section reaches, and the first axis all that is left.

    >>> axis_of_pairs("mrope", (1, 2, 2)).tolist()
    [0, 1, 1, 2, 2]
    >>> axis_of_pairs("mrope_interleaved", (3, 1, 2)).tolist()
    [0, 1, 2, 0, 0, 2]
    """
    if layout != "mrope_interleaved":
        return np.repeat(np.arange(len(sections)), sections)
    axis = np.zeros(sum(sections), dtype=int)
    for other in range(1, len(sections)):
        axis[other : sections[other] * len(sections) : len(sections)] = other
    return axis
