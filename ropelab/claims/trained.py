"""Checks of statements about trained methods, bases, encodings and frequencies, by
stored runs.

Text is judged on the same final tokens after the longest context, where the sliding
window is the unscaled model with no more context than it was trained on; copying at
distances beyond that. A published ordering lists groups of equals, the best first;
every pair is a part of the claim.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import pandas as pd

from ropelab.claims import stored
from ropelab.claims.margins import margin_below, margin_of_interval
from ropelab.claims.record import ClaimFinding, Findings, Role, claim
from ropelab.runs.cell import Stored
from ropelab.runs.comparisons import FAILING, select_pair
from ropelab.runs.labels import AS_SHIPPED, WINDOW, method_label, row_labels
from ropelab.runs.stats import Interval, mean_interval
from ropelab.runs.thresholds import (
    CLOSE,
    FAILS,
    HARMLESS,
    LEARNED,
    LOW_LOSS,
    MISSED,
    WORKS,
)

TEXT, NLL = "nll_last_window", "nll_nats_per_byte"
METRICS = {"text": TEXT, "short text": "nll_short_context", "copying": "copy_accuracy"}
# Rows of `asked` that ask what a method copies say in `asks` what copying should do. The
# role of their finding follows from it.
ROLES: dict[str, Role] = {"works": "part", "fails": "part", "may work": "limit"}
# Methods that have no factor.
WITHOUT_FACTOR = ("unscaled", "dynamic_ntk")
# A claim names a method with this end if it was published with twice the factor of the
# others.
DOUBLED = " of twice the factor"


@claim("base-bound-predicts")
def bound_predicts(findings: Findings, runs: Sequence[Stored] = ()) -> None:
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
    findings.models = stored.describe_models(run.config)
    judged = run.tables["predictions"]
    judged = judged[judged["agrees"].notna()]
    predicted = judged["first_failing_position_tokens"].notna()
    below = judged[predicted]
    above = judged[~predicted]
    if below.empty:
        findings.missing("trained bases that the bound speaks about")
        return

    failing = int(below["agrees"].astype(bool).sum())
    # Where a predicted failure lies within the measured distances, this outcome is the only
    # one in which retrieval is not worse than with the largest base.
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


@claim("du-indexing")
def places_are_lost(
    findings: Findings,
    asked: Sequence[tuple[Role, str, str, str]],
    runs: Sequence[Stored] = (),
) -> None:
    """Ask for items of a list by their place, and as a control by their key."""
    answers = []
    for run in stored.sort_largest_first(stored.Methods, runs):
        if not {"indexing_accuracy", "keyed_accuracy"} <= {*run.tables}:
            continue
        answer = Findings(findings.expected, stored.describe_models(run.config))
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
            stored.add_interval(answer, role, what, beyond, FAILS, fails=fails)
        answers.append(answer)
    findings.take_best(answers, "a stored run of the tasks indexing and keyed")


@claim("kvquant-before-rope")
def before_rope(
    findings: Findings,
    asked: Sequence[tuple[Role, str, str]],
    runs: Sequence[Stored] = (),
) -> None:
    """Test that keys of a released model cost more if stored after RoPE than before
    it.
    """
    answers = []
    for run in runs:
        model = run.tables["model"].iloc[0]
        about = f"{model['model_type']} of {model['layers']} layers, as it was released"
        answer = Findings(findings.expected, about)
        losses = _losses_by_document(run)
        for role, *pair in asked:
            labels = [f"{AS_SHIPPED} + {keys}" for keys in pair]
            what = f"text loss, {' less '.join(pair)}"
            if not {*labels} <= {*losses}:
                answer.missing(what, "not measured")
                continue
            more = mean_interval(losses[labels[0]] - losses[labels[1]])
            counted = f"{what}, {len(losses)} documents"
            unit = " nats per byte"
            stored.add_interval(answer, role, counted, more, 0, "+.4f", unit)
        answers.append(answer)
    findings.take_best(answers, "a stored run of a released model")


def _losses_by_document(run: Stored) -> pd.DataFrame:
    """Return the text loss of each document (rows) under each method (columns)."""
    table = run.tables.get("text_by_document")
    if table is None:
        return pd.DataFrame()
    # A method may be there with several factors, so its name alone is no key.
    labelled = table.assign(label=row_labels(table))
    return labelled.pivot(index="name", columns="label", values=NLL)


@claim(
    "plain-fails",
    "rope-extrapolates",
    "yarn-extends",
    "yarn-extends-text",
    "yarn-beats-ntk",
    "ntk-better-short",
    "pi-fails-zero-shot",
)
@stored.asked_of(stored.Methods)
def methods_do(
    findings: Findings, run: stored.Methods, asked: Sequence[Mapping[str, str]]
) -> None:
    """Add a finding for each row of `asked` (trained.toml describes these rows)."""
    for row in asked:
        if "b" in row:
            _compare_methods(findings, run, **row)
        else:
            _ask_copying(findings, run, **row)


def _compare_methods(
    findings: Findings,
    run: stored.Methods,
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


def _label_in_run(run: stored.Methods, name: str) -> str:
    """Label a method at the run's smallest factor that covers the tested length.

    A name that asks for twice the factor is labelled at the largest factor instead.
    """
    is_doubled = name.endswith(DOUBLED)
    method = name.removesuffix(DOUBLED)
    return run.find_label(method, largest=is_doubled)


def _ask_copying(
    findings: Findings,
    run: stored.Methods,
    what: str,
    a: str,
    at: str,
    asks: str = "works",
) -> None:
    copied = run.measure_copying_at(run.find_label(a), at)
    what = what.format(a=run.find_label(a), twice=2 * run.train_len)
    fails = asks == "fails"
    least = FAILS if fails else WORKS
    stored.add_interval(findings, ROLES[asks], what, copied, least, fails=fails)


@claim("low-perplexity-enough")
@stored.asked_of(stored.Methods)
def low_loss_means_retrieval(findings: Findings, run: stored.Methods) -> None:
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
    agrees = stored.is_at_least(correlation, WORKS)
    findings.limit(what, f"{correlation:.2f}", agrees, correlation)


@claim(
    "order-zero-shot-2x",
    "order-zero-shot-4x",
    "order-finetuned-inside",
    "order-finetuned-outside",
    "yarn-temperature-helps",
    "yarn-temperature-finetuned",
    "static-costs-short",
    "order-log-n",
)
def compare_published_order(
    findings: Findings,
    metric: str,
    groups: Sequence[Sequence[str]],
    factors: tuple[float, float] = (1.0, math.inf),
    equal: bool = True,
    finetuned: bool = False,
    outside: bool = False,
    runs: Sequence[Stored] = (),
) -> None:
    """Compare a published ordering with the largest runs that measured all of it.

    The same models may have been measured in several runs, each with a list of methods
    of its own. What is significant depends on how many methods are compared, so that
    these runs can decide a pair differently. Such a pair is left open.

    Args:
        findings: the findings so far.
        metric: the metric of the comparisons.
        groups: the names of the methods, the best group first.
        factors: the least and the largest of test_len / train_len (of fine-tuned models:
            of the length of fine-tuning) for which the ordering was claimed.
        equal: True if the methods of a group were claimed to be equal.
        finetuned: True if the ordering is one of fine-tuned models.
        outside: True if it was claimed just beyond the length of fine-tuning.
        runs: the stored runs.
    """
    names = [[name.removesuffix(DOUBLED) for name in group] for group in groups]
    equals = " = " if equal else ", "
    findings.expected = " > ".join(equals.join(group) for group in names)

    answers: list[tuple[tuple[int, ...], Findings]] = []
    for run in stored.sort_largest_first(stored.Methods, runs):
        rows = run.select("comparisons", metric=metric)
        # Copying that was not measured is nan, which compares as false: such a run has
        # not shown that its models learned the task.
        has_learned = run.copies_within() >= LEARNED
        if rows.empty or not has_learned:
            continue

        length = run.test_len
        arm = "zero_shot"
        if finetuned:
            length = _find_tuned_length(run)
            arm = "finetuned"
        factor = length / run.train_len
        labels = [[_label(name, factor, arm) for name in group] for group in groups]

        rows = _select_place(rows, run, metric, finetuned, outside)
        known = {*rows["method_a"], *rows["method_b"]}
        is_measured = known.issuperset(label for group in labels for label in group)
        is_claimed = factors[0] <= factor <= factors[1]
        if not is_measured or not is_claimed:
            continue

        answer = Findings(models=stored.describe_models(run.config))
        _compare_groups(answer, rows, labels, equal)
        answers.append((run.quality, answer))
    if not answers:
        findings.missing("a stored run that compares these methods")
        return

    best_quality, first = answers[0]
    deciding = [
        answer.findings for quality, answer in answers if quality == best_quality
    ]
    findings.models = first.models
    for alike in zip(*deciding, strict=True):
        findings.findings.append(_unite(alike))


def _find_tuned_length(run: stored.Methods) -> int:
    """Return the length of fine-tuning, which is the tested one if none was given."""
    given = run.config.get("finetune_len")
    return int(given) if given else run.test_len


def _select_place(
    rows: pd.DataFrame, run: stored.Methods, metric: str, finetuned: bool, outside: bool
) -> pd.DataFrame:
    """Select the comparisons at the one place of the text that an ordering is about.

    Copying is compared at twice the trained length; losses at the end of the text or, of
    fine-tuned models, at the end or just outside of the length of fine-tuning.
    """
    places = rows["at_tokens"]
    tuned_len = _find_tuned_length(run)
    if metric == "copy_accuracy":
        place = 2 * run.train_len
    elif outside:
        place = places[places > tuned_len].min()
    elif finetuned:
        place = places[places <= tuned_len].max()
    else:
        place = places.max()
    return stored.select_context(rows[places == place], "at_tokens")


def _compare_groups(
    findings: Findings,
    rows: pd.DataFrame,
    groups: Sequence[Sequence[str]],
    equal: bool,
) -> None:
    """Add every pair of a group, if these are claimed to be equal, and every pair of
    neighbouring groups.
    """
    if equal:
        for group in groups:
            for a, b in combinations(group, 2):
                _compare(findings, rows, a, b, same=True)
    for group, next_group in pairwise(groups):
        for a, b in product(group, next_group):
            _compare(findings, rows, a, b, same=False)


def _unite(alike: Sequence[ClaimFinding]) -> ClaimFinding:
    """Return the first of one finding in several runs, open if they do not decide
    alike.
    """
    first = alike[0]
    if all(other.agrees == first.agrees for other in alike):
        return first
    results = dict.fromkeys(finding.measured for finding in alike)
    listed = ", in another ".join(results)
    reason = "runs of the same models do not decide alike"
    return replace(first, agrees=None, measured=f"in one run {listed}; {reason}")


def _label(name: str, factor: float, arm: str) -> str:
    """Label a method of a claim at the factor of its run."""
    if name in WITHOUT_FACTOR:
        factor = 1.0
    elif name.endswith(DOUBLED):
        factor *= 2
    return method_label(name.removesuffix(DOUBLED), factor, arm)


def _compare(
    findings: Findings, rows: pd.DataFrame, a: str, b: str, same: bool
) -> None:
    """Add a pair, published as equal (`=`) or as a better than b (`>`).

    The measured sign is `=` if the whole interval of the difference is near 0, `>` or
    `<` if the difference is significant, and else `~`: no difference is shown.
    """
    # Only orders can be reproduced: published numbers belong to other models, texts and
    # lengths.
    row = select_pair(rows, a, b).iloc[0]
    interval = Interval(row["difference"], row["ci_low"], row["ci_high"], 1)
    better = str(row["verdict"])
    is_significant = better != "~"
    is_small = abs(interval.value) < CLOSE
    # No significant difference is not equality: the whole interval must be near 0.
    furthest = max(abs(interval.low), abs(interval.high))
    is_equal = furthest < CLOSE

    agrees: bool | None = None
    margin = None
    reason = f"the interval contains 0 and reaches {CLOSE:g}"
    if same:
        sign = {a: ">", b: "<", "~": "~"}[better]
        margin = margin_below(furthest, CLOSE)
        if is_equal:
            sign = "="
            agrees = True
        elif is_significant and not is_small:
            agrees = False
        elif is_significant:
            reason = (
                f"the interval reaches {CLOSE:g}, up to which two results are equal"
            )
    else:
        sign = {a: ">", b: "<", "~": "~"}[better]
        margin = margin_of_interval(interval.low, interval.high, 0)
        if is_significant and not is_small:
            agrees = better == a
        elif is_significant:
            reason = (
                f"the difference is below {CLOSE:g}, up to which two results are equal"
            )
        else:
            reason = "the interval contains 0"
    # What fails here after minutes of training refutes no published order.
    if agrees is False and row.get("status") == FAILING:
        agrees = None
        reason = "one of the two fails here, which refutes no published order"

    claimed = "=" if same else ">"
    measured = f"{sign} ({stored.write_interval(interval)})"
    findings.part(f"{a} {claimed} {b}", measured, agrees, interval.value, margin)
    if agrees is None:
        findings.leave_open(reason)


@claim(
    "alibi-extrapolates",
    "sinusoidal-extrapolates",
    "t5-extrapolates",
    "fast-ones-extrapolate",
)
@stored.asked_of(stored.Encodings)
def extrapolates(findings: Findings, run: stored.Encodings, encoding: str) -> None:
    """Test the price of a longer context on the same texts, and the copying that is
    left.
    """
    near = run.read_quality(encoding, stored.COPYING, False)
    far = run.read_quality(encoding, stored.COPYING, True)
    copies = stored.is_at_least(far - WORKS * near, 0)
    # A model can go beyond the trained length in two ways: its text loss does not rise, or
    # it still copies. Either is enough for the claim. Where the model copies, copying is
    # the part that decides, and a risen loss is only a condition on it. Elsewhere the loss
    # decides, and the lack of copying is the condition.
    text_role: Role = "limit" if copies else "part"
    copy_role: Role = "part" if copies else "limit"

    what = (
        f"{encoding}, rise of text loss from {run.train_len} to {run.test_len} tokens"
    )
    row = run.find_row("extrapolation", encoding=encoding, metric="text loss")
    if row is None or math.isnan(row["ci_low"]):
        findings.missing(what, "not measured")
    else:
        rise = float(row["difference"])
        findings.add(text_role, what, _loss_change(row), _harmless(row), rise)
        _explain_harmless(findings, row)
    stored.open_unless_learned(findings, run, encoding)

    plain_near = run.read_quality(run.plain, stored.COPYING, False)
    plain_far = run.read_quality(run.plain, stored.COPYING, True)
    what = "copy accuracy at the trained length and at the longest"
    plain = f"{run.plain}: {plain_near:.2f} and {plain_far:.2f}"
    findings.add(copy_role, what, f"{near:.2f} and {far:.2f} ({plain})", copies, far)
    stored.open_unless_learned(findings, run, encoding)


@claim(
    "rope-beats-sinusoidal",
    "alibi-below-rope",
    "t5-below-rope",
    "copy-order",
    "nope-copies-better",
)
@stored.asked_of(stored.Encodings)
def compare_with_baseline(
    findings: Findings,
    run: stored.Encodings,
    metric: str,
    better: Sequence[str] = (),
    worse: Sequence[str] = (),
) -> None:
    """Test at the longest context that encodings are better, or worse, than the
    baseline.
    """
    for encoding in (*better, *worse):
        baseline, result = run.tally_against_baseline(encoding, metric)
        values = (
            f"{run.read_quality(encoding, metric, True):.3f},"
            f" {run.read_quality(baseline, metric, True):.3f}"
        )
        result.add_to(findings, f"{encoding} against {baseline} ({values})")
        if encoding in worse:
            # The finding just added asks whether the encoding is better than the
            # baseline. The claim says that it is worse, so the answer is inverted.
            asks_better = findings.findings[-1]
            agrees = stored.negate(asks_better.agrees)
            findings.findings[-1] = replace(asks_better, agrees=agrees)
        stored.open_unless_learned(findings, run, encoding, baseline)


@claim("alibi-beats-others", "relative-do-well")
@stored.asked_of(stored.Encodings)
def lower_loss(
    findings: Findings,
    run: stored.Encodings,
    pairs: Sequence[Sequence[str]],
    others: Sequence[Sequence[str]] = (),
    longest: bool = True,
) -> None:
    """Test that the first of each pair reads better; what `others` show is a limit."""
    rows: list[tuple[Role, Sequence[str]]]
    rows = [("part", pair) for pair in pairs] + [("limit", pair) for pair in others]
    for role, (a, b) in rows:
        low, high = run.bounds_between(a, b, longest)
        what = f"{a} against {b}, text loss"
        if math.isnan(low):
            if role == "part":
                findings.missing(what, "not compared")
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
        stored.open_unless_learned(findings, run, a, b)


@claim("learned-worse", "middle-terms-suffice", "values-without-positions")
@stored.asked_of(stored.Encodings)
def costs_more(
    findings: Findings,
    run: stored.Encodings,
    pair: Sequence[str],
    hardly: bool = False,
    evenly: bool = False,
) -> None:
    """Test that the first of a pair has the higher text loss at the trained length.

    Args:
        findings: the findings so far.
        run: the run that compares both.
        pair: the two encodings.
        hardly: True if the claim is that its loss is higher by HARMLESS at most.
        evenly: True if the claim is about models that trained all positions alike.
    """
    what = f"{pair[0]} against {pair[1]}, text loss at {run.train_len} tokens"
    row = run.find_row("pairs", encoding_a=pair[0], encoding_b=pair[1])
    if row is None:
        findings.missing(what, "not compared")
        return
    if hardly:
        findings.part(what, _loss_change(row), _harmless(row), row["difference"])
        _explain_harmless(findings, row)
    else:
        # The verdict names the one with the lower loss, or neither.
        higher = {pair[0]: False, pair[1]: True}.get(row["verdict"])
        findings.part(what, _loss_change(row), higher, row["difference"])
        if higher is None:
            findings.leave_open("the interval contains 0")

    # The claims are about text, so that copying decides nothing here. It is told, since
    # a model that copies reads its context better.
    for encoding in pair:
        learned = run.seeds_that_copy(encoding)
        counted = stored.write_seed_count(learned)
        findings.limit(f"seeds with which {encoding} learned to copy", counted, None)

    if evenly:
        shortest = int(run.config.get("first_window") or run.train_len)
        what = "every position trained as often"
        if shortest < run.train_len:
            shown = f"no, windows grew from {shortest} to {run.train_len} tokens"
            findings.unmet(what, shown, False)
        else:
            shown = f"yes, windows of {run.train_len} tokens from the first step"
            findings.limit(what, shown, True)


def _loss_change(row: pd.Series) -> str:
    return (
        f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats"
        " per byte"
    )


def _harmless(row: pd.Series) -> bool | None:
    """Return True if a loss rises by HARMLESS at most; None if its interval leaves that
    open.
    """
    if row["ci_high"] <= HARMLESS:
        return True
    return False if row["ci_low"] > HARMLESS else None


def _explain_harmless(findings: Findings, row: pd.Series) -> None:
    """Give the reason if the last finding, a rise of a loss, is open."""
    if _harmless(row) is None:
        findings.leave_open(f"the interval contains {HARMLESS:g}, a rise without harm")


@claim("one-frequency-learned")
@stored.asked_of(stored.Frequencies)
def one_is_not_enough(findings: Findings, run: stored.Frequencies, scheme: str) -> None:
    """Compare the recall of one frequency with that of the plain scheme, by distance."""
    singles = run.list_single_frequencies()
    # A run can have the scheme in two forms: all pairs rotate, or only some, and the
    # others do not. With a period of a few windows, a model in which all pairs rotate may
    # fail because no feature is free of positions, and the second form is the control for
    # that. With a period of a million tokens every feature is practically free of
    # positions in both forms, so that both are asked.
    asked = [name for name in singles if _is_form_of(name, scheme)]
    many = run.copies_within()
    for name in asked or [scheme]:
        rows = run.select_comparisons("comparisons", name)
        copied = run.copies_within(name)
        what = f"recall of {name} against {run.plain}"
        if rows.empty or math.isnan(copied):
            findings.missing(what)
            return
        result = stored.tally(rows, name)
        agrees = True if result.worse == len(rows) else None
        if copied >= WORKS * many:
            agrees = False
        shares = (
            f"{copied:.2f} against {many:.2f} from {run.train_len // 2} tokens back"
        )
        worse = f"lower at {result.worse} of {len(rows)} distances"
        findings.part(what, f"{shares}; {worse}", agrees, copied)
        if agrees is None:
            findings.leave_open("a lower one is not shown at all distances")
    if not any(run.has_resting_pairs(name) for name in asked):
        # A run that has the control is preferred.
        what = "the same beside pairs that do not rotate"
        findings.unmet(what, "not in this run", None)
    best = max(singles, key=run.copies_within)
    most = run.copies_within(best)

    # Recall that was not measured is nan, which compares as false: it does not work.
    best_works = most >= WORKS * many
    findings.limit(f"the best single one, {best}", f"{most:.2f}", not best_works)


def _is_form_of(name: str, scheme: str) -> bool:
    """Return True for the scheme itself, and for it with further arguments.

    `one(period=1e+06)` has the form `one(period=1e+06, pairs=8)`: both begin with the
    text of the scheme up to its closing parenthesis.
    """
    without_end = scheme.removesuffix(")")
    return name.startswith(without_end)


@claim("detail-and-whole")
@stored.asked_of(stored.Frequencies)
def detail_and_whole(findings: Findings, run: stored.Frequencies) -> None:
    """Remove each end of the spectrum: copying must fall at one end of the text
    only.
    """
    # Slow pairs should matter for far tokens only, fast ones for near tokens only.
    for band, far in (("slow", True), ("fast", False)):
        # The band serves one end of the distances, and should not matter at the other.
        served = run.select_comparisons("removed", band, far)
        other = run.select_comparisons("removed", band, not far)
        what = f"copying without the {band} third"
        if served.empty:
            findings.missing(what)
            continue
        _falls(findings, what, served, band)
        _falls(findings, what, other, band, "limit")
        if band == "slow":
            # Both findings just added are about the slow pairs.
            _open_unless_slow_pairs_turn(findings, run, count=2)


@claim("slow-ones-mark-far")
@stored.asked_of(stored.Frequencies)
def slow_ones_mark_far(
    findings: Findings, run: stored.Frequencies, scheme: str
) -> None:
    """Test that a model trained with the scheme copies less from the farthest distance."""
    rows = run.select_comparisons("comparisons", scheme, far=True)
    what = f"copying of a model trained {scheme} against {run.plain}"
    if rows.empty:
        findings.missing(what)
    else:
        _falls(findings, what, rows, scheme)
        _open_unless_slow_pairs_turn(findings, run, count=1)


def _open_unless_slow_pairs_turn(
    findings: Findings, run: stored.Frequencies, count: int
) -> None:
    """Take back the answers of the last `count` findings if slow pairs hardly rotate.

    Pairs that do not complete a turn in the trained length mark no position.
    """
    if run.slow_turns < 1:
        degrees = f"the slow pairs rotate by at most {360 * run.slow_turns:.0f} degrees"
        why = f"{degrees} in {run.train_len} tokens, so this shows nothing"
        # Such findings are mute, so that a run whose slow pairs turn is preferred.
        findings.leave_open(why, count, mute=True)


def _falls(
    findings: Findings, what: str, rows: pd.DataFrame, who: str, role: Role = "part"
) -> None:
    """Add a change of copying: a part asks for a fall by MISSED or more, a limit for
    none.
    """
    row = rows.iloc[0]
    result = stored.tally(rows, who)

    fell: bool | None = None
    reason = f"the interval contains no change and a fall by {MISSED:g}"
    if row["ci_low"] > -MISSED:
        # The whole interval excludes a fall by MISSED.
        fell = False
    elif result.worse and row["difference"] <= -MISSED:
        fell = True
    elif result.worse:
        reason = f"a fall that may be smaller than {MISSED:g}"

    # A part agrees where copying fell, a limit where it did not.
    if role == "part":
        agrees = fell
    else:
        agrees = stored.negate(fell)

    where = f"{what}, from {int(row['distance_tokens'])} tokens back"
    ends = f"[{row['ci_low']:+.2f}, {row['ci_high']:+.2f}]"

    shown = f"{row['difference']:+.2f} {ends} ({result.text})"
    findings.add(role, where, shown, agrees)
    if fell is None:
        findings.leave_open(reason)
