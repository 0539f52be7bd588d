"""What float32 code loses when it takes whole turns off large angles.

Before code computes a sine or a cosine, it subtracts a multiple of 2 pi from the angle.
This is called a reduction. The code holds 2 pi in one, two or three float32 numbers
(terms): the more terms, the smaller the error.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.shared import (
    ROTARY,
    PrecisionCell,
    make_cell,
    make_spectrum,
)
from ropelab.math.numerics.chain import Positions, cut_into_blocks
from ropelab.math.numerics.reduction import REDUCTIONS, Reduction, reduction_errors
from ropelab.math.numerics.scores import sample_positions
from ropelab.runs.cell import Advance
from ropelab.runs.labels import write_roughly
from ropelab.runs.tables import Tables

# The number of positions that are computed at once, so that memory is bounded.
BLOCK = 1 << 17
# The largest number of positions that are computed. Of a longer range, this many in equal
# steps are computed: float32 does not have every whole number above it anyway.
MOST_POSITIONS = 1 << 24
# The reductions in words, by their number of terms.
WORDS = {
    1: "2 pi in one number",
    2: "2 pi in two",
    3: "2 pi in three",
}
# The processor seconds of a position under one reduction.
SECONDS_PER_REDUCTION = 1e-8


def make_reductions_cell(config: PrecisionConfig) -> PrecisionCell:
    """Return the cell of the table `reductions`."""
    lengths = sorted({config.length, *config.long_lengths})
    position_count = sum(min(length, MOST_POSITIONS) for length in lengths)
    return make_cell(
        config,
        (*ROTARY, "tolerance"),
        kind="precision-reductions",
        version=2,
        title="sin and cos of large arguments",
        function=measure_reductions,
        inputs={"lengths": lengths},
        seconds=position_count * len(REDUCTIONS) * SECONDS_PER_REDUCTION,
        memory=8 * max(position_count, BLOCK),
    )


def measure_reductions(
    config: PrecisionConfig, *, lengths: list[int], advance: Advance
) -> Tables:
    """Return `reductions`: a row per length and number of terms of 2 pi.

    ``max_error_rad``: the largest error of an angle of the fastest pair, in float32, that
    its reduction in float32 causes. ``positions``: the number of positions computed.
    """
    fastest = np.abs(make_spectrum(config).inv_freq).max()
    theta = np.float32(fastest)

    rows = []
    for length in lengths:
        positions = sample_positions(config.offset, length, MOST_POSITIONS)
        status = "positions in equal steps"
        if len(positions) == length:
            status = "every position"

        for terms, reduction in REDUCTIONS.items():
            error, position = find_largest_error(positions, theta, reduction)
            row = {
                "terms": terms,
                "offset": config.offset,
                "length": length,
                "max_error_rad": error,
                "worst_position": position,
                "exceeds_tolerance": error > config.tolerance,
                "positions": len(positions),
                "status": status,
            }
            rows.append(row)
        advance(1 / len(lengths))

    table = pd.DataFrame(rows).sort_values("terms", kind="stable", ignore_index=True)
    return {"reductions": table}


def find_largest_error(
    positions: Positions, theta: np.float32, reduction: Reduction
) -> tuple[float, int]:
    """Return the largest error of a reduction, in radians, and its position.

    Args:
        positions: the positions, at least one.
        theta: the frequency of the pair, in radians per token.
        reduction: the reduction.
    """
    # The error of the first position is at least 0, and replaces this value.
    largest = -1.0
    worst_position = 0

    for low, high in cut_into_blocks(0, len(positions), BLOCK):
        block = positions[low:high]
        angles = block.astype(np.float32) * theta
        errors = np.abs(reduction_errors(angles, reduction))
        worst = int(errors.argmax())
        if errors[worst] > largest:
            largest = float(errors[worst])
            worst_position = int(block[worst])
    return largest, worst_position


def list_losses(reductions: pd.DataFrame) -> pd.DataFrame:
    """Return the short table of the largest errors, in radians.

    It has a row for each number of terms, and a column for each last position.
    """
    table = pd.DataFrame({"float32_sine_with": list(WORDS.values())})
    last_positions = reductions["offset"] + reductions["length"] - 1
    for last_position, rows in reductions.groupby(last_positions):
        error_by_terms = rows.set_index("terms")["max_error_rad"]
        errors = [error_by_terms[terms] for terms in WORDS]
        table[f"rad off to {last_position}"] = errors
    return table


def state_losses(reductions: pd.DataFrame) -> Iterator[str]:
    """Say how large the error of the coarsest reduction is, and what to do about it.

    Nothing is said if no error exceeds the tolerance.
    """
    wrong = reductions[reductions["exceeds_tolerance"]]
    if wrong.empty:
        return

    # Rows are sorted by terms, then by length: the fewest terms are the coarsest.
    row = wrong.iloc[0]
    yield (
        "the sine of a large angle can add an error: float32 code that first takes"
        f" whole turns off the angle, with {WORDS[row['terms']]}, is off by up to"
        f" {write_roughly(row['max_error_rad'], 1)} rad before position"
        f" {row['offset'] + row['length']}"
    )
    yield (
        "to avoid it, compute angles and sines in float64 and round the table at the"
        " end; `ropelab check` tests your code"
    )
