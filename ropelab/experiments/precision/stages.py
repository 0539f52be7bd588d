"""Per-stage rounding: what each cast does to angles, tables, distinct positions and scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.encodings import (
    BYTES_PER_SCORE,
    LIBRARIES_BYTES,
    SECONDS_PER_SCORE,
    Advance,
    Advancing,
    Row,
    frequencies_of,
    spectrum_of,
)
from ropelab.math.numerics.angle_errors import (
    STRETCH,
    Worst,
    first_beyond,
    worst_by_octave,
    worst_table_error,
)
from ropelab.math.numerics.casts import (
    PRESETS,
    STAGES,
    CastPlan,
    alone,
    everything,
    parse_cast,
    preset_named,
)
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.resolution import HELD, count_distinct
from ropelab.math.numerics.scores import (
    ScoreSample,
    draw,
    earlier_keys,
    sample_positions,
    shift_errors,
)
from ropelab.runs.cell import Computation, Needs, Values
from ropelab.runs.stats import mean_interval

STAGE_FORMATS = ("float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
# Query positions at which score errors are measured.
SCORED = 16
WHOLE = ("worst_position", "worst_pair", "first_bad_position", "distinct_positions")

# Per position and pair: counting the distinct tables of one phase, and all else of one plan.
SECONDS_PER_TABLE = 2e-8
SECONDS_PER_ANGLE = 2e-10
# The bounds of a stretch of positions, per pair, and its place in the list.
SECONDS_PER_BOUND = 1e-8
BYTES_PER_BOUND = 24.0
BYTES_PER_STRETCH = 130.0


@dataclass(frozen=True)
class Entry:
    """One row of the table `casts`.

    kind: 'stage' (one stage alone in one format), 'preset' or 'cast' (an implementation),
        'repair' (an implementation with one stage made exact).
    """

    kind: str
    name: str
    plan: CastPlan
    stage: str | None = None
    format: str | None = None


def entries(config: PrecisionConfig) -> list[Entry]:
    """Return the implementations, each followed by itself with one stage at a time made exact.

    With no implementation named, every stage alone in every format.

    Raises:
        InputError: a preset, stage or format does not exist.
    """
    named = implementations(config)
    if not named:
        return [
            Entry("stage", f"{stage}={name}", alone(stage, FORMATS[name]), stage, name)
            for stage in STAGES
            for name in STAGE_FORMATS
        ]
    found = []
    for name, plan in named.items():
        found.append(Entry("preset" if name in PRESETS else "cast", name, plan))
        inexact = [stage for stage, _ in plan.inexact()]
        found += [Entry("repair", name, plan.repaired(stage), stage) for stage in inexact]
    return found


def implementations(config: PrecisionConfig) -> dict[str, CastPlan]:
    """Return the cast plans that `preset` and `cast` name."""
    names = PRESETS if "all" in config.preset else config.preset
    chosen = {name: preset_named(name).plan for name in names}
    cast = parse_cast(config.cast)
    return chosen | {cast.label: cast} if config.cast else chosen


def stage_cells(config: PrecisionConfig) -> list[Computation]:
    """Return a cell for all plans whose angles are inexact by the same stages.

    Plans with equal angles are then in one cell, which computes these once.
    """
    groups: dict[tuple[str, ...], dict[str, None]] = {}
    for entry in entries(config):
        stages = tuple(name for name, _ in entry.plan.phase.inexact())
        groups.setdefault(stages, {})[entry.plan.label] = None
    pairs = config.rotated / 2
    drawn = config.draws * pairs * log2(config.length)
    memory = 8 * min(config.length, HELD) * 4 + _bound_bytes(config, config.length)
    return [
        Advancing(
            kind="precision-casts",
            version=1,
            title=f"which cast is wrong: {', '.join(stages) or 'after the cosine'}",
            function=measure_plans,
            inputs={
                "plans": list(plans),
                "frequencies": frequencies_of(config, "rope"),
                "offset": config.offset,
                "length": config.length,
                "tolerance": config.tolerance,
                "draws": config.draws,
                "seed": config.seed,
            },
            needs=Needs(
                seconds=config.length * pairs * _seconds_per_angle(list(plans))
                + drawn * SECONDS_PER_SCORE,
                memory_bytes=int(LIBRARIES_BYTES + memory + drawn * BYTES_PER_SCORE),
            ),
        )
        for stages, plans in groups.items()
    ]


def _seconds_per_angle(labels: Sequence[str]) -> float:
    plans = [parse_cast(label) for label in labels]
    # Tables of exact angles, and exact tables, are counted without computing a cosine.
    slow = {plan.phase for plan in plans if CastPlan() != plan.phase != plan.stored}
    return len(plans) * SECONDS_PER_ANGLE + len(slow) * SECONDS_PER_TABLE


def _bound_bytes(config: PrecisionConfig, length: int) -> float:
    return length / STRETCH * (BYTES_PER_STRETCH + BYTES_PER_BOUND * config.rotated / 2)


def measure_plans(
    *,
    plans: Sequence[str],
    frequencies: Mapping[str, Any],
    offset: int,
    length: int,
    tolerance: float,
    draws: int,
    seed: int,
    advance: Advance,
) -> dict[str, pd.DataFrame]:
    """Return the errors of some cast plans: a row per plan, and `growth` per phase and octave."""
    rope = spectrum_of(frequencies)
    queries = sample_positions(offset, length, SCORED)
    keys = earlier_keys(queries, offset, seed)
    scored = ScoreSample(rope, draw(draws, rope.pairs, "random", seed), queries, keys)
    by_phase: dict[CastPlan, list[CastPlan]] = {}
    for plan in map(parse_cast, plans):
        by_phase.setdefault(plan.phase, []).append(plan)
    rows, growth = [], []
    for phase, members in by_phase.items():
        chain = Chain(phase, rope)
        octaves = worst_by_octave(chain, offset, length)
        growth += [
            {
                "phase": phase.label,
                "position_start": octave.start,
                "position_end": octave.stop - 1,
                "max_angle_error_rad": octave.error_rad,
                "status": "overflow" if octave.overflowed else "ok",
            }
            for octave in octaves
        ]
        angles = _angle_errors(chain, octaves, tolerance)
        stored = list(dict.fromkeys(plan.stored for plan in members))
        table_errors = {plan: worst_table_error(Chain(plan, rope), octaves) for plan in stored}
        distinct = _distinct(chain, stored, offset, length)
        overflow = next((found.position for found in octaves if found.overflowed), None)
        rows += [
            {
                "plan": plan.label,
                **angles,
                "max_table_error": table_errors[plan.stored],
                "distinct_positions": distinct[plan.stored],
                "rms_score_error": scored.rms_error(plan),
                "grows_with_position": grows(octaves),
                "status": "ok" if overflow is None else f"overflows from position {overflow}",
            }
            for plan in members
        ]
        advance(len(members) / len(plans))
    return {"plans": pd.DataFrame(rows), "growth": pd.DataFrame(growth)}


def _angle_errors(chain: Chain, octaves: Sequence[Worst], tolerance: float) -> Row:
    """Return the columns about angles: the worst error, or the first overflow if there is one."""
    # An overflow is nan, which max would pass over or not, depending on its place.
    overflow = next((found for found in octaves if found.overflowed), None)
    bad = overflow or max(octaves, key=lambda found: found.error_rad)
    return {
        "max_angle_error_rad": bad.error_rad,
        "worst_position": bad.position,
        "worst_pair": bad.pair,
        "first_bad_position": first_beyond(chain, octaves, tolerance),
    }


def _distinct(
    chain: Chain, plans: Sequence[CastPlan], offset: int, length: int
) -> dict[CastPlan, int]:
    """Return how many positions each plan distinguishes; all have the angles of the chain."""
    found: dict[CastPlan, int] = {}
    # An exact table distinguishes what the angles do: no two of these are the same direction.
    for component, chosen in (
        ("angle", [plan for plan in plans if plan == chain.plan]),
        ("vector", [plan for plan in plans if plan != chain.plan]),
    ):
        if chosen:
            encoding = PositionEncoding(chain, component, range(chain.spectrum.pairs))
            counts = count_distinct(encoding, [plan.table for plan in chosen], offset, length)
            found |= dict(zip(chosen, counts, strict=True))
    return found


def grows(octaves: Sequence[Worst]) -> bool:
    """Return True if angle errors get worse with the position.

    They are then more than twice those of the first octave that has any, or overflow.
    """
    errors = [found.error_rad for found in octaves if found.error_rad != 0]
    # `not ... <=`, for an overflow is nan.
    return bool(errors) and not max(errors) <= 2 * errors[0]


def long_cells(config: PrecisionConfig) -> list[Computation]:
    """Return a cell per further length to which float32 angles are followed."""
    if implementations(config):
        return []
    pairs = config.rotated / 2
    return [
        Computation(
            kind="precision-long",
            version=1,
            title=f"float32 angles, {length} positions",
            function=measure_long,
            inputs={
                "frequencies": frequencies_of(config, "rope"),
                "offset": config.offset,
                "length": length,
                "tolerance": config.tolerance,
            },
            needs=Needs(
                seconds=length / STRETCH * pairs * SECONDS_PER_BOUND,
                memory_bytes=int(LIBRARIES_BYTES + _bound_bytes(config, length)),
            ),
        )
        for length in config.long_lengths
    ]


def measure_long(
    *, frequencies: Mapping[str, Any], offset: int, length: int, tolerance: float
) -> dict[str, pd.DataFrame]:
    """Return one row: angles in float32 throughout, and nothing else."""
    plan = everything(FORMATS["float32"]).phase
    chain = Chain(plan, spectrum_of(frequencies))
    octaves = worst_by_octave(chain, offset, length)
    row = {
        "kind": "long",
        "name": f"float32 angles, {length} positions",
        "plan": plan.label,
        "length": length,
        "offset": offset,
        **_angle_errors(chain, octaves, tolerance),
        "grows_with_position": grows(octaves),
        "status": "angles only",
    }
    return {"casts": pd.DataFrame([row])}


def drift_cell(config: PrecisionConfig, formats: Sequence[str]) -> Computation:
    """Return the cell that shifts query and key together.

    Without implementations: each format throughout, float32 angles with the rest in bfloat16, and
    a rounded inv_freq, which this test cannot see.
    """
    plans = implementations(config)
    if not plans:
        everywhere = {f"all {name}": everything(FORMATS[name]) for name in formats[1:]}
        hidden = alone("inv_freq", FORMATS["bfloat16"])
        usual = PRESETS["transformers_llama"]
        plans = everywhere | {usual.name: usual.plan, hidden.label: hidden}
    drawn = 3 * config.draws * config.rotated / 2 * log2(config.length)
    return Computation(
        kind="precision-drift",
        version=1,
        title="scores of shifted positions",
        function=drift_table,
        inputs={
            "plans": [(name, plan.label) for name, plan in plans.items()],
            "frequencies": frequencies_of(config, "rope"),
            "offset": config.offset,
            "length": config.length,
            "draws": config.draws,
            "seed": config.seed,
        },
        needs=Needs(
            seconds=len(plans) * drawn * SECONDS_PER_SCORE,
            memory_bytes=int(LIBRARIES_BYTES + drawn * BYTES_PER_SCORE),
        ),
    )


def drift_table(
    *,
    plans: Sequence[tuple[str, str]],
    frequencies: Mapping[str, Any],
    offset: int,
    length: int,
    draws: int,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Return the change of scores under shifts: exactly 0 without rounding."""
    spectrum = spectrum_of(frequencies)
    shifts = 2.0 ** np.arange((length - 1).bit_length())
    deltas = np.array([1.0, 8.0, 64.0])
    rows = []
    for name, label in plans:
        chain = Chain(parse_cast(label), spectrum)
        for alignment in ("random", "aligned"):
            drawn = draw(draws, spectrum.pairs, alignment, seed)
            errors = shift_errors(chain, drawn, offset, deltas, shifts)
            # One number per draw: the deltas of a draw are not independent of each other.
            per_draw = np.sqrt((errors**2).mean(2))
            for shift, values in zip(shifts.tolist(), per_draw, strict=True):
                mean = mean_interval(values)
                rows.append(
                    {
                        "name": name,
                        "plan": label,
                        "alignment": alignment,
                        "shift_tokens": int(shift),
                        "draws": draws,
                        "rms_score_change": mean.value,
                        "ci_low": mean.low,
                        "ci_high": mean.high,
                        "status": "overflow" if np.isnan(mean.value) else "ok",
                    }
                )
    return {"drift": pd.DataFrame(rows)}


