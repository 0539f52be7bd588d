"""The short tables of the precision experiment, and the functions that its answer also
uses.

The table `casts` has a row per cast plan, told apart by the column `kind`:

- stage: one stage is rounded to one format, and all other stages are exact;
- preset, cast: an implementation that --preset or --cast names;
- repair: an implementation with one stage made exact;
- long: float32 angles at a further length.

A spread (`score_spread`) is the change of a score that rounding causes where the score
should depend only on the distance, in standard deviations of the scores.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from ropelab.experiments.precision.against import shorten_against
from ropelab.experiments.precision.neighbours import list_neighbours
from ropelab.experiments.precision.plans import STAGE_FORMATS, TRAINING_FORMATS
from ropelab.experiments.precision.shared import write_size
from ropelab.experiments.precision.sines import list_losses
from ropelab.math.numerics.casts import STAGES
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import UNNOTICED

# The first position at which an angle is off by more than the tolerance.
WRONG_FROM = "first_position_over_tolerance"
# The column of the spread, which the docstring of this file explains.
SPREAD = "score_spread"
# The words for two stages. All other stages are called by their names.
STAGE_WORDS = {"table": "cos and sin", "score": "q, k and score"}


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table: implementations if any are named, else the shares of
    equal neighbours by encoding, else (without encodings) the stages.
    """
    casts = tables["casts"]
    plans = list_implementations(casts)
    if plans.empty:
        neighbours = list_neighbours(tables)
        if len(neighbours):
            return neighbours
        return _shorten_stages(tables)

    short_names = {
        "name": "plan",
        SPREAD: "score_spread",
        "max_angle_error_rad": "worst_rad",
        WRONG_FROM: "wrong_from",
    }
    short = plans[list(short_names)].rename(columns=short_names)
    short = short.reset_index(drop=True)

    spreads = []
    stages_to_fix = []
    for row in plans.to_dict("records"):
        # A spread is shown with no more digits than its interval supports.
        spread = math.nan
        if pd.notna(row[SPREAD]):
            spread = float(write_spread_of(row))
        spreads.append(spread)
        stages_to_fix.append(find_cure(casts, row).stage)
    return short.assign(
        score_spread=spreads, fix_first=pd.Series(stages_to_fix, dtype=object)
    )


def make_further_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short tables after the summary: of stages (if the summary is about
    encodings), of sines, of plans against another, and of axes.
    """
    casts = tables["casts"]
    short_tables = {}
    summary_is_of_encodings = len(list_neighbours(tables)) > 0
    if list_implementations(casts).empty and summary_is_of_encodings:
        short_tables["casts"] = _shorten_stages(tables)
    short_tables["reductions"] = list_losses(tables["reductions"])
    if "against" in tables:
        short_tables["against"] = shorten_against(tables["against"])
    if "axes" in tables:
        short_tables["axes"] = tables["axes"].drop(columns=["stage", "format"])
    return short_tables


def _shorten_stages(tables: Tables) -> pd.DataFrame:
    """Return a row for each single stage that is rounded while all others are exact.

    For each format there is a column of spreads, and then for each format a column of
    the first position with a wrong angle.
    """
    stages = list_stages(tables["casts"])
    rows_by_format = {}
    for name in choose_formats(tables):
        rows = stages[stages["format"] == name]
        # The rows are put into the order of STAGES.
        rows_by_format[name] = rows.set_index("stage").loc[list(STAGES)]

    words = [STAGE_WORDS.get(stage, stage) for stage in STAGES]
    table = pd.DataFrame({"only_this_is_rounded": words})
    for name, rows in rows_by_format.items():
        spreads = [write_spread_of(row) for row in rows.to_dict("records")]
        table[f"{name} score_spread"] = spreads
    for name, rows in rows_by_format.items():
        positions = []
        for position in rows[WRONG_FROM].tolist():
            positions.append("never" if pd.isna(position) else f"{position:.0f}")
        table[f"{name} wrong_from"] = positions
    return table


def list_stages(casts: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in which a single stage is rounded."""
    return casts[casts["kind"] == "stage"]


def names_formats(tables: Tables) -> bool:
    """Return True if the user names the formats to which single stages are rounded.

    If the user names none, stages are rounded to STAGE_FORMATS, and whole
    implementations, whose shifted scores are in `drift`, only to some of them.
    """
    measured = set(list_stages(tables["casts"])["format"])
    plans = set(tables["drift"]["name"])
    return (
        measured != set(STAGE_FORMATS) or {f"all {name}" for name in measured} <= plans
    )


def choose_formats(tables: Tables) -> list[str]:
    """Return the formats to show: the formats that the user names, or else the formats
    that models are trained in.
    """
    if names_formats(tables):
        return list_stages(tables["casts"])["format"].unique().tolist()
    return list(TRAINING_FORMATS)


def list_implementations(casts: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the implementations that --preset and --cast name; no row if
    they name none.
    """
    return casts[casts["kind"].isin(["preset", "cast"])]


def write_spread_of(row: Mapping[Any, Any]) -> str:
    """Write the spread of a row of `casts`, or where its plan overflows."""
    if pd.isna(row[SPREAD]):
        return f"overflow from {row['worst_position']:.0f}"
    return write_size(row[SPREAD], row["spread_ci_low"], row["spread_ci_high"])


class Cure(NamedTuple):
    """The repair of an implementation whose scores vary with position."""

    # The stage to fix first, or `angle or table` if fixing either is enough; None if
    # nothing has to be fixed, or if no repair was measured.
    stage: str | None
    # A clause about the effect of the repair; empty without a stage.
    clause: str


def find_cure(casts: pd.DataFrame, implementation: Mapping[Any, Any]) -> Cure:
    """Return the stage to fix first in an implementation, a row of `casts`."""
    name = implementation["name"]
    spread = implementation[SPREAD]
    repairs = casts[(casts["kind"] == "repair") & (casts["name"] == name)]
    if spread <= UNNOTICED or repairs.empty:
        return Cure(None, "")

    # To make any one of these stages exact is enough.
    sufficient_stages = repairs.loc[repairs[SPREAD] <= UNNOTICED, "stage"].tolist()
    if sufficient_stages:
        stages = " or ".join(sufficient_stages)
        return Cure(stages, f"fixing {stages} alone cures {name}")

    # The repair with the smallest spread is best. Among equal spreads it is the repair
    # with the longest range of right angles.
    best_first = repairs.sort_values([SPREAD, WRONG_FROM], ascending=[True, False])
    best = best_first.iloc[0]
    ends_overflow = pd.isna(spread) and pd.notna(best[SPREAD])
    effect = "although that alone lowers nothing"
    if best[SPREAD] < spread or ends_overflow:
        effect = f"then {write_spread_of(best)}"
    stage = best["stage"]
    clause = f"no single fix cures {name}: fix {stage} first ({effect})"
    return Cure(stage, clause)
