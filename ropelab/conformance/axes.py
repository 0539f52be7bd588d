"""Codes whose positions have several axes: what moves each pair.

Text has equal positions on all axes, so that it passes whichever pair reads which. Here
one axis moves at a time, then all by random numbers, and the tables that a code gave
are compared with those of every known mistake.
"""

from itertools import chain

import numpy as np

from ropelab.conformance.axes_mistakes import list_ladders, list_movements
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
from ropelab.conformance.observation import Fault, Observed
from ropelab.math.axes import Positions
from ropelab.runs.sentences import join_names

# Radians per step by which a pair's measured movement may be off.
CLOSE = 1e-3


def explain_movement(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> Fault | None:
    """Name pairs that move with another axis, or by other angles, than they should."""
    right = make_reference(expected, positions)
    columns = observed.cos.shape[1]
    if columns != len(right.inv_freq):
        answer = f"{columns} columns for {len(right.inv_freq)} pairs"
        return answer, "one column per pair, or each angle twice"

    for placed in list_right_orders(right):
        if right.is_like(observed, placed.angles):
            return explain_slow_pairs(observed, placed)
    for movement in list_movements(right):
        if right.is_like(observed, movement.angles):
            return movement.answer, movement.fix
    return describe_measured(observed, right)


def explain_axis_frequencies(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> Fault | None:
    """Name what equal positions show, too: frequencies of another ladder, or positions
    of some axes alone that are shifted or multiplied.
    """
    right = make_reference(expected, positions)
    axes = right.axes
    ladders = list_ladders(right.spec, right.inv_freq, right.coordinates)
    of_some_axes = list_other_positions(
        axes, right.inv_freq, right.positions, most_axes=axes.count - 1
    )
    for movement in chain(ladders, of_some_axes):
        if right.is_like(observed, movement.angles):
            return movement.answer, movement.fix
    return None


def describe_measured(observed: Observed, right: Reference) -> Fault:
    """Say which axes move which pairs, from tokens that differ along one axis."""
    axes = right.axes
    seen = find_moving(observed, right.positions)
    wanted = np.zeros_like(seen)
    for pair, axis in enumerate(axes.axis_of_pair):
        wanted[axis, pair] = True
    # Slow pairs may not show within the steps that were asked for.
    is_visible = seen.any(axis=0)
    is_other = (seen != wanted).any(axis=0) & is_visible
    if is_other.any():
        pair = int(np.flatnonzero(is_other)[0])
        moving = [axes.names[axis] for axis in np.flatnonzero(seen[:, pair])]
        return describe_other_axis(right, pair, join_names(moving))

    factor = right.spec.attention_factor
    errors = measure_differences(observed, right.angles, factor)
    wrong = np.flatnonzero((errors > right.allowed).any(axis=0))
    first = int(wrong[0])
    place = int((errors - right.allowed)[:, first].argmax())
    where = ", ".join(str(number) for number in right.positions[:, place])
    name = axes.names[axes.axis_of_pair[first]]
    answer = (
        f"{len(wrong)} of {len(right.inv_freq)} pairs are rotated otherwise: pair"
        f" {first}, which reads {name}, is off by {errors[place, first]:.3g} at"
        f" ({where}); no known mistake explains it"
    )
    return answer, "compare cos and sin pair by pair"


def find_moving(observed: Observed, positions: Positions) -> np.ndarray:
    """Return True [axes, pairs] where a step along one axis alone moves a pair."""
    columns = [tuple(column) for column in positions.T.tolist()]
    rows = {column: row for row, column in enumerate(columns)}
    tables = np.stack([observed.cos, observed.sin])
    moving = np.zeros((len(positions), observed.cos.shape[1]), dtype=bool)
    for column, row in rows.items():
        for axis in range(len(positions)):
            for step in list_steps(int(positions.max()) + 1):
                moved = (*column[:axis], column[axis] + step, *column[axis + 1 :])
                if moved in rows:
                    change = np.abs(tables[:, rows[moved]] - tables[:, row])
                    moving[axis] |= change.max(axis=0) > CLOSE
    return moving
