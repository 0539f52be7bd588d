"""The cast ladder: what each cast plan does to angles, tables, codes and scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ropelab.experiments.precision.plan import Plan
from ropelab.math.numerics.accuracy import ScoreSample, earlier_keys, sample_positions
from ropelab.math.numerics.casts import STAGES, CastPlan, alone, everything
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.code import Channel, Code
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.phase import Worst, first_beyond, worst_by_octave
from ropelab.math.numerics.presets import PRESETS
from ropelab.math.numerics.resolution import count_distinct
from ropelab.math.numerics.scores import draw, shift_errors
from ropelab.math.numerics.table_error import worst_table_error
from ropelab.runs.stats import mean_interval

Advance = Callable[[float], object]
SCORED = 16
"""Query positions at which score errors are measured."""

LADDER_FORMATS = ("float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Entry:
    """One row of the ladder.

    kind: 'stage' (one stage alone in one format), 'preset' or 'cast' (an implementation),
        'repair' (an implementation with one stage made exact), 'long' (float32 angles, further).
    """

    kind: str
    name: str
    plan: CastPlan
    stage: str | None = None
    format: str | None = None


def entries(planned: Plan) -> list[Entry]:
    """With no implementation named, every stage alone in every format; else the implementations,
    each followed by itself with one stage at a time made exact."""
    if not planned.implementations:
        return [
            Entry("stage", f"{stage}={name}", alone(stage, FORMATS[name]), stage, name)
            for stage in STAGES
            for name in LADDER_FORMATS
        ]
    found = []
    for preset in planned.implementations:
        kind = "preset" if preset.name in PRESETS else "cast"
        found.append(Entry(kind, preset.name, preset.plan))
        found += [
            Entry("repair", preset.name, preset.plan.repaired(name), name)
            for name, _ in preset.plan.inexact()
        ]
    return found


@dataclass
class Ladder:
    """Measures plans over one range; what several plans share is measured once."""

    planned: Plan
    octaves: dict[CastPlan, list[Worst]] = field(default_factory=dict)
    beyond: dict[CastPlan, int | None] = field(default_factory=dict)
    tables: dict[CastPlan, float] = field(default_factory=dict)
    distinct: dict[CastPlan, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        planned = self.planned
        self.spectrum = planned.rope
        self.range = (planned.offset, planned.length)
        queries = sample_positions(*self.range, SCORED)
        keys = earlier_keys(queries, planned.offset, planned.seed)
        draws = draw(planned.draws, self.spectrum.pairs, "random", planned.seed)
        self.scored = ScoreSample(self.spectrum, draws, queries, keys)

    def count_distinct(self, plans: Sequence[CastPlan]) -> None:
        """Count the distinct codes of all plans; those with equal angles share their cosines."""
        by_phase: dict[CastPlan, dict[CastPlan, None]] = {}
        for plan in plans:
            by_phase.setdefault(plan.phase, {})[plan.code] = None
        for phase, found in by_phase.items():
            rounded = [plan for plan in found if plan != phase]
            if phase in found:
                self.distinct |= self._counted(phase, "angle", [phase])
            if rounded:
                self.distinct |= self._counted(phase, "vector", rounded)

    def _counted(
        self, phase: CastPlan, channel: Channel, plans: Sequence[CastPlan]
    ) -> dict[CastPlan, int]:
        code = Code(Chain(phase, self.spectrum), channel, range(self.spectrum.pairs))
        found = count_distinct(code, [plan.table for plan in plans], *self.range)
        return dict(zip(plans, found, strict=True))

    def row(self, entry: Entry) -> dict[str, object]:
        """One row of the table `casts`."""
        octaves = self._octaves(entry.plan)
        overflow = next((found for found in octaves if found.overflowed), None)
        bad = overflow or max(octaves, key=lambda found: found.error_rad)
        return {
            **_key(entry, self.planned),
            "max_angle_error_rad": bad.error_rad,
            "worst_position": bad.position,
            "worst_pair": bad.pair,
            "first_bad_position": self._first_beyond(entry.plan),
            "max_table_error": self._table_error(entry.plan),
            "distinct_positions": self.distinct[entry.plan.code],
            "rms_score_error": self.scored.rms_error(entry.plan),
            "grows_with_position": grows(octaves),
            "status": f"overflows from position {bad.position}" if overflow else "ok",
        }

    def growth_rows(self, entry: Entry) -> list[dict[str, object]]:
        """Rows of the table `growth`: the worst angle error in each octave of positions."""
        return [
            {
                "kind": entry.kind,
                "name": entry.name,
                "stage": entry.stage,
                "format": entry.format,
                "position_start": found.start,
                "position_end": found.stop - 1,
                "max_angle_error_rad": found.error_rad,
                "status": "overflow" if found.overflowed else "ok",
            }
            for found in self._octaves(entry.plan)
        ]

    def _octaves(self, plan: CastPlan) -> list[Worst]:
        if plan.phase not in self.octaves:
            chain = Chain(plan.phase, self.spectrum)
            self.octaves[plan.phase] = worst_by_octave(chain, *self.range)
        return self.octaves[plan.phase]

    def _table_error(self, plan: CastPlan) -> float:
        if plan.code not in self.tables:
            chain = Chain(plan.code, self.spectrum)
            self.tables[plan.code] = worst_table_error(chain, self._octaves(plan))
        return self.tables[plan.code]

    def _first_beyond(self, plan: CastPlan) -> int | None:
        if plan.phase not in self.beyond:
            chain = Chain(plan.phase, self.spectrum)
            found = self._octaves(plan)
            self.beyond[plan.phase] = first_beyond(chain, found, self.planned.tolerance)
        return self.beyond[plan.phase]


def grows(octaves: Sequence[Worst]) -> bool:
    """Whether angle errors get worse with the position: more than twice those of the first octave
    that has any, or an overflow."""
    errors = [found.error_rad for found in octaves if found.error_rad != 0]
    return bool(errors) and not max(errors) <= 2 * errors[0]


def ladder_tables(planned: Plan, advance: Advance) -> dict[str, pd.DataFrame]:
    """The tables `casts` and `growth`."""
    ladder = Ladder(planned)
    rungs = entries(planned)
    ladder.count_distinct([entry.plan for entry in rungs])
    casts, growth = [], []
    for entry in rungs:
        casts.append(ladder.row(entry))
        if entry.kind != "repair":
            growth += ladder.growth_rows(entry)
        advance(1 / len(rungs))
    if not planned.implementations:
        casts += [_long_row(planned, length) for length in planned.long_lengths]
    table = pd.DataFrame(casts)
    whole = ("worst_position", "worst_pair", "first_bad_position", "distinct_positions")
    table = table.astype(dict.fromkeys(whole, "Int64"))
    return {"casts": table, "growth": pd.DataFrame(growth)}


def _long_row(planned: Plan, length: int) -> dict[str, object]:
    """Angles in float32 throughout, followed further; nothing else is measured there."""
    plan = everything(FORMATS["float32"]).phase
    chain = Chain(plan, planned.rope)
    octaves = worst_by_octave(chain, planned.offset, length)
    bad = max(octaves, key=lambda found: found.error_rad)
    key = _key(Entry("long", f"float32 angles, {length} positions", plan), planned)
    return key | {
        "length": length,
        "max_angle_error_rad": bad.error_rad,
        "worst_position": bad.position,
        "worst_pair": bad.pair,
        "first_bad_position": first_beyond(chain, octaves, planned.tolerance),
        "grows_with_position": grows(octaves),
        "status": "angles only",
    }


def drift_table(planned: Plan) -> pd.DataFrame:
    """How far a score moves when query and key shift together: exactly 0 without rounding."""
    spectrum = planned.rope
    shifts = 2.0 ** np.arange((planned.length - 1).bit_length())
    deltas = np.array([1.0, 8.0, 64.0])
    rows = []
    for name, plan in drifting(planned):
        chain = Chain(plan, spectrum)
        for alignment in ("random", "aligned"):
            draws = draw(planned.draws, spectrum.pairs, alignment, planned.seed)
            errors = shift_errors(chain, draws, planned.offset, deltas, shifts)
            # One number per draw: the deltas of a draw are not independent of each other.
            per_draw = np.sqrt((errors**2).mean(2))
            for shift, values in zip(shifts.tolist(), per_draw, strict=True):
                mean = mean_interval(values)
                rows.append(
                    {
                        "name": name,
                        "plan": plan.label,
                        "alignment": alignment,
                        "shift_tokens": int(shift),
                        "draws": planned.draws,
                        "rms_score_change": mean.value,
                        "ci_low": mean.low,
                        "ci_high": mean.high,
                        "status": "ok" if mean.value == mean.value else "overflow",
                    }
                )
    return pd.DataFrame(rows)


def drifting(planned: Plan) -> list[tuple[str, CastPlan]]:
    """The plans whose drift is followed: implementations, or each format throughout, float32 angles
    with the rest in bfloat16, and a rounded inv_freq, which the shift test cannot see."""
    if planned.implementations:
        return [(preset.name, preset.plan) for preset in planned.implementations]
    plans = [(f"all {fmt.name}", everything(fmt)) for fmt in planned.formats[1:]]
    named = PRESETS["transformers_llama"]
    hidden = alone("inv_freq", FORMATS["bfloat16"])
    return [*plans, (named.name, named.plan), (hidden.label, hidden)]


def _key(entry: Entry, planned: Plan) -> dict[str, object]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "plan": entry.plan.label,
        "stage": entry.stage,
        "format": entry.format,
        "length": planned.length,
        "offset": planned.offset,
    }
