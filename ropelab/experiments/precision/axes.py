"""What casts cost along each axis of a position: frames, rows, columns.

Every position along an axis is looked at, with the pairs that the axis moves. Rows and
columns are few beside tokens, and so are frames; the formats that lose a position of
text lose fewer of these, but not none.
"""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.encodings import spectrum_of
from ropelab.experiments.precision.stages import Entry, entries
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.chain import Chain, Spectrum, span
from ropelab.math.rotary import axis_names, axis_of_pairs
from ropelab.runs.arrays import Bool
from ropelab.runs.sentences import join_names

# Frames of a clip, and patches along a side of an image, unless lengths are given.
FRAMES = 10_000
PATCHES = 4096
# Positions that are looked at in one go.
BLOCK = 4096
# The formats that models are computed in.
USUAL = ("bfloat16", "float16")


def choose_lengths(config: PrecisionConfig) -> tuple[int, ...]:
    """Return the positions along each axis."""
    count = len(config.sections)
    if config.axis_lengths:
        return config.axis_lengths
    if count == 3:
        return (FRAMES, PATCHES, PATCHES)
    return (PATCHES,) * count


def list_axes(
    config: PrecisionConfig,
) -> Iterator[tuple[str, int, Spectrum, Bool[np.ndarray, " pairs"]]]:
    """Yield name and length of each axis, a ladder, and which of its pairs it moves."""
    names = axis_names(len(config.sections))
    owners = axis_of_pairs(config.layout, config.sections)
    head = spectrum_of(config)
    for axis, length in enumerate(choose_lengths(config)):
        spectrum = head
        moved = owners == axis
        if config.layout == "axial":
            width = 2 * config.sections[axis]
            own = inverse_frequencies(width, config.base)
            spectrum = Spectrum(own, config.base, width)
            moved = np.ones(config.sections[axis], dtype=bool)
        yield names[axis], length, spectrum, moved


def compute_axes(config: PrecisionConfig) -> pd.DataFrame:
    """Return a row per axis and cast: the worst angle, and the first one that is wrong.

    max_angle_error_rad is missing where the angles overflow.
    """
    rows = []
    for name, length, spectrum, moved in list_axes(config):
        for entry in entries(config):
            if entry.kind == "repair":
                continue
            row = {
                "axis": name,
                "pairs": int(moved.sum()),
                "positions": length,
                "name": entry.name,
                "stage": entry.stage,
                "format": entry.format,
                **measure_axis(entry, spectrum, moved, length, config.tolerance),
            }
            rows.append(row)
    table = pd.DataFrame(rows)
    return table.astype({"first_position_over_tolerance": "Int64"})


def measure_axis(
    entry: Entry,
    spectrum: Spectrum,
    moved: Bool[np.ndarray, " pairs"],
    length: int,
    tolerance: float,
) -> dict[str, float | int | None]:
    """Return the worst error of an angle along one axis, and the first one beyond."""
    chain = Chain(entry.plan, spectrum)
    worst = 0.0
    first = None
    for start in range(0, length, BLOCK):
        positions = span(start, min(start + BLOCK, length))
        off = chain.angle_errors(positions, np.flatnonzero(moved))
        errors = np.abs(wrap_angle(off)).max(axis=0)
        # An error that overflowed is nan, and not within the tolerance either.
        is_wrong = ~(errors <= tolerance)
        if first is None and is_wrong.any():
            first = start + int(is_wrong.argmax())
        worst = max(worst, float(np.nan_to_num(errors, nan=math.inf).max()))
    return {
        "max_angle_error_rad": worst if math.isfinite(worst) else math.nan,
        "first_position_over_tolerance": first,
    }


def state_axes(table: pd.DataFrame) -> list[str]:
    """Say along which axes a rounded stage loses positions, format by format."""
    sentences = []
    for (axis, positions), rows in table.groupby(["axis", "positions"], sort=False):
        wrong = rows[rows["first_position_over_tolerance"].notna()]
        losing = []
        for name in USUAL:
            stages = wrong[wrong["format"] == name]
            if len(stages):
                first = stages["first_position_over_tolerance"].min()
                words = join_names([str(stage) for stage in stages["stage"]])
                losing.append(f"{name} for {words} (from {first} on)")
        if not losing:
            plans = wrong[wrong["format"].isna()]
            losing = [
                f"{row['name']} (from {row['first_position_over_tolerance']} on)"
                for row in plans.to_dict("records")
            ]
        if losing:
            lost = " and ".join(losing)
            sentences.append(
                f"along {positions} positions of {axis} angles are wrong with {lost}"
            )
        else:
            sentences.append(f"along {positions} positions of {axis} no angle is wrong")
    return sentences
