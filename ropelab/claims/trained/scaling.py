"""Claims about trained models under scaling methods, asked of the stored extrapolation run.

Text is judged on the same final tokens after the longest context, where the sliding window is the
unscaled model with no more context than it was trained on; copying at distances beyond that.
"""

import math
from functools import partial
from typing import NamedTuple

from scipy.stats import spearmanr

from ropelab.claims.record import Finding, Passage, limit, missing, part
from ropelab.claims.trained.stored import Methods, at_least, reaches, stays_below, trained_claim
from ropelab.runs.labels import WINDOW
from ropelab.runs.stats import Interval
from ropelab.runs.thresholds import FAILS, WORKS

COMMAND = "ropelab extrapolate --train-len 2048 --test-len 8192"
TEXT, SHORT, COPYING = "nll_last_window", "nll_short_context", "copy_accuracy"


def _on_text(run: Methods, a: str, b: str) -> str:
    losses = f"{run.loss(a):.3f} and {run.loss(b):.3f} nats per byte"
    return f"{a} against {b} on text after {run.test_len} tokens ({losses})"


def _told(found: Interval) -> str:
    """A share with its interval."""
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _on_copying(run: Methods, a: str, b: str) -> str:
    shares = f"{run.copies_beyond(a):.2f} and {run.copies_beyond(b):.2f}"
    return f"{a} against {b} at copying beyond {run.train_len} tokens ({shares})"


def plain_fails(run: Methods) -> tuple[Finding, ...]:
    """Does the unscaled model lose by reading on, and does it stop copying?"""
    copied = run.level_at_twice("unscaled")
    return (
        run.against(WINDOW, "unscaled", TEXT).mostly_better(_on_text(run, WINDOW, "unscaled")),
        part(
            f"copy accuracy near {2 * run.train_len} tokens",
            _told(copied),
            stays_below(copied, FAILS),
            copied.value,
        ),
    )


def rope_extrapolates(run: Methods) -> tuple[Finding, ...]:
    """The same two numbers, read the other way."""
    against = run.against("unscaled", WINDOW, TEXT)
    copied = run.level_at_twice("unscaled")
    return (
        part(_on_text(run, "unscaled", WINDOW), against.text, against.worse == 0),
        part(
            f"copy accuracy near {2 * run.train_len} tokens",
            _told(copied),
            reaches(copied, WORKS),
            copied.value,
        ),
    )


def yarn_extends(run: Methods) -> tuple[Finding, ...]:
    """YaRN without fine-tuning: against nothing, at twice the length, at every distance."""
    yarn = run.label("yarn")
    twice, least = run.level_at_twice(yarn), run.lowest(yarn)
    return (
        run.against(yarn, "unscaled", TEXT).mostly_better(_on_text(run, yarn, "unscaled")),
        part(
            f"its copy accuracy near {2 * run.train_len} tokens",
            _told(twice),
            reaches(twice, WORKS),
            twice.value,
        ),
        limit("its least at any distance", _told(least), reaches(least, WORKS), least.value),
    )


def yarn_beats_ntk(run: Methods) -> tuple[Finding, ...]:
    """YaRN against NTK of the same factor and of the largest, and where none is needed."""
    yarn, ntk, doubled = run.label("yarn"), run.label("ntk"), run.label("ntk", largest=True)
    return (
        run.against(yarn, ntk, TEXT).mostly_better(_on_text(run, yarn, ntk)),
        run.against(yarn, ntk, COPYING).mostly_better(_on_copying(run, yarn, ntk)),
        run.against(yarn, doubled, TEXT).nowhere_worse(_on_text(run, yarn, doubled)),
        run.against(yarn, doubled, COPYING).nowhere_worse(_on_copying(run, yarn, doubled)),
        run.against(yarn, ntk, SHORT).nowhere_worse(f"on text after {run.train_len} tokens"),
    )


def ntk_better_short(run: Methods) -> tuple[Finding, ...]:
    """NTK against YaRN on text after no more tokens than were trained."""
    ntk, yarn = run.label("ntk"), run.label("yarn")
    what = f"{ntk} against {yarn} on text after {run.train_len} tokens"
    return (run.against(ntk, yarn, SHORT).mostly_better(what),)


def pi_fails(run: Methods) -> tuple[Finding, ...]:
    """PI at copying at any distance, and on text beside the unscaled model."""
    pi = run.label("pi")
    best = run.highest(pi)
    against = run.against("unscaled", pi, TEXT)
    return (
        part(
            "its best copy accuracy at any distance",
            _told(best),
            stays_below(best, FAILS),
            best.value,
        ),
        limit(_on_text(run, "unscaled", pi), against.text, against.better > 0),
    )


class Reading(NamedTuple):
    """How one row reads text after the longest context, and how it copies from far away."""

    label: str
    loss: float
    accuracy: float


