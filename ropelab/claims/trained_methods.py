"""Checks of statements about scaling methods and bases, asked of stored runs.

Text is judged on the same final tokens after the longest context, where the sliding window is the
unscaled model with no more context than it was trained on; copying at distances beyond that.

A published ordering is a list of groups, the best first. Methods of one group were published as
equal, those of different groups as different. Every pair is a part of the claim: a pair that should
differ agrees if the comparison says so, disagrees if it says the opposite by CLOSE or more, and is
open otherwise; a pair that should be equal agrees if the interval of its difference is within
CLOSE, disagrees if the two differ significantly by CLOSE or more, and is open otherwise. Only
orders can be reproduced: the published numbers belong to other models, texts and lengths.
"""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import NamedTuple

import pandas as pd
from scipy.stats import spearmanr

from ropelab.claims.record import Findings, Role
from ropelab.claims.stored import (
    Methods,
    asked_of,
    at_least,
    described,
    in_context,
    largest_first,
    reaches,
)
from ropelab.runs.cell import Stored
from ropelab.runs.labels import WINDOW, method_label
from ropelab.runs.stats import Interval
from ropelab.runs.thresholds import CLOSE, FAILS, LEARNED, LOW_LOSS, WORKS

TEXT, SHORT, COPIES = "nll_last_window", "nll_short_context", "copy_accuracy"
# Methods that take no factor, and the one that was published with twice the factor of the others.
WITHOUT_FACTOR, DOUBLED = ("unscaled", "dynamic_ntk"), " of twice the factor"


def bound_predicts(found: Findings, runs: Sequence[Stored] = ()) -> None:
    """Compare where the bound predicts that retrieval fails with what trained models do."""
    nothing = "trained bases that the bound speaks about"
    deciding = [run for run in runs if run.tables["predictions"]["agrees"].notna().any()]
    if not deciding:
        found.missing(nothing)
        return
    # The run with most seeds decides, then the one with the longest window.
    run = max(deciding, key=lambda run: (len(run.config["seeds"]), run.config["train_len"]))
    found.models = described(run.config)
    judged = run.tables["predictions"]
    judged = judged[judged["agrees"].notna()]
    predicted = judged["first_failing_position_tokens"].notna()
    below, above = judged[predicted], judged[~predicted]
    if below.empty:
        found.missing(nothing)
        return
    failing = int((below["agrees"] == True).sum())  # noqa: E712, an object column
    worse = int((below["outcome"] != "retrieves where failure was predicted").sum())
    low = int((below["text_ci_high_nats_per_byte"] < LOW_LOSS).sum())
    found.part(
        f"bases below the bound, times tasks, where retrieval is below {FAILS} at all those "
        "distances",
        f"{failing} of {len(below)} (worse than with the largest base: {worse})",
        failing == len(below),
        failing,
    )
    found.count("of all of them with a low text loss", low, len(below), "limit")
    if len(above):
        holding = int((above["agrees"] == True).sum())  # noqa: E712
        what = "admissible bases, times tasks, where retrieval is not worse"
        found.count(what, holding, len(above), "limit")


# Scaling methods


def _on_text(run: Methods, a: str, b: str) -> str:
    losses = f"{run.loss(a):.3f} and {run.loss(b):.3f} nats per byte"
    return f"{a} against {b} on text after {run.test_len} tokens ({losses})"


def _on_copying(run: Methods, a: str, b: str) -> str:
    shares = f"{run.copies_beyond(a):.2f} and {run.copies_beyond(b):.2f}"
    return f"{a} against {b} at copying beyond {run.train_len} tokens ({shares})"


def _copies(
    found: Findings, what: str, copied: Interval, works: bool = True, role: Role = "part"
) -> None:
    """Add a share that is copied: it must work, or fail."""
    agrees = reaches(copied, WORKS if works else FAILS)
    if not works and agrees is not None:
        agrees = not agrees
    shown = f"{copied.value:.2f} [{copied.low:.2f}, {copied.high:.2f}]"
    found.add(role, what, shown, agrees, copied.value)


@asked_of(Methods)
def plain_fails(found: Findings, run: Methods) -> None:
    """The unscaled model has a higher loss than the sliding window, and stops copying."""
    text = _on_text(run, WINDOW, "unscaled")
    run.against(WINDOW, "unscaled", TEXT).mostly_better(found, text)
    what = f"copy accuracy near {2 * run.train_len} tokens"
    _copies(found, what, run.level_at_twice("unscaled"), works=False)


