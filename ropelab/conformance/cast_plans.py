"""Which roundings to small formats give tables nearest to the observed ones."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ropelab.conformance import explained
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Observed
from ropelab.math.numerics.casts import STAGES, CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FORMATS, round_to

# The stages that a table shows: position, inv_freq, angle, table.
CASTS = STAGES[:4]


def compare_casts(observed: Observed, expected: Expected) -> list[dict[str, Any]]:
    """Return the mean distance of each cast plan's tables from the observed ones.

    There is a row per plan, the nearest first.
    """
    spectrum = expected.budget().spectrum
    gain = expected.spec.attention_factor
    positions = observed.positions.astype(np.float64)
    rows: list[dict[str, Any]] = []
    for name, plan in list_plans().items():
        angles = Chain(plan, spectrum).angles(positions).T
        # Every observed number is finite, so that no plan overflows (float16 does at
        # 65520).
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
    stages: dict[str, Any] = dict.fromkeys(CASTS, FORMATS["float32"])
    clean = CastPlan(**stages, frequencies="float32_pow")
    plans = {"float32": clean}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        plans[f"table in {name}"] = replace(clean, table=FORMATS[name])

    rounded: dict[str, tuple[str, ...]] = {stage: (stage,) for stage in CASTS}
    for stage in CASTS[:-1]:
        rounded[f"{stage} and table"] = (stage, "table")
    rounded["everything"] = CASTS

    for name in explained.HALF_FORMATS:
        for what, parts in rounded.items():
            changes: dict[str, Any] = dict.fromkeys(parts, FORMATS[name])
            plans[f"{what} in {name}"] = replace(clean, **changes)
    return plans
