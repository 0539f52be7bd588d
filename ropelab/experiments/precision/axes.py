"""The errors of casts along each axis of a position: frames, rows, columns.

A model of images or videos gives a token a position along each axis. Each axis rotates
some of the pairs of a head. Every position along an axis is looked at, with the pairs
that the axis rotates. There are fewer frames, rows and columns than tokens of a text. A
format that loses positions of a text therefore loses fewer frames, rows and columns,
though it may lose some.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.plans import list_entries
from ropelab.experiments.precision.shared import make_spectrum
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.rotary import find_axis_of_pairs, name_axes
from ropelab.runs.arrays import Bool
from ropelab.runs.sentences import join_names

# The number of positions along an axis unless lengths are given: frames of a clip, and
# patches along a side of an image.
FRAMES = 10_000
PATCHES = 4096
# The number of positions that are computed at once.
BLOCK = 4096


class Axis(NamedTuple):
    """One axis of a position."""

    name: str
    # The number of positions along the axis.
    length: int
    # The frequencies of a head, and which of its pairs the axis rotates.
    spectrum: Spectrum
    is_rotated: Bool[np.ndarray, " pairs"]


def list_axes(config: PrecisionConfig) -> Iterator[Axis]:
    """Yield the axes of a position, in their order."""
    names = name_axes(len(config.sections))
    lengths = choose_lengths(config)
    # The number of the axis that rotates each pair.
    axis_numbers = find_axis_of_pairs(config.layout, config.sections)
    whole_head = make_spectrum(config)

    for number, (name, length) in enumerate(zip(names, lengths, strict=True)):
        if config.layout == "axial":
            # Each axis has its own frequencies, from 1 down to the slowest, as a
            # separate head would have them.
            pairs = config.sections[number]
            inv_freq = inverse_frequencies(2 * pairs, config.base)
            spectrum = Spectrum(inv_freq, config.base, 2 * pairs)
            all_pairs = np.ones(pairs, dtype=bool)
            yield Axis(name, length, spectrum, all_pairs)
        else:
            yield Axis(name, length, whole_head, axis_numbers == number)


def choose_lengths(config: PrecisionConfig) -> tuple[int, ...]:
    """Return the number of positions along each axis."""
    if config.axis_lengths:
        return config.axis_lengths
    count = len(config.sections)
    if count == 3:
        return (FRAMES, PATCHES, PATCHES)
    return (PATCHES,) * count


def compute_axes(config: PrecisionConfig) -> pd.DataFrame:
    """Return the table `axes`: a row per axis and cast plan, with the worst error of an
    angle, and the first position with a wrong angle.

    The worst error is missing if the angles overflow.
    """
    rows = []
    for axis in list_axes(config):
        for entry in list_entries(config):
            # A repair is an implementation with one stage made exact. Here the
            # implementations themselves are enough.
            if entry.kind == "repair":
                continue

            row = {
                "axis": axis.name,
                "pairs": int(axis.is_rotated.sum()),
                "positions": axis.length,
                "name": entry.name,
                "stage": entry.stage,
                "format": entry.format,
                **measure_axis(entry.plan, axis, config.tolerance),
            }
            rows.append(row)

    table = pd.DataFrame(rows)
    return table.astype({"first_position_over_tolerance": "Int64"})


def measure_axis(
    plan: CastPlan, axis: Axis, tolerance: float
) -> dict[str, float | int | None]:
    """Return the worst error of an angle along one axis, and the first position at which
    an angle is wrong.
    """
    chain = Chain(plan, axis.spectrum)
    pairs = np.flatnonzero(axis.is_rotated)

    worst_error = 0.0
    first_wrong = None
    for start in range(0, axis.length, BLOCK):
        positions = list_positions(start, min(start + BLOCK, axis.length))
        errors_by_pair = wrap_angle(chain.angle_errors(positions, pairs))
        errors = errors_by_pair.max(axis=0)  # [positions]

        # The error of an angle that overflows is nan. It is not within the tolerance, so
        # this cannot be written as errors > tolerance.
        is_wrong = ~(errors <= tolerance)
        if first_wrong is None and is_wrong.any():
            first_wrong = start + int(is_wrong.argmax())

        largest = np.nan_to_num(errors, nan=math.inf).max()
        worst_error = max(worst_error, float(largest))

    return {
        "max_angle_error_rad": worst_error if math.isfinite(worst_error) else math.nan,
        "first_position_over_tolerance": first_wrong,
    }


def state_axes(table: pd.DataFrame, formats: Sequence[str]) -> list[str]:
    """Say for each axis which stages, rounded to some formats, or which implementations
    make angles wrong.
    """
    clauses = []
    for (axis, positions), rows in table.groupby(["axis", "positions"], sort=False):
        wrong_rows = rows[rows["first_position_over_tolerance"].notna()]
        causes = []
        for fmt in formats:
            stages = wrong_rows[wrong_rows["format"] == fmt]
            if len(stages):
                first_position = stages["first_position_over_tolerance"].min()
                names = join_names([str(stage) for stage in stages["stage"]])
                causes.append(f"{fmt} for {names} (from {first_position} on)")
        if not causes:
            # Only the rows of implementations have no format.
            for row in wrong_rows[wrong_rows["format"].isna()].to_dict("records"):
                first_position = row["first_position_over_tolerance"]
                causes.append(f"{row['name']} (from {first_position} on)")

        lead = f"along {positions} positions of {axis}"
        if causes:
            clauses.append(f"{lead} angles are wrong with {' and '.join(causes)}")
        else:
            clauses.append(f"{lead} no angle is wrong")
    return clauses
