"""Name wrong positions, which are recovered from the angles that a code gave.

A code that was asked for position 7 may have rotated by position 8. The angles of all
pairs show it: they are the position by which the code rotated, times the frequencies, up
to whole rotations.
"""

import numpy as np

from ropelab.conformance.angles import TABLE_ERROR, wrap_angles
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed, Positions, Table
from ropelab.conformance.usual import FACTORS, HALF_FORMATS
from ropelab.math import scaling
from ropelab.math.frequencies import Frequencies
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.arrays import Float, Int

# With fewer pairs several positions fit the angles, and the wrong one may be recovered.
ENOUGH_PAIRS = 8
# If a code reads one row of its table twice, the angles differ by less than this.
SAME_ROW = 1e-6
# Shifts by a fraction of a token are looked for below this position. At larger
# positions an error may also be due to rounding.
FARTHEST = 4096
# The largest share by which positions may be stretched if they are to be recovered.
LARGEST_STRETCH = 1 / 64
# A stretch is measured at positions above this share of the largest position, where
# errors of the recovered positions matter least.
FAR_SHARE = 1 / 64
# Numbers of tokens that share a position in Self-Extend.
GROUPS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64)
# Numbers of tokens in a block whose tokens may be in reverse.
BLOCK_SIZES = (2, 3, 4, 8, 16, 32, 64, 128, 256)
# A rule that holds from some position on is guessed from at least this many wrong rows,
# behind at least this many right rows.
FEWEST_WRONG_ROWS = 3
FEWEST_RIGHT_ROWS = 2
# Two pieces of advice.
FROM_ZERO = "count positions from 0"
ADVICE_ON_ENDS = "look at where the table ends and at what positions are counted from"

# A position for each row, as a real number.
Recovered = Float[np.ndarray, " n"]


def explain_positions(observed: Observed, expected: Expected) -> Fault | None:
    """Name positions that are not used, are shifted, are rounded, or rotate like other
    positions.
    """
    first_cos = observed.cos[0]
    first_sin = observed.sin[0]
    has_constant_cos = (observed.cos == first_cos).all()
    has_constant_sin = (observed.sin == first_sin).all()
    # If sin is 0 everywhere, nothing rotates at all, which other checks name.
    rotates = observed.sin.any()
    if has_constant_cos and has_constant_sin and rotates:
        return "every position is rotated alike", "angle = position * inv_freq"

    # The largest angle errors, in radians, of a right code that computes in float32.
    # Positions at which they reach 1 are left out: the angles tell nothing there.
    order = np.argsort(observed.positions)
    rounding_budget = expected.budget()
    float32_errors = rounding_budget.angles(observed.positions[order])
    order = order[(float32_errors < 1).all(axis=1)]
    positions = observed.positions[order]
    angles = np.arctan2(observed.sin, observed.cos)[order]
    inv_freq = expected.inv_freq
    if angles.shape[1] != len(inv_freq):
        return None

    unrounded = recover_positions(angles, positions, inv_freq)
    shift = find_fractional_shift(unrounded - positions, angles, positions, inv_freq)
    if shift:
        return f"positions are shifted by {shift:g}", FROM_ZERO
    stretch = find_stretch(unrounded, angles, positions, inv_freq)
    if stretch:
        answer = f"positions are multiplied by {stretch:.8g}"
        method = expected.spec.scaling
        if isinstance(method, scaling.PositionInterpolation):
            factor = method.factor
            answer = f"factor {factor / stretch:.6g} instead of {factor:g}: {answer}"
            return answer, "divide positions by the factor in float32"
        return answer, "count positions in whole steps, as arange does"

    # If the slowest pair turns by more than half a turn in the context, several positions
    # fit the angles: the position near the right one is tried first, then the smallest.
    smallest = recover_positions(angles, np.zeros_like(positions), inv_freq)
    for recovered in (np.round(unrounded), np.round(smallest)):
        float32_errors = rounding_budget.angles(np.maximum(recovered, 0))
        errors = np.abs(wrap_angles(angles - recovered[:, None] * inv_freq))
        if (errors < TABLE_ERROR + float32_errors).all():
            return explain_recovered(positions, recovered, len(inv_freq))
    return explain_end(angles, positions)