@asked_of(Methods)
def rope_extrapolates(found: Findings, run: Methods) -> None:
    """The same two numbers, compared the other way."""
    against = run.against("unscaled", WINDOW, TEXT)
    found.part(_on_text(run, "unscaled", WINDOW), against.text, against.worse == 0)
    what = f"copy accuracy near {2 * run.train_len} tokens"
    _copies(found, what, run.level_at_twice("unscaled"))


@asked_of(Methods)
def yarn_extends(found: Findings, run: Methods) -> None:
    """YaRN without fine-tuning: against nothing, at twice the length, at every distance."""
    yarn = run.label("yarn")
    run.against(yarn, "unscaled", TEXT).mostly_better(found, _on_text(run, yarn, "unscaled"))
    what = f"its copy accuracy near {2 * run.train_len} tokens"
    _copies(found, what, run.level_at_twice(yarn))
    _copies(found, "its least at any distance", run.extreme(yarn, highest=False), role="limit")


@asked_of(Methods)
def yarn_beats_ntk(found: Findings, run: Methods) -> None:
    """YaRN against NTK of the same factor and of the largest, and where none is needed."""
    yarn, ntk, doubled = run.label("yarn"), run.label("ntk"), run.label("ntk", largest=True)
    run.against(yarn, ntk, TEXT).mostly_better(found, _on_text(run, yarn, ntk))
    run.against(yarn, ntk, COPIES).mostly_better(found, _on_copying(run, yarn, ntk))
    run.against(yarn, doubled, TEXT).nowhere_worse(found, _on_text(run, yarn, doubled))
    run.against(yarn, doubled, COPIES).nowhere_worse(found, _on_copying(run, yarn, doubled))
    run.against(yarn, ntk, SHORT).nowhere_worse(found, f"on text after {run.train_len} tokens")


@asked_of(Methods)
def ntk_better_short(found: Findings, run: Methods) -> None:
    """NTK against YaRN on text after no more tokens than were trained."""
    ntk, yarn = run.label("ntk"), run.label("yarn")
    what = f"{ntk} against {yarn} on text after {run.train_len} tokens"
    run.against(ntk, yarn, SHORT).mostly_better(found, what)


@asked_of(Methods)
def pi_fails(found: Findings, run: Methods) -> None:
    """PI at copying at any distance, and on text beside the unscaled model."""
    pi = run.label("pi")
    best = run.extreme(pi, highest=True)
    _copies(found, "its best copy accuracy at any distance", best, works=False)
    against = run.against("unscaled", pi, TEXT)
    found.limit(_on_text(run, "unscaled", pi), against.text, against.better > 0)


class Reading(NamedTuple):
    """The text loss of one row after the longest context, and its copying from far away."""

    label: str
    loss: float
    accuracy: float


@asked_of(Methods)
def low_loss_means_retrieval(found: Findings, run: Methods) -> None:
    """Every method that reads text as well as the best must also copy from far away."""
    labels = dict.fromkeys(run.rows("last_window")["label"])
    # The sliding window is left out: that it does not look far is no discovery.
    read = [Reading(x, run.loss(x), run.copies_beyond(x)) for x in labels if x != WINDOW]
    read = [reading for reading in read if not math.isnan(reading.loss)]
    measured = [reading for reading in read if not math.isnan(reading.accuracy)]
    if not measured or run.table("comparisons").empty:
        found.missing("methods that were measured on text and copying and compared")
        return
    best = min(read, key=lambda reading: reading.loss)
    as_good = [x for x in read if run.against(best.label, x.label, TEXT).better == 0]
    unknown = [x.label for x in as_good if math.isnan(x.accuracy)]
    copying = max(reading.accuracy for reading in measured)
    blind = [reading for reading in as_good if reading.accuracy < copying / 2]
    shown = ", ".join(f"{x.label} with {x.loss:.3f} copies {x.accuracy:.2f}" for x in blind)
    shown = shown or (f"not measured: {', '.join(unknown)}" if unknown else "none")
    what = (
        f"of {len(as_good)} that none beats on text after {run.test_len} tokens, those that copy "
        f"less than half as well as the best ({copying:.2f})"
    )
    found.part(what, shown, False if blind else None if unknown else True, len(blind))
    losses, accuracies = [x.loss for x in measured], [x.accuracy for x in measured]
    # Spearman's correlation is not defined where one of them is always the same.
    varied = min(len(set(losses)), len(set(accuracies))) > 1
    correlation = -float(spearmanr(losses, accuracies).statistic) if varied else math.nan
    agrees = at_least(correlation, WORKS)
    what = "rank correlation of low loss and copying"
    found.limit(what, f"{correlation:.2f}", agrees, correlation)


