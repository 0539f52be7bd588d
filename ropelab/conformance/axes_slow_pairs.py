"""Pairs that turn so slowly that their tables hardly show which axis they read.

A code is an implementation under test. Over the positions at which it is asked, the
slowest pairs turn by little, so that even the tables of a wrong axis are within the
allowed error. A slow pair is called wrong if its tables are much nearer to the tables
of another axis. If they are near to the tables of both axes, the pair is called
undecided.
"""

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

# A pair reads an axis if the distance between the right tables of this axis and of
# another axis is at least this many times the distance of the pair's tables from the
# right tables of this axis.
CLEAR_RATIO = 4


def explain_slow_pairs(observed: Observed, right: Reference) -> Fault | None:
    """Name a pair whose tables are much nearer to the tables of another axis than to
    the tables of its right axis.
    """
    distances = measure_distances(observed, right)
    names = right.axes.names
    for pair, axis in enumerate(right.axes.axis_of_pair):
        nearest = int(distances[:, pair].argmin())
        if nearest == axis:
            continue
        separation = measure_separation(right, pair, axis, nearest)
        if CLEAR_RATIO * distances[nearest, pair] < separation:
            return describe_other_axis(right, pair, names[nearest])
    return None


def find_undecided_pairs(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> list[int]:
    """Return the numbers of the pairs whose tables do not show which axis moves them.

    Pairs of frequency 0 are left out, since no axis moves them.
    """
    right = make_reference(expected, positions)
    for ordered in list_right_orders(right):
        if right.is_like(observed, ordered.angles):
            right = ordered
    distances = measure_distances(observed, right)

    undecided = []
    for pair, axis in enumerate(right.axes.axis_of_pair):
        separations = []
        for other in range(right.axes.count):
            if other != axis:
                separations.append(measure_separation(right, pair, axis, other))
        is_clear = CLEAR_RATIO * distances[axis, pair] < min(separations)
        if right.inv_freq[pair] and not is_clear:
            undecided.append(pair)
    return undecided


def measure_distances(
    observed: Observed,
    right: Reference,
) -> Float[np.ndarray, "axes pairs"]:
    """Return the largest difference of each pair's tables from the tables that the pair
    would have on each axis.
    """
    factor = right.spec.attention_factor
    distances = []
    for coordinates in right.coordinates:
        angles = coordinates[:, None] * right.inv_freq
        differences = measure_differences(observed, angles, factor)
        distances.append(differences.max(axis=0))
    return np.array(distances)


def measure_separation(right: Reference, pair: int, axis: int, other: int) -> float:
    """Return the largest difference between a pair's right tables on two axes."""
    angles = right.coordinates[[axis, other]] * right.inv_freq[pair]  # [2, n]
    cos_difference = np.abs(np.diff(np.cos(angles), axis=0)).max()
    sin_difference = np.abs(np.diff(np.sin(angles), axis=0)).max()
    return float(right.spec.attention_factor * max(cos_difference, sin_difference))


def describe_other_axis(right: Reference, pair: int, moving: str) -> Fault:
    """Name a pair that moves with an axis, or axes, that it should not read."""
    axes = right.axes
    right_axis = axes.names[axes.axis_of_pair[pair]]
    answer = (
        "pairs read other axes of the position than configured:"
        f" pair {pair} moves with {moving}, not with {right_axis}"
    )
    return answer, describe_pairs(axes.axis_of_pair, axes.names)


def describe_undecided(pairs: Sequence[int], positions: Positions) -> str:
    """Return the end of an answer, which names the pairs that were not judged."""
    if not pairs:
        return ""

    # Pairs that follow each other are named together, as `3 to 5`.
    first_pairs = [pair for pair in pairs if pair - 1 not in pairs]
    last_pairs = [pair for pair in pairs if pair + 1 not in pairs]
    words = []
    for first, last in zip(first_pairs, last_pairs, strict=True):
        if first == last:
            words.append(str(first))
        else:
            words.append(f"{first} to {last}")

    noun = "pair" if len(pairs) == 1 else "pairs"
    return (
        f", but for {noun} {join_names(words)}, which turn too little up to position"
        f" {positions.max()} to show which axis moves them"
    )