def recover_positions(
    angles: Table, near: Positions, inv_freq: Frequencies
) -> Recovered:
    """Return the positions by which a code rotated, not rounded to whole numbers.

    ``near``: of all positions that fit, the nearest to these are returned.
    """
    recovered = near.astype(np.float64)
    # Pairs that do not rotate come first in this order, and tell nothing.
    unrotated_pairs = int((inv_freq <= 0).sum())
    slow_to_fast = np.argsort(inv_freq)[unrotated_pairs:]
    # A faster pair gives a more exact position. Its angle is known up to whole rotations,
    # whose number follows from the slower pairs before.
    for pair in slow_to_fast:
        frequency = inv_freq[pair]
        difference = recovered * frequency - angles[:, pair]
        rotations = np.round(difference / (2 * np.pi))
        recovered = (angles[:, pair] + 2 * np.pi * rotations) / frequency
    return recovered


def explain_recovered(
    positions: Positions,
    recovered: Recovered,
    pairs: int,
) -> Fault | None:
    """Name the mistake that turns the right positions into the positions that a code
    used.

    Args:
        positions: the right positions, in ascending order.
        recovered: those by which a code rotated, as whole numbers.
        pairs: the number of pairs from which they were recovered.
    """
    shifts = recovered - positions
    shifts_after_first = shifts[positions > 0]
    shift = shifts_after_first[0]
    if shift and (shifts_after_first == shift).all():
        answer = f"positions are shifted by {shift:.0f}"
        if not shifts[0]:
            answer += " from 1 on"
        return answer, FROM_ZERO

    last_shift = shifts[-1]
    # A shift to earlier positions can stop at position 0. If the last position is
    # rotated as 0, too, nothing was shifted.
    is_shifted_back = last_shift < 0
    ends_above_0 = recovered[-1] > 0
    if is_shifted_back and ends_above_0:
        shifted = np.maximum(positions + last_shift, 0)
        if np.array_equal(recovered, shifted):
            answer = f"positions are shifted by {last_shift:.0f}, and 0 before that"
            return answer, FROM_ZERO

    for step in FACTORS:
        floored = positions // step
        answers = {
            f"p // {step:g}": floored,
            f"rounded down to multiples of {step:g}": floored * step,
            f"rounded up to multiples of {step:g}": -(-positions // step) * step,
            # Halves are rounded to even multiples by most functions, and up by some.
            f"rounded to multiples of {step:g}": np.round(positions / step) * step,
            f"rounded, halves up, to multiples of {step:g}": (
                np.floor(positions / step + 0.5) * step
            ),
        }
        for how, wrong in answers.items():
            if np.array_equal(recovered, wrong):
                return f"positions are {how}", "divide positions as real numbers"

    answer = explain_small_integers(positions, recovered)
    if answer:
        return answer, "keep positions in 32 bits or more"
    answer = explain_slots(positions, recovered)
    if answer:
        return answer, "rotate by the position, not by the place in the cache"
    answer = explain_groups(positions, recovered)
    if answer:
        return answer, "give each token its own position"
    answer = explain_later_shift(positions, recovered)
    if answer:
        return answer, "count positions on without a gap"
    # If positions are counted from the end, a position and the right position have the
    # same sum everywhere.
    has_one_sum = np.ptp(recovered + positions) == 0
    if recovered[0] > 0 and has_one_sum:
        return f"positions are counted back from {recovered[0]:.0f}", FROM_ZERO
    answer = explain_exchanged(positions, recovered)
    if answer:
        return answer, "rotate each token by its own position"
    return explain_first_moved(positions, recovered, pairs)


def explain_exchanged(positions: Positions, recovered: Recovered) -> str:
    """Name positions that are exchanged inside of blocks; empty if they are not.

    In a block of two, 2n and 2n + 1 are exchanged.
    """
    if np.array_equal(recovered, positions):
        return ""
    for size in BLOCK_SIZES:
        in_block = positions % size
        if np.array_equal(recovered, positions - in_block + (size - 1 - in_block)):
            if size == 2:
                return "positions 2n and 2n + 1 are exchanged"
            return f"positions are counted back in each block of {size}"
    return ""


def explain_first_moved(
    positions: Positions,
    recovered: Recovered,
    pairs: int,
) -> Fault | None:
    """Name the first position that is rotated as another one."""
    is_changed = recovered != positions
    if pairs < ENOUGH_PAIRS or not is_changed.any():
        return None

    changed_positions = positions[is_changed]
    first = changed_positions[0]
    # If position 0 or 1 is wrong as well as later positions, no table or counter has
    # ended: another mistake is the reason.
    last = changed_positions[-1]
    if first < 2 and last >= 2:
        return None

    answer = f"position {first} is rotated as {recovered[is_changed][0]:.0f}"
    for name in HALF_FORMATS:
        rounded = round_to(positions.astype(np.float64), FORMATS[name])
        if np.array_equal(recovered, rounded):
            answer = f"positions are rounded to {name}: {answer}"
            return answer, "keep positions in integers"
    return answer, ADVICE_ON_ENDS


def explain_end(angles: Table, positions: Positions) -> Fault | None:
    """Name the end of a table whose last row is used for all positions beyond."""
    last_row = angles[-1]
    differences = np.abs(wrap_angles(angles - last_row))
    is_last_row = differences.max(axis=1) < SAME_ROW
    end = int(is_last_row.argmax())
    # At least three rows have to be equal.
    is_repeated = end < len(is_last_row) - 2
    if is_repeated and is_last_row[end:].all():
        return (
            f"position {positions[end + 1]} is rotated as {positions[end]}",
            ADVICE_ON_ENDS,
        )
    return None


def find_fractional_shift(
    shifts: Recovered,
    angles: Table,
    positions: Positions,
    inv_freq: Frequencies,
) -> float:
    """Return the fraction by which all positions are shifted; 0 if they are not shifted.

    ``shifts``: the recovered positions less the right positions.
    """
    shifts_after_first = shifts[positions > 0]
    shift = round(float(np.median(shifts_after_first)), 2)
    is_whole = shift == round(shift)
    if is_whole or np.abs(shifts_after_first - shift).max() > TABLE_ERROR:
        return 0.0

    shifted = positions + shift
    errors = np.abs(wrap_angles(angles - shifted[:, None] * inv_freq))
    is_near = positions < FARTHEST
    if errors[is_near].max() < TABLE_ERROR:
        return shift
    return 0.0


def find_stretch(
    unrounded: Recovered,
    angles: Table,
    positions: Positions,
    inv_freq: Frequencies,
) -> float:
    """Return the factor, near 1, on all positions; 0 if there is none.

    ``unrounded``: the recovered positions.
    """
    is_far = positions > FAR_SHARE * positions.max()
    ratios = unrounded[is_far] / np.maximum(positions[is_far], 1)
    stretch = float(np.median(ratios))
    if not 0 < abs(stretch - 1) < LARGEST_STRETCH:
        return 0.0

    # Without the factor, angles are wrong by more than the rounding of a table explains.
    # This must also hold for angles below half a turn: code with a wrong number for 2 pi
    # has similar errors, but only at larger angles, from which it subtracts whole turns.
    # A factor near 1 hardly changes angles below 1 radian, which are left out.
    right = positions[:, None] * inv_freq
    errors = np.abs(wrap_angles(angles - right))
    errors_if_stretched = np.abs(wrap_angles(angles - stretch * right))
    is_below_half_turn = (np.abs(right) < np.pi) & (np.abs(right) > 1)
    if errors.max() < TABLE_ERROR or not is_below_half_turn.any():
        return 0.0
    # The factor has to remove most of the error of small angles, here three quarters.
    remaining_error = errors_if_stretched[is_below_half_turn].max()
    is_explained = 4 * remaining_error < errors[is_below_half_turn].max()
    if is_explained and errors_if_stretched.max() < TABLE_ERROR:
        return stretch
    return 0.0


def explain_small_integers(positions: Positions, recovered: Recovered) -> str:
    """Name positions that overflow a small integer; empty if they do not."""
    is_changed = recovered != positions
    if not is_changed.any():
        return ""

    first = int(is_changed.argmax())
    for bits in (8, 16):
        size = 2**bits
        half = size // 2
        overflown = {
            f"int{bits}": (positions + half) % size - half,
            f"uint{bits}": positions % size,
        }
        for kind, numbers in overflown.items():
            if np.array_equal(recovered, numbers):
                return (
                    f"positions are held in {kind}: position {positions[first]} is"
                    f" rotated as {recovered[first]:.0f}"
                )
    return ""


def explain_slots(positions: Positions, recovered: Recovered) -> str:
    """Name positions that begin again at 0, as the slots of a ring of keys do.

    Empty: they do not.
    """
    is_changed = recovered != positions
    if is_changed.sum() < 2:
        return ""

    # The difference from the right position is a multiple of the number of slots.
    taken_off = (positions - recovered)[is_changed].astype(np.int64)
    slots = int(np.gcd.reduce(taken_off))
    if slots < 2 or not np.array_equal(recovered, positions % slots):
        return ""
    first = positions[is_changed][0]
    return (
        f"positions begin again after {slots} tokens: position {first} is rotated as"
        f" {first % slots}"
    )


def may_show_rule(wrong_rows: Int[np.ndarray, " wrong"]) -> bool:
    """Return True if wrong rows are enough, and begin late enough, to guess a rule."""
    if len(wrong_rows) < FEWEST_WRONG_ROWS:
        return False
    return bool(wrong_rows[0] >= FEWEST_RIGHT_ROWS)


def explain_later_shift(positions: Positions, recovered: Recovered) -> str:
    """Name positions that are all shifted from some position on; empty if they are not.

    Behind a table that is appended to, or behind dropped keys, counting may begin anew.
    """
    shifted_rows = np.flatnonzero(recovered != positions)
    if not may_show_rule(shifted_rows):
        return ""

    first = shifted_rows[0]
    shifts = (recovered - positions)[first:]
    # The end of a table shifts its last position alone.
    if (shifts != shifts[0]).any():
        return ""
    where = positions[first]
    return (
        f"positions are shifted by {shifts[0]:.0f} from {where} on at the latest: position"
        f" {where} is rotated as {recovered[first]:.0f}"
    )


def explain_groups(positions: Positions, recovered: Recovered) -> str:
    """Name positions that are divided from some position on, as Self-Extend does.

    Empty: they are not.
    """
    changed_rows = np.flatnonzero(recovered != positions)
    if not may_show_rule(changed_rows):
        return ""

    changed_positions = positions[changed_rows]
    for group in GROUPS:
        divided = changed_positions // group
        # Self-Extend adds the same number to all divided positions.
        offsets = recovered[changed_rows] - divided
        offset = offsets[0]
        if (offsets != offset).any():
            continue
        if offset == 0:
            return (
                f"positions are divided by {group} from {changed_positions[0]} on at the"
                " latest"
            )
        # Self-Extend keeps the positions in a window. To continue behind the window,
        # window - window // group is added to the divided positions. The window follows
        # from this number.
        window = offset * group / (group - 1)
        if offset > 0 and changed_positions[-1] > window:
            return (
                f"positions are divided by {group} from about {window:.0f} on, as"
                " Self-Extend does"
            )
    return ""
