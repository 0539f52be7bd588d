"""Sine and cosine of large arguments: what float32 code loses by taking off periods."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision import encodings as shared
from ropelab.math.numerics.chain import Positions, blocks
from ropelab.math.numerics.reduction import REDUCTIONS, Reduction, reduction_errors
from ropelab.math.numerics.scores import sample_positions
from ropelab.runs.cell import Advance
from ropelab.runs.tables import Tables

# Positions that are counted at once.
BLOCK = 1 << 17
# Up to so many positions each is counted; of more, so many in equal steps. From here on
# float32 has no longer every position.
COUNTED = 1 << 24
# How code takes whole turns off an angle before it computes the sine.
SAID = {
    1: "2 pi in one number",
    2: "2 pi in two",
    3: "2 pi in three",
}
# Seconds for a position under one reduction.
SECONDS_PER_REDUCTION = 1e-8


def reductions_cell(config: PrecisionConfig) -> shared.Piece:
    lengths = list_lengths(config)
    counted = sum(min(length, COUNTED) for length in lengths)
    return shared.piece(
        config,
        (*shared.ROTARY, "tolerance"),
        kind="precision-reductions",
        version=2,
        title="sin and cos of large arguments",
        function=measure_reductions,
        inputs={"lengths": lengths},
        seconds=counted * len(REDUCTIONS) * SECONDS_PER_REDUCTION,
        memory=8 * max(counted, BLOCK),
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
        every = len(positions) == length
        for terms, reduction in REDUCTIONS.items():
            largest, at = find_largest(positions, theta, reduction)
            row = {
                "terms": terms,
                "offset": config.offset,
                "length": length,
                "max_error_rad": largest,
                "worst_position": at,
                "exceeds_tolerance": largest > config.tolerance,
                "positions": len(positions),
                "status": "every position" if every else "positions in equal steps",
            }
            rows.append(row)
        advance(1 / len(lengths))
    table = pd.DataFrame(rows).sort_values("terms", kind="stable", ignore_index=True)
    return {"reductions": table}


def find_largest(
    positions: Positions, theta: np.float32, reduction: Reduction
) -> tuple[float, int]:
    """Return the largest error of a reduction, in radians, and the position of it."""
    largest = -1.0
    at = 0
    for low, high in blocks(0, len(positions), BLOCK):
        part = positions[low:high]
        angles = part.astype(np.float32) * theta
        errors = np.abs(reduction_errors(angles, reduction))
        worst = int(errors.argmax())
        if errors[worst] > largest:
            largest = float(errors[worst])
            at = int(part[worst])
    return largest, at


def list_losses(reductions: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number of terms: the largest error up to each last position."""
    table = pd.DataFrame({"float32_sine_with": [*SAID.values()]})
    last = reductions["offset"] + reductions["length"] - 1
    for position, own in reductions.groupby(last):
        lost = own.set_index("terms")["max_error_rad"]
        table[f"rad off to {position}"] = lost.loc[[*SAID]].to_numpy()
    return table


def state_losses(reductions: pd.DataFrame) -> Iterator[str]:
    """Say how far off the coarsest reduction is, and what to do, if it exceeds the
    tolerance.
    """
    wrong = reductions[reductions["exceeds_tolerance"]]
    if wrong.empty:
        return
    row = wrong.iloc[0]
    yield (
        "the sine of a large angle can add an error: float32 code that first takes"
        f" whole turns off the angle, with {SAID[row['terms']]}, is off by up to"
        f" {row['max_error_rad']:.1g} rad before position"
        f" {row['offset'] + row['length']}"
    )
    yield (
        "to avoid it, compute angles and sines in float64 and round the table at the"
        " end; `ropelab check` tests your code"
    )
