"""The one rule by which two rows are said to differ, for every experiment that trains
models.

Everything is measured with the same seeds on the same documents (sequences), so two
rows are compared value by value: the difference for each seed and document. Its mean
has an interval over both (see `ropelab.runs.stats`): another model and other text could
have come out otherwise.

A table answers several questions, a metric at a place each, and every question is a
family of its own: of the pairs that are named as different in one family at most
FALSE_DISCOVERIES (5 %) are expected not to differ (Benjamini and Hochberg 1995). What
is no evidence is kept out of a family (`status`): rows that fail, whose easy
discoveries would lower the bar for close pairs, are judged among themselves; rows with
the same values are one; a mean over seeds of two kinds, some that learned and some that
did not, describes none of them and is not tested (docs/methods.md).

**`~` means: among all comparisons of its family, this one is not a discovery at that
rate.** Every other verdict names the better one. Intervals have the coverage that this
selection leaves them (`confidence`; Benjamini and Yekutieli 2005): without 0 where
there is a verdict, and only there.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ropelab.runs.sentences import listed
from ropelab.runs.stats import (
    CONFIDENCE,
    FALSE_DISCOVERIES,
    FEWEST_UNITS,
    Mean,
    crossed_mean,
    discovery_rates,
)
from ropelab.runs.thresholds import AT_CHANCE, NO_USE, TWO_KINDS

# The columns of every comparison, behind those that identify it; n: units per seed.
MEASURES = [
    *("seeds", "n", "difference", "ci_low", "ci_high"),
    *("confidence", "p_value", "false_discovery_rate", "status", "verdict"),
]
Measure = Literal["loss", "share", "log_probability"]
TESTED, FAILING, SAME, MIXED = "ok", "a row fails", "same values", "seeds of two kinds"
TOO_FEW = f"fewer than {FEWEST_UNITS} seeds or units"
CONSTANT = "nothing varies"
# Of copying beyond the trained length: judged with the others, and no evidence either.
UNLEARNED = "did not learn"


@dataclass(frozen=True)
class Pair:
    """Two rows to be compared."""

    # identifies the comparison: the first columns of the table
    about: tuple[Hashable, ...]
    a: pd.Series  # values by (seed, unit)
    b: pd.Series
    names: tuple[str, str]  # the verdicts where a is better, and where b is
    measure: Measure  # losses (nats per byte) are better where they are smaller
    family: Hashable = ""  # the question that it helps to answer
    trials: int = 0  # of each value, where it is a share


def difference(a: pd.Series, b: pd.Series, trials: int = 0) -> Mean:
    """Return the mean of a - b, both with the index (seed, unit), in any order.

    `trials`: how many each value is a share of; 0: of none.
    """
    if len(a) != len(b) or not a.index.isin(b.index).all():
        raise ValueError(
            "only what was measured with the same seeds and units can be compared"
        )
    return crossed_mean((a - b).unstack(level=-1).to_numpy(), trials)


def compare(pairs: Iterable[Pair], columns: Sequence[str]) -> pd.DataFrame:
    """Return a row per pair, judged by family; `columns` name their `about`."""
    pairs = list(pairs)
    means = [difference(pair.a, pair.b, pair.trials) for pair in pairs]
    judgements = _judge(pairs, means)

    records = []
    rows = judgements.to_dict("records")
    for pair, mean, row in zip(pairs, means, rows, strict=True):
        interval = mean.interval(row["confidence"])
        a_is_better = (mean.value < 0) == (pair.measure == "loss")
        better = pair.names[0] if a_is_better else pair.names[1]
        # A rate is missing where nothing was tested.
        verdict = better if row["rate"] <= FALSE_DISCOVERIES else "~"
        measured = (mean.seeds, mean.units, mean.value, interval.low, interval.high)
        judgement = (row["confidence"], row["p"], row["rate"], row["status"], verdict)
        records.append((*pair.about, *measured, *judgement))
    return pd.DataFrame(records, columns=[*columns, *MEASURES])


def _judge(pairs: Sequence[Pair], means: Sequence[Mean]) -> pd.DataFrame:
    """Return for each pair its p, its false discovery rate and the confidence of its
    interval.
    """
    table = pd.DataFrame(
        {
            "status": _statuses(pairs, means),
            "confidence": CONFIDENCE,
            "rate": math.nan,
        }
    )
    table["family"] = pd.Series([pair.family for pair in pairs], dtype=object)
    # Pairs of equal values, either way round, are one test.
    table["test"] = [
        b"".join(sorted((_values(pair.a), _values(pair.b)))) for pair in pairs
    ]
    p_values = pd.Series([mean.p_value() for mean in means], dtype=float)
    table["p"] = p_values.where(table["status"].isin((TESTED, FAILING)))

    for _, family in table.groupby(["family", "status"], sort=False):
        tests = family.drop_duplicates("test").set_index("test")["p"]
        rates = pd.Series(discovery_rates(tests.tolist()), tests.index)
        table.loc[family.index, "rate"] = family["test"].map(rates)

        discoveries = max(1, (rates <= FALSE_DISCOVERIES).sum())
        share = discoveries / max(1, tests.notna().sum())
        table.loc[family.index, "confidence"] = 1 - FALSE_DISCOVERIES * share
    return table


def _statuses(pairs: Sequence[Pair], means: Sequence[Mean]) -> list[str]:
    """Return for each pair if it is evidence, or why it is none."""
    best: dict[Hashable, float] = {}
    for pair in pairs:
        for value in (pair.a.mean(), pair.b.mean()):
            best[pair.family] = min(value, best.get(pair.family, value))

    def fails(pair: Pair, values: pd.Series) -> bool:
        if pair.measure == "loss":
            return bool(values.mean() > best[pair.family] + NO_USE)
        return pair.measure == "share" and bool(values.mean() < AT_CHANCE)

    def is_of_two_kinds(values: pd.Series) -> bool:
        # A step between neighbouring seeds, not the range, which grows with their
        # number.
        by_seed = values.groupby(level=0).mean().sort_values()
        return bool((by_seed.diff() > TWO_KINDS).any())

    statuses = []
    for pair, mean in zip(pairs, means, strict=True):
        if is_of_two_kinds(pair.a) or is_of_two_kinds(pair.b):
            statuses.append(MIXED)
        elif _values(pair.a) == _values(pair.b):
            statuses.append(SAME)
        elif max(mean.seeds, mean.units) < FEWEST_UNITS:
            statuses.append(TOO_FEW)
        elif math.isnan(mean.p_value()):
            statuses.append(CONSTANT)
        elif fails(pair, pair.a) or fails(pair, pair.b):
            statuses.append(FAILING)
        else:
            statuses.append(TESTED)
    return statuses


def _values(row: pd.Series) -> bytes:
    return row.sort_index().to_numpy(dtype="float64").tobytes()


def between(table: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Select the comparisons of two methods, in either order; differences are those of
    a - b.
    """
    rows = table[table["method_a"].isin((a, b)) & table["method_b"].isin((a, b))]
    turned = rows.assign(
        difference=-rows["difference"], ci_low=-rows["ci_high"], ci_high=-rows["ci_low"]
    )
    return rows.where(rows["method_a"] == a, turned)


