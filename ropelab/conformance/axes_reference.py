"""What a code should compute at positions of several axes, and what a mistake computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ropelab.conformance.axes_positions import Coordinates, order_in_blocks
from ropelab.conformance.expected import Expected
from ropelab.conformance.explained import TABLE_ERROR
from ropelab.conformance.observation import Observed, Table
from ropelab.math.axes import Axes, Positions
from ropelab.math.frequencies import Frequencies
from ropelab.readers.spec import RopeSpec


@dataclass(frozen=True)
class Reference:
    """What a right code computes at some positions, and how far off it may be."""

    spec: RopeSpec
    inv_freq: Frequencies
    positions: Positions
    # The largest differences of cos and sin that float32 and small formats explain.
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
        """Return True for the cos and sin of these angles, rounded as tables may be."""
        if observed.cos.shape != angles.shape:
            return False
        differences = measure_differences(observed, angles, self.spec.attention_factor)
        return bool((differences <= self.allowed).all())


def make_reference(expected: Expected, positions: Positions) -> Reference:
    """Return what should be at these positions; far ones lose digits in float32."""
    axes = expected.spec.axes
    assert axes is not None
    budget = expected.budget()
    of_axes = [budget.angles(np.abs(row)) for row in axes.coordinates(positions)]
    lost = np.max(of_axes, axis=0)
    allowed = (TABLE_ERROR + lost) * expected.spec.attention_factor
    return Reference(expected.spec, expected.inv_freq, positions, allowed)


def measure_differences(observed: Observed, angles: Table, factor: float) -> Table:
    """Return how far cos or sin, the farther one, is from that of these angles."""
    cos_difference = np.abs(observed.cos - factor * np.cos(angles))
    sin_difference = np.abs(observed.sin - factor * np.sin(angles))
    return np.maximum(cos_difference, sin_difference)


def list_right_orders(right: Reference) -> Iterator[Reference]:
    """Yield the patches row by row, and in the blocks that an encoder merges."""
    yield right
    if right.axes.block > 1:
        blocks = order_in_blocks(right.positions, right.axes.block)
        yield replace(right, positions=blocks)


@dataclass(frozen=True)
class Movement:
    """What a code with one mistake computes."""

    answer: str
    fix: str
    axis_of_pair: Sequence[int]
    inv_freq: Frequencies
    coordinates: Coordinates

    @property
    def angles(self) -> Table:
        return self.coordinates[list(self.axis_of_pair)].T * self.inv_freq
