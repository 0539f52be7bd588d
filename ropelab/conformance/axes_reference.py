"""What an implementation computes at positions of several axes, if it is right or has a
mistake.

Each pair of a head reads one axis of the position, such as the row of a patch: its angle
is its frequency times the coordinate on this axis.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ropelab.conformance.angles import TABLE_ERROR
from ropelab.conformance.axes_positions import Coordinates, order_in_blocks
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Observed, Table
from ropelab.math.axes import Axes, Positions
from ropelab.math.frequencies import Frequencies
from ropelab.readers.spec import RopeSpec


@dataclass(frozen=True)
class Reference:
    """The results of right code at some positions, and the error that they may have."""

    spec: RopeSpec
    inv_freq: Frequencies
    positions: Positions
    # The largest differences of cos and sin that rounding in float32 and in small formats
    # explains.
    allowed: Table

    @property
    def axes(self) -> Axes:
        axes = self.spec.axes
        assert axes is not None
        return axes

    @property
    def coordinates(self) -> Coordinates:
        return self.axes.coordinates(self.positions)

    @property
    def angles(self) -> Table:
        return self.axes.angles(self.positions, self.inv_freq)

    def is_like(self, observed: Observed, angles: Table) -> bool:
        """Return True if the observed cos and sin are those of these angles, but for
        rounding.
        """
        if observed.cos.shape != angles.shape:
            return False
        differences = measure_differences(observed, angles, self.spec.attention_factor)
        return bool((differences <= self.allowed).all())


def make_reference(expected: Expected, positions: Positions) -> Reference:
    """Return what a right implementation computes at these positions.

    The allowed errors are the errors on the axis with the farthest coordinate, where
    rounding loses most.
    """
    axes = expected.spec.axes
    assert axes is not None
    budget = expected.budget()
    lost_on_axes = []
    for coordinates in axes.coordinates(positions):
        lost_on_axes.append(budget.angles(np.abs(coordinates)))
    lost = np.max(lost_on_axes, axis=0)
    allowed = (TABLE_ERROR + lost) * expected.spec.attention_factor
    return Reference(expected.spec, expected.inv_freq, positions, allowed)


def measure_differences(observed: Observed, angles: Table, factor: float) -> Table:
    """Return how far the observed cos and sin are from the cos and sin of the angles:
    the larger of both differences.

    ``factor``: the factor by which cos and sin of the angles are multiplied first.
    """
    cos_difference = np.abs(observed.cos - factor * np.cos(angles))
    sin_difference = np.abs(observed.sin - factor * np.sin(angles))
    return np.maximum(cos_difference, sin_difference)


def list_right_orders(right: Reference) -> Iterator[Reference]:
    """Yield the reference with its patches row by row, and then block by block.

    The order by blocks is that of encoders that merge the patches of a block.
    """
    yield right
    if right.axes.block > 1:
        blocks = order_in_blocks(right.positions, right.axes.block)
        yield replace(right, positions=blocks)


@dataclass(frozen=True)
class Movement:
    """The results of code with one mistake: which axis moves each pair, and how."""

    # The sentence that names the mistake, and what to do.
    answer: str
    fix: str
    # The row of the coordinates that each pair reads.
    axis_of_pair: Sequence[int]
    inv_freq: Frequencies
    coordinates: Coordinates

    @property
    def angles(self) -> Table:
        coordinates_of_pairs = self.coordinates[list(self.axis_of_pair)]
        return coordinates_of_pairs.T * self.inv_freq
