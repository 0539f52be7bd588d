"""Pairs that turn so little that their tables hardly show which axis they read."""

from collections.abc import Sequence

import numpy as np

from ropelab.conformance.axes_reference import (
    Reference,
    list_right_orders,
    make_reference,
    measure_differences,
)
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed
from ropelab.math.axes import Positions, describe_pairs
from ropelab.runs.arrays import Float
from ropelab.runs.sentences import join_names

# A pair reads an axis if its tables are so many times nearer to those of that axis than
# the tables of the two axes are to each other.
CLEAR = 4


def explain_slow_pairs(observed: Observed, right: Reference) -> Fault | None:
    """Name pairs that differ too little to be far off, but follow another axis."""
    distances = measure_distances(observed, right)
    names = right.axes.names
    for pair, axis in enumerate(right.axes.axis_of_pair):
        nearest = int(distances[:, pair].argmin())
        apart = measure_separation(right, pair, axis, nearest)
        if nearest != axis and CLEAR * distances[nearest, pair] < apart:
            return describe_other_axis(right, pair, names[nearest])
    return None


def find_untold_pairs(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> list[int]:
    """Return the pairs whose tables do not show which axis moves them.

    These turn so little at the positions that were looked at that the rounding of the
    tables hides it.
    """
    right = make_reference(expected, positions)
    for placed in list_right_orders(right):
        if right.is_like(observed, placed.angles):
            right = placed
    distances = measure_distances(observed, right)

    untold = []
    for pair, axis in enumerate(right.axes.axis_of_pair):
        others = {*range(right.axes.count)} - {axis}
        apart = min(measure_separation(right, pair, axis, other) for other in others)
        if CLEAR * distances[axis, pair] >= apart and right.inv_freq[pair]:
            untold.append(pair)
    return untold


def measure_distances(
    observed: Observed,
    right: Reference,
) -> Float[np.ndarray, "axes pairs"]:
    """Return how far each pair's tables are from those of each axis at most."""
    distances = []
    for coordinates in right.coordinates:
        angles = coordinates[:, None] * right.inv_freq
        factor = right.spec.attention_factor
        distances.append(measure_differences(observed, angles, factor).max(axis=0))
    return np.array(distances)


def measure_separation(right: Reference, pair: int, axis: int, other: int) -> float:
    """Return how far the tables of two axes are from each other at most, for a pair."""
    angles = right.coordinates[[axis, other]] * right.inv_freq[pair]
    cos_difference = np.abs(np.diff(np.cos(angles), axis=0)).max()
    sin_difference = np.abs(np.diff(np.sin(angles), axis=0)).max()
    return float(right.spec.attention_factor * max(cos_difference, sin_difference))


def describe_other_axis(right: Reference, pair: int, moving: str) -> Fault:
    axes = right.axes
    wanted = axes.names[axes.axis_of_pair[pair]]
    answer = (
        "pairs read other axes of the position than configured:"
        f" pair {pair} moves with {moving}, not with {wanted}"
    )
    return answer, describe_pairs(axes.axis_of_pair, axes.names)


def describe_untold(pairs: Sequence[int], positions: Positions) -> str:
    """Return which pairs were not judged, by number, as words behind what is right."""
    if not pairs:
        return ""
    stretches: list[list[int]] = []
    for pair in pairs:
        if stretches and stretches[-1][-1] == pair - 1:
            stretches[-1].append(pair)
        else:
            stretches.append([pair])
    words = []
    for stretch in stretches:
        word = str(stretch[0])
        if len(stretch) > 1:
            word += f" to {stretch[-1]}"
        words.append(word)
    noun = "pair" if len(pairs) == 1 else "pairs"
    return (
        f", but for {noun} {join_names(words)}, which turn too little up to position"
        f" {positions.max()} to show which axis moves them"
    )
