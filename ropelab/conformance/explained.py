"""Known mistakes of rotary codes, found in the angles that they gave."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import (
    EIGHT_BIT_ERROR,
    Fault,
    Observed,
    Table,
)
from ropelab.math.numerics.reduction import (
    FULL_TERMS,
    REDUCTIONS,
    Angles,
    halve_period,
    reduction_errors,
)
from ropelab.readers.spec import RopeSpec
from ropelab.runs.files import table_beside

# Relative: the part of a frequency that is lost where it is read from a table in
# bfloat16.
CLOSE = 2e-3
# Radians; tables in bfloat16 are off by less.
TABLE_ERROR = 2e-2
# A share of the gain; 8-bit formats round a factor by less.
UNEVEN = 0.1
NO_DRIFT = "rotate without a factor that depends on the position"
LARGE_ARGUMENTS = "sin and cos of large arguments"
# Ways of taking 2 pi off an angle in float32.
PERIODS = {
    "2 pi in one term": REDUCTIONS[1],
    "2 pi in two terms": REDUCTIONS[2],
    "2 pi in three terms": REDUCTIONS[3],
    "2 pi in two terms of 24 bits, products rounded": FULL_TERMS,
}
# Radians: a sine in float32 whose argument is reduced well loses far less.
LEAST_SINE_ERROR = 1e-3
# At fewer positions rounded tables may lose as much as a reduction by chance.
ENOUGH_POSITIONS = 8
# Entries that tables of one turn have; finer ones lose less than the tolerance.
STEPS = (16, 32, 64, 90, 100, 128, 180, 200, 256, 360, 512, 720, 1000, 1024)
# A share of a step: float32 holds angles more exactly.
LEAST_STEP = 1e-3
# Tokens whose float32 sums are formed one by one.
LONGEST_SUM = 2**18
USUAL = table_beside(__file__)
HALF_FORMATS = USUAL["formats"]
FACTORS = USUAL["factors"]


def wrap_angles(angles: Table) -> Table:
    """Return angles in [-pi, pi)."""
    return np.asarray((angles + np.pi) % (2 * np.pi) - np.pi)


def explain_tables(observed: Observed, expected: Expected) -> Fault | None:
    """Name tables that are swapped or negated, or whose factors differ."""
    # All codes are precise at small positions.
    small = observed.positions <= 4
    cos, sin = expected.rotation.tables(observed.positions[small])
    right = np.stack([cos, sin])
    ours = np.stack([observed.cos[small], observed.sin[small]])
    if ours.shape != right.shape:
        return None

    factor = expected.spec.attention_factor
    near = EIGHT_BIT_ERROR * factor
    for answer, tables in list_wrong_tables(cos, sin).items():
        is_other = np.abs(right - tables).max() > near
        if is_other and np.abs(ours - tables).max() <= near:
            fix = "return cos, then sin"
            if "negated" in answer or "sign" in answer:
                fix = "check the signs"
            elif "table" in answer:
                fix = "write and read the table in one order"
            return answer, fix

    # What cos and sin are each multiplied by, by least squares.
    products = (ours * right).sum(axis=(1, 2))
    times = products / (right**2).sum(axis=(1, 2))
    left_over = np.abs(ours - times[:, None, None] * right).max()
    is_explained = left_over <= TABLE_ERROR * factor
    are_equal = math.isclose(*times, rel_tol=TABLE_ERROR)
    if not is_explained or times.min() <= 0 or are_equal:
        return None
    of_cos, of_sin = times * factor
    answer = f"cos is multiplied by {of_cos:.4g}, sin by {of_sin:.4g}"
    return answer, f"both by {factor:.6g}"


def list_wrong_tables(cos: Table, sin: Table) -> dict[str, tuple[Table, Table]]:
    """Return what codes have instead of cos and sin, by the mistake."""
    known = {
        "cos and sin are swapped": (sin, cos),
        "cos and sin are negated": (-cos, -sin),
        "cos is negated": (-cos, sin),
        "sin holds cos": (cos, cos),
        "cos holds sin": (sin, sin),
        "sin has lost its sign": (cos, np.abs(sin)),
        "cos has lost its sign": (np.abs(cos), sin),
        "cos and sin have lost their signs": (np.abs(cos), np.abs(sin)),
    }
    return known | dict(list_mixed_tables(cos, sin))


def list_mixed_tables(
    cos: Table,
    sin: Table,
) -> Iterator[tuple[str, tuple[Table, Table]]]:
    """Yield cos and sin as a code has them that reads a table in another order."""
    for names, one, other in (("sin and cos", sin, cos), ("cos and sin", cos, sin)):
        alternating = np.stack([one, other], axis=-1).reshape(len(cos), -1)
        halves = np.split(alternating, 2, axis=1)
        answer = f"a table in which {names} alternate is cut into halves"
        yield answer, cos_first(names, halves[0], halves[1])
        joined = np.concatenate([one, other], axis=1)
        answer = f"a table of {names} in halves is read alternately"
        yield answer, cos_first(names, joined[:, ::2], joined[:, 1::2])


def cos_first(names: str, first: Table, second: Table) -> tuple[Table, Table]:
    """Return what is taken for cos and for sin."""
    if names == "sin and cos":
        return second, first
    return first, second


def explain_further(
    observed: Observed,
    expected: Expected,
    tolerance: float,
) -> Fault | None:
    """Name the first further position at which cos and sin are others."""
    if observed.fault:
        return observed.fault

    places = observed.positions
    right_cos, right_sin = expected.rotation.tables(places)
    errors = np.full(len(places), np.inf)
    if observed.cos.shape == right_cos.shape:
        cos_errors = np.abs(observed.cos - right_cos).max(axis=1)
        sin_errors = np.abs(observed.sin - right_sin).max(axis=1)
        largest = np.maximum(cos_errors, sin_errors)
        errors = largest / expected.spec.attention_factor

    # A sum of both features of a pair in bfloat16 loses more than its table.
    honest = expected.budget().angles(places).max(axis=1)
    # An error that is no number is not within the allowed one either.
    is_wrong = ~(errors <= max(tolerance, TABLE_ERROR) + honest)
    if not is_wrong.any():
        return None

    wrong_places = places[is_wrong]
    first = wrong_places.min()
    count = len(np.unique(wrong_places))
    total = len(np.unique(places))
    error = errors[places == first].max()
    answer = (
        f"{count} of {total} further positions are rotated otherwise: cos or sin off by"
        f" {error:.3g} at position {first}"
    )
    return answer, "look for what is cached, clamped or interpolated"


def explain_period(
    off: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
) -> str:
    """Return what shows in pairs whose angles are exact in float32.

    It is empty if they are right.
    """
    exact = np.flatnonzero(expected.budget().exact_pairs)
    if not len(exact):
        return ""
    pair = exact[0]
    errors = wrap_angles(off[:, pair])
    worst = int(np.abs(errors).argmax())
    most = abs(errors[worst])
    if most <= tolerance:
        return ""

    angles = expected.inv_freq[pair] * observed.positions
    reduction = name_reduction(errors, angles)
    if reduction:
        return reduction

    is_far = angles > angles.max() / 64
    shares = errors[is_far] / angles[is_far]
    mean = shares.mean()
    # A wrong period is lost again and again, evenly.
    if np.ptp(shares) < abs(mean) / 4:
        return f"2 pi is taken as {math.tau / (1 + mean):.7g}"
    return (
        f"pair {pair}, whose angle is exact, is off by {most:.3g} rad at position"
        f" {observed.positions[worst]}"
    )


def describe_small_loss(off: Table, observed: Observed, expected: Expected) -> str:
    """Name a reduction of large arguments that loses less than the tolerance."""
    exact = np.flatnonzero(expected.budget().exact_pairs)
    if not len(exact) or len(observed.positions) < ENOUGH_POSITIONS:
        return ""
    pair = exact[0]
    errors = wrap_angles(off[:, pair])
    most = np.abs(errors).max()
    if most < LEAST_SINE_ERROR:
        return ""

    angles = expected.inv_freq[pair] * observed.positions
    reduction = name_reduction(errors, angles)
    if not reduction:
        return ""
    return f"{LARGE_ARGUMENTS} lose {most:.2g} rad ({reduction})"


def name_reduction(errors: Angles, angles: Angles) -> str:
    """Return how 2 pi is taken off angles, from what each of them loses.

    It is empty if no usual way loses that.
    """
    most = np.abs(errors).max()
    for description, reduction in PERIODS.items():
        halved = halve_period(reduction)
        fused = replace(reduction, fused=True)
        for variant in (reduction, halved, fused):
            lost = reduction_errors(angles, variant)
            if np.abs(errors - lost).max() < most / 4:
                return description
    return ""


def explain_gain(gain: float, spec: RopeSpec) -> Fault | None:
    """Name another factor on cos and sin than the attention factor."""
    wanted = spec.attention_factor
    if math.isclose(gain, wanted, rel_tol=CLOSE):
        return None
    if math.isclose(gain, wanted**2, rel_tol=CLOSE):
        return f"the attention factor {wanted:.6g} is applied twice", "apply it once"
    if math.isclose(gain, 1.0, rel_tol=CLOSE):
        answer = f"the attention factor {wanted:.6g} is missing"
        return answer, "multiply cos and sin"

    folded = {
        "1 / sqrt(d)": spec.head_dim**-0.5,
        "the root of 1 / sqrt(d)": spec.head_dim**-0.25,
    }
    for name, factor in folded.items():
        if math.isclose(gain, wanted * factor, rel_tol=CLOSE):
            answer = f"{name} is folded into the vectors"
            return answer, "leave it to attention, or divide by it before the check"
    answer = f"cos and sin are multiplied by {gain:.6g} instead of {wanted:.6g}"
    return answer, f"attention factor {wanted:.6g}"


def explain_drift(observed: Observed) -> str:
    """Name factors that grow or fall by one share per token, each pair by its own.

    They need not be 1 at position 0: xPos may count from the middle of the context.
    """
    positions = observed.positions
    is_near = (positions > 0) & (positions <= 4096)
    places = positions[is_near]
    factors = np.hypot(observed.cos, observed.sin)[is_near]
    is_usable = np.isfinite(factors) & (factors > 0)
    if len(places) < 4 or not factors.size or not is_usable.all():
        return ""

    logarithms = np.log(factors)
    rate, start = np.polyfit(places, logarithms, 1)
    left_over = np.abs(logarithms - start - places[:, None] * rate)
    most_growth = np.abs(rate).max() * np.ptp(places)
    is_steady = left_over.max() < 1e-2 * most_growth
    is_visible = most_growth > 0.1
    if not (is_steady and is_visible):
        return ""
    if (rate > 0).all():
        return "cos and sin grow with the position, as xPos makes them"
    if (rate < 0).all():
        return "cos and sin fall with the position, as xPos makes them"
    return ""


def explain_uneven_gain(observed: Observed) -> Fault | None:
    """Name the place where cos and sin have another factor than elsewhere."""
    if not observed.gain:
        return "most of cos and sin are zero", "see how they are made"
    answer = explain_drift(observed)
    if answer:
        return answer, NO_DRIFT

    factors = np.hypot(observed.cos, observed.sin) / observed.gain
    deviations = np.abs(factors - 1)
    place, pair = np.unravel_index(deviations.argmax(), factors.shape)
    factor = factors[place, pair]
    if abs(factor - 1) <= UNEVEN:
        return None
    where = f"pair {pair} at position {observed.positions[place]}"
    answer = f"cos and sin of {where} are {factor:.3g} times as long as elsewhere"
    return answer, "both of one angle, and one factor for all pairs and positions"


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
        left_over = np.abs(angles / step - np.round(angles / step))
        is_read = (errors <= step + lost_in_float32).all()
        if is_read and left_over.max() < LEAST_STEP:
            answer = f"angles come in {count} steps of a turn, as from a table of sines"
            return answer, "compute sin and cos of the angle itself"
    return None


def name_shifted_pairs(
    differences: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
) -> str:
    """Name pairs that are one token ahead of the others, or behind them.

    It is empty if another number of pairs is wrong. ``differences``: the observed
    angles less the right ones.
    """
    allowed = tolerance + expected.budget().angles(observed.positions)
    is_wrong = (np.abs(wrap_angles(differences)) > allowed).any(axis=0)
    is_near = observed.positions <= 256
    for shift, where in ((1, "one token ahead"), (-1, "one token behind")):
        left_over = np.abs(wrap_angles(differences - shift * expected.inv_freq))
        is_shifted = (left_over <= allowed).all(axis=0)
        if not (is_shifted | ~is_wrong).all():
            continue
        # Slow pairs, too, are nearer to the position that they have.
        errors = np.abs(wrap_angles(differences))[is_near].mean(axis=0)
        pairs = np.flatnonzero(2 * left_over[is_near].mean(axis=0) < errors)
        return f"{len(pairs)} pairs from {pairs[0]} to {pairs[-1]} are {where}"
    return ""


def are_summed(observed: Observed, expected: Expected, tolerance: float) -> bool:
    """Return True for angles that are sums of float32 frequencies over the tokens."""
    is_near = observed.positions < LONGEST_SUM
    places = observed.positions[is_near]
    last = places.max()
    if not last > 1000:
        return False

    theta = expected.inv_freq.astype(np.float32)
    steps = np.broadcast_to(theta, (last, len(theta)))
    sums = np.cumsum(steps, axis=0, dtype=np.float32)
    sums_from_0 = np.vstack([np.zeros_like(sums[:1]), sums]).astype(np.float64)

    angles = np.arctan2(observed.sin, observed.cos)[is_near]
    errors = wrap_angles(angles - sums_from_0[places])
    return bool(np.abs(errors).max() <= tolerance)
