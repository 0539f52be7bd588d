"""Claims about trained position encodings, asked of the stored run of the encodings lab."""

import math
from dataclasses import replace
from functools import partial

import pandas as pd

from ropelab.claims.record import Finding, Passage, limit, missing, part
from ropelab.claims.trained.stored import Encodings, at_least, guarded, trained_claim
from ropelab.runs.thresholds import HARMLESS, WORKS

COMMAND = "ropelab encodings --train-len 512 --test-len 2048"
TEXT, COPYING = "text loss", "copy accuracy"
LEARNED_TABLE, MIDDLE_TERMS = ("learned", "sinusoidal"), ("deberta", "transformer_xl")
TURNED_VALUES = ("rope_values", "rope")
PAIRS = (LEARNED_TABLE, MIDDLE_TERMS, TURNED_VALUES)
"""Encodings whose text losses at the trained length claims set against each other."""


def extrapolates(run: Encodings, encoding: str) -> tuple[Finding, ...]:
    """What reading on costs, paired over the same texts, and what is left of copying."""
    near, far = (run.at(encoding, COPYING, longest=longest) for longest in (False, True))
    left = limit(
        "copy accuracy at the trained length and at the longest",
        f"{near:.2f} and {far:.2f}",
        at_least(far - WORKS * near, 0),
        far,
    )
    return tuple(guarded(run, (encoding,), x) for x in (_rise(run, encoding), left))


def to_some_extent(run: Encodings, encoding: str) -> tuple[Finding, ...]:
    """Is anything left: is reading on cheaper than for the baseline, which makes no promise?"""
    return ordered(run, metric=TEXT, better=(encoding,), worse=())


def _rise(run: Encodings, encoding: str) -> Finding:
    what = f"{encoding}, rise of text loss from {run.train_len} to {run.test_len} tokens"
    row = run.growth(encoding, TEXT)
    if row is None or math.isnan(row["ci_low"]):
        return missing(what, "not measured")
    return part(what, _loss_change(row), _harmless(row), float(row["difference"]))


def ordered(
    run: Encodings, metric: str, better: tuple[str, ...], worse: tuple[str, ...]
) -> tuple[Finding, ...]:
    """Some encodings must be better than the baseline at the longest context, others worse."""
    findings = []
    for encoding in (*better, *worse):
        baseline, tally = run.against_baseline(encoding, metric)
        values = f"{run.at(encoding, metric, True):.3f}, {run.at(baseline, metric, True):.3f}"
        finding = tally.mostly_better(f"{encoding} against {baseline} ({values})")
        if encoding in worse and finding.agrees is not None:
            finding = replace(finding, agrees=not finding.agrees)
        findings.append(guarded(run, (encoding, baseline), finding))
    return tuple(findings)


def costs_more(run: Encodings, pair: tuple[str, str]) -> tuple[Finding, ...]:
    """Is the loss of the first of a pair at the trained length higher than the second's?"""
    what = _of_pair(run, pair)
    row = run.pair(*pair)
    if row is None:
        return (missing(what, "not compared"),)
    agrees = {pair[0]: False, pair[1]: True}.get(row["verdict"])
    return (guarded(run, pair, part(what, _loss_change(row), agrees, row["difference"])),)


def costs_hardly_more(run: Encodings, pair: tuple[str, str]) -> tuple[Finding, ...]:
    """Is the loss of the first of a pair higher by HARMLESS at most?"""
    what = _of_pair(run, pair)
    row = run.pair(*pair)
    if row is None:
        return (missing(what, "not compared"),)
    agrees = _harmless(row)
    return (guarded(run, pair, part(what, _loss_change(row), agrees, row["difference"])),)


def _of_pair(run: Encodings, pair: tuple[str, str]) -> str:
    return f"{pair[0]} against {pair[1]}, text loss at {run.train_len} tokens"


def _loss_change(row: pd.Series) -> str:
    return f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats per byte"


def _harmless(row: pd.Series) -> bool | None:
    """Whether a loss rises by HARMLESS at most; None where its interval leaves that open."""
    decided = row["ci_high"] <= HARMLESS or row["ci_low"] > HARMLESS
    return bool(row["ci_high"] <= HARMLESS) if decided else None


_claim = partial(trained_claim, Encodings, "encodings", COMMAND)


KEPT = "no higher loss beyond the trained length"