def low_loss_means_retrieval(run: Methods) -> tuple[Finding, ...]:
    """Do all methods that read text as well as the best also copy from far away?

    The sliding window is left out: that it does not look far is no discovery.
    """
    labels = [label for label in run.labels if label != WINDOW]
    read = [Reading(x, run.loss(x), run.copies_beyond(x)) for x in labels]
    read = [reading for reading in read if not math.isnan(reading.loss)]
    measured = [reading for reading in read if not math.isnan(reading.accuracy)]
    if not measured or run.table("comparisons").empty:
        return (missing("methods that were measured on text and copying and compared"),)
    best = min(read, key=lambda reading: reading.loss)
    as_good = [x for x in read if run.against(best.label, x.label, TEXT).better == 0]
    unknown = [x.label for x in as_good if math.isnan(x.accuracy)]
    copying = max(reading.accuracy for reading in measured)
    blind = [reading for reading in as_good if reading.accuracy < copying / 2]
    shown = ", ".join(f"{x.label} with {x.loss:.3f} copies {x.accuracy:.2f}" for x in blind)
    shown = shown or (f"not measured: {', '.join(unknown)}" if unknown else "none")
    correlation = _rank_correlation(measured)
    return (
        part(
            f"of {len(as_good)} that none beats on text after {run.test_len} tokens, those that "
            f"copy less than half as well as the best ({copying:.2f})",
            shown,
            False if blind else None if unknown else True,
            len(blind),
        ),
        limit(
            "rank correlation of low loss and copying",
            f"{correlation:.2f}",
            at_least(correlation, WORKS),
            correlation,
        ),
    )


def _rank_correlation(readings: list[Reading]) -> float:
    """Spearman's correlation of low loss and accuracy; nan where one of them is always the same."""
    losses, accuracies = [x.loss for x in readings], [x.accuracy for x in readings]
    if min(len(set(losses)), len(set(accuracies))) < 2:
        return math.nan
    return -float(spearmanr(losses, accuracies).statistic)


def finetuned_beats_window(run: Methods) -> tuple[Finding, ...]:
    """YaRN, fine-tuned, against simply not using more context than was trained."""
    yarn = run.label("yarn", arm="finetuned")
    steps = run.config.get("finetune_steps", "unknown")
    losses = f"{run.loss(yarn, 'finetuned'):.3f} and {run.loss(WINDOW):.3f} nats per byte"
    what = f"{yarn} ({steps} steps) against {WINDOW} on text after {run.test_len} tokens ({losses})"
    return (run.against(yarn, WINDOW, TEXT).mostly_better(what),)


_claim = partial(trained_claim, Methods, "extrapolate", COMMAND)


CLAIMS = (
    _claim(
        "plain-fails",
        (
            Passage(
                "001",
                "§7.1",
                447,
                "出现”未见过的角度”,效果下降",
                "unseen angles appear, and results get worse",
            ),
            Passage("pi"),
        ),
        "Without scaling, a RoPE model fails beyond its trained length.",
        "reading on costs text loss, and copying stops",
        plain_fails,
    ),
    _claim(
        "rope-extrapolates",
        (
            Passage(
                "003",
                "RoPE",
                471,
                "在更长序列或跨段情况下,RoPE依然可以很好地保持有效性",
                "on longer sequences or across segments RoPE still stays effective",
            ),
            Passage("003", "comparison", 613, "具有较好的连续外推能力", "extrapolates fairly well"),
        ),
        "RoPE extrapolates: it stays effective on longer sequences than were trained.",
        "reading on costs nothing, and copying works",
        rope_extrapolates,
    ),
    _claim(
        "yarn-extends",
        (
            Passage(
                "001",
                "§3.3",
                197,
                "可以外推到更长序列(配合 YaRN)",
                "can extrapolate to longer sequences (together with YaRN)",
            ),
        ),
        "With YaRN a RoPE model works beyond its trained length (asked here without fine-tuning).",
        "better than unscaled, and copying works",
        yarn_extends,
    ),
    _claim(
        "yarn-beats-ntk",
        (Passage("yarn", "§4"),),
        "Without fine-tuning YaRN beats NTK-aware scaling.",
        "lower loss and higher copy accuracy than NTK",
        yarn_beats_ntk,
    ),
    _claim(
        "ntk-better-short",
        (Passage("yarn-19"),),
        "Without fine-tuning NTK-aware scaling is better than YaRN at short lengths.",
        "lower loss than YaRN where no extension was needed",
        ntk_better_short,
    ),
    _claim(
        "pi-fails-zero-shot",
        (Passage("pi"), Passage("su-9675")),
        "Position interpolation fails without fine-tuning.",
        "no copying at any distance, and worse than unscaled",
        pi_fails,
    ),
    _claim(
        "low-perplexity-enough",
        (Passage("practice"), Passage("men")),
        "Low perplexity beyond the trained length means that the long context works.",
        "whatever reads long text best also copies from far away",
        low_loss_means_retrieval,
    ),
    _claim(
        "extension-beats-window",
        (Passage("yarn", "§4"),),
        "A model extended by YaRN and fine-tuned reads long text better than one that keeps to a "
        "sliding window of the trained length.",
        "lower loss than the sliding window",
        finetuned_beats_window,
    ),
)
