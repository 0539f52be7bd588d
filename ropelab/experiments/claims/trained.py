"""Claims about trained models under scaling methods, decided by the stored extrapolation run.

Text is judged on the same final tokens after the longest context, where the sliding window is the
unscaled model with no more context than it was trained on; copying at distances beyond that.
"""

import math
from functools import partial
from typing import NamedTuple

from scipy.stats import spearmanr

from ropelab.experiments.claims.record import Finding, limit, part
from ropelab.experiments.claims.stored import FromRuns, Methods, at_least, trained_claim
from ropelab.labels import WINDOW

COMMAND = "ropelab extrapolate --train-len 2048 --test-len 8192"
TEXT, SHORT, COPYING = "nll_last_window", "nll_short_context", "copy_accuracy"


def _on_text(run: Methods, a: str, b: str) -> str:
    losses = f"{run.loss(a):.3f} and {run.loss(b):.3f} nats per byte"
    return f"{a} against {b} on text after {run.test_len} tokens ({losses})"


def _on_copying(run: Methods, a: str, b: str) -> str:
    shares = f"{run.copies_beyond(a):.2f} and {run.copies_beyond(b):.2f}"
    return f"{a} against {b} at copying beyond {run.train_len} tokens ({shares})"


def plain_fails(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """Does the unscaled model lose by reading on, and does it stop copying?"""
    copied = run.copies_at_twice("unscaled")
    return (
        run.against(WINDOW, "unscaled", TEXT).mostly_better(_on_text(run, WINDOW, "unscaled")),
        part(
            f"copy accuracy near {2 * run.train_len} tokens",
            f"{copied:.2f}",
            at_least(given.fails - copied, 0),
            copied,
        ),
    )


def rope_extrapolates(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """The same two numbers, read the other way."""
    against = run.against("unscaled", WINDOW, TEXT)
    copied = run.copies_at_twice("unscaled")
    return (
        part(_on_text(run, "unscaled", WINDOW), against.text, against.worse == 0),
        part(
            f"copy accuracy near {2 * run.train_len} tokens",
            f"{copied:.2f}",
            at_least(copied, given.works),
            copied,
        ),
    )


def yarn_extends(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """YaRN without training on: against nothing, at twice the length, at every distance."""
    yarn = run.label("yarn")
    twice, least = run.copies_at_twice(yarn), float(run.copying(yarn).min())
    return (
        run.against(yarn, "unscaled", TEXT).mostly_better(_on_text(run, yarn, "unscaled")),
        part(
            f"its copy accuracy near {2 * run.train_len} tokens",
            f"{twice:.2f}",
            at_least(twice, given.works),
            twice,
        ),
        limit("its least at any distance", f"{least:.2f}", at_least(least, given.works), least),
    )


def yarn_beats_ntk(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """YaRN against NTK of the same factor and of the largest, and where none is needed."""
    yarn, ntk, doubled = run.label("yarn"), run.label("ntk"), run.label("ntk", largest=True)
    return (
        run.against(yarn, ntk, TEXT).mostly_better(_on_text(run, yarn, ntk)),
        run.against(yarn, ntk, COPYING).mostly_better(_on_copying(run, yarn, ntk)),
        run.against(yarn, doubled, TEXT).nowhere_worse(_on_text(run, yarn, doubled)),
        run.against(yarn, doubled, COPYING).nowhere_worse(_on_copying(run, yarn, doubled)),
        run.against(yarn, ntk, SHORT).nowhere_worse(f"on text after {run.train_len} tokens"),
    )


def ntk_better_short(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """NTK against YaRN on text after no more tokens than were trained."""
    ntk, yarn = run.label("ntk"), run.label("yarn")
    what = f"{ntk} against {yarn} on text after {run.train_len} tokens"
    return (run.against(ntk, yarn, SHORT).mostly_better(what),)


def pi_fails(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """PI at copying at any distance, and on text beside the unscaled model."""
    pi = run.label("pi")
    best = float(run.copying(pi).max())
    against = run.against("unscaled", pi, TEXT)
    return (
        part(
            "its best copy accuracy at any distance",
            f"{best:.2f}",
            at_least(given.fails - best, 0),
            best,
        ),
        limit(_on_text(run, "unscaled", pi), against.text, against.better > 0),
    )


class Reading(NamedTuple):
    """How one row reads text after the longest context, and how it copies from far away."""

    label: str
    loss: float
    accuracy: float


def _readings(run: Methods) -> list[Reading]:
    """All rows; a sliding window holds no token from beyond the trained length."""
    readings = [
        Reading(label, run.loss(label), 0.0 if label == WINDOW else run.copies_beyond(label))
        for label in run.labels
    ]
    return [reading for reading in readings if not math.isnan(reading.loss + reading.accuracy)]


def _rank_correlation(readings: list[Reading]) -> float:
    """Spearman's correlation of low loss and accuracy; nan where one of them is always the same."""
    losses, accuracies = [x.loss for x in readings], [x.accuracy for x in readings]
    if min(len(set(losses)), len(set(accuracies))) < 2:
        return math.nan
    return -float(spearmanr(losses, accuracies).statistic)


def low_loss_means_retrieval(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """Do all rows that read text as well as the best also copy from far away?"""
    readings = _readings(run)
    if not readings:
        return (part("methods that were measured on text and copying", "none", None),)
    best = min(readings, key=lambda reading: reading.loss)
    as_good = [x for x in readings if run.against(best.label, x.label, TEXT).better == 0]
    copying = max(reading.accuracy for reading in readings)
    blind = [reading for reading in as_good if reading.accuracy < copying / 2]
    shown = ", ".join(f"{x.label} with {x.loss:.3f} copies {x.accuracy:.2f}" for x in blind)
    correlation = _rank_correlation(readings)
    return (
        part(
            f"of {len(as_good)} that none beats on text after {run.test_len} tokens, those that "
            f"copy less than half as well as the best ({copying:.2f})",
            shown or "none",
            not blind,
            len(blind),
        ),
        limit(
            "rank correlation of low loss and copying",
            f"{correlation:.2f}",
            at_least(correlation, given.works),
            correlation,
        ),
    )


def extension_beats_window(run: Methods, given: FromRuns) -> tuple[Finding, ...]:
    """YaRN against simply not using more context than was trained."""
    yarn = run.label("yarn")
    return (run.against(yarn, WINDOW, TEXT).mostly_better(_on_text(run, yarn, WINDOW)),)


_claim = partial(trained_claim, Methods, "extrapolate", COMMAND)


CLAIMS = (
    _claim(
        "plain-fails",
        "note 001 §7.1; Chen et al. 2023, arXiv:2306.15595",
        "Without scaling, a RoPE model fails beyond its trained length.",
        "reading on costs text loss, and copying stops",
        plain_fails,
    ),
    _claim(
        "rope-extrapolates",
        "note 003 (RoPE, comparison)",
        "RoPE extrapolates: it stays effective on longer sequences than were trained.",
        "reading on costs nothing, and copying works",
        rope_extrapolates,
    ),
    _claim(
        "yarn-extends",
        "note 001 §3.3, §7.2",
        "With YaRN a RoPE model works beyond its trained length, without training on.",
        "better than unscaled, and copying works",
        yarn_extends,
    ),
    _claim(
        "yarn-beats-ntk",
        "Peng et al. 2023, arXiv:2309.00071 §4",
        "Without fine-tuning YaRN beats NTK-aware scaling.",
        "lower loss and higher copy accuracy than NTK",
        yarn_beats_ntk,
    ),
    _claim(
        "ntk-better-short",
        "jquesnelle/yarn#19",
        "Without fine-tuning NTK-aware scaling is better than YaRN at short lengths.",
        "lower loss than YaRN where no extension was needed",
        ntk_better_short,
    ),
    _claim(
        "pi-fails-zero-shot",
        "Chen et al. 2023, arXiv:2306.15595; kexue.fm 9675",
        "Position interpolation fails without fine-tuning.",
        "no copying at any distance, and worse than unscaled",
        pi_fails,
    ),
    _claim(
        "low-perplexity-enough",
        "common practice; questioned by Men et al. 2024, arXiv:2405.14591",
        "Low perplexity beyond the trained length means that the long context works.",
        "whatever reads long text best also copies from far away",
        low_loss_means_retrieval,
    ),
    _claim(
        "extension-beats-window",
        "Peng et al. 2023, arXiv:2309.00071 §4",
        "A model extended by YaRN reads long text better than one that keeps to a sliding window "
        "of the trained length.",
        "lower loss than the sliding window",
        extension_beats_window,
    ),
)
