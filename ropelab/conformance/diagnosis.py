"""Compare the tables of a code with the right tables, and name the first fault.

A code is an implementation under test. It is known by the cos and sin that it gives
each pair of features at some positions (`Observed`). The following is checked, in this
order: whether all numbers are finite, the pairs and the features that rotate, swapped
tables, positions, frequencies, the factor on cos and sin, and at last how far angles
are off by rounding. A later fault means nothing where an earlier one was found.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ropelab.conformance.angles import (
    LARGE_ARGUMENTS,
    REDUCE_ANGLES,
    are_angles_accumulated,
    are_angles_multiplied,
    describe_small_loss,
    explain_clamp,
    explain_more_positions,
    explain_period,
    explain_products,
    explain_steps,
    name_shifted_pairs,
    wrap_angles,
)
from ropelab.conformance.blocks import explain_blocks
from ropelab.conformance.cast_plans import compare_casts
from ropelab.conformance.expected import Expected
from ropelab.conformance.frequencies import UNEXPLAINED, explain_frequencies
from ropelab.conformance.gains import (
    NO_DRIFT,
    explain_drift,
    explain_gain,
    explain_uneven_gain,
)
from ropelab.conformance.observation import (
    UNBOUNDED_TABLES,
    Fault,
    Observed,
    Table,
    are_bounded,
)
from ropelab.conformance.positions import explain_positions
from ropelab.conformance.rotations import NOT_FINITE
from ropelab.conformance.sines import (
    LEAST_OF_SLOW_PAIRS,
    explain_sine,
    find_table_steps,
)
from ropelab.conformance.usual import HALF_FORMATS
from ropelab.conformance.wrong_tables import explain_tables
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.rows import Result, Rows

# The largest mean difference between observed tables and the tables of a rounding that
# explains them.
FIT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Check(Result):
    """The answer about a code: its mistake, or that it is right, and what to do."""

    answer: str
    wrong: bool
    fix: str = ""
    # The user's function with its arguments, in words.
    called: str = ""
    # A row for each way of rounding, the way with the nearest tables first.
    rows: Mapping[str, Rows] = field(default_factory=lambda: {"casts": ()})


def diagnose(observed: Observed, expected: Expected, tolerance: float) -> Check:
    """Name the first thing that is wrong.

    Args:
        observed: what a code computes.
        expected: what it should compute.
        tolerance: radians by which an angle may be off beyond what float32 loses.
    """
    result = judge(observed, expected, tolerance)
    if not result.wrong and observed.further is not None:
        fault = explain_more_positions(observed.further, expected, tolerance)
        if fault:
            answer, fix = fault
            result = replace(result, answer=answer, wrong=True, fix=fix)
    return replace(result, called=observed.called)


def judge(observed: Observed, expected: Expected, tolerance: float) -> Check:
    """Name the first thing that is wrong at the positions of ``observed`` itself, and
    not at the further ones.
    """
    if not (are_bounded(observed.cos) and are_bounded(observed.sin)):
        answer, fix = UNBOUNDED_TABLES
        return Check(answer, wrong=True, fix=fix)
    fault = explain_shape(observed, expected)
    if fault:
        answer, fix = fault
        return Check(answer, wrong=True, fix=fix)

    right_cos, _ = expected.rotation.tables(observed.positions)
    rows = []
    if observed.cos.shape == right_cos.shape:
        rows = compare_casts(observed, expected)
    fault = explain_numbers(observed, expected, rows, tolerance)
    if fault:
        answer, fix = fault
        return Check(answer, wrong=True, fix=fix, rows={"casts": rows})
    if not rows:
        answer = (
            f"cos and sin times {expected.spec.attention_factor:g} overflow float32"
        )
        return Check(answer, wrong=True, fix="a smaller attention factor")
    return judge_angles(observed, expected, tolerance, rows)


def explain_shape(observed: Observed, expected: Expected) -> Fault | None:
    """Name faults of pairs, blocks and tables, and of positions."""
    fault = observed.fault
    if fault == NOT_FINITE:
        # The results at positions with finite numbers may tell why.
        drift = explain_drift(observed)
        if drift:
            fault = (drift, NO_DRIFT)

    if fault is None and observed.blocks is not None:
        right = expected.rotation.tables(observed.positions)
        fault = explain_blocks(observed.blocks, right)

    # An explanation is tried only if the explanations before it found nothing.
    return (
        fault
        or explain_tables(observed, expected)
        or explain_positions(observed, expected)
    )


def explain_numbers(
    observed: Observed,
    expected: Expected,
    rows: list[dict[str, Any]],
    tolerance: float,
) -> Fault | None:
    """Name faults of factors and frequencies.

    Args:
        observed: what a code computes.
        expected: what it should compute.
        rows: the rows of `compare_casts`.
        tolerance: radians by which an angle may be off beyond what float32 loses.
    """
    # If factors differ from entry to entry, angles cannot be read off the tables, and
    # the faults of angles below are not looked for.
    fault = explain_uneven_gain(observed)
    if fault:
        return (
            explain_sine(observed, expected)
            or explain_products(observed, expected)
            or fault
        )

    # Rounding to a small format, where it fits, explains frequencies that are off.
    is_rounded = False
    if rows:
        nearest = rows[0]
        fits = nearest["mean_difference"] < FIT_TOLERANCE
        is_rounded = fits and nearest["cast"] != "float32"

    # Slow pairs of a rounded table seem to have other frequencies, though their angles are
    # hardly off.
    is_within = are_angles_within(observed, expected, tolerance)
    steps = 0.0 if is_rounded or not rows else find_table_steps(observed, expected)
    if steps and not is_within:
        answer = (
            f"cos and sin come in steps of 1 / {steps:g}, as numbers of few bits do"
        )
        return answer, "keep cos and sin in 16 bits or more"

    if not is_rounded and not steps:
        fault = (
            explain_steps(observed, expected)
            or explain_clamp(observed, expected)
            or explain_sine(observed, expected)
        )
        if not fault:
            fault = explain_frequencies(observed, expected)
            if fault and UNEXPLAINED in fault[0]:
                fault = (
                    explain_products(observed, expected)
                    or explain_sine(observed, expected, LEAST_OF_SLOW_PAIRS)
                    or (None if is_within else fault)
                )
    return fault or explain_gain(observed.gain, expected.spec)


def are_angles_within(observed: Observed, expected: Expected, tolerance: float) -> bool:
    """Return True if no angle is off by more than is tolerated."""
    right = expected.inv_freq * observed.positions[:, None]
    if observed.cos.shape != right.shape:
        return False
    errors = np.abs(wrap_angles(np.arctan2(observed.sin, observed.cos) - right))
    allowed = tolerance + expected.budget().angles(observed.positions)
    # NaN compares False, so that it counts as wrong.
    return bool((errors <= allowed).all())


def judge_angles(
    observed: Observed,
    expected: Expected,
    tolerance: float,
    rows: list[dict[str, Any]],
) -> Check:
    """Compare angles with what float32 may lose, and name the stage that loses more.

    ``rows``: the rows of `compare_casts`, the nearest plan first.
    """
    right = expected.inv_freq * observed.positions[:, None]
    differences = np.arctan2(observed.sin, observed.cos) - right
    errors = np.abs(wrap_angles(differences))
    lost_in_float32 = expected.budget().angles(observed.positions)
    # NaN compares False, so that it counts as wrong.
    is_within = (errors <= tolerance + lost_in_float32).all(axis=1)
    wrong_rows = np.flatnonzero(~is_within)
    # The kits of `ropelab vectors` allow what a recurrence over pairs loses, too.
    remark = ""
    if wrong_rows.size and are_angles_multiplied(observed, expected, tolerance):
        remark = "angles are multiplied in float32 from pair to pair, as ggml does"
    if remark or not wrong_rows.size:
        largest = max(tolerance, float(errors.max()))
        within = f"within {largest:.2g} rad up to position {observed.positions.max()}"
        nearest = f"nearest to {rows[0]['cast']}"
        loss_of_sine = describe_small_loss(differences, observed, expected)
        parts = (within, nearest, remark, loss_of_sine, observed.note, expected.note)
        answer = "; ".join(part for part in parts if part)
        return Check(answer, wrong=False, rows={"casts": rows})

    first = int(observed.positions[wrong_rows].min())
    excess = errors - lost_in_float32
    worst = np.unravel_index(excess.argmax(), errors.shape)
    stage, fix = name_stage(differences, observed, expected, tolerance, rows)
    # Not every position is asked for, so that an earlier position may be off, too.
    answer = (
        f"{stage}: off by {errors[worst]:.3g} rad, and by more than {tolerance:g} first at"
        f" position {first} of those looked at"
    )
    return Check(answer, wrong=True, fix=fix, rows={"casts": rows})


def name_rounded_base(observed: Observed, expected: Expected, tolerance: float) -> str:
    """Name a base, or its logarithm, that is rounded to a small format; empty: none.

    Such a base is too near to the right one to show in single frequencies.
    """
    spec = expected.spec
    for name in HALF_FORMATS:
        number_format = FORMATS[name]
        rounded_base = float(round_to(np.array([spec.base]), number_format)[0])
        rounded_log = float(round_to(np.log([spec.base]), number_format)[0])
        power = -2 / spec.rotary_dim
        ratio = float(round_to(np.array([spec.base**power]), number_format)[0])
        bases = {
            "the base": rounded_base,
            "the logarithm of the base": math.exp(rounded_log),
            "the ratio of one frequency to the next": ratio ** (1 / power),
        }

        for words, base in bases.items():
            if not 1 < base < math.inf or base == spec.base:
                continue
            other = replace(expected, spec=replace(spec, base=base))
            if are_angles_within(observed, other, tolerance):
                return f"{words} is rounded to {name}, base {base:.7g}"
    return ""


def advise_against(cast: str) -> str:
    """Return what to keep in more bits, by the name of a cast plan that explains an error.

    >>> advise_against("inv_freq and table in bfloat16")
    'keep inv_freq in float32 and round only the table'
    """
    stages, _, _ = cast.partition(" in ")
    if stages == "table":
        return "keep cos and sin in 16 bits or more"

    # A plan that rounds one stage before the table forms angles in float32 already.
    stage = stages.removesuffix(" and table")
    if stage == "inv_freq":
        return "keep inv_freq in float32 and round only the table"
    if stage == "position":
        return "keep positions in integers and round only the table"
    return "form angles in float32 and round only the table"


def name_stage(
    differences: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
    rows: list[dict[str, Any]],
) -> Fault:
    """Return the stage of the computation that loses the angles, and what to do.

    ``differences``: the observed angles less the right angles.
    """
    # The errors of products of rotations grow with the position, as the errors of a wrong
    # 2 pi do. So products are looked for first.
    products = explain_products(observed, expected)
    if products:
        return products

    nearest = rows[0]["cast"]
    distances = {row["cast"]: row["mean_difference"] for row in rows}
    # A rounding explains the tables if it brings them twice as near.
    is_unexplained = distances[nearest] > distances["float32"] / 2
    # Rounding the finished table moves no angle so far, unless it has 8 bits.
    is_table = nearest.startswith("table in ") and "float8" not in nearest
    if is_unexplained or is_table:
        period = explain_period(differences, observed, expected, tolerance)
        if period:
            return f"{LARGE_ARGUMENTS} ({period})", REDUCE_ANGLES

    if not is_unexplained:
        return nearest, advise_against(nearest)
    if are_angles_accumulated(observed, expected, tolerance):
        answer = "angles are summed in float32 from token to token"
        return answer, "angle = position * inv_freq"
    shifted = name_shifted_pairs(differences, observed, expected, tolerance)
    if shifted:
        return shifted, "one position for all pairs"
    rounded = name_rounded_base(observed, expected, tolerance)
    if rounded:
        return rounded, "compute inv_freq in float32"
    return "no known rounding explains it", "compare angles position by position"