@asked_of(Methods)
def finetuned_beats_window(found: Findings, run: Methods) -> None:
    """YaRN, fine-tuned, against simply not using more context than was trained."""
    yarn = run.label("yarn", arm="finetuned")
    steps = run.config.get("finetune_steps", "unknown")
    losses = f"{run.loss(yarn, 'finetuned'):.3f} and {run.loss(WINDOW):.3f} nats per byte"
    what = f"{yarn} ({steps} steps) against {WINDOW} on text after {run.test_len} tokens ({losses})"
    run.against(yarn, WINDOW, TEXT).mostly_better(found, what)


# Published orderings


def reappears(
    found: Findings,
    metric: str,
    groups: Sequence[Sequence[str]],
    factors: tuple[float, float] = (1.0, math.inf),
    equal: bool = True,
    finetuned: bool = False,
    outside: bool = False,
    runs: Sequence[Stored] = (),
) -> None:
    """Compare the ordering with the largest run that measured all of it and learned the task.

    Args:
        groups: the best first; equals together.
        factors: least and largest test_len / train_len it was claimed for.
        equal: whether the methods of one group were published as equal, or nothing was said.
        finetuned: the ordering is of fine-tuned models.
        outside: just beyond the length of fine-tuning, not at it.
    """
    names = [[name.removesuffix(DOUBLED) for name in group] for group in groups]
    between = " ~ " if equal else ", "
    found.expected = " > ".join(between.join(group) for group in names)
    for run in largest_first(Methods, runs):
        compared = run.table("comparisons")
        if compared.empty or not run.copies_within() >= LEARNED:
            continue
        tuned_len = int(run.config.get("finetune_len") or run.test_len)
        rows = compared[compared["metric"] == metric]
        at = rows["at_tokens"]
        # Copying is compared at twice the trained length; losses at the end of the text or, of
        # fine-tuned models, at the end or just outside of the length of fine-tuning.
        if metric == "copy_accuracy":
            place = 2 * run.train_len
        elif outside:
            place = at[at > tuned_len].min()
        else:
            place = at[at <= tuned_len].max() if finetuned else at.max()
        rows = in_context(rows[at == place], "at_tokens")
        factor = (tuned_len if finetuned else run.test_len) / run.train_len
        arm = "finetuned" if finetuned else "zero_shot"
        labels = [[_label(name, factor, arm) for name in group] for group in groups]
        known = {*rows["method_a"], *rows["method_b"]}
        measured = known.issuperset(label for group in labels for label in group)
        if not measured or not factors[0] <= factor <= factors[1]:
            continue
        for group in labels if equal else ():
            for a, b in combinations(group, 2):
                _compare(found, rows, a, b, same=True)
        for group, next_group in pairwise(labels):
            for a, b in product(group, next_group):
                _compare(found, rows, a, b, same=False)
        if found.findings:
            found.models = described(run.config)
            return
    found.missing("a stored run that compares these methods")


def _label(name: str, factor: float, arm: str) -> str:
    """The row of a method in tables of a run that is evaluated at `factor` times its length."""
    if name in WITHOUT_FACTOR:
        return method_label(name, 1.0, arm)
    times = 2 if name.endswith(DOUBLED) else 1
    return method_label(name.removesuffix(DOUBLED), times * factor, arm)


def _compare(found: Findings, rows: pd.DataFrame, a: str, b: str, same: bool) -> None:
    """Add a pair, published as equal or as a better than b, in either order of the table."""
    there = rows[(rows["method_a"] == a) & (rows["method_b"] == b)]
    sign = -1.0 if there.empty else 1.0
    if there.empty:
        there = rows[(rows["method_a"] == b) & (rows["method_b"] == a)]
    row = there.iloc[0]
    difference, better = sign * float(row["difference"]), str(row["verdict"])
    agrees: bool | None
    if same:
        # How far from 0 the interval of the difference extends.
        furthest = max(abs(row["ci_low"]), abs(row["ci_high"]))
        apart = better != "~" and abs(difference) >= CLOSE
        agrees = True if furthest < CLOSE else False if apart else None
    else:
        contradicted = better == b and abs(difference) >= CLOSE
        agrees = True if better == a else False if contradicted else None
    shown = {a: ">", b: "<", "~": "~"}[better]
    what = f"{a} {'~' if same else '>'} {b}"
    found.part(what, f"{shown} ({difference:+.3f})", agrees, difference)
