"""Claims about single frequencies, and about the two ends of the spectrum.

A scheme says by which frequencies the pairs of a head rotate. A run of the experiment
`spectrum` has a model for each of several schemes. One of these schemes is the plain
scheme, with which all other schemes are compared.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math

import pandas as pd

from ropelab.claims.record import Agrees, Findings, Role, claim
from ropelab.claims.trained.deciding import ask_runs
from ropelab.claims.trained.runs import FrequenciesRun
from ropelab.claims.trained.tally import (
    count_verdicts,
    interval_or_value_reaches,
    negate,
    write_difference,
)
from ropelab.runs.sentences import write_interval
from ropelab.runs.thresholds import MISSED, WORKS


@claim("one-frequency-learned")
@ask_runs(FrequenciesRun)
def check_single_frequency(
    findings: Findings, run: FrequenciesRun, scheme: str
) -> None:
    """Compare the recall of one frequency with the recall of the plain scheme, by
    distance.

    `scheme` is the scheme of one frequency that the claim is about.
    """
    singles = run.list_single_frequencies()
    # A run can have the scheme in two forms: all pairs rotate, or only some of them. If
    # all rotate, no feature is free of positions, and a model may fail for no other
    # reason than this. The form in which some pairs do not rotate is the control. Both
    # forms are compared.
    forms = [name for name in singles if _is_form_of(name, scheme)]
    # If the run has neither form, `_add_recall` adds that the scheme is missing.
    for name in forms or [scheme]:
        if not _add_recall(findings, run, name):
            return

    if not any(run.has_resting_pairs(name) for name in forms):
        # If there are several runs, the run that leaves least open decides. This
        # finding is open, so that a run that has the control is preferred.
        what = "recall of one frequency beside pairs that do not rotate"
        findings.add_unmet(what, "not in this run", None)

    best = max(singles, key=run.copies_within)
    recall = run.measure_copies_within(best)
    best_works = interval_or_value_reaches(recall, WORKS * run.copies_within())
    half = run.train_len // 2
    what = f"recall of the best single one, {best}, from {half} tokens back"
    measured = write_interval(recall, ".2f")
    findings.add("limit", what, measured, negate(best_works), recall.value)

    for name in forms:
        _add_control(findings, run, name)


def _add_recall(findings: Findings, run: FrequenciesRun, name: str) -> bool:
    """Add the recall of one frequency against the recall of the plain scheme.

    `name` is the scheme of one frequency. Return False if its recall was not measured.
    """
    rows = run.select_comparisons("comparisons", name)
    recall = run.measure_copies_within(name)
    plain_recall = run.measure_copies_within()
    what = f"recall of {_name_scheme(run, name)} against {_name_scheme(run, run.plain)}"
    if rows.empty or math.isnan(recall.value):
        findings.add_missing(what)
        return False

    result = count_verdicts(rows, name)
    # The claim is that one frequency does not suffice.
    agrees: Agrees = None
    if recall.value >= WORKS * plain_recall.value:
        agrees = False
    elif result.worse == len(rows):
        agrees = True
    shares = " against ".join(
        write_interval(each, ".2f") for each in (recall, plain_recall)
    )
    half = run.train_len // 2
    where = f"from {half} tokens back"
    # Some runs lack the difference at this distance, and its interval.
    interval_at = dict(result.differences)
    if half in interval_at:
        where += f", {write_difference(interval_at[half])}"
    worse = f"lower at {result.worse} of {len(rows)} distances"
    findings.add_part(what, f"{shares} {where}; {worse}", agrees, recall.value)
    if agrees is None:
        findings.leave_open("a lower one is not shown at all distances")
    return True


def _name_scheme(run: FrequenciesRun, name: str) -> str:
    """Name a scheme with the number of pairs that rotate, if it is known."""
    words = "RoPE (unscaled)" if name == "unscaled" else name
    turning = run.count_turning_pairs(name)
    return words if turning is None else f"{words} with {turning} turning pairs"


def _add_control(findings: Findings, run: FrequenciesRun, single: str) -> None:
    """Add the recall of many frequencies that turn no more pairs than a single one.

    The plain scheme may turn more pairs. A model may then copy better for this reason,
    and not for the number of its frequencies.
    """
    control = run.find_control(single)
    if control is None or control == run.plain:
        return
    recall = run.measure_copies_within(single)
    control_recall = run.measure_copies_within(control)
    if math.isnan(control_recall.value):
        return
    half = run.train_len // 2
    what = f"recall of {_name_scheme(run, control)}, from {half} tokens back"
    # One frequency does not suffice if as many pairs with more of them recall more.
    agrees = interval_or_value_reaches(recall, WORKS * control_recall.value)
    measured = write_interval(control_recall, ".2f")
    findings.add("limit", what, measured, negate(agrees), control_recall.value)


def _is_form_of(name: str, scheme: str) -> bool:
    """Return True for the scheme itself, and for the scheme with further arguments.

    `one(period=1e+06)` has the form `one(period=1e+06, pairs=8)`: both begin with the
    text of the scheme up to its closing parenthesis.
    """
    without_end = scheme.removesuffix(")")
    return name.startswith(without_end)


@claim("detail-and-whole")
@ask_runs(FrequenciesRun)
def check_ends_of_spectrum(findings: Findings, run: FrequenciesRun) -> None:
    """Test that copying from far falls without the slow pairs, and copying from near
    without the fast pairs.
    """
    # The slow pairs should serve only far distances, and the fast pairs only near
    # distances.
    for band, serves_far in (("slow", True), ("fast", False)):
        served_rows = run.select_comparisons("removed", band, far=serves_far)
        other_rows = run.select_comparisons("removed", band, far=not serves_far)
        what = f"copying without the {band} third"
        if served_rows.empty:
            findings.add_missing(what)
            continue

        # Without the band, copying should fall at the distance that the band serves, and
        # not at the other distance.
        _add_fall(findings, what, served_rows, band)
        _add_fall(findings, what, other_rows, band, role="limit")
        if band == "slow":
            # Both findings just added are about the slow pairs.
            _open_unless_slow_pairs_turn(findings, run, count=2)


@claim("slow-ones-mark-far")
@ask_runs(FrequenciesRun)
def check_slow_pairs(findings: Findings, run: FrequenciesRun, scheme: str) -> None:
    """Test that a model trained with a scheme copies less from the farthest distance
    than a model trained with the plain scheme.
    """
    rows = run.select_comparisons("comparisons", scheme, far=True)
    what = f"copying of a model trained {scheme} against {run.plain}"
    if rows.empty:
        findings.add_missing(what)
    else:
        _add_fall(findings, what, rows, scheme)
        _open_unless_slow_pairs_turn(findings, run, count=1)


def _open_unless_slow_pairs_turn(
    findings: Findings, run: FrequenciesRun, count: int
) -> None:
    """Leave the last `count` findings open if the slow pairs do not complete a rotation
    within the trained length: they then mark no position.
    """
    if run.slow_turns < 1:
        degrees = f"the slow pairs rotate by at most {360 * run.slow_turns:.0f} degrees"
        why = f"{degrees} in {run.train_len} tokens, so this shows nothing"
        # Mute: this run cannot answer, so that a run whose slow pairs rotate is preferred.
        findings.leave_open(why, count, mute=True)


def _add_fall(
    findings: Findings, what: str, rows: pd.DataFrame, name: str, role: Role = "part"
) -> None:
    """Add the change of copying in the first of the rows.

    A part agrees with the claim if copying falls by `MISSED` or more. A limit agrees if
    copying falls by less than `MISSED`.
    """
    row = rows.iloc[0]
    result = count_verdicts(rows, name)

    fell: bool | None = None
    reason = ""
    if row["ci_low"] > -MISSED:
        # No fall by MISSED is inside the interval.
        fell = False
    elif result.worse and row["difference"] <= -MISSED:
        fell = True
    elif result.worse:
        reason = f"a fall that may be smaller than {MISSED:g}"
    else:
        reason = f"the interval contains no change and a fall by {MISSED:g}"

    if role == "part":
        agrees = fell
    else:
        agrees = negate(fell)

    where = f"{what}, from {int(row['distance_tokens'])} tokens back"
    interval = f"[{row['ci_low']:+.2f}, {row['ci_high']:+.2f}]"
    measured = f"{row['difference']:+.2f} {interval} ({result.words})"
    findings.add(role, where, measured, agrees)
    if fell is None:
        findings.leave_open(reason)
