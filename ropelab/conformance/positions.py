"""Mistakes in positions, recovered from the angles that a code gave."""

import numpy as np

from ropelab.conformance.angles import TABLE_ERROR, wrap_angles
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed, Positions, Table
from ropelab.conformance.usual import FACTORS, HALF_FORMATS
from ropelab.math.frequencies import Frequencies
from ropelab.math.numerics.formats import FORMATS, round_to

# So many pairs fix a position: with fewer, another one may fit as well.
ENOUGH_PAIRS = 8
# Tokens that share a position in Self-Extend.
GROUPS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64)
FROM_ZERO = "count positions from 0"
ENDS = "look at where the table ends and at what positions are counted from"


def explain_positions(observed: Observed, expected: Expected) -> Fault | None:
    """Name positions that are not used, shifted, rounded, or rotated as others are."""
    tables = (observed.cos, observed.sin)
    stands_still = all((table == table[0]).all() for table in tables)
    if stands_still and observed.sin.any():
        return "every position is rotated alike", "angle = position * inv_freq"

    order = np.argsort(observed.positions)
    # Farther on, an honest code in float32 has lost its angles.
    lost = expected.budget().angles(observed.positions[order])
    order = order[(lost < 1).all(axis=1)]
    positions = observed.positions[order]
    angles = np.arctan2(observed.sin, observed.cos)[order]
    right = expected.inv_freq
    if angles.shape[1] != len(right):
        return None

    recovered = recover_positions(angles, positions, right)
    shift = find_broken_shift(recovered - positions, angles, positions, right)
    if shift:
        return f"positions are shifted by {shift:g}", FROM_ZERO

    recovered = np.round(recovered)
    honest = expected.budget().angles(np.maximum(recovered, 0))
    errors = np.abs(wrap_angles(angles - recovered[:, None] * right))
    if (errors < TABLE_ERROR + honest).all():
        return explain_recovered(positions, recovered, len(right))
    return explain_end(angles, positions)


def recover_positions(
    angles: Table, positions: Positions, inv_freq: Frequencies
) -> Frequencies:
    """Return the positions by which a code rotated, not rounded to whole numbers."""
    recovered = positions.astype(np.float64)
    still = int((inv_freq <= 0).sum())
    slow_to_fast = np.argsort(inv_freq)[still:]
    # Each pair is known up to whole rotations by the slower ones.
    for pair in slow_to_fast:
        theta = inv_freq[pair]
        ahead = recovered * theta - angles[:, pair]
        rotations = np.round(ahead / (2 * np.pi))
        recovered = (angles[:, pair] + 2 * np.pi * rotations) / theta
    return recovered


def explain_recovered(
    positions: Positions,
    recovered: Frequencies,
    pairs: int,
) -> Fault | None:
    """Name what makes whole positions into others that explain every angle."""
    moved = recovered - positions
    later = moved[positions > 0]
    if later[0] and (later == later[0]).all():
        answer = f"positions are shifted by {later[0]:.0f}"
        if not moved[0]:
            answer += " from 1 on"
        return answer, FROM_ZERO

    for step in FACTORS:
        floored = positions // step
        answers = {
            f"p // {step:g}": floored,
            f"rounded down to multiples of {step:g}": floored * step,
        }
        for how, wrong in answers.items():
            if np.array_equal(recovered, wrong):
                return f"positions are {how}", "divide positions as real numbers"

    answer = explain_small_integers(positions, recovered)
    if answer:
        return answer, "keep positions in 32 bits or more"
    answer = explain_groups(positions, recovered)
    if answer:
        return answer, "give each token its own position"
    if recovered[0] > 0 and not np.ptp(recovered + positions):
        return f"positions are counted back from {recovered[0]:.0f}", FROM_ZERO
    return explain_first_moved(positions, recovered, pairs)


def explain_first_moved(
    positions: Positions,
    recovered: Frequencies,
    pairs: int,
) -> Fault | None:
    """Name the first position that is rotated as another one."""
    changed = np.flatnonzero(recovered != positions)
    if pairs < ENOUGH_PAIRS or not len(changed):
        return None
    first = positions[changed[0]]
    # Where position 1 is right and a later one is not, a table ended or a counter did.
    if first < 2 <= positions[changed[-1]]:
        return None
    answer = f"position {first} is rotated as {recovered[changed[0]]:.0f}"
    for name in HALF_FORMATS:
        rounded = round_to(positions.astype(np.float64), FORMATS[name])
        if np.array_equal(recovered, rounded):
            answer = f"positions are rounded to {name}: {answer}"
            return answer, "keep positions in integers"
    return answer, ENDS


def explain_end(angles: Table, positions: Positions) -> Fault | None:
    """Name the end of a table whose last row stands for all positions beyond."""
    differences = np.abs(wrap_angles(angles - angles[-1]))
    is_last = differences.max(axis=1) < 1e-6
    end = int(is_last.argmax())
    if end < len(is_last) - 2 and is_last[end:].all():
        return f"position {positions[end + 1]} is rotated as {positions[end]}", ENDS
    return None


def find_broken_shift(
    moved: Frequencies,
    angles: Table,
    positions: Positions,
    right: Frequencies,
) -> float:
    """Return a shift by a fraction that all positions have alike, or 0."""
    later = moved[positions > 0]
    shift = round(float(np.median(later)), 2)
    if shift == round(shift) or np.abs(later - shift).max() > TABLE_ERROR:
        return 0.0

    shifted = positions + shift
    errors = np.abs(wrap_angles(angles - shifted[:, None] * right))
    # Far positions are left to the casts.
    is_near = positions < 4096
    if errors[is_near].max() < TABLE_ERROR:
        return shift
    return 0.0


def explain_small_integers(positions: Positions, recovered: Frequencies) -> str:
    """Name positions that a small integer does not hold."""
    changed = np.flatnonzero(recovered != positions)
    if not len(changed):
        return ""

    first = changed[0]
    for bits in (8, 16):
        size = 2**bits
        half = size // 2
        numbers = {
            f"int{bits}": (positions + half) % size - half,
            f"uint{bits}": positions % size,
        }
        for kind, held in numbers.items():
            if np.array_equal(recovered, held):
                return (
                    f"positions are held in {kind}: position {positions[first]} is"
                    f" rotated as {recovered[first]:.0f}"
                )
    return ""


def explain_groups(positions: Positions, recovered: Frequencies) -> str:
    """Name positions that are divided from some position on, as Self-Extend does."""
    changed = np.flatnonzero(recovered != positions)
    if len(changed) < 3 or changed[0] < 2:
        return ""

    places = positions[changed]
    for group in GROUPS:
        rests = recovered[changed] - places // group
        if np.ptp(rests):
            continue
        added = rests[-1]
        if added == 0:
            return f"positions are divided by {group} from {places[0]} on at the latest"
        # Up to the window positions are kept: window - window // group is added.
        window = added * group / (group - 1)
        if added > 0 and places[-1] > window:
            return (
                f"positions are divided by {group} from about {window:.0f} on, as"
                " Self-Extend does"
            )
    return ""
