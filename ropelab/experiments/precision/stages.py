"""What each cast plan does to angles, tables of cos and sin, distinct positions and
scores. A cast plan says to which format each stage of an implementation is rounded.

The phase of a plan is the part that decides its angles: position, inv_freq and angle.
Plans with the same phase are measured together. Positions are split into octaves: [1, 2),
[2, 4), [4, 8), ... An entry of a run is a plan with its name and its kind: an
implementation, an implementation with one stage made exact (a repair), or a single
rounded stage.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.plans import list_entries, read_implementations
from ropelab.experiments.precision.shared import (
    ROTARY,
    SCORED,
    PrecisionCell,
    count_scores,
    make_cell,
    make_spectrum,
)
from ropelab.experiments.precision.shifts import make_drift_cell
from ropelab.experiments.precision.sines import make_reductions_cell
from ropelab.experiments.precision.stored_keys import make_keys_cell
from ropelab.math.methods import resolve_scaling
from ropelab.math.numerics import scores
from ropelab.math.numerics.angle_errors import (
    STRETCH,
    Worst,
    find_first_wrong,
    find_worst_by_octave,
    find_worst_table_error,
)
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.resolution import HASHES_IN_MEMORY, count_distinct
from ropelab.math.numerics.spread import FARTHEST_SHARE, LONGEST_COUNTED, SpreadMeter
from ropelab.runs.cell import Advance
from ropelab.runs.tables import Tables

# The number of query positions at which score errors are measured.
QUERIES = 16

# Seconds per position and pair: to count the distinct tables of one phase, and for
# everything else that is measured of one plan.
SECONDS_PER_TABLE = 2e-8
SECONDS_PER_PLAN = 2e-10
# Seconds per position and pair for the spread at every distance, which is computed for
# up to LONGEST_COUNTED positions.
SECONDS_PER_SPREAD = 1.5e-7
# Errors are searched stretch by stretch. A stretch has STRETCH positions, and the search
# computes one upper bound for each pair of a stretch. These are the seconds and bytes that
# one bound takes, and the bytes that a stretch takes besides its bounds.
SECONDS_PER_BOUND = 1e-8
BYTES_PER_BOUND = 24.0
BYTES_PER_STRETCH = 130.0


def make_stage_cells(config: PrecisionConfig) -> list[PrecisionCell]:
    """Return the cells of all cast plans, of further lengths in float32, of shifted
    positions, of sines of large arguments, and of stored keys.
    """
    # Plans that round the same stages of the phase are in one cell, which computes the
    # angles of equal phases once.
    groups: dict[tuple[str, ...], dict[str, CastPlan]] = {}
    for entry in list_entries(config):
        rounded_stages = tuple(name for name, _ in entry.plan.phase.list_inexact())
        group = groups.setdefault(rounded_stages, {})
        # Two entries may have the same plan. For example, an implementation with one
        # stage made exact (a repair) may equal another implementation. Each plan is
        # measured once.
        group[entry.plan.label] = entry.plan
    cells = [
        _make_plans_cell(config, stages, plans) for stages, plans in groups.items()
    ]

    # Further lengths show from which position on float32 is wrong. They are left out if
    # the user named implementations, since the answer is then only about these.
    names_no_implementation = not read_implementations(config)
    if names_no_implementation:
        cells += [_make_long_cell(config, length) for length in config.long_lengths]
    cells.append(make_drift_cell(config))
    cells.append(make_reductions_cell(config))
    if config.cache:
        cells.append(make_keys_cell(config))
    return cells


def _make_plans_cell(
    config: PrecisionConfig, stages: Sequence[str], plans: Mapping[str, CastPlan]
) -> PrecisionCell:
    """Return the cell of the plans that round these stages of the phase.

    `plans` has the plans by their labels.
    """
    pairs = config.rotated / 2
    # To count distinct tables takes time only if both the angles and the table of a plan
    # are rounded. Otherwise the count follows without computing a cosine.
    slow_phases = set()
    for plan in plans.values():
        if not plan.has_exact_angles and not plan.has_exact_table:
            slow_phases.add(plan.phase)

    seconds = len(plans) * SECONDS_PER_PLAN + len(slow_phases) * SECONDS_PER_TABLE
    if config.length <= LONGEST_COUNTED:
        # The spread of a consistent plan is 0, and nothing is computed for it.
        plans_with_spread = [plan for plan in plans.values() if not plan.consistent]
        seconds += len(plans_with_spread) * SECONDS_PER_SPREAD

    # Four lists of hashes of 8 bytes are held.
    hash_bytes = 8 * min(config.length, HASHES_IN_MEMORY) * 4
    return make_cell(
        config,
        field_names=(*ROTARY, *SCORED, "tolerance"),
        kind="precision-casts",
        version=5,
        title=f"which cast is wrong: {', '.join(stages) or 'after the cosine'}",
        function=measure_plans,
        inputs={"plans": list(plans)},
        seconds=config.length * pairs * seconds,
        memory=hash_bytes + _count_bytes_of_stretches(config, config.length),
        scores=count_scores(config, pairs),
    )


def _count_bytes_of_stretches(config: PrecisionConfig, length: int) -> float:
    """Count the bytes that the search for errors in a range of positions takes."""
    per_stretch = BYTES_PER_STRETCH + BYTES_PER_BOUND * config.rotated / 2
    return length / STRETCH * per_stretch


def _make_long_cell(config: PrecisionConfig, length: int) -> PrecisionCell:
    """Return the cell of float32 angles at a further length."""
    return make_cell(
        config,
        field_names=(*ROTARY, "tolerance"),
        kind="precision-long",
        title=f"float32 angles, {length} positions",
        function=measure_long,
        inputs={"further": length},
        seconds=length / STRETCH * (config.rotated / 2) * SECONDS_PER_BOUND,
        memory=_count_bytes_of_stretches(config, length),
    )


def measure_plans(
    config: PrecisionConfig, *, plans: Sequence[str], advance: Advance
) -> Tables:
    """Return the errors of cast plans, given by their labels.

    - plans: a row per plan;
    - growth: a row per phase and octave, the worst error of an angle;
    - spread: a row per plan and distance, the change of a score with position.
    """
    spectrum = make_spectrum(config)
    chains_by_phase: dict[CastPlan, list[Chain]] = {}
    for plan in map(parse_cast, plans):
        chains_by_phase.setdefault(plan.phase, []).append(Chain(plan, spectrum))

    plan_rows: list[dict[str, Any]] = []
    growth_rows: list[dict[str, Any]] = []
    spread_rows: list[dict[str, Any]] = []
    for phase, chains in chains_by_phase.items():
        phase_chain = Chain(phase, spectrum)
        octaves = find_worst_by_octave(phase_chain, config.offset, config.length)
        growth_rows += _list_growth(phase, octaves)
        meters = [
            SpreadMeter(chain, config.offset, config.length, config.seed)
            for chain in chains
        ]
        plan_rows += _measure_plans_of_phase(config, phase_chain, meters, octaves)
        for meter in meters:
            spread_rows += _measure_distances(meter)
        advance(len(chains) / len(plans))
    return {
        "plans": pd.DataFrame(plan_rows),
        "growth": pd.DataFrame(growth_rows),
        "spread": pd.DataFrame(spread_rows),
    }


def _list_growth(phase: CastPlan, octaves: Sequence[Worst]) -> Iterator[dict[str, Any]]:
    """Yield a row of `growth` for each octave."""
    for octave in octaves:
        yield {
            "phase": phase.label,
            "position_start": octave.start,
            "position_end": octave.stop - 1,
            "max_angle_error_rad": octave.error_rad,
            "status": "overflow" if octave.overflows else "ok",
        }


def _measure_plans_of_phase(
    config: PrecisionConfig,
    phase_chain: Chain,
    meters: Sequence[SpreadMeter],
    octaves: Sequence[Worst],
) -> Iterator[dict[str, Any]]:
    """Yield a row of `plans` for each plan of one phase; each plan has its meter."""
    offset = config.offset
    length = config.length
    queries = scores.sample_positions(offset, length, QUERIES)
    keys = scores.draw_earlier_keys(queries, offset, config.seed)
    head_pairs = phase_chain.spectrum.head_pairs
    vectors = scores.draw(config.draws, head_pairs, "random", config.seed)
    unrounded = Chain(CastPlan(), phase_chain.spectrum)
    exact_scores = scores.compute_scores(unrounded, vectors, queries, keys)

    angles = _describe_angles(phase_chain, octaves, config.tolerance)
    status = "ok"
    if math.isnan(angles["max_angle_error_rad"]):
        status = f"overflows from position {angles['worst_position']}"
    # Plans of the same phase that round the table to the same format have equal tables.
    # `stored_chain` is a plan without its roundings after the table.
    chain_by_format = {
        meter.stored_chain.plan.table: meter.stored_chain for meter in meters
    }
    table_errors = {}
    for fmt, stored_chain in chain_by_format.items():
        table_errors[fmt] = find_worst_table_error(stored_chain, octaves)
    distinct = count_distinct(phase_chain, list(chain_by_format), offset, length)

    for meter in meters:
        chain = meter.chain
        rounded_scores = scores.compute_scores(chain, vectors, queries, keys)
        score_spread = meter.measure_overall()
        yield {
            "plan": chain.plan.label,
            **angles,
            "max_table_error": table_errors[chain.plan.table],
            "distinct_positions": distinct[chain.plan.table],
            "rms_score_error": scores.rms_error(rounded_scores, exact_scores),
            "score_spread": score_spread.value,
            "spread_ci_low": score_spread.low,
            "spread_ci_high": score_spread.high,
            "grows_with_position": _has_growing_errors(octaves),
            "status": status,
        }


def _measure_distances(meter: SpreadMeter) -> Iterator[dict[str, Any]]:
    """Yield a row of `spread` for each of some distances."""
    for distance in _choose_distances(meter.length):
        score_spread = meter.measure_at_distance(distance)
        yield {
            "plan": meter.chain.plan.label,
            "distance_tokens": distance,
            "score_spread": score_spread.value,
            "ci_low": score_spread.low,
            "ci_high": score_spread.high,
        }


def _choose_distances(length: int) -> list[int]:
    """Return powers of two up to three quarters of the length, and odd numbers between.

    Positions that are rounded to few bits are most exact at multiples of powers of two,
    so that powers of two alone would show a spread that is too small.
    """
    farthest = max(1, int(length * FARTHEST_SHARE))
    distances = set()
    for exponent in range(farthest.bit_length()):
        power = 2**exponent
        # The geometric mean of this power and the next, made odd by its last bit.
        odd = math.isqrt(2 * power**2) | 1
        distances |= {power, odd}
    return sorted(distance for distance in distances if distance <= farthest)


def _describe_angles(
    chain: Chain, octaves: Sequence[Worst], tolerance: float
) -> dict[str, Any]:
    """Return the columns about angles: the worst error, or the first overflow if there
    is one.
    """
    # The error of an octave that overflows is nan, which `max` may pass over.
    overflowing = [octave for octave in octaves if octave.overflows]
    if overflowing:
        worst = overflowing[0]
    else:
        worst = max(octaves, key=lambda octave: octave.error_rad)
    return {
        "max_angle_error_rad": worst.error_rad,
        "worst_position": worst.position,
        "worst_pair": worst.pair,
        "first_position_over_tolerance": find_first_wrong(chain, octaves, tolerance),
    }


def _has_growing_errors(octaves: Sequence[Worst]) -> bool:
    """Return True if angles overflow, or if the error of an octave exceeds twice the
    error of the first octave that has any error.
    """
    errors = [octave.error_rad for octave in octaves if octave.error_rad != 0]
    # The error of an octave that overflows is nan, which is not greater than any number.
    if any(math.isnan(error) for error in errors):
        return True
    return any(error > 2 * errors[0] for error in errors)


def measure_long(config: PrecisionConfig, *, further: int, advance: Advance) -> Tables:
    """Return `long`, one row: the angles at a further length, in float32 throughout."""
    chain = Chain(parse_cast("all=float32").phase, make_spectrum(config))
    octaves = find_worst_by_octave(chain, config.offset, further)
    row = {
        "kind": "long",
        "name": f"float32 angles, {further} positions",
        "plan": chain.plan.label,
        "length": further,
        "offset": config.offset,
        **_describe_angles(chain, octaves, config.tolerance),
        "grows_with_position": _has_growing_errors(octaves),
        "status": "angles only",
    }
    advance(1)
    return {"long": pd.DataFrame([row])}


def make_cast_tables(config: PrecisionConfig, measured: Tables) -> Tables:
    """Return the tables `casts`, `growth` and `spread`: the entries of a run joined with
    what was measured of their plans.
    """
    entries = list_entries(config)
    last_length = config.offset + config.length
    scaling, factor_in_words = resolve_scaling(config, last_length)
    about_entries = pd.DataFrame(entries).assign(
        plan=[entry.plan.label for entry in entries],
        length=config.length,
        offset=config.offset,
    )

    # Several entries may have one plan: an implementation with one stage made exact (a
    # repair) may equal another implementation, or one of its repairs.
    casts = about_entries.merge(
        measured["plans"], on="plan", how="left", validate="many_to_one"
    )
    if "long" in measured:
        casts = pd.concat([casts, measured["long"]], ignore_index=True)
    casts = casts.assign(method=scaling.label, factor_from=factor_in_words)

    # Repairs are left out of the curves, since they would hide the curves of the
    # implementations.
    phases = [entry.plan.phase.label for entry in entries]
    curves = about_entries.assign(phase=phases)
    curves = curves[curves["kind"] != "repair"]
    entry_columns = ["kind", "name", "stage", "format"]
    growth = curves[[*entry_columns, "phase"]].merge(
        measured["growth"], on="phase", how="left"
    )
    spread = curves[[*entry_columns, "plan"]].merge(
        measured["spread"], on="plan", how="left"
    )
    return {
        "casts": casts,
        "growth": growth.drop(columns="phase"),
        "spread": spread.drop(columns="plan"),
    }
