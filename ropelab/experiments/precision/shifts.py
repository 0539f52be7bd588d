"""Scores of shifted positions: how much a score changes when the query and the key move
by the same number of tokens. Without rounding it does not change at all.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.plans import read_implementations
from ropelab.experiments.precision.shared import (
    ROTARY,
    SCORED,
    SECONDS_PER_SCORE,
    PrecisionCell,
    count_scores,
    list_formats,
    list_powers_below,
    make_cell,
    make_spectrum,
)
from ropelab.math.numerics import scores
from ropelab.math.numerics.casts import PRESETS, CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain
from ropelab.runs.cell import Advance
from ropelab.runs.stats import average_samples
from ropelab.runs.tables import Tables

# The distances from the key to the query, in tokens.
DISTANCES = (1.0, 8.0, 64.0)


def make_drift_cell(config: PrecisionConfig) -> PrecisionCell:
    """Return the cell of the table `drift`, for the implementations that are named, or
    else for some typical plans.
    """
    plans = read_implementations(config) or _choose_plans(config)
    scores_per_plan = len(DISTANCES) * count_scores(config, config.rotated / 2)
    return make_cell(
        config,
        (*ROTARY, *SCORED),
        kind="precision-drift",
        title="scores of shifted positions",
        function=measure_drift,
        inputs={"plans": [[name, plan.label] for name, plan in plans.items()]},
        # `scores` accounts for the time of one plan, and `seconds` for the time of all
        # further plans.
        seconds=(len(plans) - 1) * scores_per_plan * SECONDS_PER_SCORE,
        scores=scores_per_plan,
    )


def _choose_plans(config: PrecisionConfig) -> dict[str, CastPlan]:
    """Return plans by name: every format at all stages, float32 angles with all other
    stages in bfloat16, and a rounded inv_freq, with which no shift changes a score.
    """
    plans = {}
    for fmt in list_formats(config):
        if fmt != "float64":
            plans[f"all {fmt}"] = parse_cast(f"all={fmt}")
    plans["transformers_llama"] = PRESETS["transformers_llama"].plan
    plans["inv_freq=bfloat16"] = parse_cast("inv_freq=bfloat16")
    return plans


def measure_drift(
    config: PrecisionConfig, *, plans: Sequence[tuple[str, str]], advance: Advance
) -> Tables:
    """Return `drift`: a row per plan, kind of vectors and shift.

    Each of `plans` is a name and a label that `parse_cast` reads.
    """
    spectrum = make_spectrum(config)
    shifts = list_powers_below(config.length)
    distances = np.array(DISTANCES)

    rows = []
    for name, label in plans:
        chain = Chain(parse_cast(label), spectrum)
        for alignment in ("random", "aligned"):
            drawn = scores.draw(
                config.draws, spectrum.head_pairs, alignment, config.seed
            )
            # [shifts, draws, distances]
            errors = scores.measure_shift_errors(
                chain, drawn, config.offset, distances, shifts
            )
            # Each draw gives one number, since its errors at several distances are not
            # independent of each other.
            rms_by_draw = np.sqrt((errors**2).mean(axis=2))
            for shift, errors_of_draws in zip(
                shifts.tolist(), rms_by_draw, strict=True
            ):
                mean = average_samples(errors_of_draws)
                row = {
                    "name": name,
                    "plan": label,
                    "alignment": alignment,
                    "shift_tokens": int(shift),
                    "draws": config.draws,
                    "rms_score_change": mean.value,
                    "ci_low": mean.low,
                    "ci_high": mean.high,
                    "status": "overflow" if np.isnan(mean.value) else "ok",
                }
                rows.append(row)
        advance(1 / len(plans))
    return {"drift": pd.DataFrame(rows)}
