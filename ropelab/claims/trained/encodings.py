"""Claims about position encodings other than RoPE, and about RoPE against them.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`). A
result is True if it agrees with the claim, False if it disagrees, and None if it is open.
"""

import math
from collections.abc import Sequence

import pandas as pd

from ropelab.claims.margins import margin_of_interval
from ropelab.claims.record import Agrees, Findings, Role, claim
from ropelab.claims.trained.deciding import ask_runs, open_last_unless_learned
from ropelab.claims.trained.runs import COPYING, TEXT_LOSS, EncodingsRun
from ropelab.claims.trained.tally import interval_reaches, write_seed_count
from ropelab.runs.sentences import write_interval, write_with_interval
from ropelab.runs.stats import Interval
from ropelab.runs.thresholds import HARMLESS, WORKS


@claim(
    "alibi-extrapolates",
    "sinusoidal-extrapolates",
    "t5-extrapolates",
    "fast-ones-extrapolate",
)
@ask_runs(EncodingsRun)
def check_extrapolation(
    findings: Findings, run: EncodingsRun, encoding: str, kept: float = WORKS
) -> None:
    """Test that text loss does not rise in a longer context, or that copying goes on.

    A model goes on copying if its copy accuracy beyond the trained length is at least
    `kept` times the accuracy within it.
    """
    near_accuracy = run.read_interval(encoding, COPYING, longest=False)
    far_accuracy = run.read_interval(encoding, COPYING, longest=True)
    threshold = kept * near_accuracy.value
    copies = interval_reaches(far_accuracy, threshold)

    loss_row = run.find_row("extrapolation", encoding=encoding, metric=TEXT_LOSS)
    if loss_row is not None and math.isnan(loss_row["ci_low"]):
        # A row without an interval was not measured.
        loss_row = None
    loss_is_harmless = None if loss_row is None else _is_harmless(loss_row)

    text_role: Role = "part"
    copy_role: Role = "limit"
    if _decides_by_copying(copies, loss_is_harmless):
        text_role = "limit"
        copy_role = "part"

    what = (
        f"{encoding}, rise of the text loss of the last {run.last_tokens} tokens, from"
        f" {run.train_len} to {run.test_len} tokens"
    )
    if loss_row is None:
        findings.add_missing(what, "not measured")
    else:
        rise = float(loss_row["difference"])
        measured = _write_loss_change(loss_row)
        findings.add(text_role, what, measured, loss_is_harmless, rise)
        _explain_harmless(findings, loss_row)
    open_last_unless_learned(findings, run, encoding)

    plain_near_accuracy = run.read_interval(run.plain, COPYING, longest=False)
    plain_far_accuracy = run.read_interval(run.plain, COPYING, longest=True)
    near, far = run.train_len, run.test_len
    what = (
        f"{encoding}, {run.name_place(COPYING, near)} and from {far // 2} tokens back in"
        f" {far}"
    )
    plain_shares = _write_shares(plain_near_accuracy, plain_far_accuracy)
    shares = _write_shares(near_accuracy, far_accuracy)
    measured = f"{shares} ({run.plain}: {plain_shares})"
    margin = margin_of_interval(far_accuracy.low, far_accuracy.high, threshold)
    findings.add(copy_role, what, measured, copies, far_accuracy.value, margin)
    if copies is None:
        findings.leave_open(f"the interval contains {threshold:.3f}")
    open_last_unless_learned(findings, run, encoding)


def _decides_by_copying(copies: Agrees, loss_is_harmless: Agrees) -> bool:
    """Return True if copying is the part of the claim and the text loss its limit; False
    if the text loss is the part and copying the limit.
    """
    # A model can go beyond the trained length in two ways: it goes on copying, or its text
    # loss does not rise. Either is enough for the claim.
    if copies is None:
        # It is open whether the model copies, so that a harmless loss decides.
        return loss_is_harmless is not True
    return copies


def _write_level(level: Interval) -> str:
    """Write a value of an encoding with its interval."""
    if math.isnan(level.value):
        return "not measured"
    return write_with_interval(level.value, level.low, level.high)


def _write_shares(near: Interval, far: Interval) -> str:
    """Write two copy accuracies with their intervals."""
    return f"{write_interval(near, '.3f')} and {write_interval(far, '.3f')}"


@claim(
    "rope-beats-sinusoidal",
    "alibi-below-rope",
    "t5-below-rope",
    "copy-order",
    "nope-copies-better",
)
@ask_runs(EncodingsRun)
def compare_with_baseline(
    findings: Findings,
    run: EncodingsRun,
    metric: str,
    better: Sequence[str] = (),
    worse: Sequence[str] = (),
) -> None:
    """Test that encodings are better, or worse, than the baseline in the longest context."""
    for encoding in (*better, *worse):
        baseline, result = run.tally_against_baseline(encoding, metric)
        values = " and ".join(
            _write_level(run.read_interval(name, metric, longest=True))
            for name in (encoding, baseline)
        )
        unit = " nats per byte" if metric == TEXT_LOSS else ""
        what = (
            f"{encoding} against {baseline}, {run.name_place(metric, run.test_len)}"
            f" ({values}{unit})"
        )
        # The result says whether the encoding is better than the baseline. That is
        # evidence against a claim that the encoding is worse.
        result.add_to(findings, what, inverted=encoding in worse)
        open_last_unless_learned(findings, run, encoding, baseline)