def rivals_of(
    best: str, table: pd.DataFrame, about: Mapping[str, Hashable]
) -> list[str]:
    """Return the methods not significantly different from one, where columns are
    `about`.
    """
    pair = ["method_a", "method_b"]
    chosen = (table[pair] == best).any(axis=1) & (table["verdict"] == "~")
    for column, value in about.items():
        chosen &= table[column] == value
    rivals = []
    for a, b in table.loc[chosen, pair].itertuples(index=False):
        rivals.append(b if a == best else a)
    return rivals


def tied_with(names: Sequence[str]) -> str:
    """End a sentence about the best where others are not significantly different from
    it.

    >>> tied_with(["pi", "ntk"]), tied_with([])
    (', not significantly different from pi and ntk', '')
    """
    if not names:
        return ""
    others = f"{len(names)} others" if len(names) > 3 else listed(names)
    return f", not significantly different from {others}"


def significance(table: pd.DataFrame) -> str:
    """Count the significant comparisons in a sentence; a row that fails is no
    evidence.
    """
    if table.empty:
        return "There is nothing to compare."

    pair = [name for name in map(str, table) if name.endswith(("_a", "_b"))]
    place = [name for name in table if name not in (*MEASURES, *pair)]
    a, b = (pd.MultiIndex.from_frame(table[[*place, name]]) for name in pair)
    # The first of several rows with the same values counts.
    again = b[table["status"] == SAME]
    is_first = ~a.isin(again) & ~b.isin(again)
    tested = table[(table["status"] == TESTED) & is_first]
    if tested.empty and (table["status"] == TOO_FEW).any():
        return (
            f"Nothing is tested for significance: that takes {FEWEST_UNITS} seeds, or"
            f" {FEWEST_UNITS} documents (sequences)."
        )

    found = int((tested["verdict"] != "~").sum())
    return (
        f"{found} of {len(tested)} comparisons between rows that work are significant,"
        f" at a false discovery rate of {FALSE_DISCOVERIES:.0%} per question."
    )
