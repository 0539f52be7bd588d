"""Every pair of a head under a scaling method: tables, answer and short table."""

import math
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.freqs import FreqsConfig
from ropelab.math.frequencies import Geometry, rotations, wavelengths
from ropelab.math.methods import parse_scaling
from ropelab.math.rotary import axis_names, axis_of_pairs
from ropelab.math.scaling import RopePlan, Scaling, kept_weights, roles
from ropelab.runs.arrays import Float
from ropelab.runs.cell import Computation, Resources, Values
from ropelab.runs.config import LARGEST
from ropelab.runs.errors import InputError
from ropelab.runs.sentences import write_exactly
from ropelab.runs.spelling import command_of
from ropelab.runs.tables import Tables

# Python with NumPy, pandas and matplotlib.
LIBRARIES = 200_000_000
# A row of the table: five million pairs took 3.5 GB.
BYTES_PER_PAIR = 750
# Computing a row and writing it as text.
SECONDS_PER_PAIR = 4e-5
ROLES = ("kept", "ramp", "interpolated", "moved", "dropped")


def check(config: FreqsConfig) -> tuple[Scaling, int, list[tuple[Geometry, RopePlan]]]:
    """Return the method, the length, and the scaled parts of a head, one unless it is
    axial.

    InputError: the method does not exist, or does not fit.
    """
    widths = [config.rotary_dim or config.head_dim]
    if config.sections and config.layout == "axial":
        widths = [2 * pairs for pairs in config.sections]
    geometries = [Geometry(width, config.base, config.train_len) for width in widths]

    scaling = parse_scaling(config.method, config.factor)
    factor = config.factor
    if scaling.default_factors:
        # A dynamic method's own factor does not say how long the context is.
        factor = getattr(scaling, "factor", config.factor)
    wanted = config.test_len or factor * config.train_len
    if not wanted <= LARGEST:
        raise InputError(
            f"{wanted:.4g} tokens are more than 2^53, where float64 is still exact"
        )

    test_len = round(wanted)
    parts = [(geometry, scaling.plan(geometry, test_len)) for geometry in geometries]
    return scaling, test_len, parts


def cells(config: FreqsConfig) -> list[Computation]:
    pairs = config.head_dim // 2
    resources = Resources(
        seconds=pairs * SECONDS_PER_PAIR,
        memory_bytes=LIBRARIES + pairs * BYTES_PER_PAIR,
    )
    cell = Computation(
        kind="freqs",
        version=2,
        title=f"pairs under {config.method}",
        function=compute,
        # The model has filled the other fields; its name changes nothing more.
        inputs=config.model_dump(mode="json", exclude={"model"}),
        resources=resources,
    )
    return [cell]


def compute(**values: Any) -> dict[str, pd.DataFrame]:
    """Compute a row per pair, and a row for the method, from the fields of a config.

    A pair has ``weight``, the share of the original frequency in the blend;
    ``trained_phase_rad``, ``test_phase_rad``, the angle at the end of the length;
    ``unseen``: "new angles" if it had not completed a rotation in the trained length
    and goes beyond its largest angle there, and ``unseen_extended``, if training after
    the scaling counts too. scaling: ``logit_multiplier``, of which
    ``softmax_multiplier`` is the part that DeepSeek's code applies to whole scores;
    ``ramp_low``, ``ramp_high``, first and last pair of the blend, of the first axis.
    """
    config = FreqsConfig(**values)
    scaling, test_len, parts = check(config)
    tables = [
        _pairs(geometry, plan, test_len, config.extended_len)
        for geometry, plan in parts
    ]
    pairs = pd.concat(tables, ignore_index=True)
    pairs["pair"] = pairs.index
    if config.sections:
        names = axis_names(len(config.sections))
        axes = axis_of_pairs(config.layout, config.sections)
        pairs = pairs.assign(axis=[names[axis] for axis in axes.tolist()])

    geometry, plan = parts[0]
    low, high = scaling.ramp_range(geometry) or (math.nan, math.nan)
    softmax = scaling.softmax_factor or 1.0

    row = {
        "method": scaling.label,
        "factor": getattr(scaling, "factor", math.nan),
        "attention_factor": plan.attention_factor,
        "logit_multiplier": plan.logit_multiplier * softmax,
        "ramp_low": low,
        "ramp_high": high,
        "effective_factor": plan.stretch,
        "train_len_tokens": geometry.trained_len,
        "extended_len_tokens": config.extended_len or math.nan,
        "test_len_tokens": test_len,
        "softmax_multiplier": softmax,
        "source": scaling.source,
    }
    return {"pairs": pairs, "scaling": pd.DataFrame([row])}


