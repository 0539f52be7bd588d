"""Claims about what few frequencies, and which of many, are good for: asked of trained models."""

import math
from functools import partial

import pandas as pd

from ropelab.claims.record import Finding, Passage, limit, missing, part
from ropelab.claims.trained.stored import Trained, tally, trained_claim
from ropelab.runs.cell import Stored
from ropelab.runs.thresholds import MISSED, WORKS

COMMAND = "ropelab frequencies --seeds 0,1,2,3,4"
COPYING, KEPT = "copy accuracy", "none"
SLOWEST = "one(period=1e+06)"


class Frequencies(Trained):
    """A run of the frequencies lab: rows are schemes of frequencies, some with a band removed.

    Columns read: schemes (scheme, frequencies), learned (metric, scheme, removed, distance_tokens,
    context_tokens, value), comparisons (metric, distance_tokens, context_tokens, scheme_a,
    difference, interval, verdict), removed (the same, removed_a in place of scheme_a).
    """

    def __init__(self, run: Stored) -> None:
        super().__init__(run)
        schemes = self.table("schemes")
        self.plain = str(schemes["scheme"].iloc[0]) if len(schemes) else ""

    def copying(self, scheme: str = "", removed: str = KEPT) -> pd.Series:
        """Copy accuracy in the trained length by distance, nearest first."""
        table = self.table("learned")
        if table.empty:
            return pd.Series(dtype=float)
        chosen = (table["metric"] == COPYING) & (table["scheme"] == (scheme or self.plain))
        chosen &= (table["removed"] == removed) & (table["context_tokens"] == self.train_len)
        return table[chosen].set_index("distance_tokens")["value"].sort_index()

    def copies_within(self, name: str = "") -> float:
        """From half of the trained length back."""
        return float(self.copying(name).get(self.train_len // 2, math.nan))

    def singles(self) -> list[str]:
        """The schemes of one frequency."""
        schemes = self.table("schemes")
        return list(schemes.loc[schemes["frequencies"] == 1, "scheme"]) if len(schemes) else []

    def compared(self, name: str, who: str, far: bool | None = None) -> pd.DataFrame:
        """Copying of a row against the plain one in the trained length: everywhere, or at one end.

        Args:
            name: `comparisons` of schemes, or `removed` of bands.
            who: the scheme or the band.
            far: at the farthest distance, at the nearest; None: at all.
        """
        table = self.table(name)
        column = "removed_a" if name == "removed" else "scheme_a"
        if column not in table:
            return pd.DataFrame(columns=["verdict"])
        chosen = (table["metric"] == COPYING) & (table["context_tokens"] == self.train_len)
        rows = table[chosen & (table[column] == who)].sort_values("distance_tokens")
        return rows if far is None else rows.iloc[-1:] if far else rows.iloc[:1]


def one_is_not_enough(run: Frequencies, scheme: str) -> tuple[Finding, ...]:
    """One slow frequency against many, and whether any other single one does."""
    rows = run.compared("comparisons", scheme)
    copied, many = run.copies_within(scheme), run.copies_within()
    half = run.train_len // 2
    what = f"copying from {half} tokens back, {scheme} against {run.plain}"
    if rows.empty or math.isnan(copied):
        return (missing(what),)
    found = tally(rows["verdict"], scheme)
    everywhere = True if found.worse == len(rows) else None
    agrees = False if copied >= WORKS * many else everywhere
    first = part(what, f"{copied:.2f} against {many:.2f}; {found.text}", agrees, copied)
    others = {name: run.copies_within(name) for name in run.singles()}
    best = max(others, key=lambda name: others[name])
    enough = others[best] >= WORKS * many
    return first, limit(f"the best single one, {best}", f"{others[best]:.2f}", not enough)


def detail_and_whole(run: Frequencies) -> tuple[Finding, ...]:
    """Each end of the spectrum taken away: is it missed where the sentence says, and only there?"""
    findings = []
    for band, far in (("slow", True), ("fast", False)):
        served, other = (run.compared("removed", band, where) for where in (far, not far))
        what = f"copying without the {band} third"
        if served.empty:
            findings.append(missing(what))
            continue
        findings.append(part(*_change(what, served, band), _missed(served, band)))
        elsewhere = _missed(other, band)
        agrees = None if elsewhere is None else not elsewhere
        findings.append(limit(*_change(what, other, band), agrees))
    return tuple(findings)


def slow_ones_mark_far(run: Frequencies, scheme: str) -> tuple[Finding, ...]:
    """A model that never had the slow third: does it copy worse from far?"""
    rows = run.compared("comparisons", scheme, far=True)
    what = f"copying of a model trained {scheme} against {run.plain}"
    if rows.empty:
        return (missing(what),)
    return (part(*_change(what, rows, scheme), _missed(rows, scheme)),)


def _missed(rows: pd.DataFrame, who: str) -> bool | None:
    """Whether copying falls by MISSED or more; None where the interval leaves that open."""
    row = rows.iloc[0]
    if row["ci_low"] > -MISSED:
        return False
    worse = tally(rows["verdict"], who).worse > 0
    return True if worse and row["difference"] <= -MISSED else None


def _change(what: str, rows: pd.DataFrame, who: str) -> tuple[str, str]:
    """What was measured, and by how much copying changes there."""
    row = rows.iloc[0]
    where = f"{what}, from {int(row['distance_tokens'])} tokens back"
    ends = f"[{row['ci_low']:+.2f}, {row['ci_high']:+.2f}]"
    return where, f"{row['difference']:+.2f} {ends} ({tally(rows['verdict'], who).text})"


_claim = partial(trained_claim, Frequencies, "frequencies", COMMAND)

CLAIMS = (
    _claim(
        "one-frequency-learned",
        (
            Passage(
                "001",
                "§5.3",
                309,
                "核心发现:理论上可行,工程上不行",
                "the main finding: possible in theory, impossible in practice",
            ),
        ),
        "One very low frequency in place of many does not work in practice.",
        "less copied than with many frequencies at every distance of the trained length",
        partial(one_is_not_enough, scheme=SLOWEST),
    ),
    _claim(
        "detail-and-whole",
        (
            Passage(
                "001",
                "§5.5",
                354,
                "高频看细节,低频看全局",
                "high frequencies see detail, low ones the whole",
            ),
            Passage("003", "", 93, "低频部分捕捉长距离依赖", "low parts catch long dependencies"),
            Passage("003", "", 94, "高频部分捕捉局部细节", "high parts catch local detail"),
        ),
        "High frequencies see detail, low ones the whole: a trained model misses the slow ones "
        "where it looks far back, the fast ones where it looks at what is near.",
        "a loss from afar without the slow third, a loss near by without the fast third, and no "
        "loss at the other ends",
        detail_and_whole,
    ),
    _claim(
        "slow-ones-mark-far",
        (Passage("001", "§5.5", 345, "标识远距离位置", "identify far positions"),),
        "Low frequencies identify far positions: a model that never had them finds less far back.",
        "less copied from the farthest distance of the trained length",
        partial(slow_ones_mark_far, scheme="without(band=slow)"),
    ),
)
