"""What the bound on the base predicts of trained models, and what they do."""

import math
from enum import StrEnum

import pandas as pd

from ropelab.math.bounds import Similarity, first_negative
from ropelab.runs.stats import FALSE_DISCOVERIES
from ropelab.runs.thresholds import LEARNED, LOW_LOSS


class Outcome(StrEnum):
    """What one base shows on one task about the bound's prediction."""

    REFERENCE = "reference"
    UNLEARNED = "open: the reference has not learned"
    HOLDS = "holds, as predicted"
    WORSE_ANYWAY = "worse although admissible"
    SUPERFICIAL = "superficial, as predicted"
    FAILS = "fails, as predicted"
    FAILS_TOGETHER = "fails in text and retrieval"
    PARTLY = "fails at some of the distances where failure was predicted"
    RETRIEVES = "retrieves where failure was predicted"
    RETRIEVES_WORSE = "retrieves, though worse, where failure was predicted"


AGREES = {
    Outcome.HOLDS: True,
    Outcome.SUPERFICIAL: True,
    Outcome.FAILS: True,
    Outcome.FAILS_TOGETHER: True,
    Outcome.WORSE_ANYWAY: False,
    Outcome.PARTLY: False,
    Outcome.RETRIEVES: False,
    Outcome.RETRIEVES_WORSE: False,
}
"""Whether an outcome agrees with the bound; the others say neither."""


def first_fails(
    similarity: Similarity, bases: tuple[float, ...], train_len: int
) -> dict[float, float]:
    """For each base the first position whose sum is negative; infinite if none inside L is."""
    found = {base: first_negative(similarity, base, train_len) for base in bases}
    return {base: math.inf if m is None else float(m) for base, m in found.items()}


def judge(measured: pd.DataFrame) -> pd.DataFrame:
    """The table with two columns more: `outcome` and `agrees` (missing where nothing is said).

    Args:
        measured: per base and task `is_reference`, `first_failing_position_tokens` (missing where
            no failure is predicted), `distances_beyond` that position and how many of them are
            `failing_beyond`; at the distances where failure is predicted (all, if none is)
            `reference_accuracy`, `accuracy_difference` to it and its
            `accuracy_false_discovery_rate` among all rows; `text_ci_high_nats_per_byte`, missing if
            text was not measured.
    """
    if measured.empty:
        return measured.assign(outcome="", agrees=None)
    outcomes = [outcome(row) for _, row in measured.iterrows()]
    agrees = pd.Series([AGREES.get(x) for x in outcomes], index=measured.index, dtype=object)
    return measured.assign(outcome=[str(x) for x in outcomes], agrees=agrees)


def outcome(row: pd.Series) -> Outcome:
    """What one base shows. A predicted failure is one only if retrieval fails at every distance.

    See `judge` for the entries of the row.
    """
    if row["is_reference"]:
        return Outcome.REFERENCE
    if not row["reference_accuracy"] >= LEARNED:
        return Outcome.UNLEARNED
    told_apart = row["accuracy_false_discovery_rate"] <= FALSE_DISCOVERIES
    worse = told_apart and row["accuracy_difference"] < 0
    if math.isnan(row["first_failing_position_tokens"]):
        return Outcome.WORSE_ANYWAY if worse else Outcome.HOLDS
    if not worse:
        return Outcome.RETRIEVES
    if row["failing_beyond"] < row["distances_beyond"]:
        return Outcome.PARTLY if row["failing_beyond"] else Outcome.RETRIEVES_WORSE
    if math.isnan(row["text_ci_high_nats_per_byte"]):
        return Outcome.FAILS
    low = row["text_ci_high_nats_per_byte"] < LOW_LOSS
    return Outcome.SUPERFICIAL if low else Outcome.FAILS_TOGETHER


def tally(judged: pd.DataFrame) -> str:
    """How often the bound is right about what is judged: `5 of 6 bases`."""
    right = int(judged["agrees"].astype(bool).sum())
    what = "bases" if judged["task"].nunique() == 1 else "pairs of base and task"
    return f"{right} of {len(judged)} {what}"
