"""Claims about the bound on the base, decided by models trained under several bases."""

from collections.abc import Sequence

from ropelab.claims.record import Findings, claim
from ropelab.claims.trained.deciding import describe_models
from ropelab.runs.cell import Stored
from ropelab.runs.thresholds import FAILS, LOW_LOSS


@claim("base-bound-predicts")
def check_bound(findings: Findings, runs: Sequence[Stored] = ()) -> None:
    deciding = [
        run for run in runs if run.tables["predictions"]["agrees"].notna().any()
    ]
    if not deciding:
        findings.missing("trained bases that the bound speaks about")
        return
    # The run with most seeds decides, then the one with the longest window.
    run = max(
        deciding, key=lambda run: (len(run.config["seeds"]), run.config["train_len"])
    )
    findings.models = describe_models(run.config)
    judged = run.tables["predictions"]
    judged = judged[judged["agrees"].notna()]
    predicted = judged["first_failing_position_tokens"].notna()
    below = judged[predicted]
    above = judged[~predicted]
    if below.empty:
        findings.missing("trained bases that the bound speaks about")
        return

    failing = int(below["agrees"].astype(bool).sum())
    # If a failure is predicted within the measured distances, this is the only outcome in
    # which retrieval is not worse than with the largest base.
    not_worse = below["outcome"] == "retrieves where failure was predicted"
    worse = int((~not_worse).sum())
    low = int((below["text_ci_high_nats_per_byte"] < LOW_LOSS).sum())

    findings.part(
        f"bases below the bound, times tasks, where retrieval is below {FAILS} at all"
        " those distances",
        f"{failing} of {len(below)} (worse than with the largest base: {worse})",
        failing == len(below),
        failing,
    )
    findings.count("of all of them with a low text loss", low, len(below), "limit")
    if len(above):
        holding = int(above["agrees"].astype(bool).sum())
        what = "admissible bases, times tasks, where retrieval is not worse"
        findings.count(what, holding, len(above), "limit")
