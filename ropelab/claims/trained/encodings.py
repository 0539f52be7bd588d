"""Claims about position encodings other than RoPE, and about RoPE against them."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ropelab.claims.margins import margin_of_interval
from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.trained.deciding import ask_runs, open_unless_learned
from ropelab.claims.trained.runs import COPYING, Encodings
from ropelab.claims.trained.tally import interval_reaches, negate, write_seed_count
from ropelab.runs.sentences import write_interval
from ropelab.runs.stats import Interval
from ropelab.runs.thresholds import HARMLESS, WORKS


@claim(
    "alibi-extrapolates",
    "sinusoidal-extrapolates",
    "t5-extrapolates",
    "fast-ones-extrapolate",
)
@ask_runs(Encodings)
def check_extrapolation(
    findings: Findings, run: Encodings, encoding: str, kept: float = WORKS
) -> None:
    """Test that text loss does not rise in a longer context, or that copying goes on.

    `kept` is the share of what a model copies within the trained length that it has to
    copy beyond it.
    """
    near = run.read_interval(encoding, COPYING, False)
    far = run.read_interval(encoding, COPYING, True)
    threshold = kept * near.value
    copies = interval_reaches(far, threshold)
    row = run.find_row("extrapolation", encoding=encoding, metric="text loss")
    is_measured = row is not None and not math.isnan(row["ci_low"])
    reads = _is_harmless(row) if is_measured and row is not None else None

    # A model can go beyond the trained length in two ways: its text loss does not rise, or
    # it still copies. Either is enough for the claim. Where the model copies, copying is
    # the part that decides, and a risen loss is only a condition on it. The same is so
    # where its copying is open and its loss is not enough. Elsewhere the loss decides, and
    # the lack of copying is the condition.
    by_copying = copies is True or (copies is None and reads is not True)
    text_role: Role = "limit" if by_copying else "part"
    copy_role: Role = "part" if by_copying else "limit"

    what = (
        f"{encoding}, rise of text loss from {run.train_len} to {run.test_len} tokens"
    )
    if row is None or not is_measured:
        findings.add_missing(what, "not measured")
    else:
        rise = float(row["difference"])
        findings.add(text_role, what, _write_loss_change(row), _is_harmless(row), rise)
        _explain_harmless(findings, row)
    open_unless_learned(findings, run, encoding)

    plain_near = run.read_interval(run.plain, COPYING, False)
    plain_far = run.read_interval(run.plain, COPYING, True)
    what = "copy accuracy at the trained length and at the longest"
    plain = f"{run.plain}: {_write_share(plain_near)} and {_write_share(plain_far)}"
    measured = f"{_write_share(near)} and {_write_share(far)} ({plain})"
    margin = margin_of_interval(far.low, far.high, threshold)
    findings.add(copy_role, what, measured, copies, far.value, margin)
    if copies is None:
        findings.leave_open(f"the interval contains {threshold:.3f}")
    open_unless_learned(findings, run, encoding)


def _write_share(share: Interval) -> str:
    return write_interval(share, ".3f")


@claim(
    "rope-beats-sinusoidal",
    "alibi-below-rope",
    "t5-below-rope",
    "copy-order",
    "nope-copies-better",
)
@ask_runs(Encodings)
def compare_with_baseline(
    findings: Findings,
    run: Encodings,
    metric: str,
    better: Sequence[str] = (),
    worse: Sequence[str] = (),
) -> None:
    """Test that encodings are better, or worse, than the baseline in the longest context."""
    for encoding in (*better, *worse):
        baseline, result = run.tally_against_baseline(encoding, metric)
        values = (
            f"{run.read_quality(encoding, metric, True):.3f},"
            f" {run.read_quality(baseline, metric, True):.3f}"
        )
        unit = " nats per byte" if metric == "text loss" else ""
        what = (
            f"{encoding} against {baseline}, {metric} at {run.test_len} tokens"
            f" ({values}{unit})"
        )
        result.add_to(findings, what)
        if encoding in worse:
            # The finding just added asks whether the encoding is better than the
            # baseline. The claim says that it is worse, so the answer is inverted.
            asks_better = findings.findings[-1]
            agrees = negate(asks_better.agrees)
            findings.findings[-1] = replace(asks_better, agrees=agrees)
        open_unless_learned(findings, run, encoding, baseline)


@claim("alibi-beats-others", "relative-do-well")
@ask_runs(Encodings)
def check_lower_losses(
    findings: Findings,
    run: Encodings,
    pairs: Sequence[Sequence[str]],
    others: Sequence[Sequence[str]] = (),
    longest: bool = True,
) -> None:
    """Test that the first encoding of each pair reads better; the findings on `others`
    are limits.
    """
    rows: list[tuple[Role, Sequence[str]]]
    rows = [("part", pair) for pair in pairs] + [("limit", pair) for pair in others]
    for role, (a, b) in rows:
        low, high = run.bounds_between(a, b, longest)
        context = run.test_len if longest else run.train_len
        what = f"{a} against {b}, text loss at {context} tokens"
        if math.isnan(low):
            if role == "part":
                findings.add_missing(what, "not compared")
            continue

        agrees: bool | None = None
        if high < 0:
            agrees = True
        elif low > 0:
            agrees = False
        measured = f"[{low:+.3f}, {high:+.3f}] nats per byte"
        margin = margin_of_interval(low, high, 0)
        findings.add(role, what, measured, agrees, None, margin)
        if agrees is None:
            findings.leave_open("the interval contains 0")
        open_unless_learned(findings, run, a, b)


@claim("learned-worse", "middle-terms-suffice", "values-without-positions")
@ask_runs(Encodings)
def check_cost(
    findings: Findings,
    run: Encodings,
    pair: Sequence[str],
    hardly: bool = False,
    evenly: bool = False,
    back: str = "",
) -> None:
    """Test that the first of a pair has the higher text loss at the trained length.

    Args:
        findings: the findings so far.
        run: the run that compares both.
        pair: the two encodings.
        hardly: True if the claim is that the loss of the first is higher by HARMLESS at
            most.
        evenly: True if the claim is about models that trained all positions alike.
        back: another encoding that the claim includes and that must not be better than
            the plain one; empty if there is none.
    """
    what = f"{pair[0]} against {pair[1]}, text loss at {run.train_len} tokens"
    row = run.find_row("pairs", encoding_a=pair[0], encoding_b=pair[1])
    if row is None:
        findings.add_missing(what, "not compared")
        return
    if hardly:
        findings.add_part(
            what, _write_loss_change(row), _is_harmless(row), row["difference"]
        )
        _explain_harmless(findings, row)
    else:
        # The verdict names the encoding with the lower loss, or neither.
        higher = {pair[0]: False, pair[1]: True}.get(row["verdict"])
        findings.add_part(what, _write_loss_change(row), higher, row["difference"])
        if higher is None:
            findings.leave_open("the interval contains 0")

    # The claims are about text, so copying decides nothing here. The answer tells which
    # models copy, since a model that copies reads its context better.
    for encoding in pair:
        learned = run.seeds_that_copy(encoding)
        counted = write_seed_count(learned)
        findings.add_limit(
            f"seeds with which {encoding} learned to copy", counted, None
        )

    if evenly:
        shortest = int(run.config.get("first_window") or run.train_len)
        what = "every position trained as often"
        if shortest < run.train_len:
            shown = f"no, windows grew from {shortest} to {run.train_len} tokens"
            findings.add_unmet(what, shown, False)
        else:
            shown = f"yes, windows of {run.train_len} tokens from the first step"
            findings.add_limit(what, shown, True)

    if back:
        _compare_turned_back(findings, run, back)


def _compare_turned_back(findings: Findings, run: Encodings, back: str) -> None:
    """Add limits that disagree where an encoding is better than the plain one."""
    lead = f"values turned and turned back by the query's position ({back})"
    for metric in ("text loss", COPYING):
        for context in (run.train_len, run.test_len):
            times = context / run.train_len
            about = {"encoding_a": back, "metric": metric, "times_trained_len": times}
            row = run.find_row("comparisons", **about)
            what = f"{lead} against {run.plain}, {metric} at {context} tokens"
            if row is None:
                findings.add_unmet(what, "not in this run", None)
                continue

            # The verdict names the better of the two, or neither.
            agrees = {back: False, run.plain: True}.get(row["verdict"])
            interval = f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"
            measured = f"{row['difference']:+.3f} {interval}"
            findings.add_limit(what, measured, agrees, row["difference"])
            if agrees is None:
                findings.leave_open("the interval contains 0")


def _write_loss_change(row: pd.Series) -> str:
    return (
        f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats"
        " per byte"
    )


def _is_harmless(row: pd.Series) -> bool | None:
    """Return True if a loss rises by HARMLESS at most; None if its interval leaves that
    open.
    """
    if row["ci_high"] <= HARMLESS:
        return True
    return False if row["ci_low"] > HARMLESS else None


def _explain_harmless(findings: Findings, row: pd.Series) -> None:
    """Give the reason if the last finding, a rise of a loss, is open."""
    if _is_harmless(row) is None:
        findings.leave_open(f"the interval contains {HARMLESS:g}, a rise without harm")
