"""Claims about the bound on the base, decided by models trained under several bases.

The bound is the smallest base with which no sum of cosines is negative at a distance within
the context (see `ropelab.math.bounds`). It predicts that retrieval fails with a smaller
base.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

from collections.abc import Sequence

from ropelab.claims.record import Findings, claim
from ropelab.claims.trained.deciding import describe_models
from ropelab.runs.cell import Stored
from ropelab.runs.sentences import write_interval
from ropelab.runs.stats import Interval
from ropelab.runs.thresholds import FAILS, LOW_LOSS


def _rank(run: Stored) -> tuple[int, int, int]:
    """Return a rank that is larger for the run that should decide: first a run that the
    current version of the tasks measured, then the run with most seeds, then the run
    with the longest window.
    """
    is_current = int(run.earlier_version is None)
    return is_current, len(run.config["seeds"]), int(run.config["train_len"])


@claim("base-bound-predicts")
def check_bound(findings: Findings, runs: Sequence[Stored] = ()) -> None:
    """Count the bases below the bound whose models fail as the bound predicts."""
    # The column `agrees` is missing in rows that decide nothing.
    deciding = []
    for stored in runs:
        if stored.tables["predictions"]["agrees"].notna().any():
            deciding.append(stored)
    if not deciding:
        findings.add_missing("trained bases that the bound speaks about")
        return

    run = max(deciding, key=_rank)
    findings.models = describe_models(run)
    predictions = run.tables["predictions"]
    predictions = predictions[predictions["agrees"].notna()]
    # A base is below the bound if a failure is predicted for it.
    is_below = predictions["first_failing_position_tokens"].notna()
    rows_below = predictions[is_below]
    rows_above = predictions[~is_below]
    if rows_below.empty:
        findings.add_missing("trained bases that the bound speaks about")
        return

    failing_rows = int(rows_below["agrees"].astype(bool).sum())
    # If a failure is predicted within the measured distances, this is the only outcome in
    # which retrieval is not worse than with the largest base.
    is_not_worse = rows_below["outcome"] == "retrieves where failure was predicted"
    worse_rows = int((~is_not_worse).sum())
    has_low_loss = rows_below["text_ci_high_nats_per_byte"] < LOW_LOSS
    with_low_loss = int(has_low_loss.sum())

    recalls = []
    for row in rows_below.to_dict("records"):
        recall = Interval(
            row["accuracy"],
            row["accuracy_ci_low"],
            row["accuracy_ci_high"],
            row["n"],
        )
        recalls.append(
            f"{row['task']} {row['base']:g}: {write_interval(recall, '.2f')}"
        )

    findings.add_part(
        f"bases below the bound, times tasks, where retrieval is below {FAILS} at every"
        " distance from the first negative sum on",
        f"{failing_rows} of {len(rows_below)} (worse than with the largest base:"
        f" {worse_rows}; mean recall at these distances, by task and base:"
        f" {', '.join(recalls)})",
        failing_rows == len(rows_below),
        failing_rows,
    )
    findings.add_count(
        "bases below the bound, times tasks, with a low text loss",
        with_low_loss,
        len(rows_below),
        role="limit",
    )
    if len(rows_above):
        holding_rows = int(rows_above["agrees"].astype(bool).sum())
        what = "admissible bases, times tasks, where retrieval is not worse"
        findings.add_count(what, holding_rows, len(rows_above), role="limit")
