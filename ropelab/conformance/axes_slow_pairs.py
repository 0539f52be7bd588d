"""Pairs of features that turn so slowly that their tables, which hold cos and sin,
hardly show which axis of the position moves them.

An implementation under test is asked at some positions. Up to the largest of them the
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

# Two numbers say whether it is clear that an axis moves a pair, and not another axis:
# distance: how far the pair's tables are from the right tables of the axis.
# separation: how far the right tables of both axes are from each other.
# It is clear if CLEAR_RATIO * distance < separation.
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
    reference = make_reference(expected, positions)
    # Right code may have the patches of an image row by row or block by block. The
    # tables are compared with those of the order that was seen.
    right = reference
    for ordered in list_right_orders(reference):
        if reference.is_like(observed, ordered.angles):
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


def describe_other_axis(right: Reference, pair: int, seen_axes: str) -> Fault:
    """Name a pair that moves with an axis, or axes, that it should not read.

    ``seen_axes``: the name of the axis, or the names of the axes joined.
    """
    axes = right.axes
    right_axis = axes.names[axes.axis_of_pair[pair]]
    answer = (
        "pairs read other axes of the position than configured:"
        f" pair {pair} moves with {seen_axes}, not with {right_axis}"
    )
    # The user is told which axis each pair should read.
    fix = describe_pairs(axes.axis_of_pair, axes.names)
    return answer, fix


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