CLAIMS = (
    _claim(
        "alibi-extrapolates",
        (
            Passage(
                "003",
                "ALiBi",
                599,
                "在训练时只用较短序列,但是测试时可以处理更长序列,并能保持较好的性能",
                "trained on shorter sequences only, it handles longer ones in testing and "
                "keeps its performance",
            ),
            Passage("alibi", "title", None, "Train Short, Test Long"),
        ),
        "ALiBi extrapolates: trained on short sequences it keeps its quality on longer ones.",
        KEPT,
        partial(extrapolates, encoding="alibi"),
    ),
    _claim(
        "sinusoidal-extrapolates",
        (
            Passage(
                "003",
                "exam question 3",
                640,
                "并在未见过的位置上也能维持规律性",
                "and stays regular at unseen positions, too",
            ),
            Passage(
                "003",
                "comparison",
                610,
                "可处理超长序列(插值方式)",
                "can handle very long sequences (by interpolation)",
            ),
        ),
        "Sinusoidal codes extrapolate: being periodic they stay regular at untrained positions.",
        KEPT,
        partial(extrapolates, encoding="sinusoidal"),
    ),
    _claim(
        "t5-extrapolates",
        (Passage("001", "§3.2", 174, "一定程度可以外推", "extrapolates to some extent"),),
        "T5's relative encoding extrapolates to some extent.",
        "a lower loss beyond the trained length than RoPE's",
        partial(to_some_extent, encoding="t5"),
    ),
    _claim(
        "rope-beats-sinusoidal",
        (
            Passage(
                "003",
                "RoPE",
                477,
                "相较于原生的正余弦编码",
                "compared with the original sinusoidal code",
            ),
        ),
        "RoPE does better on long text than sinusoidal codes.",
        "a higher loss of the sinusoidal code at the longest context",
        partial(ordered, metric=TEXT, better=(), worse=("sinusoidal",)),
    ),
    _claim(
        "alibi-beats-others",
        (
            Passage(
                "003",
                "ALiBi",
                605,
                "ALiBi有时优于经典的绝对位置编码和相对位置编码",
                "ALiBi is sometimes better than classic absolute and relative encodings",
            ),
        ),
        "On long text ALiBi is sometimes better than other encodings (asked here against RoPE).",
        "a lower loss than RoPE's at the longest context",
        partial(ordered, metric=TEXT, better=("alibi",), worse=()),
    ),
    _claim(
        "learned-worse",
        (
            Passage(
                "003",
                "methods, learned",
                428,
                "但是泛化性不如正余弦",
                "but it generalises less well than sines and cosines",
            ),
        ),
        "A learned table generalises less well to new text than sinusoidal codes.",
        "a higher loss of the learned table on unseen text of the trained length",
        partial(costs_more, pair=LEARNED_TABLE),
    ),
    _claim(
        "middle-terms-suffice",
        (
            Passage(
                "002",
                "§2",
                45,
                "公式6的中间两项,足以表达相对位置关系",
                "the two middle terms of formula 6 are enough to express relative positions",
            ),
            Passage("roformer", "§2.3"),
        ),
        "The two middle terms (DeBERTa's) are enough; the others (asked here of Transformer-XL, "
        "which keeps four) gain nothing.",
        f"a loss at most {HARMLESS:g} nats per byte higher than with four terms",
        partial(costs_hardly_more, pair=MIDDLE_TERMS),
    ),
    _claim(
        "values-without-positions",
        (
            Passage(
                "002",
                "§2",
                41,
                "更适合添加在q,k向量上面,而不适合添加在v向量上面",
                "suit the vectors q and k better, and do not suit the vector v",
            ),
        ),
        "Positions suit queries and keys and do not suit values (asked here of RoPE with values "
        "turned, too).",
        "a higher loss with values turned, too",
        partial(costs_more, pair=TURNED_VALUES),
    ),
    _claim(
        "loss-order",
        (Passage("alibi", "§2"),),
        "Trained from scratch, ALiBi and T5 have a lower loss beyond the trained length than "
        "RoPE, sinusoidal codes a higher one.",
        "ALiBi and T5 better than RoPE, sinusoidal worse",
        partial(ordered, metric=TEXT, better=("alibi", "t5"), worse=("sinusoidal",)),
    ),
    _claim(
        "copy-order",
        (Passage("kazemnejad"),),
        "Trained from scratch, ALiBi, T5 and no encoding at all copy better beyond the trained "
        "length than RoPE.",
        "all three better than RoPE",
        partial(ordered, metric=COPYING, better=("alibi", "t5", "nope"), worse=()),
    ),
)
