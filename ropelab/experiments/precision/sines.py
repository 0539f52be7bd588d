"""Sine and cosine of large arguments: what float32 code loses by taking off periods."""

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision import encodings as shared
from ropelab.math.numerics.reduction import REDUCTIONS, reduction_errors
from ropelab.math.numerics.scores import sample_positions
from ropelab.runs.cell import Advance
from ropelab.runs.tables import Tables

# Up to so many positions each is counted; of more, so many in equal steps.
COUNTED = 1 << 17
SAID = {
    1: "2 pi is one number",
    2: "2 pi is a sum of two numbers",
    3: "2 pi is a sum of three numbers",
}
# Seconds for a position under one reduction.
SECONDS_PER_REDUCTION = 3e-8


def reductions_cell(config: PrecisionConfig) -> shared.Piece:
    lengths = list_lengths(config)
    return shared.piece(
        config,
        (*shared.ROTARY, "tolerance"),
        kind="precision-reductions",
        version=1,
        title="sin and cos of large arguments",
        function=measure_reductions,
        inputs={"lengths": lengths},
        seconds=len(lengths) * len(REDUCTIONS) * COUNTED * SECONDS_PER_REDUCTION,
        memory=8 * COUNTED * 8,
    )


def list_lengths(config: PrecisionConfig) -> list[int]:
    return sorted({config.length, *config.long_lengths})


def measure_reductions(
    config: PrecisionConfig, *, lengths: list[int], advance: Advance
) -> Tables:
    """Return `reductions`: a row per number of terms of 2 pi, and length.

    ``max_error_rad``: the largest difference of a float32 angle of the fastest pair from
    itself, after whole periods were taken off in float32. ``positions``: those counted.
    """
    fastest = float(np.abs(shared.spectrum_of(config).inv_freq).max())
    theta = np.float32(fastest)

    rows = []
    for length in lengths:
        positions = sample_positions(config.offset, length, COUNTED)
        angles = positions.astype(np.float32) * theta
        for terms, reduction in REDUCTIONS.items():
            errors = np.abs(reduction_errors(angles, reduction))
            worst = int(errors.argmax())
            largest = float(errors[worst])
            every = len(positions) == length
            row = {
                "terms": terms,
                "offset": config.offset,
                "length": length,
                "max_error_rad": largest,
                "worst_position": int(positions[worst]),
                "exceeds_tolerance": largest > config.tolerance,
                "positions": len(positions),
                "status": "every position" if every else "positions in equal steps",
            }
            rows.append(row)
        advance(1 / len(lengths))
    table = pd.DataFrame(rows).sort_values("terms", kind="stable", ignore_index=True)
    return {"reductions": table}


def list_losses(reductions: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number of terms: the radians lost up to each last position."""
    table = pd.DataFrame({"sin_and_cos_of_large_arguments": [*SAID.values()]})
    last = reductions["offset"] + reductions["length"] - 1
    for position, own in reductions.groupby(last):
        lost = own.set_index("terms")["max_error_rad"]
        table[f"rad to {position}"] = lost.loc[[*SAID]].to_numpy()
    return table


def state_losses(reductions: pd.DataFrame) -> str:
    """Say by where the coarsest reduction loses more than the tolerance."""
    wrong = reductions[reductions["exceeds_tolerance"]]
    if wrong.empty:
        return ""
    row = wrong.iloc[0]
    return (
        f"where {SAID[row['terms']]}, float32 code takes sin and cos of large arguments"
        f" that are off by up to {row['max_error_rad']:.1g} rad before position"
        f" {row['offset'] + row['length']}"
    )
