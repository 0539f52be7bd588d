"""Find which axis of positions moves each pair of a code, and name mistakes.

Text has equal positions on all axes, so that text does not show which pair reads which
axis. Here one axis moves at a time, then all axes move by random numbers, and the
tables that a code returned are compared with the tables of every known mistake.
"""

from itertools import chain, product

import numpy as np

from ropelab.conformance.axes_mistakes import list_bases, list_ladders, list_movements
from ropelab.conformance.axes_positions import list_steps
from ropelab.conformance.axes_reference import (
    Reference,
    list_right_orders,
    make_reference,
    measure_differences,
)
from ropelab.conformance.axes_slow_pairs import describe_other_axis, explain_slow_pairs
from ropelab.conformance.axes_wrong_positions import list_other_positions
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import (
    UNBOUNDED_TABLES,
    Fault,
    Observed,
    are_bounded,
)
from ropelab.math.axes import Positions, describe_pairs
from ropelab.runs.arrays import Bool
from ropelab.runs.sentences import join_names

# The largest change of cos and sin of a pair that counts as standing still.
LARGEST_STILL_CHANGE = 1e-3


def explain_movement(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> Fault | None:
    """Name pairs that move with another axis, or by other angles, than they should."""
    if not (are_bounded(observed.cos) and are_bounded(observed.sin)):
        return UNBOUNDED_TABLES

    right = make_reference(expected, positions)
    columns = observed.cos.shape[1]
    if columns != len(right.inv_freq):
        answer = f"{columns} columns for {len(right.inv_freq)} pairs"
        return answer, "one column per pair, or each angle twice"

    # Right code may have the patches of an image row by row or block by block.
    orders = [*list_right_orders(right)]
    for ordered in orders:
        if right.is_like(observed, ordered.angles):
            return explain_slow_pairs(observed, ordered)
    for movement in chain.from_iterable(map(list_movements, orders)):
        if right.is_like(observed, movement.angles):
            return movement.answer, movement.fix

    # A mistake is described for the order of patches with the smallest mean difference.
    factor = right.spec.attention_factor

    def measure_mean(ordered: Reference) -> float:
        return float(measure_differences(observed, ordered.angles, factor).mean())

    return describe_measured(observed, min(orders, key=measure_mean))


def explain_axis_frequencies(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> Fault | None:
    """Name mistakes that also show where the positions on all axes are equal.

    These are frequencies of another ladder (other frequencies from the fastest to the
    slowest pair), another base of some axes, and wrong positions on only some axes.
    """
    right = make_reference(expected, positions)
    wrong_on_some_axes = list_other_positions(right, most_axes=right.axes.count - 1)
    for movement in chain(list_ladders(right), wrong_on_some_axes, list_bases(right)):
        if right.is_like(observed, movement.angles):
            return movement.answer, movement.fix
    return None


def describe_measured(observed: Observed, right: Reference) -> Fault:
    """Name the first pair that a wrong axis moves or, if there is none, the first pair
    with wrong angles.

    Which axes move a pair is seen from positions that differ along only one axis.
    """
    axes = right.axes
    moves = find_moving(observed, right.positions)  # [axes, pairs]
    should_move = np.zeros_like(moves)
    for pair, axis in enumerate(axes.axis_of_pair):
        should_move[axis, pair] = True
    # The steps may be too short to move a slow pair.
    is_visible = moves.any(axis=0)
    is_other = (moves != should_move).any(axis=0) & is_visible
    if is_other.any():
        pair = int(is_other.argmax())
        moving_axes = [axes.names[axis] for axis in np.flatnonzero(moves[:, pair])]
        answer, fix = describe_other_axis(right, pair, join_names(moving_axes))
        if len(moving_axes) > 1:
            answer += ": its two features, or its cos and sin, read different axes"
        elif moves.sum(axis=0).max() == 1:
            axis_of_pair = np.where(is_visible, moves.argmax(axis=0), axes.axis_of_pair)
            answer += f" ({describe_pairs(axis_of_pair.tolist(), axes.names)})"
        return answer, fix

    factor = right.spec.attention_factor
    errors = measure_differences(observed, right.angles, factor)
    excess = errors - right.allowed  # [n, pairs]
    wrong_pairs = np.flatnonzero((errors > right.allowed).any(axis=0))
    first = int(wrong_pairs[0])
    row = int(excess[:, first].argmax())
    position = ", ".join(str(number) for number in right.positions[:, row])
    name = axes.names[axes.axis_of_pair[first]]
    answer = (
        f"{len(wrong_pairs)} of {len(right.inv_freq)} pairs are rotated otherwise: pair"
        f" {first}, which reads {name}, is off by {errors[row, first]:.3g} at"
        f" ({position}); no known mistake explains it"
    )
    return answer, "compare cos and sin pair by pair"


def find_moving(
    observed: Observed,
    positions: Positions,
) -> Bool[np.ndarray, "axes pairs"]:
    """Return True where a step along only this axis moves the pair."""
    # The row of each position, which is a tuple with a number for each axis.
    row_of_position = {}
    for row, position in enumerate(positions.T.tolist()):
        row_of_position[tuple(position)] = row

    tables = np.stack([observed.cos, observed.sin])  # [2, n, pairs]
    axis_count = len(positions)
    moves = np.zeros((axis_count, observed.cos.shape[1]), dtype=bool)
    steps = list_steps(int(positions.max()) + 1)
    for position, row in row_of_position.items():
        for axis, step in product(range(axis_count), steps):
            moved = [*position]
            moved[axis] += step
            moved_row = row_of_position.get(tuple(moved))
            if moved_row is not None:
                changes = np.abs(tables[:, moved_row] - tables[:, row])
                moves[axis] |= changes.max(axis=0) > LARGEST_STILL_CHANGE
    return moves
