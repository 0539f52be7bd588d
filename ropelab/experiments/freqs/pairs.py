"""Every pair of a head under a scaling method: tables, answer and short table.

A scaling method makes a plan: the scaled frequencies of all pairs, and a factor of the
logits. In an axial layout each axis of a position has separate frequencies and a
separate plan.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ropelab.experiments.freqs import FreqsConfig
from ropelab.math.frequencies import Geometry, rotations, wavelengths
from ropelab.math.methods import parse_scaling
from ropelab.math.rotary import find_axis_of_pairs, name_axes
from ropelab.math.scaling import RopePlan, Scaling, compute_kept_weights, name_roles
from ropelab.runs.arrays import Float
from ropelab.runs.cell import Computation, Resources, Values
from ropelab.runs.config import LARGEST
from ropelab.runs.errors import InputError
from ropelab.runs.sentences import write_exactly
from ropelab.runs.spelling import write_command
from ropelab.runs.tables import Tables

# The memory, in bytes, of Python with NumPy, pandas and matplotlib.
LIBRARY_BYTES = 200_000_000
# The memory, in bytes, of a row of the table: five million pairs took 3.5 GB.
BYTES_PER_PAIR = 750
# The seconds to compute a row of the table and to write it as text.
SECONDS_PER_PAIR = 4e-5
# What a method does to a pair, in the order in which the answer counts the pairs.
ROLES = ("kept", "ramp", "interpolated", "moved", "dropped")


class ScaledHead(NamedTuple):
    """A head under a method."""

    scaling: Scaling
    # The length at which the pairs are looked at, in tokens.
    test_len: int
    # The whole head; in an axial layout, the part of each axis.
    parts: list[tuple[Geometry, RopePlan]]


def check(config: FreqsConfig) -> None:
    """Raise InputError if the method does not exist, or does not fit."""
    scale_head(config)


def scale_head(config: FreqsConfig) -> ScaledHead:
    """Return the head under the method.

    InputError: the method does not exist, or does not fit.
    """
    widths = [config.rotary_dim or config.head_dim]
    if config.sections and config.layout == "axial":
        widths = [2 * pairs for pairs in config.sections]
    geometries = [Geometry(width, config.base, config.train_len) for width in widths]

    scaling = parse_scaling(config.method, config.factor)
    factor = config.factor
    if scaling.default_factors:
        # The factor of a static method is the context length over the trained length.
        # The factor of a dynamic method is not.
        factor = getattr(scaling, "factor", config.factor)
    length = config.test_len or factor * config.train_len
    # A factor may be inf or nan, which is not within any limit.
    is_exact = length <= LARGEST
    if not is_exact:
        raise InputError(
            f"{length:.4g} tokens are more than 2^53, where float64 is still exact"
        )

    test_len = round(length)
    parts = [(geometry, scaling.plan(geometry, test_len)) for geometry in geometries]
    return ScaledHead(scaling, test_len, parts)


def cells(config: FreqsConfig) -> list[Computation]:
    pairs = config.head_dim // 2
    resources = Resources(
        seconds=pairs * SECONDS_PER_PAIR,
        memory_bytes=LIBRARY_BYTES + pairs * BYTES_PER_PAIR,
    )

    cell = Computation(
        kind="freqs",
        version=2,
        title=f"pairs under {config.method}",
        function=compute,
        # The name of a model only sets other fields, so that the result does not depend
        # on the name itself.
        inputs=config.model_dump(mode="json", exclude={"model"}),
        resources=resources,
    )
    return [cell]


def compute(**values: Any) -> dict[str, pd.DataFrame]:
    """Compute the tables `pairs` and `scaling` from the fields of a config.

    pairs: a row per pair. ``weight``: the share of the original frequency, where a method
    blends it with an interpolated one. ``trained_phase_rad``, ``test_phase_rad``: the
    angle at the end of the length. ``unseen``: "new angles" if the pair had not completed
    a rotation in the trained length and goes beyond its largest angle there;
    ``unseen_extended``: like ``unseen``, if training after the scaling counts, too.

    scaling: one row. ``logit_multiplier``: the factor of the logits;
    ``softmax_multiplier``: the part of it that DeepSeek's code applies to whole scores.
    ``ramp_low``, ``ramp_high``: the first and the last pair that is blended. In an axial
    layout the row is about the first axis.
    """
    config = FreqsConfig(**values)
    scaling, test_len, parts = scale_head(config)
    tables = []
    for geometry, plan in parts:
        tables.append(_list_pairs(geometry, plan, test_len, config.extended_len))
    pairs = pd.concat(tables, ignore_index=True)
    # The pairs of all axes are numbered in one sequence.
    pairs["pair"] = pairs.index
    if config.sections:
        names = name_axes(len(config.sections))
        axis_numbers = find_axis_of_pairs(config.layout, config.sections)
        pairs = pairs.assign(axis=[names[number] for number in axis_numbers.tolist()])

    geometry, plan = parts[0]
    # A method that blends no pairs has no ramp.
    ramp_low, ramp_high = scaling.ramp_range(geometry) or (math.nan, math.nan)
    softmax_factor = scaling.softmax_factor or 1.0

    row = {
        "method": scaling.label,
        "factor": getattr(scaling, "factor", math.nan),
        "attention_factor": plan.attention_factor,
        "logit_multiplier": plan.logit_multiplier * softmax_factor,
        "ramp_low": ramp_low,
        "ramp_high": ramp_high,
        "effective_factor": plan.stretch,
        "train_len_tokens": geometry.trained_len,
        "extended_len_tokens": config.extended_len or math.nan,
        "test_len_tokens": test_len,
        "softmax_multiplier": softmax_factor,
        "source": scaling.source,
    }
    return {"pairs": pairs, "scaling": pd.DataFrame([row])}


def _list_pairs(
    geometry: Geometry, plan: RopePlan, test_len: int, extended_len: int | None
) -> pd.DataFrame:
    """Return the rows of `pairs` for a head, or for its part of one axis."""
    # The frequencies in radians per token, and the angles at the end of a length, are
    # [pairs].
    original_inv_freq = geometry.inv_freq
    scaled_inv_freq = plan.inv_freq
    trained_phase = original_inv_freq * geometry.trained_len
    phase_after_extension = scaled_inv_freq * (extended_len or 0)
    extended_phase = np.maximum(trained_phase, phase_after_extension)
    test_phase = scaled_inv_freq * test_len

    def find_unseen(largest_trained: Float[np.ndarray, " pairs"]) -> np.ndarray:
        """Say for each pair whether it meets angles that training did not show."""
        completes_rotation = largest_trained >= 2 * math.pi
        # A phase that exceeds the other only by its rounding error counts as equal.
        stays_inside = test_phase <= largest_trained * (1 + 1e-12)
        # The first condition that is true decides.
        return np.select(
            [test_phase == 0, completes_rotation | stays_inside],
            ["no rotation", "none"],
            "new angles",
        )

    # The scaled frequency of a dropped pair is 0. The result is inf here, and missing in
    # the table.
    with np.errstate(divide="ignore", over="ignore"):
        divided_by = original_inv_freq / scaled_inv_freq

    table = pd.DataFrame(
        {
            "pair": range(geometry.pairs),
            "inv_freq": original_inv_freq,
            "wavelength_tokens": wavelengths(original_inv_freq),
            "trained_rotations": rotations(original_inv_freq, geometry.trained_len),
            "test_rotations": rotations(original_inv_freq, test_len),
            "role": name_roles(plan, geometry),
            "weight": compute_kept_weights(plan, geometry),
            "scaled_inv_freq": scaled_inv_freq,
            "scaled_wavelength_tokens": wavelengths(scaled_inv_freq),
            "divided_by": divided_by,
            "scaled_test_rotations": rotations(scaled_inv_freq, test_len),
            "trained_phase_rad": trained_phase,
            "test_phase_rad": test_phase,
            "unseen": find_unseen(trained_phase),
            "unseen_extended": find_unseen(extended_phase),
        }
    )
    return table.replace(math.inf, math.nan)


def tables(config: FreqsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the tables `pairs` and `scaling`, which the only cell has computed."""
    (cell,) = cells(config)
    return dict(values[cell])


