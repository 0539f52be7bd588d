"""Implementations compared with one other cast plan (`--against`): angles, tables of cos
and sin, and scores.

A cast plan says to which format each stage of an implementation is rounded. Angles and
tables are compared at every position, scores at sampled positions with random vectors.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.plans import read_implementations
from ropelab.experiments.precision.shared import (
    ROTARY,
    SCORED,
    PrecisionCell,
    count_scores,
    make_cell,
    make_spectrum,
    write_size,
)
from ropelab.experiments.precision.stages import QUERIES
from ropelab.math.numerics import scores
from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, cut_into_blocks, list_positions
from ropelab.math.numerics.keys import (
    Rounding,
    is_format_of_keys,
    parse_rounding,
)
from ropelab.runs.arrays import Float
from ropelab.runs.cell import Advance
from ropelab.runs.errors import InputError
from ropelab.runs.sentences import describe_casts_apart, write_interval
from ropelab.runs.stats import Interval, average_crossed
from ropelab.runs.tables import Tables

# The processor seconds of one position and pair: angles, cosines and sines of two plans.
SECONDS_PER_ANGLE = 2e-7


def read_other_plan(config: PrecisionConfig) -> Rounding:
    """Return the plan that all other plans are compared with.

    InputError: the text is no preset, no format and no cast.
    """
    if is_format_of_keys(config.against):
        raise InputError(
            f"against is {config.against}, a format of stored keys: `ropelab evaluate"
            " MODEL --casts ... --against` compares it with casts"
        )
    # A text that is also given as `cast` means the same plan in both places.
    if config.against == config.cast:
        return Rounding(config.against, parse_cast(config.cast))
    return parse_rounding(config.against)


def make_against_cell(config: PrecisionConfig) -> PrecisionCell:
    """Return the cell of the table `against`.

    InputError: `against` is no preset, no format and no cast.
    """
    plans = [[name, plan.label] for name, plan in read_implementations(config).items()]
    other = read_other_plan(config)
    pairs = config.rotated / 2
    return make_cell(
        config,
        (*ROTARY, *SCORED, "tolerance"),
        kind="precision-against",
        title=f"casts against {other.name}",
        function=compare_plans,
        version=4,
        inputs={"plans": plans, "other": [other.name, other.cast.label]},
        seconds=len(plans) * config.length * pairs * SECONDS_PER_ANGLE,
        scores=2 * len(plans) * count_scores(config, pairs),
    )


def compare_plans(
    config: PrecisionConfig,
    *,
    plans: Sequence[tuple[str, str]],
    other: tuple[str, str],
    advance: Advance,
) -> Tables:
    """Return `against`: a row per plan of `plans`, compared with `other`.

    Each plan is given as a name and a label that `parse_cast` reads.
    """
    spectrum = make_spectrum(config)
    other_name, other_label = other
    other_chain = Chain(parse_cast(other_label), spectrum)

    rows = []
    for name, label in plans:
        chain = Chain(parse_cast(label), spectrum)
        row = {
            "name": name,
            "against": other_name,
            **compare_angles(chain, other_chain, config),
            **compare_scores(chain, other_chain, config),
        }
        rows.append(row)
        advance(1 / len(plans))
    return {"against": pd.DataFrame(rows)}


def compare_angles(
    chain: Chain,
    other: Chain,
    config: PrecisionConfig,
) -> dict[str, Any]:
    """Return the largest differences of angles and tables, and where they are.

    If an angle of either plan overflows, the differences are missing, the status says
    so, and the worst position is the position of the first overflow. A difference
    beyond the tolerance may come before the overflow.
    """
    largest_error = 0.0
    largest_error_of_other = 0.0
    largest_difference = 0.0
    largest_table_difference = 0.0
    worst_position = config.offset
    worst_pair = 0
    first_beyond = None
    for start, stop in cut_into_blocks(config.offset, config.offset + config.length):
        positions = list_positions(start, stop)
        errors = chain.angle_errors(positions)  # [pairs, positions]
        errors_of_other = other.angle_errors(positions)
        # The errors are small, so that their difference keeps the digits that the
        # difference of two large angles would lose. Where both angles overflow, it is
        # nan.
        with np.errstate(invalid="ignore"):
            differences = wrap_angle(errors - errors_of_other)
        overflows = ~np.isfinite(differences).all(axis=0)  # [positions]
        is_beyond = overflows | (differences > config.tolerance).any(axis=0)
        if first_beyond is None and is_beyond.any():
            first_beyond = start + int(is_beyond.argmax())
        if overflows.any():
            first_overflow = start + int(overflows.argmax())
            place = first_overflow - start
            is_finite = np.isfinite(errors[:, place]).all()
            other_is_finite = np.isfinite(errors_of_other[:, place]).all()
            overflowing = "both"
            if is_finite or other_is_finite:
                overflowing = "against" if is_finite else "name"
            return _report_overflow(first_overflow, first_beyond, overflowing)

        if differences.max() > largest_difference:
            largest_difference = float(differences.max())
            pair, column = np.unravel_index(differences.argmax(), differences.shape)
            worst_position = start + int(column)
            worst_pair = int(pair)

        # `wrap_angle` changes its argument, so it comes after the differences.
        error = float(wrap_angle(errors).max())
        error_of_other = float(wrap_angle(errors_of_other).max())
        largest_error = max(largest_error, error)
        largest_error_of_other = max(largest_error_of_other, error_of_other)

        cos, sin = chain.table(positions)
        other_cos, other_sin = other.table(positions)
        for values, other_values in ((cos, other_cos), (sin, other_sin)):
            difference = float(np.abs(values - other_values).max())
            largest_table_difference = max(largest_table_difference, difference)

    return {
        "max_angle_error_rad": largest_error,
        "against_max_angle_error_rad": largest_error_of_other,
        "max_angle_difference_rad": largest_difference,
        "worst_position": worst_position,
        "worst_pair": worst_pair,
        "first_position_over_tolerance": first_beyond,
        "max_table_difference": largest_table_difference,
        "status": "ok",
        "overflowing": "",
    }


def _report_overflow(
    position: int, first_beyond: int | None, overflowing: str
) -> dict[str, Any]:
    """Return the columns of `compare_angles` where a plan overflows at a position.

    `first_beyond` is the first position beyond the tolerance or with an overflow.
    `overflowing` is the column with the name of the plan that overflows, or `both`.
    """
    return {
        "max_angle_error_rad": math.nan,
        "against_max_angle_error_rad": math.nan,
        "max_angle_difference_rad": math.nan,
        "worst_position": position,
        "worst_pair": 0,
        "first_position_over_tolerance": first_beyond,
        "max_table_difference": math.nan,
        "status": f"overflows from position {position}",
        "overflowing": overflowing,
    }


def compare_scores(
    chain: Chain,
    other: Chain,
    config: PrecisionConfig,
) -> dict[str, float]:
    """Return root mean square errors and differences of the scores of random vectors,
    each with its interval over vectors and positions.
    """
    offset = config.offset
    queries = scores.sample_positions(offset, config.length, QUERIES)
    keys = scores.draw_earlier_keys(queries, offset, config.seed)
    head_pairs = chain.spectrum.head_pairs
    vectors = scores.draw(config.draws, head_pairs, "random", config.seed)

    unrounded = Chain(CastPlan(), chain.spectrum)
    exact_scores = scores.compute_scores(unrounded, vectors, queries, keys)
    chain_scores = scores.compute_scores(chain, vectors, queries, keys)
    other_scores = scores.compute_scores(other, vectors, queries, keys)
    return {
        **_estimate_rms("rms_score_error", chain_scores, exact_scores),
        **_estimate_rms("against_rms_score_error", other_scores, exact_scores),
        **_estimate_rms("rms_score_difference", chain_scores, other_scores),
    }


def _estimate_rms(
    name: str,
    rounded: Float[np.ndarray, "draws places"],
    exact: Float[np.ndarray, "draws places"],
) -> dict[str, float]:
    """Return the root mean square difference of scores as the column `name`, and the ends
    of its interval.
    """
    # Every draw of vectors has a score at every place, so that both are samples.
    mean = average_crossed((rounded - exact) ** 2).compute_interval()
    return {
        name: math.sqrt(mean.value),
        f"{name}_ci_low": math.sqrt(np.fmax(mean.low, 0)),
        f"{name}_ci_high": math.sqrt(mean.high),
    }


def state_against(table: pd.DataFrame) -> list[str]:
    """Say how far each plan is from the plan of --against, the farthest first."""
    return describe_casts_apart(
        table, "rms_score_difference", _describe_row, "with scores that differ by less"
    )


def _describe_row(row: pd.Series) -> str:
    """Say how far the plan of a row of `against` is from the plan of --against."""
    lead = f"{row['name']} against {row['against']}:"
    beyond = ""
    if pd.notna(row["first_position_over_tolerance"]):
        beyond = (
            ", and beyond the tolerance from position"
            f" {row['first_position_over_tolerance']:.0f} on"
        )
    if row["status"] != "ok":
        if row["first_position_over_tolerance"] == row["worst_position"]:
            beyond = ""
        if row["overflowing"] == "both":
            position = row["worst_position"]
            return f"{lead} both overflow from position {position}{beyond}"
        return f"{lead} {row[row['overflowing']]} {row['status']}{beyond}"

    differences = [
        "max_angle_difference_rad",
        "max_table_difference",
        "rms_score_difference",
    ]
    if (row[differences] == 0).all():
        return f"{lead} every number is the same"

    angles = "no angle differs"
    if row["max_angle_difference_rad"] > 0:
        angles = (
            f"angles differ by {row['max_angle_difference_rad']:.2g} rad at most (pair"
            f" {row['worst_pair']}, position {row['worst_position']}){beyond}"
        )
    if row["rms_score_difference"] == 0:
        # Scores are sampled, and a difference at few positions may be missed.
        return f"{lead} {angles}; no sampled score differs"

    difference = Interval(
        row["rms_score_difference"],
        row["rms_score_difference_ci_low"],
        row["rms_score_difference_ci_high"],
        n=1,
    )
    own_errors = []
    for name in ("rms_score_error", "against_rms_score_error"):
        low = row[f"{name}_ci_low"]
        high = row[f"{name}_ci_high"]
        own_errors.append(write_size(row[name], low, high))
    return (
        f"{lead} scores differ by {write_interval(difference, '.2g')} (root mean square,"
        " brackets of 95 % over random vectors and positions; scores have deviation 1),"
        f" where the two are off by {' and '.join(own_errors)}; {angles}"
    )


def shorten_against(table: pd.DataFrame) -> pd.DataFrame:
    """Return the short table of `against`, its columns under shorter names."""
    short_names = {
        "name": "cast",
        "against": "against",
        "max_angle_difference_rad": "worst_rad",
        "first_position_over_tolerance": "differ_from",
        "max_table_difference": "cos_and_sin",
    }
    sizes = []
    for row in table.to_dict("records"):
        if row["status"] == "ok":
            low = row["rms_score_difference_ci_low"]
            high = row["rms_score_difference_ci_high"]
            sizes.append(write_size(row["rms_score_difference"], low, high))
        else:
            sizes.append("")
    short = table[list(short_names)].rename(columns=short_names)
    return short.assign(score=sizes)
