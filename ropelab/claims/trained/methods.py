"""Claims about what one scaling method does, and about two of them.

Text is judged on the same final tokens after the longest context; there the sliding
window is the unscaled model with no more context than it was trained on. Copying is
judged at distances beyond the trained length.
"""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.trained.deciding import (
    ask_runs,
    describe_models,
    sort_largest_first,
)
from ropelab.claims.trained.orders import DOUBLED
from ropelab.claims.trained.runs import Methods
from ropelab.claims.trained.tally import add_interval, is_at_least
from ropelab.runs.cell import Stored
from ropelab.runs.labels import WINDOW
from ropelab.runs.stats import mean_interval
from ropelab.runs.thresholds import CLOSE, FAILS, LEARNED, WORKS

# The metric of text after the longest context.
TEXT = "nll_last_window"
METRICS = {"text": TEXT, "short text": "nll_short_context", "copying": "copy_accuracy"}
# What copying should do, as `asks` of a row in trained.toml says, and the role of the
# finding that answers.
ROLES: dict[str, Role] = {"works": "part", "fails": "part", "may work": "limit"}


@claim("du-indexing")
def check_indexing(
    findings: Findings,
    asked: Sequence[tuple[Role, str, str, str]],
    runs: Sequence[Stored] = (),
) -> None:
    """Ask for items of a list by their place, and as a control by their key."""
    answers = []
    for run in sort_largest_first(Methods, runs):
        if not {"indexing_accuracy", "keyed_accuracy"} <= {*run.tables}:
            continue
        answer = Findings(findings.expected, describe_models(run.config))
        for role, task, method, asks in asked:
            name = f"{task}_accuracy"
            rows = run.rows(name)
            rows = rows[rows["label"] == run.find_label(method, tables=(name,))]
            shares = rows.groupby(["context_tokens", "seed"])["accuracy"].mean()
            within = mean_interval(shares.get(run.train_len, ()))
            beyond = mean_interval(shares.get(run.test_len, ()))

            inside = f"{within.value:.2f} in {run.train_len}"
            # Written with `not`, since a share that was not measured is nan, which
            # compares as false: it counts as not learned.
            if not within.value >= LEARNED:
                answer.missing(f"models that learned {task}", inside)
                continue
            what = f"{task}, {method}, right in {run.test_len} tokens ({inside})"
            fails = asks == "fails"
            add_interval(answer, role, what, beyond, FAILS, fails=fails)
        answers.append(answer)
    findings.take_best(answers, "a stored run of the tasks indexing and keyed")


@claim(
    "plain-fails",
    "rope-extrapolates",
    "yarn-extends",
    "yarn-extends-text",
    "yarn-beats-ntk",
    "ntk-better-short",
    "pi-fails-zero-shot",
)
@ask_runs(Methods)
def check_methods(
    findings: Findings, run: Methods, asked: Sequence[Mapping[str, str]]
) -> None:
    """Add a finding for each row of `asked` (trained.toml describes these rows)."""
    for row in asked:
        if "b" in row:
            _compare_methods(findings, run, **row)
        else:
            _ask_copying(findings, run, **row)


def _compare_methods(
    findings: Findings,
    run: Methods,
    a: str,
    b: str,
    on: str = "text",
    asks: str = "better",
    what: str = "{}",
) -> None:
    a = _label_in_run(run, a)
    b = _label_in_run(run, b)

    if on == "copying":
        shares = f"{run.copies_beyond(a):.2f} and {run.copies_beyond(b):.2f}"
        where = f"at copying beyond {run.train_len} tokens ({shares})"
    elif on == "text":
        losses = f"{run.loss(a):.3f} and {run.loss(b):.3f} nats per byte"
        where = f"on text after {run.test_len} tokens ({losses})"
    else:
        where = f"on text after {run.train_len} tokens"

    what = what.format(f"{a} against {b} {where}", where=where)
    run.tally_against(a, b, METRICS[on]).add_to(findings, what, asks)


def _label_in_run(run: Methods, name: str) -> str:
    """Label a method at the run's smallest factor that covers the tested length.

    A name that asks for twice the factor is labelled at the largest factor instead.
    """
    is_doubled = name.endswith(DOUBLED)
    method = name.removesuffix(DOUBLED)
    return run.find_label(method, largest=is_doubled)


def _ask_copying(
    findings: Findings,
    run: Methods,
    what: str,
    a: str,
    at: str,
    asks: str = "works",
) -> None:
    copied = run.measure_copying_at(run.find_label(a), at)
    what = what.format(a=run.find_label(a), twice=2 * run.train_len)
    fails = asks == "fails"
    least = FAILS if fails else WORKS
    add_interval(findings, ROLES[asks], what, copied, least, fails=fails)


@claim("low-perplexity-enough")
@ask_runs(Methods)
def check_low_loss(findings: Findings, run: Methods) -> None:
    """Test that every method as good as the best on text also copies from far away."""
    # The sliding window is left out: it cannot see far by construction.
    labels = [x for x in run.rows("last_window")["label"].unique() if x != WINDOW]
    rows = [(x, run.loss(x), run.copies_beyond(x)) for x in labels]
    table = pd.DataFrame(rows, columns=["label", "loss", "accuracy"])
    read = table.dropna(subset="loss")
    measured = read.dropna()
    if measured.empty or run.table("comparisons").empty:
        findings.missing("methods that were measured on text and copying and compared")
        return

    best = read.sort_values("loss", kind="stable")["label"].iloc[0]
    unbeaten = []
    for label in read["label"]:
        others = [other for other in read["label"] if other != label]
        wins = [run.tally_against(other, label, TEXT).better for other in others]
        unbeaten.append(sum(wins) == 0)
    rivals = read[unbeaten]
    copying = measured["accuracy"].max()
    # A rival that was not asked to copy has a nan here, which compares as false. It is not
    # known to copy well: among the poor ones it leaves the claim open, refutes nothing.
    copies_well = rivals["accuracy"] >= copying / 2
    poor = rivals[~copies_well]
    # The claim is refuted by a rival that was asked to copy, and is shown to read as well
    # as the best. No significant difference does not show that: the whole interval must
    # be near 0.
    refuting = []
    for label in poor.dropna()["label"]:
        if label == best or run.are_equal(best, label, TEXT):
            refuting.append(label)
    agrees: bool | None = True
    if refuting:
        agrees = False
    elif len(poor):
        agrees = None

    what = (
        f"of {len(rivals)} that no other method beats on text after {run.test_len}"
        " tokens (the sliding window, which cannot see far, is not among them), those"
        f" that copy less than half as well as the best ({copying:.2f}), or were not"
        " asked"
    )
    each = [
        f"{x.label} with {x.loss:.3f} copies {x.accuracy:.2f}"
        for x in poor.itertuples()
    ]
    shown = ", ".join(each) or "none"
    if agrees is None:
        shown += f"; not shown to read as well as {best} (within {CLOSE})"
    findings.part(what, shown, agrees, len(refuting))

    losses = measured["loss"]
    accuracies = measured["accuracy"]
    # Spearman's correlation is not defined where one of them is always the same.
    correlation = math.nan
    if min(losses.nunique(), accuracies.nunique()) > 1:
        correlation = -float(losses.corr(accuracies, method="spearman"))
    what = "rank correlation of low loss and copying"
    agrees = is_at_least(correlation, WORKS)
    findings.limit(what, f"{correlation:.2f}", agrees, correlation)