def answer(tables: Tables) -> str:
    """Count the pairs of each role, and the pairs that meet new angles."""
    pairs = tables["pairs"]
    scaling = tables["scaling"].iloc[0]
    unseen = (pairs["unseen"] == "new angles").sum()
    text = (
        f"With {scaling['method']} {unseen or 'none'} of {len(pairs)} pairs meet angles at"
        f" {scaling['test_len_tokens']} tokens that training at"
        f" {scaling['train_len_tokens']} does not show"
    )
    # The length is missing if there was no training after the scaling.
    extended_len = scaling["extended_len_tokens"]
    if not math.isnan(extended_len):
        unseen = (pairs["unseen_extended"] == "new angles").sum()
        text += (
            f", {unseen or 'none'} after training at {extended_len:.0f} with this"
            " scaling"
        )

    counts = pairs["role"].value_counts()
    listed = ", ".join(f"{counts[role]} {role}" for role in ROLES if role in counts)
    multiplier = scaling["logit_multiplier"]
    text += f". Of the pairs {listed}; every logit is multiplied by {multiplier:.4g}."
    if "axis" not in pairs:
        return text

    axes = []
    for axis, pairs_of_axis in pairs.groupby("axis", sort=False):
        wavelengths_of_axis = pairs_of_axis["wavelength_tokens"]
        axes.append(
            f"{axis} has {len(pairs_of_axis)} pairs of"
            f" {wavelengths_of_axis.min():.3g} to {wavelengths_of_axis.max():.3g}"
            " positions"
        )
    return f"{text} Of the axes {'; '.join(axes)}."


def suggest_command(config: FreqsConfig, tables: Tables) -> str:
    """Return the command that writes the scaling of a known model as configuration. If
    no model is named, return the command about precision.
    """
    scaling = tables["scaling"].iloc[0]
    length = scaling["test_len_tokens"]
    method = scaling["method"]
    options: dict[str, Any]
    if config.model:
        options = {"model": config.model, "context": length}
        if "method" in config.changed_fields():
            options["method"] = method
        return write_command("emit", options)

    options = {"base": write_exactly(config.base), "head_dim": config.head_dim}
    if config.rotary_dim:
        options["rotary_dim"] = config.rotary_dim
    options["length"] = length
    if method != "unscaled":
        options |= {"method": method, "train_len": config.train_len}
    return write_command("precision", options)


def summary(tables: Tables) -> pd.DataFrame:
    """Select about a dozen pairs, evenly spaced, the first and the last among them."""
    pairs = tables["pairs"]
    count = min(12, len(pairs))
    rows = np.linspace(0, len(pairs) - 1, count).round().astype(int)

    columns = ["pair"]
    if "axis" in pairs:
        columns.append("axis")
    columns += ["wavelength_tokens", "trained_rotations", "role", "divided_by"]
    columns.append("unseen")
    if tables["scaling"]["extended_len_tokens"].notna().any():
        columns.append("unseen_extended")
    return pairs.iloc[rows][columns]
