"""Name a sine or cosine that is only an approximation of the function.

The error of a polynomial, of a parabola or of a rounded argument depends only on the
angle less its whole turns. The error is the same function of that angle in every pair
and at every position. A wrong frequency or position would cause different errors in
different pairs and positions.
"""

import math

import numpy as np

from ropelab.conformance.angles import wrap_angles
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed, Table
from ropelab.conformance.usual import HALF_FORMATS
from ropelab.math.numerics.formats import FORMATS, round_to

# Numbers of steps in 1 of tables in fixed point, and the largest distance of an entry
# from a whole step, in steps.
STEPS_IN_ONE = (*range(4, 257), 127.5, *(2**bits - 1 for bits in range(9, 17)))
STEPS_IN_ONE += tuple(2**bits for bits in range(9, 17))
WHOLE = 0.02
# The error of an angle, in radians, that float32 may cause where angles are looked at.
RELIABLE_ERROR = 1e-3
# The least error of cos and sin that is explained. Smaller errors come from rounded
# tables.
LEAST_ERROR = 0.01
# The least error that is explained if only frequencies of slow pairs look wrong. These
# pairs meet a small part of a turn, so that a small error of cos and sin misleads more.
LEAST_OF_SLOW_PAIRS = 1e-3
# The largest error of an approximation. The sine of the wrong sign, or of twice the
# angle, is further off.
LARGEST_ERROR = 0.75
# The fewest angles that show a smooth function. Fewer angles are too far apart.
ENOUGH_ANGLES = 200
# The largest change of the error of a smooth function from one angle to the next, as a
# share of the largest error, and the share of all angles at which the change is
# smaller.
LARGEST_CHANGE = 0.15
SMOOTH_SHARE = 0.95
# The least share of all angles that have an error. An error that fewer angles have is
# not a property of the function.
LEAST_WRONG_SHARE = 0.15
# Two angles of different pairs count as one angle up to this distance, in units of the
# largest error. A function that comes in steps (CORDIC) has nearly the same error there
# in this share of all cases.
NEAR = 0.05
EQUAL_SHARE = 0.85
# The fewest such cases from which something follows.
ENOUGH_NEAR = 30


def find_table_steps(observed: Observed, expected: Expected) -> float:
    """Return the steps in 1 of a table in fixed point that has no other error; or 0.

    Kernels for integers hold cos and sin as whole numbers of 1 / 127 or of 2^-15.
    """
    tables = np.stack([observed.cos, observed.sin])
    for steps in STEPS_IN_ONE:
        in_steps = tables * steps
        if np.abs(in_steps - np.round(in_steps)).max() > WHOLE:
            continue

        right = expected.inv_freq * observed.positions[:, None]
        lost_in_float32 = expected.budget().angles(observed.positions)
        errors = np.abs(
            tables - observed.gain * np.stack([np.cos(right), np.sin(right)])
        )
        # A rounded number is off by half a step, and by a whole one if it is cut.
        is_explained = errors <= (1 + 2 * WHOLE) / steps + lost_in_float32
        if is_explained.all():
            return steps
    return 0.0


def explain_sine(
    observed: Observed, expected: Expected, least_error: float = LEAST_ERROR
) -> Fault | None:
    """Name what is wrong with cos and sin as functions of the angle; None: nothing.

    ``least_error``: smaller errors of cos and sin are not looked at.
    """
    right = expected.inv_freq * observed.positions[:, None]
    if observed.cos.shape != right.shape or not observed.gain:
        return None
    lost_in_float32 = expected.budget().angles(observed.positions)
    is_reliable = lost_in_float32 < least_error / 10
    angles = right[is_reliable]
    _, pairs = np.nonzero(is_reliable)
    cos = observed.cos[is_reliable] / observed.gain
    sin = observed.sin[is_reliable] / observed.gain
    if angles.size < ENOUGH_ANGLES:
        return None

    errors = np.stack([cos - np.cos(angles), sin - np.sin(angles)], axis=1)
    largest = float(np.abs(errors).max())
    if not least_error <= largest <= LARGEST_ERROR:
        return None
    rounded = name_rounded_argument(np.arctan2(sin, cos), angles)
    if rounded:
        answer = f"angles less their whole turns are rounded to {rounded}"
        return answer, "keep the angle in float32 until its sin and cos are taken"
    reduced = angles % math.tau
    if not (
        is_smooth_function(errors, reduced)
        or is_equal_across_pairs(errors, reduced, pairs)
    ):
        return None

    worst = int(np.abs(errors).max(axis=1).argmax())
    answer = (
        f"cos and sin are approximated too coarsely: off by {largest:.3g} where the angle"
        f" is {wrap_angles(angles)[worst]:.3g} rad"
    )
    return answer, "use sin and cos, or a polynomial for at most a quarter of a turn"


def name_rounded_argument(observed: Table, angles: Table) -> str:
    """Return the format to which angles are rounded after the reduction; empty: none."""
    # Right angles are also near to rounded angles.
    if np.abs(wrap_angles(observed - angles)).max() < 2 * RELIABLE_ERROR:
        return ""
    reductions = (angles % math.tau, wrap_angles(angles))
    for name in HALF_FORMATS:
        for reduced in reductions:
            rounded = round_to(reduced, FORMATS[name])
            if np.abs(wrap_angles(observed - rounded)).max() < 2 * RELIABLE_ERROR:
                return name
    return ""


def is_smooth_function(errors: Table, reduced: Table) -> bool:
    """Return True if errors [n, 2] are a smooth function of angles [n]."""
    order = np.argsort(reduced)
    ordered = errors[order]
    # Angles near 0 belong to slow pairs, which any code gets right.
    is_large = reduced[order] > LEAST_ERROR
    changes = np.abs(np.diff(ordered[is_large], axis=0)).max(axis=1)
    largest = np.abs(errors).max()
    is_wrong = np.abs(ordered[is_large]).max(axis=1) > largest / 10
    if is_wrong.mean() < LEAST_WRONG_SHARE:
        return False
    return bool(np.quantile(changes, SMOOTH_SHARE) < LARGEST_CHANGE * largest)


def is_equal_across_pairs(errors: Table, reduced: Table, pairs: Table) -> bool:
    """Return True if errors [n, 2] are the same where two pairs have one angle [n].

    A function with steps is not smooth from one angle to the next.
    """
    largest = np.abs(errors).max()
    is_wrong = np.abs(errors).max(axis=1) > largest / 10
    is_large = reduced > largest
    if (is_wrong & is_large).mean() < LEAST_WRONG_SHARE:
        return False

    order = np.argsort(reduced[is_large])
    gaps = np.diff(reduced[is_large][order])
    changes = np.abs(np.diff(errors[is_large][order], axis=0)).max(axis=1)
    is_other_pair = np.diff(pairs[is_large][order]) != 0
    changes = changes[(gaps < NEAR * largest) & is_other_pair]
    if changes.size < ENOUGH_NEAR:
        return False
    return bool(np.quantile(changes, EQUAL_SHARE) < LARGEST_CHANGE * largest)
