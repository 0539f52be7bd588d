"""Positions of several axes, such as the row and column of a patch of an image.

A head has pairs of features, and each pair reads one axis a: its angle is inv_freq_i
times the coordinate on that axis. Text tokens have equal coordinates on all axes, so
that a text without images does not show which pair reads which axis.

The layouts were read from the rotary classes of transformers 5.23.0. Models of images
and text (Qwen2-VL, Qwen3-VL, ERNIE 4.5 VL) divide the frequencies of one head among the
axes. Encoders of images (Qwen's, Pixtral's, DINOv3's) give each axis a set of
frequencies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ropelab.math.frequencies import Frequencies, inverse_frequencies
from ropelab.math.rotary import find_axis_of_pairs
from ropelab.runs.arrays import Float, Int

# A ladder says where the frequencies of an axis's pairs come from.
# head: pair i of the head has the head's frequency i, whatever its axis.
# section: the pairs of an axis have the frequencies of a head of their width.
# alternating: the a-th of n axes has the head's frequencies a, a + n, a + 2 n, ...
#     (Pixtral).
Ladder = Literal["head", "section", "alternating"]
# An arrangement says which pairs an axis has.
# runs: the pairs of one axis follow the pairs of another.
# turns: the axes alternate from pair to pair, until an axis has all its pairs
#     (Qwen3-VL).
# last behind: all sections but the last alternate, and the last section follows them
#     (ERNIE 4.5 VL).
Arrangement = Literal["runs", "turns", "last behind"]

Positions = Int[np.ndarray, "axes n"]


@dataclass(frozen=True)
class Axes:
    """The axis of each pair, and the frequencies that the pairs of an axis have."""

    names: tuple[str, ...]
    # The number of pairs of each section. A section has the pairs of one axis.
    sections: tuple[int, ...]
    # The index of the axis of each section.
    order: tuple[int, ...]
    arrangement: Arrangement = "runs"
    ladder: Ladder = "head"
    # True if the rows and columns of an image's patches run from -1 at one edge to 1 at
    # the other, and a pair of frequency 1 rotates once per unit (DINOv3). If False,
    # rows and columns are counted from 0, and a pair of frequency 1 rotates by one
    # radian per patch.
    centred: bool = False
    # The patches of an image are listed square by square. This is the number of patches
    # along a side of a square.
    block: int = 1

    @property
    def count(self) -> int:
        return len(self.names)

    @cached_property
    def axis_of_pair(self) -> tuple[int, ...]:
        """The index of the axis that each pair reads, the first pair first."""
        sections = arrange_sections(self.arrangement, self.sections)
        return tuple(self.order[section] for section in sections)

    def pairs_of(self, axis: int) -> Int[np.ndarray, " pairs"]:
        """Return the pairs that an axis moves, in the order of the head."""
        return np.flatnonzero(np.asarray(self.axis_of_pair) == axis)

    def lay_out(self, head: Frequencies, base: float) -> Frequencies:
        """Return the frequency of each pair.

        ``head`` has the frequencies of the whole head, perhaps scaled for a longer
        context. If an axis has its own frequencies, these are never scaled.
        """
        if self.ladder == "head":
            return head

        frequencies = np.empty_like(head)
        for axis in range(self.count):
            pairs = self.pairs_of(axis)
            if not len(pairs):
                continue
            if self.ladder == "section":
                frequencies[pairs] = inverse_frequencies(2 * len(pairs), base)
            else:
                # The axis has the head's frequencies with these indices.
                indices = axis + self.count * np.arange(len(pairs))
                frequencies[pairs] = np.float64(base) ** (-indices / len(head))
        return frequencies

    def coordinates(
        self,
        positions: Positions,
        sizes: Sequence[int] = (),
    ) -> Float[np.ndarray, "axes n"]:
        """Return the numbers by which frequencies are multiplied, a row for each axis.

        Args:
            positions: whole numbers from 0, such as rows and columns of patches.
            sizes: the number of patches along each axis, which centred axes need. By
                default the largest positions are the last patches.
        """
        numbers = positions.astype(np.float64)
        if not self.centred:
            return numbers
        lengths = np.array(sizes or positions.max(axis=-1) + 1, dtype=np.float64)
        # The middles of the patches, where -1 and 1 are the edges of the image.
        middles = (2 * numbers + 1) / lengths[:, None] - 1
        return 2 * math.pi * middles

    def angles(
        self,
        positions: Positions,
        inv_freq: Frequencies,
        sizes: Sequence[int] = (),
    ) -> Float[np.ndarray, "n pairs"]:
        """Return the angle of every pair at every position, in radians."""
        coordinates = self.coordinates(positions, sizes)
        coordinates_of_pairs = coordinates[list(self.axis_of_pair)]  # [pairs, n]
        return coordinates_of_pairs.T * inv_freq


def arrange_sections(
    arrangement: Arrangement, sections: Sequence[int]
) -> tuple[int, ...]:
    """Return the section of each pair; ``sections`` has their numbers of pairs.

    >>> arrange_sections("runs", (1, 2)), arrange_sections("turns", (3, 1, 1))
    ((0, 1, 1), (0, 1, 2, 0, 0))
    >>> arrange_sections("last behind", (2, 2, 1))
    (0, 1, 0, 1, 2)
    """
    if arrangement == "runs":
        return tuple(find_axis_of_pairs("mrope", sections).tolist())
    if arrangement == "turns":
        return tuple(find_axis_of_pairs("mrope_interleaved", sections).tolist())

    pairs_left = list(sections[:-1])
    section_of_pair = []
    while any(pairs_left):
        for section, pairs in enumerate(pairs_left):
            if pairs > 0:
                section_of_pair.append(section)
                pairs_left[section] -= 1
    last = len(sections) - 1
    section_of_pair += [last] * sections[last]
    return tuple(section_of_pair)


def describe_pairs(axis_of_pair: Sequence[int], names: Sequence[str]) -> str:
    """Return which pairs read which axis, in words.

    >>> describe_pairs((0, 0, 1, 2), ("time", "height", "width"))
    'pairs 0 to 1 time, 2 height, 3 width'
    >>> describe_pairs((0, 1, 2, 0, 1, 2, 0, 0), ("time", "height", "width"))
    'pairs 0 to 5 time, height, width in turns, 6 to 7 time'
    """
    parts = []
    start = 0
    while start < len(axis_of_pair):
        pattern, stop = find_stretch(axis_of_pair, start)
        pairs = f"{start} to {stop - 1}"
        if stop == start + 1:
            pairs = str(start)
        words = ", ".join(names[axis] for axis in pattern)
        if len(pattern) > 1:
            words += " in turns"
        parts.append(f"{pairs} {words}")
        start = stop
    return f"pairs {', '.join(parts)}"


def find_stretch(
    axis_of_pair: Sequence[int],
    start: int,
) -> tuple[tuple[int, ...], int]:
    """Return the pattern of axes that repeats from pair ``start`` on, and its end.

    The end is the first pair after the last whole repetition. The pattern is the
    shortest one of different axes that comes at least twice. If nothing repeats, the
    pattern is the axis of one pair.
    """
    axes_from_start = tuple(axis_of_pair[start:])
    axes = max(axes_from_start) + 1
    for period in range(1, axes + 1):
        pattern = axes_from_start[:period]
        repeats = 1
        while axes_from_start[repeats * period : (repeats + 1) * period] == pattern:
            repeats += 1
        has_different_axes = len(set(pattern)) == period
        if has_different_axes and repeats > 1:
            return pattern, start + repeats * period
    return axes_from_start[:1], start + 1
