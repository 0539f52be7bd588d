"""Claims about trained position encodings, decided by the stored run of the encodings lab."""

import math
from functools import partial

from ropelab.experiments.claims.record import Finding, limit, part
from ropelab.experiments.claims.stored import Encodings, FromRuns, trained_claim

COMMAND = "ropelab encodings --train-len 512 --test-len 2048"
TEXT, COPYING = "text loss", "copy accuracy"


def extrapolates(run: Encodings, given: FromRuns, encoding: str) -> tuple[Finding, ...]:
    """What reading on costs, paired over the same texts, and what is left of copying."""
    near, far = (run.at(encoding, COPYING, longest=longest) for longest in (False, True))
    learned = near >= given.learned
    copied = f"{near:.2f} and {far:.2f}" + ("" if learned else ", did not learn to copy")
    return (
        _rise(run, given, encoding),
        limit(
            "copy accuracy at the trained length and at the longest",
            copied,
            far >= given.works * near if learned else None,
            far,
        ),
    )


def _rise(run: Encodings, given: FromRuns, encoding: str) -> Finding:
    what = f"{encoding}, rise of text loss from {run.train_len} to {run.test_len} tokens"
    row = run.growth(encoding, TEXT)
    if row is None or math.isnan(row["ci_low"]):
        return part(what, "not measured", None)
    text = f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats per byte"
    decided = row["ci_high"] <= given.harmless or row["ci_low"] > given.harmless
    agrees = bool(row["ci_high"] <= given.harmless) if decided else None
    return part(what, text, agrees, float(row["difference"]))


def ordered(
    run: Encodings, given: FromRuns, metric: str, better: tuple[str, ...], worse: tuple[str, ...]
) -> tuple[Finding, ...]:
    """Some encodings must be better than the baseline at the longest context, others worse.

    One that copies worse beyond the trained length decides nothing if it had not learned to copy
    inside it: its training was too short, not its reach.
    """
    findings = []
    for encoding in (*better, *worse):
        baseline, tally = run.against_baseline(encoding, metric)
        values = f"{run.at(encoding, metric, True):.3f}, {run.at(baseline, metric, True):.3f}"
        finding = tally.mostly_better(f"{encoding} against {baseline} ({values})")
        if encoding in worse and finding.agrees is not None:
            finding = part(finding.what, finding.measured, not finding.agrees, finding.value)
        learned = metric != COPYING or run.at(encoding, COPYING, longest=False) >= given.learned
        if encoding in better and finding.agrees is False and not learned:
            finding = part(finding.what, f"{finding.measured}, did not learn to copy", None)
        findings.append(finding)
    return tuple(findings)


_claim = partial(trained_claim, Encodings, "encodings", COMMAND)


KEPT = "no higher loss beyond the trained length"

CLAIMS = (
    _claim(
        "alibi-extrapolates",
        "note 003 (ALiBi); Press et al. 2021, arXiv:2108.12409",
        "ALiBi extrapolates: trained on short sequences it keeps its quality on longer ones.",
        KEPT,
        partial(extrapolates, encoding="alibi"),
    ),
    _claim(
        "sinusoidal-extrapolates",
        "note 003 (sinusoidal, comparison)",
        "Sinusoidal codes extrapolate: being periodic they stay regular at untrained positions.",
        KEPT,
        partial(extrapolates, encoding="sinusoidal"),
    ),
    _claim(
        "t5-extrapolates",
        "note 001 §3.2",
        "T5's relative encoding extrapolates to some extent.",
        KEPT,
        partial(extrapolates, encoding="t5"),
    ),
    _claim(
        "loss-order",
        "Press et al. 2021, arXiv:2108.12409 §2",
        "Trained from scratch, ALiBi and T5 have a lower loss beyond the trained length than "
        "RoPE, sinusoidal codes a higher one.",
        "ALiBi and T5 better than RoPE, sinusoidal worse",
        partial(ordered, metric=TEXT, better=("alibi", "t5"), worse=("sinusoidal",)),
    ),
    _claim(
        "copy-order",
        "Kazemnejad et al. 2023, arXiv:2305.19466",
        "Trained from scratch, ALiBi, T5 and no encoding at all copy better beyond the trained "
        "length than RoPE.",
        "all three better than RoPE",
        partial(ordered, metric=COPYING, better=("alibi", "t5", "nope"), worse=()),
    ),
)
