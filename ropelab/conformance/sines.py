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

# Angles are looked at where float32 loses less, in radians.
RELIABLE = 1e-3
# Smaller errors come from rounded tables.
LEAST_ERROR = 0.01
# Smaller ones still make the frequencies of slow pairs look wrong, as these pairs meet a
# small part of a turn.
LEAST_OF_SLOW_PAIRS = 1e-3
# No approximation is further off: a sine of the wrong sign or of twice the angle is.
LARGEST_ERROR = 0.75
# Fewer angles are too far apart to tell a smooth function.
ENOUGH_ANGLES = 200
# From one angle to the next the error of a smooth function changes by a smaller share of
# the largest error, in most places.
SMOOTH = 0.15
# Angles of two pairs that are nearer, in largest errors, have the same error by a function
# that comes in steps (CORDIC).
NEAR = 0.05
# Fewer such angles tell nothing.
ENOUGH_NEAR = 30


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
    if not (is_function(errors, reduced) or is_alike(errors, reduced, pairs)):
        return None

    worst = int(np.abs(errors).max(axis=1).argmax())
    answer = (
        f"cos and sin are approximated too coarsely: off by {largest:.3g} where the angle"
        f" is {wrap_angles(angles)[worst]:.3g} rad"
    )
    return answer, "use sin and cos, or a polynomial for at most a quarter of a turn"


def name_rounded_argument(observed: Table, angles: Table) -> str:
    """Return the format to which angles are rounded after the reduction; or nothing."""
    # Angles that are right are near rounded ones, too.
    if np.abs(wrap_angles(observed - angles)).max() < 2 * RELIABLE:
        return ""
    reductions = (angles % math.tau, wrap_angles(angles))
    for name in HALF_FORMATS:
        for reduced in reductions:
            rounded = round_to(reduced, FORMATS[name])
            if np.abs(wrap_angles(observed - rounded)).max() < 2 * RELIABLE:
                return name
    return ""


def is_function(errors: Table, reduced: Table) -> bool:
    """Return True if errors [n, 2] are a smooth function of angles [n]."""
    order = np.argsort(reduced)
    ordered = errors[order]
    # Angles near 0 belong to slow pairs, which any code gets right.
    is_large = reduced[order] > LEAST_ERROR
    changes = np.abs(np.diff(ordered[is_large], axis=0)).max(axis=1)
    largest = np.abs(errors).max()
    is_wrong = np.abs(ordered[is_large]).max(axis=1) > largest / 10
    # An error that only a few angles have is not a property of the function.
    if is_wrong.mean() < SMOOTH:
        return False
    return bool(np.quantile(changes, 0.95) < SMOOTH * largest)


def is_alike(errors: Table, reduced: Table, pairs: Table) -> bool:
    """Return True if errors [n, 2] are the same where two pairs have one angle [n].

    A function with steps is not smooth from one angle to the next.
    """
    largest = np.abs(errors).max()
    is_wrong = np.abs(errors).max(axis=1) > largest / 10
    is_large = reduced > largest
    if (is_wrong & is_large).mean() < SMOOTH:
        return False

    order = np.argsort(reduced[is_large])
    gaps = np.diff(reduced[is_large][order])
    changes = np.abs(np.diff(errors[is_large][order], axis=0)).max(axis=1)
    is_other_pair = np.diff(pairs[is_large][order]) != 0
    changes = changes[(gaps < NEAR * largest) & is_other_pair]
    if changes.size < ENOUGH_NEAR:
        return False
    return bool(np.quantile(changes, 1 - SMOOTH) < SMOOTH * largest)
