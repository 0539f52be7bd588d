"""Checks of statements about trained position encodings and frequencies, asked of stored runs."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ropelab.claims.record import Findings
from ropelab.claims.stored import COPYING, Encodings, Frequencies, asked_of, at_least, guard, tally
from ropelab.runs.thresholds import HARMLESS, MISSED, WORKS


@asked_of(Encodings)
def extrapolates(found: Findings, run: Encodings, encoding: str) -> None:
    """The price of a longer context, paired over the same texts, and what is left of copying."""
    what = f"{encoding}, rise of text loss from {run.train_len} to {run.test_len} tokens"
    row = run.growth(encoding, "text loss")
    if row is None or math.isnan(row["ci_low"]):
        found.missing(what, "not measured")
    else:
        found.part(what, _loss_change(row), _harmless(row), float(row["difference"]))
    guard(found, run, encoding)
    near, far = (run.at(encoding, COPYING, longest=longest) for longest in (False, True))
    what = "copy accuracy at the trained length and at the longest"
    found.limit(what, f"{near:.2f} and {far:.2f}", at_least(far - WORKS * near, 0), far)
    guard(found, run, encoding)


@asked_of(Encodings)
def ordered(
    found: Findings,
    run: Encodings,
    metric: str,
    better: Sequence[str] = (),
    worse: Sequence[str] = (),
) -> None:
    """Some encodings must be better than the baseline at the longest context, others worse."""
    for encoding in (*better, *worse):
        baseline, result = run.against_baseline(encoding, metric)
        values = f"{run.at(encoding, metric, True):.3f}, {run.at(baseline, metric, True):.3f}"
        result.mostly_better(found, f"{encoding} against {baseline} ({values})")
        last = found.findings[-1]
        if encoding in worse and last.agrees is not None:
            found.findings[-1] = replace(last, agrees=not last.agrees)
        guard(found, run, encoding, baseline)


@asked_of(Encodings)
def costs_more(
    found: Findings, run: Encodings, pair: tuple[str, str], hardly: bool = False
) -> None:
    """The loss of the first of a pair at the trained length must be higher, or hardly higher."""
    what = f"{pair[0]} against {pair[1]}, text loss at {run.train_len} tokens"
    row = run.pair(*pair)
    if row is None:
        found.missing(what, "not compared")
        return
    higher = {pair[0]: False, pair[1]: True}.get(row["verdict"])
    found.part(what, _loss_change(row), _harmless(row) if hardly else higher, row["difference"])
    guard(found, run, *pair)


def _loss_change(row: pd.Series) -> str:
    return f"{row['difference']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] nats per byte"


def _harmless(row: pd.Series) -> bool | None:
    """True if a loss rises by HARMLESS at most; None where its interval leaves that open."""
    decided = row["ci_high"] <= HARMLESS or row["ci_low"] > HARMLESS
    return bool(row["ci_high"] <= HARMLESS) if decided else None


# Frequencies


@asked_of(Frequencies)
def one_is_not_enough(found: Findings, run: Frequencies, scheme: str) -> None:
    """One slow frequency against many, and whether any other single one is enough."""
    rows = run.compared("comparisons", scheme)
    copied, many = run.copies_within(scheme), run.copies_within()
    what = f"copying from {run.train_len // 2} tokens back, {scheme} against {run.plain}"
    if rows.empty or math.isnan(copied):
        found.missing(what)
        return
    result = tally(rows["verdict"], scheme)
    everywhere = True if result.worse == len(rows) else None
    agrees = False if copied >= WORKS * many else everywhere
    found.part(what, f"{copied:.2f} against {many:.2f}; {result.text}", agrees, copied)
    others = {name: run.copies_within(name) for name in run.singles()}
    best = max(others, key=lambda name: others[name])
    enough = others[best] >= WORKS * many
    found.limit(f"the best single one, {best}", f"{others[best]:.2f}", not enough)


@asked_of(Frequencies)
def detail_and_whole(found: Findings, run: Frequencies) -> None:
    """Remove each end of the spectrum: it must be missed at one end of the text only."""
    for band, far in (("slow", True), ("fast", False)):
        served, other = (run.compared("removed", band, where) for where in (far, not far))
        what = f"copying without the {band} third"
        if served.empty:
            found.missing(what)
            continue
        found.part(*_change(what, served, band), _missed(served, band))
        elsewhere = _missed(other, band)
        agrees = None if elsewhere is None else not elsewhere
        found.limit(*_change(what, other, band), agrees)


@asked_of(Frequencies)
def slow_ones_mark_far(found: Findings, run: Frequencies, scheme: str) -> None:
    """A model that never had the slow third must copy worse from far."""
    rows = run.compared("comparisons", scheme, far=True)
    what = f"copying of a model trained {scheme} against {run.plain}"
    if rows.empty:
        found.missing(what)
    else:
        found.part(*_change(what, rows, scheme), _missed(rows, scheme))


def _missed(rows: pd.DataFrame, who: str) -> bool | None:
    """True if copying falls by MISSED or more; None where the interval leaves that open."""
    row = rows.iloc[0]
    if row["ci_low"] > -MISSED:
        return False
    worse = tally(rows["verdict"], who).worse > 0
    return True if worse and row["difference"] <= -MISSED else None


def _change(what: str, rows: pd.DataFrame, who: str) -> tuple[str, str]:
    """The change of copying there, and in words where it was measured."""
    row = rows.iloc[0]
    where = f"{what}, from {int(row['distance_tokens'])} tokens back"
    ends = f"[{row['ci_low']:+.2f}, {row['ci_high']:+.2f}]"
    return where, f"{row['difference']:+.2f} {ends} ({tally(rows['verdict'], who).text})"