def _pairs(
    geometry: Geometry, plan: RopePlan, test_len: int, extended_len: int | None
) -> pd.DataFrame:
    original = geometry.inv_freq
    scaled = plan.inv_freq
    trained_phase = original * geometry.trained_len
    extended_phase = np.maximum(trained_phase, scaled * (extended_len or 0))
    phase = scaled * test_len

    def find_unseen(trained: Float[np.ndarray, " pairs"]) -> np.ndarray:
        # The last bits of a phase are rounding.
        seen = (trained >= 2 * math.pi) | (phase <= trained * (1 + 1e-12))
        return np.select([phase == 0, seen], ["no rotation", "none"], "new angles")

    # A dropped pair is divided by infinity, which becomes missing below.
    with np.errstate(divide="ignore", over="ignore"):
        divided_by = original / scaled

    table = pd.DataFrame(
        {
            "pair": range(geometry.pairs),
            "inv_freq": original,
            "wavelength_tokens": wavelengths(original),
            "trained_rotations": rotations(original, geometry.trained_len),
            "test_rotations": rotations(original, test_len),
            "role": roles(plan, geometry),
            "weight": kept_weights(plan, geometry),
            "scaled_inv_freq": scaled,
            "scaled_wavelength_tokens": wavelengths(scaled),
            "divided_by": divided_by,
            "scaled_test_rotations": rotations(scaled, test_len),
            "trained_phase_rad": trained_phase,
            "test_phase_rad": phase,
            "unseen": find_unseen(trained_phase),
            "unseen_extended": find_unseen(extended_phase),
        }
    )
    return table.replace(math.inf, math.nan)


def tables(config: FreqsConfig, values: Values) -> dict[str, pd.DataFrame]:
    return dict(values[cells(config)[0]])


def answer(tables: Tables) -> str:
    """Count the roles of pairs and those that meet new angles."""
    pairs = tables["pairs"]
    scaling = tables["scaling"].iloc[0]
    new = (pairs["unseen"] == "new angles").sum()
    text = (
        f"With {scaling['method']} {new or 'none'} of {len(pairs)} pairs meet angles at"
        f" {scaling['test_len_tokens']} tokens that training at"
        f" {scaling['train_len_tokens']} does not show"
    )
    extended = scaling["extended_len_tokens"]
    if not math.isnan(extended):
        still = (pairs["unseen_extended"] == "new angles").sum()
        text += (
            f", {still or 'none'} after training at {extended:.0f} with this scaling"
        )

    counts = pairs["role"].value_counts()
    shown = ", ".join(f"{counts[role]} {role}" for role in ROLES if role in counts)
    times = scaling["logit_multiplier"]
    text += f". Of the pairs {shown}; every logit is multiplied by {times:.4g}."
    if "axis" not in pairs:
        return text

    axes = []
    for axis, part in pairs.groupby("axis", sort=False):
        lengths = part["wavelength_tokens"]
        axes.append(
            f"{axis} has {len(part)} pairs of {lengths.min():.3g} to "
            f"{lengths.max():.3g} positions"
        )
    return f"{text} Of the axes {'; '.join(axes)}."


def following(config: FreqsConfig, tables: Tables) -> str:
    """Return the command that writes a known model's scaling down, else the one on
    precision.
    """
    scaling = tables["scaling"].iloc[0]
    length = scaling["test_len_tokens"]
    method = scaling["method"]
    options: dict[str, Any]
    if config.model:
        options = {"model": config.model, "context": length}
        if "method" in config.changed_fields():
            options["method"] = method
        return command_of("emit", options)

    options = {"base": write_exactly(config.base), "head_dim": config.head_dim}
    if config.rotary_dim:
        options["rotary_dim"] = config.rotary_dim
    options["length"] = length
    if method != "unscaled":
        options |= {"method": method, "train_len": config.train_len}
    return command_of("precision", options)


def summary(tables: Tables) -> pd.DataFrame:
    """Select about a dozen pairs, evenly spaced, the first and the last among them."""
    pairs = tables["pairs"]
    rows = np.linspace(0, len(pairs) - 1, min(12, len(pairs))).round().astype(int)
    columns = ["wavelength_tokens", "trained_rotations", "role", "divided_by", "unseen"]
    if tables["scaling"]["extended_len_tokens"].notna().any():
        columns.append("unseen_extended")
    first = ["pair", "axis"] if "axis" in pairs else ["pair"]
    return pairs.iloc[rows][first + columns]
