"""Two cast plans beside each other: their angles, tables and scores, and the difference.

Every position is looked at for angles and tables. Scores are those of random vectors at
sampled positions, as in the table `casts`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision import encodings as shared
from ropelab.experiments.precision.stages import QUERIES, implementations
from ropelab.math.numerics import scores
from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, blocks, span
from ropelab.math.numerics.keys import Rounding, parse_rounding
from ropelab.runs.cell import Advance
from ropelab.runs.sentences import describe_casts_apart
from ropelab.runs.tables import Tables

# The processor time of one position and pair: angles, cosines and sines of two plans.
SECONDS_PER_ANGLE = 2e-7


def read_against(config: PrecisionConfig) -> Rounding:
    """Return the plan that others are compared with; InputError: an unknown name."""
    return parse_rounding(config.against)


def against_cell(config: PrecisionConfig) -> shared.Piece:
    plans = [[name, plan.label] for name, plan in implementations(config).items()]
    against = read_against(config)
    pairs = config.rotated / 2
    return shared.piece(
        config,
        (*shared.ROTARY, *shared.SCORED, "tolerance"),
        kind="precision-against",
        title=f"casts against {against.name}",
        function=compare_plans,
        inputs={"plans": plans, "other": [against.name, against.cast.label]},
        seconds=len(plans) * config.length * pairs * SECONDS_PER_ANGLE,
        drawn=2 * len(plans) * shared.drawn_scores(config, pairs),
    )


def compare_plans(
    config: PrecisionConfig,
    *,
    plans: Sequence[tuple[str, str]],
    other: tuple[str, str],
    advance: Advance,
) -> Tables:
    """Return `against`: a row per plan."""
    spectrum = shared.spectrum_of(config)
    against, against_label = other
    second = Chain(parse_cast(against_label), spectrum)
    rows = []
    for name, label in plans:
        first = Chain(parse_cast(label), spectrum)
        row = {
            "name": name,
            "against": against,
            **compare_angles(first, second, config),
            **compare_scores(first, second, config),
        }
        rows.append(row)
        advance(1 / len(plans))
    return {"against": pd.DataFrame(rows)}


def compare_angles(
    first: Chain,
    second: Chain,
    config: PrecisionConfig,
) -> dict[str, Any]:
    """Return the largest differences of angles and tables, and where they are.

    A difference is missing where a plan overflows; the status says so.
    """
    largest = {"angle_error": 0.0, "against_error": 0.0, "table": 0.0}
    worst = 0.0
    place: tuple[int, int] = (config.offset, 0)
    first_beyond = None
    overflow = None
    for start, stop in blocks(config.offset, config.offset + config.length):
        positions = span(start, stop)
        errors = first.angle_errors(positions)
        against_errors = second.angle_errors(positions)
        # The difference of two errors loses no digits of large angles.
        apart = wrap_angle(errors - against_errors)
        is_lost = ~np.isfinite(apart).all(axis=0)
        if is_lost.any():
            overflow = start + int(is_lost.argmax())
            break

        is_beyond = (apart > config.tolerance).any(axis=0)
        if first_beyond is None and is_beyond.any():
            first_beyond = start + int(is_beyond.argmax())
        if apart.max() > worst:
            worst = float(apart.max())
            pair, column = np.unravel_index(int(apart.argmax()), apart.shape)
            place = (start + int(column), int(pair))
        for name, values in (
            ("angle_error", errors),
            ("against_error", against_errors),
        ):
            largest[name] = max(largest[name], float(wrap_angle(values).max()))
        tables = zip(first.table(positions), second.table(positions), strict=True)
        for table, against_table in tables:
            difference = float(np.abs(table - against_table).max())
            largest["table"] = max(largest["table"], difference)

    status = "ok"
    if overflow is not None:
        status = f"overflows from position {overflow}"
        worst = math.nan
        largest = dict.fromkeys(largest, math.nan)
        place = (overflow, 0)
        first_beyond = overflow
    position, pair_number = place
    return {
        "max_angle_error_rad": largest["angle_error"],
        "against_max_angle_error_rad": largest["against_error"],
        "max_angle_difference_rad": worst,
        "worst_position": position,
        "worst_pair": pair_number,
        "first_position_over_tolerance": first_beyond,
        "max_table_difference": largest["table"],
        "status": status,
    }


def compare_scores(
    first: Chain,
    second: Chain,
    config: PrecisionConfig,
) -> dict[str, float]:
    """Return root mean square errors and differences of the scores of random vectors."""
    offset = config.offset
    queries = scores.sample_positions(offset, config.length, QUERIES)
    keys = scores.earlier_keys(queries, offset, config.seed)
    pairs = first.spectrum.pairs
    vectors = scores.draw(config.draws, pairs, "random", config.seed)

    unrounded = Chain(CastPlan(), first.spectrum)
    exact = scores.scores(unrounded, vectors, queries, keys)
    ours = scores.scores(first, vectors, queries, keys)
    theirs = scores.scores(second, vectors, queries, keys)
    return {
        "rms_score_error": scores.rms_error(ours, exact),
        "against_rms_score_error": scores.rms_error(theirs, exact),
        "rms_score_difference": scores.rms_error(ours, theirs),
    }


def state_against(table: pd.DataFrame) -> list[str]:
    """Say how far each plan is from the other, the farthest first."""
    return describe_casts_apart(
        table, "rms_score_difference", _describe_plan, "move a score by up to"
    )


def _describe_plan(row: pd.Series) -> str:
    lead = f"{row['name']} against {row['against']}:"
    if row["status"] != "ok":
        return f"{lead} one of them {row['status']}"
    differences = [
        "max_angle_difference_rad",
        "max_table_difference",
        "rms_score_difference",
    ]
    if (row[differences] == 0).all():
        return f"{lead} every number is the same"
    beyond = ""
    if pd.notna(row["first_position_over_tolerance"]):
        beyond = (
            ", and beyond the tolerance from position"
            f" {row['first_position_over_tolerance']:.0f} on"
        )
    return (
        f"{lead} scores differ by {row['rms_score_difference']:.2g} (root mean square;"
        f" scores have deviation 1), where the two are off by"
        f" {row['rms_score_error']:.2g} and {row['against_rms_score_error']:.2g};"
        f" angles differ by {row['max_angle_difference_rad']:.2g} rad at most (pair"
        f" {row['worst_pair']}, position {row['worst_position']}){beyond}"
    )


def shorten_against(table: pd.DataFrame) -> pd.DataFrame:
    """Return the short table of `against`, its columns under shorter names."""
    short_names = {
        "name": "cast",
        "against": "against",
        "max_angle_difference_rad": "worst_rad",
        "first_position_over_tolerance": "differ_from",
        "max_table_difference": "cos_and_sin",
        "rms_score_difference": "score",
    }
    return table[list(short_names)].rename(columns=short_names)