def cast_tables(config: PrecisionConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the tables `casts` and `growth`, from the values of the cells."""
    measured = [values[cell] for cell in stage_cells(config)]
    found = entries(config)
    keys = pd.DataFrame(
        {
            "kind": [entry.kind for entry in found],
            "name": [entry.name for entry in found],
            "plan": [entry.plan.label for entry in found],
            "stage": [entry.stage for entry in found],
            "format": [entry.format for entry in found],
            "length": config.length,
            "offset": config.offset,
        }
    )
    whole = dict.fromkeys(WHOLE, "Int64")
    # Missing values make whole numbers floats in CSV, and columns of several dtypes do not concat.
    plans = pd.concat([tables["plans"].astype(whole) for tables in measured])
    casts = keys.merge(plans, on="plan", how="left", validate="many_to_one")
    further = [values[cell]["casts"] for cell in long_cells(config)]
    casts = pd.concat([casts, *further], ignore_index=True).astype(whole)

    shown = keys.assign(phase=[entry.plan.phase.label for entry in found])
    shown = shown.loc[shown["kind"] != "repair", ["kind", "name", "stage", "format", "phase"]]
    octaves = pd.concat([tables["growth"] for tables in measured])
    growth = shown.merge(octaves, on="phase", how="left").drop(columns="phase")
    return {"casts": casts, "growth": growth}
