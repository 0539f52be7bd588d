"""Claims about trained position encodings, asked of the stored run of the encodings lab."""

import math
from dataclasses import replace
from functools import partial

from ropelab.literature.record import Finding, Passage, limit, missing, part
from ropelab.literature.thresholds import HARMLESS, WORKS
from ropelab.literature.trained.stored import Encodings, at_least, guarded, trained_claim

COMMAND = "ropelab encodings --train-len 512 --test-len 2048"
TEXT, COPYING = "text loss", "copy accuracy"


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
    text = f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats per byte"
    decided = row["ci_high"] <= HARMLESS or row["ci_low"] > HARMLESS
    agrees = bool(row["ci_high"] <= HARMLESS) if decided else None
    return part(what, text, agrees, float(row["difference"]))


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