@claim("alibi-beats-others", "relative-do-well")
@ask_runs(EncodingsRun)
def check_lower_losses(
    findings: Findings,
    run: EncodingsRun,
    pairs: Sequence[Sequence[str]],
    others: Sequence[Sequence[str]] = (),
    longest: bool = True,
) -> None:
    """Test that the first encoding of each pair has the lower text loss.

    Args:
        findings: the findings so far.
        run: the run that compares the encodings.
        pairs: the pairs that decide.
        others: the pairs whose findings are limits.
        longest: True to compare the losses after the longest context, False after a
            context of the trained length.
    """
    rows: list[tuple[Role, Sequence[str]]]
    rows = [("part", pair) for pair in pairs] + [("limit", pair) for pair in others]
    for role, (a, b) in rows:
        low, high = run.bounds_between(a, b, longest)
        context = run.test_len if longest else run.train_len
        what = f"{a} against {b}, {run.name_place(TEXT_LOSS, context)}"
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
        open_last_unless_learned(findings, run, a, b)


@claim("learned-worse", "middle-terms-suffice", "values-without-positions")
@ask_runs(EncodingsRun)
def check_cost(
    findings: Findings,
    run: EncodingsRun,
    pair: Sequence[str],
    harmless_rise: bool = False,
    trained_alike: bool = False,
    turned_back_encoding: str = "",
) -> None:
    """Test that the first of a pair has the higher text loss at the trained length, or
    that its loss is hardly higher.

    Args:
        findings: the findings so far.
        run: the run that compares both.
        pair: the two encodings.
        harmless_rise: True if the claim is that the loss of the first encoding is higher
            by HARMLESS at most.
        trained_alike: True if the claim is about models that trained all positions
            equally often.
        turned_back_encoding: another encoding that the claim includes, which must not be
            better than the plain encoding; empty if there is none.
    """
    first, second = pair
    what = f"{first} against {second}, {run.name_place(TEXT_LOSS, run.train_len)}"
    row = run.find_row("pairs", encoding_a=first, encoding_b=second)
    if row is None:
        findings.add_missing(what, "not compared")
        return
    if harmless_rise:
        findings.add_part(
            what, _write_loss_change(row), _is_harmless(row), row["difference"]
        )
        _explain_harmless(findings, row)
    else:
        second_is_better = _is_better(row, second, first)
        findings.add_part(
            what, _write_loss_change(row), second_is_better, row["difference"]
        )
        if second_is_better is None:
            findings.leave_open("the interval contains 0")

    # The claims are about text, so copying decides nothing here. The answer tells how many
    # models copy, since a model that copies makes better use of its context.
    for encoding in pair:
        learned = run.seeds_that_copy(encoding)
        counted = write_seed_count(learned)
        findings.add_limit(
            f"seeds with which {encoding} learned to copy", counted, None
        )

    if trained_alike:
        shortest = int(run.config.get("first_window") or run.train_len)
        what = "every position trained as often"
        if shortest < run.train_len:
            measured = f"no, windows grew from {shortest} to {run.train_len} tokens"
            findings.add_unmet(what, measured, False)
        else:
            measured = f"yes, windows of {run.train_len} tokens from the first step"
            findings.add_limit(what, measured, True)

    if turned_back_encoding:
        _compare_with_plain(findings, run, turned_back_encoding)


def _compare_with_plain(findings: Findings, run: EncodingsRun, encoding: str) -> None:
    """Add a limit for each metric and context: it disagrees with the claim if the
    encoding is better than the plain encoding of the run.
    """
    lead = f"values turned and turned back by the query's position ({encoding})"
    for metric in (TEXT_LOSS, COPYING):
        for context in (run.train_len, run.test_len):
            times = context / run.train_len
            row = run.find_row(
                "comparisons",
                encoding_a=encoding,
                metric=metric,
                times_trained_len=times,
            )
            what = f"{lead} against {run.plain}, {run.name_place(metric, context)}"
            if row is None:
                findings.add_unmet(what, "not in this run", None)
                continue

            plain_is_better = _is_better(row, run.plain, encoding)
            interval = f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"
            measured = f"{row['difference']:+.3f} {interval}"
            findings.add_limit(what, measured, plain_is_better, row["difference"])
            if plain_is_better is None:
                findings.leave_open("the interval contains 0")


def _is_better(row: pd.Series, encoding: str, other: str) -> Agrees:
    """Return True if a comparison of two encodings found `encoding` better, False if it
    found `other` better, and None if it shows no difference.
    """
    # The verdict is the name of the better encoding, or `~`.
    if row["verdict"] == encoding:
        return True
    if row["verdict"] == other:
        return False
    return None


def _write_loss_change(row: pd.Series) -> str:
    """Write the difference of two text losses with its interval."""
    return (
        f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats"
        " per byte"
    )


def _is_harmless(row: pd.Series) -> bool | None:
    """Return True if a loss rises by HARMLESS at most, False if it rises by more, and
    None if the interval of the rise leaves this open.
    """
    if row["ci_high"] <= HARMLESS:
        return True
    if row["ci_low"] > HARMLESS:
        return False
    return None


def _explain_harmless(findings: Findings, row: pd.Series) -> None:
    """Give the reason if the last finding, which is about the rise in `row`, is open."""
    if _is_harmless(row) is None:
        findings.leave_open(f"the interval contains {HARMLESS:g}, a rise without harm")
