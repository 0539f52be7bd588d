"""Mistakes that show in the angles of pairs: a wrong value of 2 pi, angles in steps,
angles that are summed token by token, and pairs that are one token off.

The angle of a pair at a position is its frequency times the position. The angles of a
correct implementation differ from it only by rounding. Larger errors of a known shape
are explained here.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed, Table
from ropelab.math.numerics.reduction import (
    FULL_TERMS,
    REDUCTIONS,
    Angles,
    halve_period,
    reduction_errors,
)

# The largest relative difference between frequencies, or between factors, that count as
# equal. Reading them off tables in bfloat16 loses this much.
CLOSE = 2e-3
# The largest error of cos and sin from rounding to bfloat16. It is also the largest
# error, in radians, of an angle that is computed from them.
TABLE_ERROR = 2e-2
# The words that begin an answer about the subtraction of 2 pi.
LARGE_ARGUMENTS = "sin and cos of large arguments"
# What to do about it.
REDUCE_ANGLES = "reduce angles by 2 pi in float64, or in three terms with fma"
# Arguments of sin and cos are large from this position on, and the largest error of cos
# and sin that is explained by a lost argument at positions that were drawn at random.
# Wrong positions cause larger errors.
FIRST_LARGE = 1024
LARGEST_LOSS = 0.25
# The known ways of subtracting 2 pi from an angle in float32, by the words for each.
KNOWN_REDUCTIONS = {
    "2 pi in one term": REDUCTIONS[1],
    "2 pi in two terms": REDUCTIONS[2],
    "2 pi in three terms": REDUCTIONS[3],
    "2 pi in two terms of 24 bits, products rounded": FULL_TERMS,
}
# Coarse values of 2 pi: in bfloat16 and float16, in few digits, and 44 / 7. At large
# angles they lose whole turns, so that the error tells the value only if it is tried.
COARSE_PERIODS = (6.28125, 6.28, 6.283, 6.2832, 44 / 7, 6.3, 6.25)
# Smaller errors of a sine, in radians, are not reported. A good reduction in float32
# loses far less.
LEAST_SINE_ERROR = 1e-3
# The fewest positions from which a way of subtracting 2 pi is guessed. At fewer
# positions the rounding of tables may look like one.
ENOUGH_POSITIONS = 8
# The usual numbers of entries of a table of one turn. Tables with more entries lose
# less than is tolerated.
STEPS = (16, 32, 64, 90, 100, 128, 180, 200, 256, 360, 512, 720, 1000, 1024)
# The largest distance of an angle from a whole step of such a table, as a share of a
# step. Angles in float32 are at least this near to their steps.
STEP_TOLERANCE = 1e-3
# If cos and sin of two angles differ by less than this, the angles are taken for one. At
# least so many positions have to have the largest angle of angles that are limited.
SAME_TABLE = 1e-5
FEWEST_CLAMPED = 3
# The last position at which slow pairs are compared with shifted slow pairs.
NEAR_POSITION = 256
# Only positions below this position are compared with sums of frequencies, which need an
# entry for each token.
LONGEST_SUM = 2**18
# Products of rotations are computed for each token up to this one.
LONGEST_PRODUCT = 2**21
# Sums of at most this many tokens are too near to products to tell the two apart.
SHORTEST_SUM = 1000


def wrap_angles(angles: Table) -> Table:
    """Return angles in [-pi, pi)."""
    return np.asarray((angles + np.pi) % (2 * np.pi) - np.pi)


def explain_more_positions(
    observed: Observed,
    expected: Expected,
    tolerance: float,
) -> Fault | None:
    """Name the first wrong position in a second, larger set of positions.

    ``observed``: what the implementation computes at these positions.
    """
    if observed.fault:
        return observed.fault

    positions = observed.positions
    right_cos, right_sin = expected.rotation.tables(positions)
    errors = np.full(right_cos.shape, np.inf)
    if observed.cos.shape == right_cos.shape:
        cos_errors = np.abs(observed.cos - right_cos)
        sin_errors = np.abs(observed.sin - right_sin)
        errors = np.maximum(cos_errors, sin_errors) / expected.spec.attention_factor

    # Each pair has its own allowance: a pair whose angle is exact in float32 has none,
    # however much the others lose.
    lost_in_float32 = expected.budget().angles(positions)
    # Rotated vectors in bfloat16 are sums of two rounded products, and may lose more
    # than the tolerance. So the error of a table in bfloat16 is allowed here at least.
    allowed = max(tolerance, TABLE_ERROR) + lost_in_float32
    # NaN compares False, so that it counts as wrong.
    is_within = errors <= allowed
    is_right = is_within.all(axis=1)
    if is_right.all():
        return None
    if are_angles_multiplied(observed, expected, max(tolerance, TABLE_ERROR)):
        return None

    wrong_positions = positions[~is_right]
    first = wrong_positions.min()
    is_small = errors[~is_within].max() < LARGEST_LOSS
    if is_small and first >= FIRST_LARGE:
        right = expected.inv_freq * positions[:, None]
        differences = np.arctan2(observed.sin, observed.cos) - right
        largest = max(tolerance, TABLE_ERROR)
        products = explain_products(observed, expected)
        if products:
            return products
        period = explain_period(differences, observed, expected, largest)
        if period:
            return f"{LARGE_ARGUMENTS} ({period})", REDUCE_ANGLES

    count = len(np.unique(wrong_positions))
    total = len(np.unique(positions))
    # Of the first wrong position, the error of the pair that is wrong.
    excess = np.where(is_within, 0.0, errors)
    error = excess[positions == first].max()
    answer = (
        f"{count} of {total} further positions are rotated otherwise: cos or sin off by"
        f" {error:.3g} at position {first}"
    )
    return answer, "look for what is cached, clamped or interpolated"


def explain_period(
    differences: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
) -> str:
    """Return how an implementation reduces large angles wrongly; empty: it reduces them
    rightly.

    Some pairs have angles without an error in float32. If such a pair is off, its angle
    was lost in the computation of sin and cos, which subtracts multiples of 2 pi first.

    Args:
        differences: the observed angles less the right angles.
        observed: what the implementation computes.
        expected: what it should compute.
        tolerance: radians by which an angle may be off.
    """
    exact_pairs = np.flatnonzero(expected.budget().exact_pairs)
    if not len(exact_pairs):
        return ""
    pair = exact_pairs[0]
    errors = wrap_angles(differences[:, pair])
    worst = int(np.abs(errors).argmax())
    largest = abs(errors[worst])
    if largest <= tolerance:
        return ""

    angles = expected.inv_freq[pair] * observed.positions
    reduction = name_reduction(errors, angles)
    if reduction:
        return reduction

    for period in COARSE_PERIODS:
        for turns in (np.floor(angles / period), np.round(angles / period)):
            lost = wrap_angles(-turns * period)
            if np.abs(wrap_angles(errors - lost)).max() < min(largest / 4, TABLE_ERROR):
                return f"2 pi is taken as {period:.7g}"

    # If a number p is subtracted in place of 2 pi, the error of an angle is the angle
    # times (2 pi - p) / p. This share is measured at large angles, where other errors
    # matter least, and has to be the same there within a quarter.
    is_far = angles > angles.max() / 64
    shares = errors[is_far] / angles[is_far]
    mean = shares.mean()
    if np.ptp(shares) < abs(mean) / 4:
        return f"2 pi is taken as {math.tau / (1 + mean):.7g}"
    return (
        f"pair {pair}, whose angle is exact, is off by {largest:.3g} rad at position"
        f" {observed.positions[worst]}"
    )


def describe_small_loss(
    differences: Table,
    observed: Observed,
    expected: Expected,
) -> str:
    """Name a reduction of large angles that loses less than the tolerance.

    Empty: no reduction is seen. ``differences``: the observed angles less the right
    angles.
    """
    exact_pairs = np.flatnonzero(expected.budget().exact_pairs)
    if not len(exact_pairs) or len(observed.positions) < ENOUGH_POSITIONS:
        return ""
    pair = exact_pairs[0]
    errors = wrap_angles(differences[:, pair])
    largest = np.abs(errors).max()
    if largest < LEAST_SINE_ERROR:
        return ""

    angles = expected.inv_freq[pair] * observed.positions
    reduction = name_reduction(errors, angles)
    if not reduction:
        return ""
    return f"{LARGE_ARGUMENTS} lose {largest:.2g} rad ({reduction})"


def name_reduction(errors: Angles, angles: Angles) -> str:
    """Return in words how 2 pi is subtracted from angles, judged by the error of each
    angle.

    Empty: none of KNOWN_REDUCTIONS predicts these errors.
    """
    largest = np.abs(errors).max()
    for words, reduction in KNOWN_REDUCTIONS.items():
        halved = halve_period(reduction)
        fused = replace(reduction, fused=True)
        for variant in (reduction, halved, fused):
            lost = reduction_errors(angles, variant)
            # A way explains the errors if less than a quarter of the largest error is
            # left.
            if np.abs(errors - lost).max() < largest / 4:
                return words
    for lost in list_losses_in_turns(angles):
        if np.abs(wrap_angles(errors - lost)).max() < largest / 4:
            return "angles are held in turns, as float32 numbers"
    return ""


def list_losses_in_turns(angles: Angles) -> Iterator[Angles]:
    """Yield the errors of float32 angles that are counted in turns, as GPUs do.

    The number of turns is rounded to float32. It is a product with 1 / 2 pi as a float32
    number, a quotient by 2 pi as one, or exact until it is rounded.
    """
    stored = angles.astype(np.float32)
    for turns in (
        stored * np.float32(1 / math.tau),
        stored / np.float32(math.tau),
        (stored.astype(np.float64) / math.tau).astype(np.float32),
    ):
        yield wrap_angles(turns.astype(np.float64) * math.tau - stored)


def explain_steps(observed: Observed, expected: Expected) -> Fault | None:
    """Name a table of one turn that is read without interpolation."""
    angles = np.arctan2(observed.sin, observed.cos)
    right = expected.inv_freq * observed.positions[:, None]
    if angles.shape != right.shape:
        return None

    errors = np.abs(wrap_angles(angles - right))
    lost_in_float32 = expected.budget().angles(observed.positions)
    for count in STEPS:
        step = math.tau / count
        distances = np.abs(angles / step - np.round(angles / step))
        is_within_one_step = (errors <= step + lost_in_float32).all()
        if is_within_one_step and distances.max() < STEP_TOLERANCE:
            answer = f"angles come in {count} steps of a turn, as from a table of sines"
            return answer, "compute sin and cos of the angle itself"
    return None


def explain_clamp(observed: Observed, expected: Expected) -> Fault | None:
    """Name angles that are limited to a largest one, which all larger angles become."""
    order = np.argsort(observed.positions)
    positions = observed.positions[order]
    cos, sin = observed.cos[order], observed.sin[order]
    right = expected.inv_freq * positions[:, None]
    if cos.shape != right.shape or not right.size:
        return None

    # The fastest pair has the largest angles: the last of them are limited.
    fastest = int(expected.inv_freq.argmax())
    is_last = np.abs(cos[:, fastest] - cos[-1, fastest]) < SAME_TABLE
    is_last &= np.abs(sin[:, fastest] - sin[-1, fastest]) < SAME_TABLE
    differs = np.flatnonzero(~is_last)
    if not len(differs) or len(positions) - differs[-1] <= FEWEST_CLAMPED:
        return None

    below = right[differs[-1], fastest]
    above = right[differs[-1] + 1, fastest]

    is_clamped = right >= above
    is_right = right <= below
    limited = np.hypot(cos - cos[-1, fastest], sin - sin[-1, fastest])
    lost = expected.budget().angles(positions)
    unclamped = np.hypot(
        cos / observed.gain - np.cos(right), sin / observed.gain - np.sin(right)
    )
    are_limited = (limited[is_clamped] < TABLE_ERROR).all()
    are_right = (unclamped[is_right] < (TABLE_ERROR + lost)[is_right]).all()

    # Where a table ends, all pairs stand still from one position on, whatever their
    # angles are. Here other pairs have to be limited later, or never.
    slow = np.flatnonzero(right[-1] <= below)
    goes_on = [pair for pair in slow if right[-1, pair] > 2 * TABLE_ERROR]
    if not (are_limited and are_right and goes_on):
        return None
    answer = f"angles are limited to one between {below:.6g} and {above:.6g} rad"
    return answer, "take sin and cos of the angle itself"


def name_shifted_pairs(
    differences: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
) -> str:
    """Name pairs that are one token ahead of all other pairs, or one token behind.

    At least one pair has to be wrong. Empty: a pair is wrong in another way, so that a
    shift of some pairs is not the mistake.

    ``differences``: the observed angles less the right angles, [positions, pairs].
    """
    allowed = tolerance + expected.budget().angles(observed.positions)
    errors = np.abs(wrap_angles(differences))
    is_wrong = (errors > allowed).any(axis=0)
    is_near = observed.positions <= NEAR_POSITION

    for shift, where in ((1, "one token ahead"), (-1, "one token behind")):
        errors_if_shifted = np.abs(wrap_angles(differences - shift * expected.inv_freq))
        # A slow pair may be within the tolerance of its right and of its shifted angle.
        # It counts as shifted if it is nearer to the shifted angle.
        mean_errors = errors[is_near].mean(axis=0)
        mean_if_shifted = errors_if_shifted[is_near].mean(axis=0)
        is_nearer = 2 * mean_if_shifted < mean_errors

        is_within = (errors_if_shifted <= allowed).all(axis=0)
        is_shifted = is_within & is_nearer
        if (is_wrong & ~is_shifted).any():
            continue
        pairs = np.flatnonzero(is_nearer)
        return f"{len(pairs)} pairs from {pairs[0]} to {pairs[-1]} are {where}"
    return ""


def are_angles_accumulated(
    observed: Observed, expected: Expected, tolerance: float
) -> bool:
    """Return True if the angle is accumulated: the frequency is added token by token.

    In float32 the sum differs from the product of position and frequency.
    """
    is_near = observed.positions < LONGEST_SUM
    positions = observed.positions[is_near]
    last = positions.max()
    if last <= SHORTEST_SUM:
        return False

    inv_freq = expected.inv_freq.astype(np.float32)
    steps = np.broadcast_to(inv_freq, (last, len(inv_freq)))
    sums = np.cumsum(steps, axis=0, dtype=np.float32)
    sum_at_0 = np.zeros_like(sums[:1])
    sums_by_position = np.vstack([sum_at_0, sums]).astype(np.float64)

    angles = np.arctan2(observed.sin, observed.cos)[is_near]
    errors = wrap_angles(angles - sums_by_position[positions])
    return bool(np.abs(errors).max() <= tolerance)


def explain_products(observed: Observed, expected: Expected) -> Fault | None:
    """Name rotations that are made by multiplying that of one token, token by token.

    Each product is rounded to float32, so that angles and lengths drift.
    """
    positions = observed.positions
    last = int(positions.max())
    if not SHORTEST_SUM < last < LONGEST_PRODUCT:
        return None
    if observed.cos.shape[1] != len(expected.inv_freq):
        return None

    # One pair after the other, since all together would take gigabytes.
    largest_error = 0.0
    largest_difference = 0.0
    for pair, frequency in enumerate(expected.inv_freq):
        powers = np.full(last + 1, np.exp(1j * frequency), np.complex64)
        powers[0] = 1
        powers = np.cumprod(powers)
        seen = observed.cos[:, pair] + 1j * observed.sin[:, pair]
        seen = seen / expected.spec.attention_factor

        error = float(np.abs(seen - np.exp(1j * frequency * positions)).max())
        difference = float(np.abs(seen - powers[positions]).max())
        # NaN compares False, so that it explains nothing.
        if not difference < TABLE_ERROR:
            return None
        largest_error = max(largest_error, error)
        largest_difference = max(largest_difference, difference)

    if largest_difference >= largest_error / 4:
        return None
    answer = "the rotation of one token is multiplied in float32 from token to token"
    return answer, "cos and sin of position * inv_freq"


def are_angles_multiplied(
    observed: Observed, expected: Expected, tolerance: float
) -> bool:
    """Return True if the angle of each pair is that of the pair before, times a constant.

    In float32 each product is rounded, so that slow pairs lose more than the product of
    position and frequency does. ggml computes angles so, and scales them afterwards.
    """
    spec = expected.spec
    unscaled = spec.geometry.inv_freq
    if observed.cos.shape[1] != len(unscaled):
        return False

    step = np.float32(spec.base ** (-2 / spec.rotary_dim))
    column = observed.positions.astype(np.float32)
    columns = []
    for _ in unscaled:
        columns.append(column)
        column = column * step
    angles = np.stack(columns, axis=1).astype(np.float64)
    scaled = angles * expected.inv_freq / unscaled
    errors = wrap_angles(np.arctan2(observed.sin, observed.cos) - scaled)
    return bool(np.abs(errors).max() <= tolerance)
