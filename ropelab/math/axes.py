"""Positions of several axes: which of them moves each pair of a head, and how fast.

At position p, which has a number per axis, the angle of pair i is
``inv_freq_i * rate_a * (p_a - origin_a)``, where a is the axis that pair i reads. Text
has equal numbers on all axes, so that it does not show which pair reads which. Read
from the rotary classes of transformers 5.23.0: models of images and text (Qwen2-VL,
Qwen3-VL, ERNIE 4.5 VL) share one ladder of frequencies among the axes, encoders of
images (Qwen's, Pixtral's, DINOv3's) give each axis a ladder of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ropelab.math.frequencies import Frequencies, inverse_frequencies
from ropelab.math.rotary import axis_of_pairs
from ropelab.runs.arrays import Float, Int

# Where the frequencies of an axis' pairs come from. head: pair i of the head has the
# head's frequency i, whatever its axis. section: the pairs of an axis have the
# frequencies of a head of their width. alternating: the a-th of n axes has the head's
# frequencies a, a + n, a + 2 n, ... (Pixtral).
Ladder = Literal["head", "section", "alternating"]
# Which pairs an axis has. runs: one axis after another. turns: the axes alternate as
# far as their counts go (Qwen3-VL). last behind: all axes but the last of the sections
# alternate, and the last one follows (ERNIE 4.5 VL).
Arrangement = Literal["runs", "turns", "last behind"]

Positions = Int[np.ndarray, "axes n"]


@dataclass(frozen=True)
class Axes:
    """The axis of each pair, and the frequencies that the pairs of an axis have."""

    names: tuple[str, ...]
    # Pairs of each section.
    sections: tuple[int, ...]
    # The axis of each section.
    order: tuple[int, ...]
    arrangement: Arrangement = "runs"
    ladder: Ladder = "head"
    # True if the rows and columns of an image's patches run from -1 at one edge to 1 at
    # the other, and a pair of frequency 1 turns once per unit (DINOv3). Otherwise they
    # are counted from 0, and such a pair turns by one radian per step.
    centred: bool = False
    # Patches are listed block by block: the side of a block in patches.
    block: int = 1

    @property
    def count(self) -> int:
        return len(self.names)

    @cached_property
    def axis_of_pair(self) -> tuple[int, ...]:
        """The index of the axis that each pair reads, the first pair first."""
        sections = arrange(self.arrangement, self.sections)
        return tuple(self.order[section] for section in sections)

    def pairs_of(self, axis: int) -> Int[np.ndarray, " pairs"]:
        """Return the pairs that an axis moves, in the order of the head."""
        return np.flatnonzero(np.asarray(self.axis_of_pair) == axis)

    def lay_out(self, head: Frequencies, base: float) -> Frequencies:
        """Return the frequency of each pair, from those of the whole head.

        A ladder of an axis' own is never scaled.
        """
        if self.ladder == "head":
            return head

        laid_out = np.empty_like(head)
        for axis in range(self.count):
            pairs = self.pairs_of(axis)
            if not len(pairs):
                continue
            if self.ladder == "section":
                laid_out[pairs] = inverse_frequencies(2 * len(pairs), base)
            else:
                steps = axis + self.count * np.arange(len(pairs))
                laid_out[pairs] = np.float64(base) ** (-steps / len(head))
        return laid_out

    def coordinates(
        self,
        positions: Positions,
        sizes: Sequence[int] = (),
    ) -> Float[np.ndarray, "axes n"]:
        """Return what frequencies are multiplied by, an axis a row.

        Args:
            positions: whole numbers from 0, such as rows and columns of patches.
            sizes: patches along each axis, of a centred one; by default up to the last.
        """
        exact = positions.astype(np.float64)
        if not self.centred:
            return exact
        lengths = np.array(sizes or positions.max(axis=-1) + 1, dtype=np.float64)
        between = (2 * exact + 1) / lengths[:, None] - 1
        return 2 * math.pi * between

    def angles(
        self,
        positions: Positions,
        inv_freq: Frequencies,
        sizes: Sequence[int] = (),
    ) -> Float[np.ndarray, "n pairs"]:
        """Return the angle of every pair at every position, in radians."""
        coordinates = self.coordinates(positions, sizes)
        return coordinates[list(self.axis_of_pair)].T * inv_freq


def arrange(arrangement: Arrangement, sections: Sequence[int]) -> tuple[int, ...]:
    """Return the section of each pair; ``sections`` counts their pairs.

    >>> arrange("runs", (1, 2)), arrange("turns", (3, 1, 1))
    ((0, 1, 1), (0, 1, 2, 0, 0))
    >>> arrange("last behind", (2, 2, 1))
    (0, 1, 0, 1, 2)
    """
    if arrangement == "runs":
        return tuple(axis_of_pairs("mrope", sections).tolist())
    if arrangement == "turns":
        return tuple(axis_of_pairs("mrope_interleaved", sections).tolist())

    left = list(sections[:-1])
    axis_of_pair = []
    while any(left):
        for axis, pairs in enumerate(left):
            if pairs > 0:
                axis_of_pair.append(axis)
                left[axis] -= 1
    last = len(sections) - 1
    return (*axis_of_pair, *[last] * sections[last])


def describe_pairs(axis_of_pair: Sequence[int], names: Sequence[str]) -> str:
    """Return which axis moves which pairs, in words.

    >>> describe_pairs((0, 0, 1, 2), ("time", "height", "width"))
    'pairs 0 to 1 time, 2 height, 3 width'
    >>> describe_pairs((0, 1, 2, 0, 1, 2, 0, 0), ("time", "height", "width"))
    'pairs 0 to 5 time, height, width in turns, 6 to 7 time'
    """
    parts = []
    start = 0
    while start < len(axis_of_pair):
        turn, stop = find_stretch(axis_of_pair, start)
        pairs = f"{start} to {stop - 1}"
        if stop == start + 1:
            pairs = str(start)
        words = ", ".join(names[axis] for axis in turn)
        if len(turn) > 1:
            words += " in turns"
        parts.append(f"{pairs} {words}")
        start = stop
    return f"pairs {', '.join(parts)}"


def find_stretch(
    axis_of_pair: Sequence[int],
    start: int,
) -> tuple[tuple[int, ...], int]:
    """Return the axes that repeat from a pair on, and the pair where they end.

    A stretch of one axis is taken if its second pair has the same one; otherwise the
    shortest pattern of different axes that comes at least twice, up to its last whole
    repetition.
    """
    whole = tuple(axis_of_pair[start:])
    for period in range(1, max(whole) + 2):
        turn = whole[:period]
        repeats = 1
        while whole[repeats * period : (repeats + 1) * period] == turn:
            repeats += 1
        is_pattern = len(set(turn)) == period
        if is_pattern and repeats > 1:
            return turn, start + repeats * period
    return whole[:1], start + 1
