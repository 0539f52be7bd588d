"""Compare the tables of a code with the right ones, and name the first fault.

The first of these that is wrong is the answer: numbers that are not finite, pairs and
their place, blocks that are no rotation, swapped tables, positions, rotated width,
frequencies, factor on cos and sin, casts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ropelab.conformance import explained
from ropelab.conformance.blocks import explain_blocks
from ropelab.conformance.cast_plans import compare_casts
from ropelab.conformance.expected import Expected
from ropelab.conformance.frequencies import explain_frequencies
from ropelab.conformance.observation import Fault, Observed, Table, are_bounded
from ropelab.conformance.positions import explain_positions
from ropelab.conformance.rotations import NOT_FINITE
from ropelab.runs.rows import Result, Rows

LARGE_ARGUMENTS = "sin and cos of large arguments"
REDUCE = "reduce angles by 2 pi in float64, or in three terms with fma"


@dataclass(frozen=True)
class Check(Result):
    """The answer and the advice; a row per cast plan, by how near its tables are."""

    answer: str
    wrong: bool
    fix: str = ""
    # The user's function, with what it was given.
    called: str = ""
    rows: Mapping[str, Rows] = field(default_factory=lambda: {"casts": ()})


def diagnose(observed: Observed, expected: Expected, tolerance: float) -> Check:
    """Name the first thing that is wrong, also at further positions."""
    done = judge(observed, expected, tolerance)
    if not done.wrong and observed.between is not None:
        fault = explained.explain_further(observed.between, expected, tolerance)
        if fault:
            answer, fix = fault
            done = replace(done, answer=answer, wrong=True, fix=fix)
    return replace(done, called=observed.called)


def judge(observed: Observed, expected: Expected, tolerance: float) -> Check:
    """Name the first thing that is wrong at the positions that are looked at."""
    is_finite = are_bounded(observed.cos)
    is_finite = is_finite and are_bounded(observed.sin)
    if not is_finite:
        return Check(
            "tables hold numbers that are not finite", True, "see how they are made"
        )
    fault = explain_shape(observed, expected)
    if fault:
        answer, fix = fault
        return Check(answer, True, fix)

    right_cos, _ = expected.rotation.tables(observed.positions)
    rows = []
    if observed.cos.shape == right_cos.shape:
        rows = compare_casts(observed, expected)
    fault = explain_numbers(observed, expected, rows)
    if fault:
        answer, fix = fault
        return Check(answer, True, fix, rows={"casts": rows})
    if not rows:
        answer = (
            f"cos and sin times {expected.spec.attention_factor:g} overflow float32"
        )
        return Check(answer, True, "a smaller attention factor")
    return judge_angles(observed, expected, tolerance, rows)


def explain_shape(observed: Observed, expected: Expected) -> Fault | None:
    """Name faults of pairs, blocks and tables, and of positions."""
    fault = observed.fault
    if fault == NOT_FINITE:
        # What it does before may tell why.
        drift = explained.explain_drift(observed)
        if drift:
            fault = (drift, explained.NO_DRIFT)
    if fault is None and observed.blocks is not None:
        right = expected.rotation.tables(observed.positions)
        fault = explain_blocks(observed.blocks, right)
    return (
        fault
        or explained.explain_tables(observed, expected)
        or explain_positions(observed, expected)
    )


def explain_numbers(
    observed: Observed,
    expected: Expected,
    rows: list[dict[str, Any]],
) -> Fault | None:
    """Name faults of factors and frequencies."""
    # Angles of tables with uneven factors say nothing.
    fault = explained.explain_uneven_gain(observed)
    if fault:
        return fault

    # A cast that fits explains frequencies that are off, but for float32, which is no
    # mistake.
    is_cast = False
    if rows:
        nearest = rows[0]
        fits = nearest["mean_difference"] < 1e-3
        is_cast = fits and nearest["cast"] != "float32"
    if not is_cast:
        fault = explain_frequencies(observed, expected)
    return fault or explained.explain_gain(observed.gain, expected.spec)


def judge_angles(
    observed: Observed,
    expected: Expected,
    tolerance: float,
    rows: list[dict[str, Any]],
) -> Check:
    """Compare angles with what float32 may lose, and name the stage that loses more."""
    angles = expected.inv_freq * observed.positions[:, None]
    off = np.arctan2(observed.sin, observed.cos) - angles
    errors = np.abs(explained.wrap_angles(off))
    honest = expected.budget().angles(observed.positions)
    is_within = (errors <= tolerance + honest).all(axis=1)
    beyond = np.flatnonzero(~is_within)
    if not beyond.size:
        largest = max(tolerance, float(errors.max()))
        within = f"within {largest:.2g} rad up to position {observed.positions.max()}"
        nearest = f"nearest to {rows[0]['cast']}"
        parts = (within, nearest, observed.note, expected.note)
        answer = "; ".join(part for part in parts if part)
        return Check(answer, False, rows={"casts": rows})

    first = int(observed.positions[beyond].min())
    worst = np.unravel_index((errors - honest).argmax(), errors.shape)
    stage, fix = name_stage(off, observed, expected, tolerance, rows)
    answer = (
        f"{stage}: off by {errors[worst]:.3g} rad, more than {tolerance:g} rad from"
        f" position {first}"
    )
    return Check(answer, True, fix, rows={"casts": rows})


def name_stage(
    off: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
    rows: list[dict[str, Any]],
) -> Fault:
    """Return the stage that loses the angles, and what to do."""
    best = rows[0]["cast"]
    distances = {row["cast"]: row["mean_difference"] for row in rows}
    is_unexplained = distances[best] > distances["float32"] / 2
    # A table's format explains no error of an angle, unless it has 8 bits.
    is_table = best.startswith("table in ") and "float8" not in best
    period = ""
    if is_unexplained or is_table:
        period = explained.explain_period(off, observed, expected, tolerance)
    if period:
        return f"{LARGE_ARGUMENTS} ({period})", REDUCE
    if not is_unexplained:
        return best, "form angles in float32 and round only the table"
    if explained.are_summed(observed, expected, tolerance):
        answer = "angles are summed in float32 from token to token"
        return answer, "angle = position * inv_freq"
    return "no known rounding explains it", "compare angles position by position"
