"""Per-stage rounding: what each cast does to angles, tables, distinct positions and
scores.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision import encodings as shared
from ropelab.experiments.precision.sines import reductions_cell
from ropelab.math.methods import scaling_for
from ropelab.math.numerics import angle_errors, scores
from ropelab.math.numerics.angle_errors import (
    STRETCH,
    Worst,
    first_beyond,
    worst_by_octave,
)
from ropelab.math.numerics.casts import (
    PRESETS,
    STAGES,
    CastPlan,
    parse_cast,
    preset_named,
)
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.keys import COUNT, key_errors, parse_keys
from ropelab.math.numerics.resolution import HELD, count_distinct
from ropelab.math.numerics.spread import FARTHEST, WHOLE, Spreads
from ropelab.runs.cell import Advance
from ropelab.runs.stats import mean_interval
from ropelab.runs.tables import Tables

STAGE_FORMATS = (
    "float32",
    "tf32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)
# Offsets of keys, in deviations of a feature: none, and as large as those of some
# models.
OFFSETS = (0.0, 20.0)
# Query positions at which score errors are measured.
QUERIES = 16

# Per position and pair: counting the distinct tables of one phase, and all else of one
# plan.
SECONDS_PER_TABLE = 2e-8
SECONDS_PER_PLAN = 2e-10
# The spread at every distance, of up to WHOLE positions.
SECONDS_PER_SPREAD = 1.5e-7
# The bounds of a stretch of positions, per pair, and its place in the list.
SECONDS_PER_BOUND = 1e-8
BYTES_PER_BOUND = 24.0
BYTES_PER_STRETCH = 130.0


class Entry(NamedTuple):
    """A row of the table `casts`."""

    # 'stage' (alone in one format), 'preset', 'cast', 'repair' (one stage made exact)
    kind: str
    name: str
    plan: CastPlan
    stage: str | None = None
    format: str | None = None


def entries(config: PrecisionConfig) -> list[Entry]:
    """Return the implementations, each followed by itself with one stage at a time made
    exact.

    Without any, every stage alone in every format. InputError: an unknown preset, stage
    or format.
    """
    named = implementations(config)
    if not named:
        return _stage_entries(config)
    found = []
    for name, plan in named.items():
        found.append(Entry("cast" if "=" in name else "preset", name, plan))
        inexact = [stage for stage, _ in plan.inexact()]
        found += [Entry("repair", name, plan.repair(stage), stage) for stage in inexact]
    return found


def _stage_entries(config: PrecisionConfig) -> list[Entry]:
    """Return every stage alone, in the formats asked for or, by default, in six."""
    default = PrecisionConfig.model_fields["formats"].default
    formats: tuple[str, ...] = STAGE_FORMATS
    if config.formats != default:
        formats = tuple(shared.formats_of(config)[1:])

    rows = []
    for stage in STAGES:
        for name in formats:
            label = f"{stage}={name}"
            rows.append(Entry("stage", label, parse_cast(label), stage, name))
    return rows


def implementations(config: PrecisionConfig) -> dict[str, CastPlan]:
    """Return the cast plans that `preset` and `cast` name."""
    for name in config.preset:
        if name != "all":
            preset_named(name)
    names = PRESETS if "all" in config.preset else config.preset
    chosen = {name: preset_named(name).plan for name in names}
    if config.cast:
        cast = parse_cast(config.cast)
        chosen[cast.title] = cast
    return chosen


def stage_cells(config: PrecisionConfig) -> list[shared.Piece]:
    """Return the cells of all cast plans, of further lengths in float32, of the drift,
    of sines of large arguments, and of stored keys.
    """
    # Plans with equal angles are in one cell, which computes these once.
    groups: dict[tuple[str, ...], dict[str, CastPlan]] = {}
    for entry in entries(config):
        stages = tuple(name for name, _ in entry.plan.phase.inexact())
        groups.setdefault(stages, {})[entry.plan.label] = entry.plan
    rows = [_plans_cell(config, stages, plans) for stages, plans in groups.items()]

    # Further lengths say from where float32 is wrong; an implementation has an answer
    # of its own.
    if not implementations(config):
        rows += [_long_cell(config, length) for length in config.long_lengths]
    rows.append(_drift_cell(config))
    rows.append(reductions_cell(config))
    if config.cache:
        rows.append(_keys_cell(config))
    return rows


def _plans_cell(
    config: PrecisionConfig, stages: Sequence[str], plans: Mapping[str, CastPlan]
) -> shared.Piece:
    pairs = config.rotated / 2
    # Tables of exact angles, and exact tables, are counted without computing a cosine.
    slow = {
        plan.phase
        for plan in plans.values()
        if CastPlan() != plan.phase != plan.storage
    }
    each = len(plans) * SECONDS_PER_PLAN + len(slow) * SECONDS_PER_TABLE
    if config.length <= WHOLE:
        moving = [plan for plan in plans.values() if not plan.consistent]
        each += len(moving) * SECONDS_PER_SPREAD

    hashes = 8 * min(config.length, HELD) * 4
    return shared.piece(
        config,
        (*shared.ROTARY, *shared.SCORED, "tolerance"),
        kind="precision-casts",
        version=4,
        title=f"which cast is wrong: {', '.join(stages) or 'after the cosine'}",
        function=measure_plans,
        inputs={"plans": list(plans)},
        seconds=config.length * pairs * each,
        memory=hashes + _bytes_of_stretches(config, config.length),
        drawn=shared.drawn_scores(config, pairs),
    )


def _bytes_of_stretches(config: PrecisionConfig, length: int) -> float:
    per_stretch = BYTES_PER_STRETCH + BYTES_PER_BOUND * config.rotated / 2
    return length / STRETCH * per_stretch


def _long_cell(config: PrecisionConfig, length: int) -> shared.Piece:
    return shared.piece(
        config,
        (*shared.ROTARY, "tolerance"),
        kind="precision-long",
        title=f"float32 angles, {length} positions",
        function=measure_long,
        inputs={"further": length},
        seconds=length / STRETCH * (config.rotated / 2) * SECONDS_PER_BOUND,
        memory=_bytes_of_stretches(config, length),
    )


def _drift_cell(config: PrecisionConfig) -> shared.Piece:
    shifted = implementations(config)
    if not shifted:
        # The plans are: every format in all stages, float32 angles with the other stages
        # in bfloat16, and a rounded inv_freq, which this test cannot see.
        for name in shared.formats_of(config)[1:]:
            shifted[f"all {name}"] = parse_cast(f"all={name}")
        shifted["transformers_llama"] = PRESETS["transformers_llama"].plan
        shifted["inv_freq=bfloat16"] = parse_cast("inv_freq=bfloat16")

    drawn = shared.drawn_scores(config, config.rotated / 2)
    return shared.piece(
        config,
        (*shared.ROTARY, *shared.SCORED),
        kind="precision-drift",
        title="scores of shifted positions",
        function=measure_drift,
        inputs={"plans": [[name, plan.label] for name, plan in shifted.items()]},
        seconds=(len(shifted) - 1) * 3 * drawn * shared.SECONDS_PER_SCORE,
        drawn=3 * drawn,
    )


def _keys_cell(config: PrecisionConfig) -> shared.Piece:
    formats = list(dict.fromkeys(parse_keys(text).label for text in config.cache))
    return shared.piece(
        config,
        (*shared.ROTARY, "seed"),
        kind="precision-keys",
        version=3,
        title="stored keys",
        function=measure_keys,
        inputs={"stored": formats},
        seconds=0.0,
        drawn=len(formats) * len(OFFSETS) * COUNT * config.rotated / 2,
    )


def measure_plans(
    config: PrecisionConfig, *, plans: Sequence[str], advance: Advance
) -> Tables:
    """Return the errors of some cast plans: a row per plan, and `growth` per phase and
    octave.
    """
    rope = shared.spectrum_of(config)
    by_phase: dict[CastPlan, list[Chain]] = {}
    for plan in map(parse_cast, plans):
        by_phase.setdefault(plan.phase, []).append(Chain(plan, rope))

    rows: list[dict[str, Any]] = []
    growth: list[dict[str, Any]] = []
    spread: list[dict[str, Any]] = []
    for phase, members in by_phase.items():
        chain = Chain(phase, rope)
        octaves = worst_by_octave(chain, config.offset, config.length)
        for octave in octaves:
            growth.append(
                {
                    "phase": phase.label,
                    "position_start": octave.start,
                    "position_end": octave.stop - 1,
                    "max_angle_error_rad": octave.error_rad,
                    "status": "overflow" if octave.overflows else "ok",
                }
            )
        spreads = [
            Spreads(member, config.offset, config.length, config.seed)
            for member in members
        ]
        rows += _measure_members(config, chain, spreads, octaves)
        for each in spreads:
            spread += _measure_distances(each)
        advance(len(members) / len(plans))
    return {
        "plans": pd.DataFrame(rows),
        "growth": pd.DataFrame(growth),
        "spread": pd.DataFrame(spread),
    }


def _measure_members(
    config: PrecisionConfig,
    chain: Chain,
    spreads: Sequence[Spreads],
    octaves: Sequence[Worst],
) -> Iterator[dict[str, Any]]:
    """Yield a row of `plans` for each plan of one phase, whose angles `chain` has."""
    offset = config.offset
    length = config.length
    queries = scores.sample_positions(offset, length, QUERIES)
    keys = scores.earlier_keys(queries, offset, config.seed)
    vectors = scores.draw(config.draws, chain.spectrum.pairs, "random", config.seed)
    unrounded = Chain(CastPlan(), chain.spectrum)
    exact = scores.scores(unrounded, vectors, queries, keys)

    angles = _angle_errors(chain, octaves, config.tolerance)
    status = "ok"
    if math.isnan(angles["max_angle_error_rad"]):
        status = f"overflows from position {angles['worst_position']}"
    # Plans with one format of the table have one table.
    tables = {each.stored.plan.table: each.stored for each in spreads}
    errors = {
        table: angle_errors.worst_table_error(stored, octaves)
        for table, stored in tables.items()
    }
    distinct = count_distinct(chain, list(tables), offset, length)

    for spread in spreads:
        member = spread.chain
        rounded = scores.scores(member, vectors, queries, keys)
        overall = spread.overall()
        yield {
            "plan": member.plan.label,
            **angles,
            "max_table_error": errors[member.plan.table],
            "distinct_positions": distinct[member.plan.table],
            "rms_score_error": scores.rms_error(rounded, exact),
            "score_spread": overall.value,
            "spread_ci_low": overall.low,
            "spread_ci_high": overall.high,
            "grows_with_position": _grows(octaves),
            "status": status,
        }


def _measure_distances(spreads: Spreads) -> Iterator[dict[str, Any]]:
    """Yield a row of `spread` for each of some distances."""
    for distance in _distances(spreads.length):
        interval = spreads.at_distance(distance)
        yield {
            "plan": spreads.chain.plan.label,
            "distance_tokens": distance,
            "score_spread": interval.value,
            "ci_low": interval.low,
            "ci_high": interval.high,
        }


def _distances(length: int) -> list[int]:
    """Return the powers of two up to three quarters of the length, and odd numbers
    between.
    """
    # Positions rounded to few bits show least at multiples of powers of two.
    farthest = max(1, int(length * FARTHEST))
    powers = [2**k for k in range(farthest.bit_length())]
    between = [math.isqrt(2 * power**2) | 1 for power in powers]
    return sorted({each for each in (*powers, *between) if each <= farthest})


def _angle_errors(
    chain: Chain, octaves: Sequence[Worst], tolerance: float
) -> dict[str, Any]:
    """Return the columns about angles: the worst error, or the first overflow if there
    is one.
    """
    # An overflow is nan, which max would pass over or not, depending on its place.
    overflow = next((found for found in octaves if found.overflows), None)
    bad = overflow or max(octaves, key=lambda found: found.error_rad)
    return {
        "max_angle_error_rad": bad.error_rad,
        "worst_position": bad.position,
        "worst_pair": bad.pair,
        "first_position_over_tolerance": first_beyond(chain, octaves, tolerance),
    }


def _grows(octaves: Sequence[Worst]) -> bool:
    """Return True if errors overflow, or exceed twice those of the first octave that
    has any.
    """
    errors = [found.error_rad for found in octaves if found.error_rad != 0]
    # `not ... <=`, for an overflow is nan, which max may pass over.
    return any(not error <= 2 * errors[0] for error in errors)


def measure_long(config: PrecisionConfig, *, further: int, advance: Advance) -> Tables:
    """Return one row: angles in float32 throughout at a further length, and nothing
    else.
    """
    chain = Chain(parse_cast("all=float32").phase, shared.spectrum_of(config))
    octaves = worst_by_octave(chain, config.offset, further)
    row = {
        "kind": "long",
        "name": f"float32 angles, {further} positions",
        "plan": chain.plan.label,
        "length": further,
        "offset": config.offset,
        **_angle_errors(chain, octaves, config.tolerance),
        "grows_with_position": _grows(octaves),
        "status": "angles only",
    }
    advance(1)
    return {"long": pd.DataFrame([row])}


def measure_drift(
    config: PrecisionConfig, *, plans: Sequence[tuple[str, str]], advance: Advance
) -> Tables:
    """Return the change of scores under shifts: exactly 0 without rounding."""
    spectrum = shared.spectrum_of(config)
    shifts = shared.powers_below(config.length)
    deltas = np.array([1.0, 8.0, 64.0])

    rows = []
    for name, label in plans:
        chain = Chain(parse_cast(label), spectrum)
        for alignment in ("random", "aligned"):
            drawn = scores.draw(config.draws, spectrum.pairs, alignment, config.seed)
            errors = scores.shift_errors(chain, drawn, config.offset, deltas, shifts)
            # Each draw gives one number, since the deltas of a draw are not independent
            # of each other.
            per_draw = np.sqrt((errors**2).mean(2))
            for shift, values in zip(shifts.tolist(), per_draw, strict=True):
                mean = mean_interval(values)
                status = "overflow" if np.isnan(mean.value) else "ok"
                about = (name, label, alignment, int(shift), config.draws)
                rows.append((*about, mean.value, mean.low, mean.high, status))
        advance(1 / len(plans))
    columns = ["name", "plan", "alignment", "shift_tokens", "draws", "rms_score_change"]
    return {
        "drift": pd.DataFrame(rows, columns=[*columns, "ci_low", "ci_high", "status"])
    }


def measure_keys(
    config: PrecisionConfig, *, stored: Sequence[str], advance: Advance
) -> Tables:
    """Return `keys`: a row per format, offset and pair; `score_error` is that of whole
    keys.
    """
    spectrum = shared.spectrum_of(config)
    rows = []
    end = config.offset + config.length
    for name in stored:
        for offset in OFFSETS:
            found = key_errors(parse_keys(name), spectrum, end, config.seed, offset)
            for pair, error in enumerate(found.by_pair.tolist()):
                score = (found.score, found.score_low, found.score_high)
                rows.append((name, offset, pair, error, *score))
        advance(1 / len(stored))
    columns = ["keys", "offset_deviations", "pair", "key_error", "score_error"]
    columns += ["ci_low", "ci_high"]
    return {"keys": pd.DataFrame(rows, columns=columns)}


def cast_tables(config: PrecisionConfig, measured: Tables) -> Tables:
    """Return the tables `casts` and `growth`: a row per entry beside what its plan
    has.
    """
    rows = entries(config)
    scaling, quotient = scaling_for(config, config.offset + config.length)
    keys = pd.DataFrame(rows).assign(
        plan=[entry.plan.label for entry in rows],
        length=config.length,
        offset=config.offset,
    )

    # Plans are many to one: a repair may be an implementation, or another one's repair.
    casts = keys.merge(measured["plans"], on="plan", how="left", validate="many_to_one")
    if "long" in measured:
        casts = pd.concat([casts, measured["long"]], ignore_index=True)
    casts = casts.assign(method=scaling.label, factor_from=quotient)

    # A repair has no curve of its own: it would hide the implementation's.
    about = ["kind", "name", "stage", "format"]
    drawn = keys.assign(phase=[entry.plan.phase.label for entry in rows])
    drawn = drawn[drawn["kind"] != "repair"]
    growth = drawn[[*about, "phase"]].merge(measured["growth"], on="phase", how="left")
    spread = drawn[[*about, "plan"]].merge(measured["spread"], on="plan", how="left")
    return {
        "casts": casts,
        "growth": growth.drop(columns="phase"),
        "spread": spread.drop(columns="plan"),
    }
