"""Find the rounding whose tables are nearest to the tables of a code.

A cast plan says which number format each stage of the computation is rounded to:
position, inverse frequency, angle, and table of cos and sin.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Observed
from ropelab.conformance.usual import HALF_FORMATS
from ropelab.math.numerics.casts import STAGES, CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FORMATS, round_to

# The stages up to a table of cos and sin. All other stages come after the table.
CASTS = STAGES[:4]


def compare_casts(observed: Observed, expected: Expected) -> list[dict[str, Any]]:
    """Return a row for each cast plan, the plan with the nearest tables first.

    `mean_difference` is the mean magnitude of the difference of cos plus the mean
    magnitude of the difference of sin.
    """
    spectrum = expected.budget().spectrum
    gain = expected.spec.attention_factor
    positions = observed.positions.astype(np.float64)

    rows: list[dict[str, Any]] = []
    for name, plan in list_plans().items():
        angles = Chain(plan, spectrum).angles(positions).T
        # A plan that overflows, as float16 does at 65520, cannot be the plan of the
        # code, since the code's numbers are all finite.
        if not np.isfinite(angles).all():
            continue

        cos = round_to(gain * np.cos(angles), plan.table)
        sin = round_to(gain * np.sin(angles), plan.table)
        cos_difference = np.abs(observed.cos - cos).mean()
        sin_difference = np.abs(observed.sin - sin).mean()
        difference = float(cos_difference + sin_difference)
        if math.isfinite(difference):
            rows.append({"cast": name, "mean_difference": difference})

    return sorted(rows, key=lambda row: row["mean_difference"])


def list_plans() -> dict[str, CastPlan]:
    """Return float32 throughout, and the same with some stages in a smaller format."""
    all_float32: dict[str, Any] = dict.fromkeys(CASTS, FORMATS["float32"])
    float32 = CastPlan(**all_float32, frequencies="float32_pow")
    plans = {"float32": float32}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        plans[f"table in {name}"] = replace(float32, table=FORMATS[name])

    # The stages that are rounded together, by the words for them.
    rounded: dict[str, tuple[str, ...]] = {}
    for stage in CASTS:
        rounded[stage] = (stage,)
    *stages_before, table = CASTS
    for stage in stages_before:
        rounded[f"{stage} and table"] = (stage, table)
    # Autocast rounds both factors and their product.
    rounded["position, inv_freq and angle"] = tuple(stages_before)
    rounded["position and inv_freq"] = ("position", "inv_freq")
    rounded["everything"] = CASTS

    for name in HALF_FORMATS:
        for words, stages in rounded.items():
            changes: dict[str, Any] = dict.fromkeys(stages, FORMATS[name])
            plans[f"{words} in {name}"] = replace(float32, **changes)
    return plans
