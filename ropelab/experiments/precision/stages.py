"""What each cast plan does to angles, tables of cos and sin, distinct positions and
scores. A cast plan says to which format each stage of an implementation is rounded.

The phase of a plan is the part that decides its angles: position, inv_freq and angle.
Plans with the same phase are measured together. Positions are split into octaves: [1, 2),
[2, 4), [4, 8), ...
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
    spectrum_of,
)
from ropelab.experiments.precision.shifts import make_drift_cell
from ropelab.experiments.precision.sines import make_reductions_cell
from ropelab.experiments.precision.stored_keys import make_keys_cell
from ropelab.math.methods import scaling_for
from ropelab.math.numerics import scores
from ropelab.math.numerics.angle_errors import (
    STRETCH,
    Worst,
    find_first_beyond,
    find_worst_by_octave,
    find_worst_table_error,
)
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.resolution import HASHES_IN_MEMORY, count_distinct
from ropelab.math.numerics.spread import FARTHEST, WHOLE, Spreads
from ropelab.runs.cell import Advance
from ropelab.runs.tables import Tables

# Query positions at which score errors are measured.
QUERIES = 16

# Seconds per position and pair: to count the distinct tables of one phase, and all else
# of one plan.
SECONDS_PER_TABLE = 2e-8
SECONDS_PER_PLAN = 2e-10
# Seconds per position and pair for the spread at every distance, which is computed for
# up to WHOLE positions.
SECONDS_PER_SPREAD = 1.5e-7
# Errors are searched in stretches of STRETCH positions, each with a bound per pair: the
# seconds and bytes of a bound, and the bytes of a stretch.
SECONDS_PER_BOUND = 1e-8
BYTES_PER_BOUND = 24.0
BYTES_PER_STRETCH = 130.0


def make_stage_cells(config: PrecisionConfig) -> list[PrecisionCell]:
    """Return the cells of all cast plans, of further lengths in float32, of shifted
    positions, of sines of large arguments, and of stored keys.
    """
    # Plans that round the same stages of the phase are in one cell. It computes the angles
    # of equal phases once.
    groups: dict[tuple[str, ...], dict[str, CastPlan]] = {}
    for entry in list_entries(config):
        rounded_stages = tuple(name for name, _ in entry.plan.phase.list_inexact())
        group = groups.setdefault(rounded_stages, {})
        # A repair may be the plan of another entry, too: each plan is measured once.
        group[entry.plan.label] = entry.plan
    cells = [
        _make_plans_cell(config, stages, plans) for stages, plans in groups.items()
    ]

    # Further lengths show from where on float32 is wrong. The answer about an
    # implementation does not need them.
    if not read_implementations(config):
        cells += [_make_long_cell(config, length) for length in config.long_lengths]
    cells.append(make_drift_cell(config))
    cells.append(make_reductions_cell(config))
    if config.cache:
        cells.append(make_keys_cell(config))
    return cells


def _make_plans_cell(
    config: PrecisionConfig, stages: Sequence[str], plans: Mapping[str, CastPlan]
) -> PrecisionCell:
    """Return the cell of plans, by their labels, that round these stages of the phase."""
    pairs = config.rotated / 2
    # If the angles are exact, or the tables of rounded angles are, distinct tables are
    # counted without computing a cosine, in no time.
    slow_phases = set()
    for plan in plans.values():
        has_exact_angles = plan.phase == CastPlan()
        has_exact_table = plan.phase == plan.storage
        if not has_exact_angles and not has_exact_table:
            slow_phases.add(plan.phase)

    seconds = len(plans) * SECONDS_PER_PLAN + len(slow_phases) * SECONDS_PER_TABLE
    if config.length <= WHOLE:
        # The spread of the other plans is 0, without computing it.
        with_spread = [plan for plan in plans.values() if not plan.consistent]
        seconds += len(with_spread) * SECONDS_PER_SPREAD

    # Four lists of hashes of 8 bytes are held.
    hashes = 8 * min(config.length, HASHES_IN_MEMORY) * 4
    return make_cell(
        config,
        (*ROTARY, *SCORED, "tolerance"),
        kind="precision-casts",
        version=4,
        title=f"which cast is wrong: {', '.join(stages) or 'after the cosine'}",
        function=measure_plans,
        inputs={"plans": list(plans)},
        seconds=config.length * pairs * seconds,
        memory=hashes + _count_bytes_of_stretches(config, config.length),
        scores=count_scores(config, pairs),
    )


def _count_bytes_of_stretches(config: PrecisionConfig, length: int) -> float:
    per_stretch = BYTES_PER_STRETCH + BYTES_PER_BOUND * config.rotated / 2
    return length / STRETCH * per_stretch


def _make_long_cell(config: PrecisionConfig, length: int) -> PrecisionCell:
    """Return the cell of float32 angles at a further length."""
    return make_cell(
        config,
        (*ROTARY, "tolerance"),
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
    spectrum = spectrum_of(config)
    chains_by_phase: dict[CastPlan, list[Chain]] = {}
    for plan in map(parse_cast, plans):
        chains_by_phase.setdefault(plan.phase, []).append(Chain(plan, spectrum))

    rows: list[dict[str, Any]] = []
    growth: list[dict[str, Any]] = []
    spread: list[dict[str, Any]] = []
    for phase, chains in chains_by_phase.items():
        phase_chain = Chain(phase, spectrum)
        octaves = find_worst_by_octave(phase_chain, config.offset, config.length)
        growth += _list_growth(phase, octaves)
        spreads = [
            Spreads(chain, config.offset, config.length, config.seed)
            for chain in chains
        ]
        rows += _measure_plans_of_phase(config, phase_chain, spreads, octaves)
        for spreads_of_plan in spreads:
            spread += _measure_distances(spreads_of_plan)
        advance(len(chains) / len(plans))
    return {
        "plans": pd.DataFrame(rows),
        "growth": pd.DataFrame(growth),
        "spread": pd.DataFrame(spread),
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
    spreads: Sequence[Spreads],
    octaves: Sequence[Worst],
) -> Iterator[dict[str, Any]]:
    """Yield a row of `plans` for each plan of one phase; `spreads` has one item a plan."""
    offset = config.offset
    length = config.length
    queries = scores.sample_positions(offset, length, QUERIES)
    keys = scores.draw_earlier_keys(queries, offset, config.seed)
    pairs = phase_chain.spectrum.pairs
    vectors = scores.draw(config.draws, pairs, "random", config.seed)
    unrounded = Chain(CastPlan(), phase_chain.spectrum)
    exact_scores = scores.compute_scores(unrounded, vectors, queries, keys)

    angles = _describe_angles(phase_chain, octaves, config.tolerance)
    status = "ok"
    if math.isnan(angles["max_angle_error_rad"]):
        status = f"overflows from position {angles['worst_position']}"
    # Plans of the same phase that round the table to the same format have equal tables.
    chain_by_format = {item.stored.plan.table: item.stored for item in spreads}
    table_errors = {}
    for fmt, stored_chain in chain_by_format.items():
        table_errors[fmt] = find_worst_table_error(stored_chain, octaves)
    distinct = count_distinct(phase_chain, list(chain_by_format), offset, length)

    for spreads_of_plan in spreads:
        chain = spreads_of_plan.chain
        rounded_scores = scores.compute_scores(chain, vectors, queries, keys)
        spread = spreads_of_plan.measure_overall()
        yield {
            "plan": chain.plan.label,
            **angles,
            "max_table_error": table_errors[chain.plan.table],
            "distinct_positions": distinct[chain.plan.table],
            "rms_score_error": scores.rms_error(rounded_scores, exact_scores),
            "score_spread": spread.value,
            "spread_ci_low": spread.low,
            "spread_ci_high": spread.high,
            "grows_with_position": _grow_with_position(octaves),
            "status": status,
        }


def _measure_distances(spreads: Spreads) -> Iterator[dict[str, Any]]:
    """Yield a row of `spread` for each of some distances."""
    for distance in _choose_distances(spreads.length):
        interval = spreads.measure_at_distance(distance)
        yield {
            "plan": spreads.chain.plan.label,
            "distance_tokens": distance,
            "score_spread": interval.value,
            "ci_low": interval.low,
            "ci_high": interval.high,
        }


def _choose_distances(length: int) -> list[int]:
    """Return powers of two up to three quarters of the length, and odd numbers between.

    Positions that are rounded to few bits are most exact at multiples of powers of two,
    so that these alone would show too little.
    """
    farthest = max(1, int(length * FARTHEST))
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
        "first_position_over_tolerance": find_first_beyond(chain, octaves, tolerance),
    }


def _grow_with_position(octaves: Sequence[Worst]) -> bool:
    """Return True if angles overflow, or if an error exceeds twice that of the first
    octave that has any error.
    """
    errors = [octave.error_rad for octave in octaves if octave.error_rad != 0]
    # The error of an octave that overflows is nan, which is not greater than any number.
    if any(math.isnan(error) for error in errors):
        return True
    return any(error > 2 * errors[0] for error in errors)


def measure_long(config: PrecisionConfig, *, further: int, advance: Advance) -> Tables:
    """Return `long`, one row: the angles at a further length, in float32 throughout."""
    chain = Chain(parse_cast("all=float32").phase, spectrum_of(config))
    octaves = find_worst_by_octave(chain, config.offset, further)
    row = {
        "kind": "long",
        "name": f"float32 angles, {further} positions",
        "plan": chain.plan.label,
        "length": further,
        "offset": config.offset,
        **_describe_angles(chain, octaves, config.tolerance),
        "grows_with_position": _grow_with_position(octaves),
        "status": "angles only",
    }
    advance(1)
    return {"long": pd.DataFrame([row])}


def make_cast_tables(config: PrecisionConfig, measured: Tables) -> Tables:
    """Return the tables `casts`, `growth` and `spread`: the entries of a run joined with
    what was measured of their plans.
    """
    entries = list_entries(config)
    scaling, factor_from = scaling_for(config, config.offset + config.length)
    about_entries = pd.DataFrame(entries).assign(
        plan=[entry.plan.label for entry in entries],
        length=config.length,
        offset=config.offset,
    )

    # Several entries may have one plan: a repair may be an implementation, or the repair
    # of another one.
    casts = about_entries.merge(
        measured["plans"], on="plan", how="left", validate="many_to_one"
    )
    if "long" in measured:
        casts = pd.concat([casts, measured["long"]], ignore_index=True)
    casts = casts.assign(method=scaling.label, factor_from=factor_from)

    # Repairs are left out of the curves: they would hide those of the implementations.
    phases = [entry.plan.phase.label for entry in entries]
    curves = about_entries.assign(phase=phases)
    curves = curves[curves["kind"] != "repair"]
    identity = ["kind", "name", "stage", "format"]
    growth = curves[[*identity, "phase"]].merge(
        measured["growth"], on="phase", how="left"
    )
    spread = curves[[*identity, "plan"]].merge(
        measured["spread"], on="plan", how="left"
    )
    return {
        "casts": casts,
        "growth": growth.drop(columns="phase"),
        "spread": spread.drop(columns="plan"),
    }
