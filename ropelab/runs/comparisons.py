"""The one rule by which two rows are said to differ, for every experiment that trains
models.

A row here is one of the things compared: a method or a kind of model, with its values on
every seed and document (sequence). All rows are measured with the same seeds on the same
documents. Two rows are therefore compared value by value: there is a difference for each
seed and document.
The interval of the mean difference takes both seeds and documents as random
(`ropelab.runs.stats`), since other models and other text could have given another
difference.

A table answers several questions. For example, the loss at one context length is a
question, and recall at one distance is another. The pairs that answer the same question
are a family. Of the pairs that are named as different in a family,
at most FALSE_DISCOVERIES (5 %) are expected not to differ (Benjamini and Hochberg
1995). Three kinds of pairs are kept out of their family (column `status`;
docs/methods.md):

- Pairs with a row that fails are judged among themselves. In the family their easy
  discoveries would lower the bar for close pairs.
- Pairs of rows with the same values are not tested.
- Pairs with a mean over seeds of two kinds, some that learned the task and some that
  did not, are not tested. Such a mean describes no seed.

**The verdict `~` means that the comparison is not a discovery among all comparisons of
its family.** Every other verdict names the better row. Intervals have the coverage that
this selection leaves them (column `confidence`; Benjamini and Yekutieli 2005): an
interval leaves out 0 if, and only if, the verdict names a row.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ropelab.runs.sentences import join_names
from ropelab.runs.stats import (
    CONFIDENCE,
    FALSE_DISCOVERIES,
    FEWEST_UNITS,
    Mean,
    average_crossed,
    compute_discovery_rates,
)
from ropelab.runs.thresholds import AT_CHANCE, NO_USE, TWO_KINDS

# The columns of every comparison, after the columns that identify it.
MEASURES = [
    "seeds",
    "n",  # the number of documents or sequences per seed
    "difference",
    "ci_low",
    "ci_high",
    "confidence",
    "p_value",
    "false_discovery_rate",
    "status",
    "verdict",
]
Measure = Literal["loss", "share", "log_probability"]

# The words of the column `status`.
TESTED = "ok"
FAILING = "a row fails"
SAME = "same values"
MIXED = "seeds of two kinds"
TOO_FEW = f"fewer than {FEWEST_UNITS} seeds or units"
CONSTANT = "nothing varies"
# An experiment gives this status after the judgement, to pairs with a model that did
# not learn the task inside the trained length.
UNLEARNED = "did not learn"


@dataclass(frozen=True)
class Pair:
    """Two rows to be compared."""

    # The first columns of the table, which identify the comparison.
    about: tuple[Hashable, ...]
    # The values of the rows, with the index (seed, unit).
    a: pd.Series
    b: pd.Series
    # The verdict if `a` is better, and the verdict if `b` is.
    names: tuple[str, str]
    # Of losses (nats per byte) the smaller one is better. Of all other measures the
    # larger one is better.
    measure: Measure
    # The question that the comparison helps to answer.
    family: Hashable = ""
    # The number of trials that each value is a share of; 0 if values are no shares.
    trials: int = 0


@dataclass(frozen=True)
class Facts:
    """What the judgement has to know about one row. A row is in many pairs, and its facts
    are computed once.
    """

    mean: float
    # The values of the row as bytes, sorted by seed and unit.
    content: bytes
    # True if some seeds learned the task and some did not.
    is_mixed: bool


def average_difference(a: pd.Series, b: pd.Series, trials: int = 0) -> Mean:
    """Return the mean of a - b.

    Args:
        a: the values of one row with the index (seed, unit), in any order.
        b: the values of the other row, in the same form.
        trials: the number of trials that each value is a share of; 0 if values are no
            shares.
    """
    if len(a) != len(b) or not a.index.isin(b.index).all():
        raise ValueError(
            "only what was measured with the same seeds and units can be compared"
        )
    return average_crossed((a - b).unstack(level=-1).to_numpy(), trials)


def compare(pairs: Iterable[Pair], columns: Sequence[str]) -> pd.DataFrame:
    """Return a row per pair, judged by family; `columns` name their `about`."""
    pairs = list(pairs)
    means = [average_difference(pair.a, pair.b, pair.trials) for pair in pairs]
    judgements = _judge(pairs, means)

    records = []
    rows = judgements.to_dict("records")
    for pair, mean, row in zip(pairs, means, rows, strict=True):
        interval = mean.compute_interval(row["confidence"])
        lower_is_better = pair.measure == "loss"
        a_is_lower = mean.value < 0
        if a_is_lower == lower_is_better:
            better = pair.names[0]
        else:
            better = pair.names[1]
        # The rate of a pair that was not tested is NaN, and NaN is not <= anything.
        verdict = better if row["rate"] <= FALSE_DISCOVERIES else "~"
        measured = (mean.seeds, mean.units, mean.value, interval.low, interval.high)
        judgement = (row["confidence"], row["p"], row["rate"], row["status"], verdict)
        records.append((*pair.about, *measured, *judgement))
    return pd.DataFrame(records, columns=[*columns, *MEASURES])


def _judge(pairs: Sequence[Pair], means: Sequence[Mean]) -> pd.DataFrame:
    """Return for each pair its p, its false discovery rate and the confidence of its
    interval.
    """
    # Pairs of one row share its series.
    facts = {}
    for pair in pairs:
        for row in (pair.a, pair.b):
            if id(row) not in facts:
                facts[id(row)] = _find_facts(row)

    table = pd.DataFrame(
        {
            "status": _find_statuses(pairs, means, facts),
            "confidence": CONFIDENCE,
            "rate": math.nan,
        }
    )
    table["family"] = pd.Series([pair.family for pair in pairs], dtype=object)
    # Two pairs that compare the same values, in either order, are one test.
    table["test"] = [_identify_test(pair, facts) for pair in pairs]
    p_values = pd.Series([mean.compute_p_value() for mean in means], dtype=float)
    table["p"] = p_values.where(table["status"].isin((TESTED, FAILING)))

    for _, family in table.groupby(["family", "status"], sort=False):
        tests = family.drop_duplicates("test").set_index("test")["p"]
        rates = pd.Series(compute_discovery_rates(tests.tolist()), tests.index)
        table.loc[family.index, "rate"] = family["test"].map(rates)

        discoveries = max(1, (rates <= FALSE_DISCOVERIES).sum())
        share = discoveries / max(1, tests.notna().sum())
        table.loc[family.index, "confidence"] = 1 - FALSE_DISCOVERIES * share
    return table


def _find_facts(row: pd.Series) -> Facts:
    """Compute what the judgement has to know about a row."""
    content = row.sort_index().to_numpy(dtype="float64").tobytes()

    # Two kinds of seeds leave a gap between them. The range would not tell, since it
    # grows with the number of seeds.
    by_seed = row.groupby(level=0).mean().sort_values()
    is_mixed = bool((by_seed.diff() > TWO_KINDS).any())
    return Facts(float(row.mean()), content, is_mixed)


def _identify_test(pair: Pair, facts: Mapping[int, Facts]) -> bytes:
    """Return the bytes of both rows, the same whichever row is `a`."""
    rows = sorted((facts[id(pair.a)].content, facts[id(pair.b)].content))
    return b"".join(rows)


def _find_statuses(
    pairs: Sequence[Pair], means: Sequence[Mean], facts: Mapping[int, Facts]
) -> list[str]:
    """Return the status of each pair: TESTED, or the reason why the comparison is not
    evidence.
    """
    lowest_means: dict[Hashable, float] = {}
    for pair in pairs:
        for row in (pair.a, pair.b):
            mean_of_row = facts[id(row)].mean
            lowest_before = lowest_means.get(pair.family, mean_of_row)
            lowest_means[pair.family] = min(mean_of_row, lowest_before)

    def fails(pair: Pair, row: Facts) -> bool:
        if pair.measure == "loss":
            return row.mean > lowest_means[pair.family] + NO_USE
        return pair.measure == "share" and row.mean < AT_CHANCE

    statuses = []
    for pair, mean in zip(pairs, means, strict=True):
        a = facts[id(pair.a)]
        b = facts[id(pair.b)]
        if a.is_mixed or b.is_mixed:
            statuses.append(MIXED)
        elif a.content == b.content:
            statuses.append(SAME)
        elif max(mean.seeds, mean.units) < FEWEST_UNITS:
            statuses.append(TOO_FEW)
        elif math.isnan(mean.compute_p_value()):
            statuses.append(CONSTANT)
        elif fails(pair, a) or fails(pair, b):
            statuses.append(FAILING)
        else:
            statuses.append(TESTED)
    return statuses


def select_pair(table: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Select the comparisons of two methods, which the table may have in either order.
    The differences in the result are a - b.
    """
    rows = table[table["method_a"].isin((a, b)) & table["method_b"].isin((a, b))]
    is_in_order = rows["method_a"] == a
    # The difference b - a has the opposite sign of a - b, and the ends of its interval
    # change places.
    return rows.assign(
        difference=rows["difference"].where(is_in_order, -rows["difference"]),
        ci_low=rows["ci_low"].where(is_in_order, -rows["ci_high"]),
        ci_high=rows["ci_high"].where(is_in_order, -rows["ci_low"]),
    )


def list_rivals(
    best: str, table: pd.DataFrame, about: Mapping[str, Hashable]
) -> list[str]:
    """Return the methods that are not significantly different from `best`.

    Args:
        best: the name of a method.
        table: comparisons.
        about: values by the name of a column. Only comparisons that have these values
            count.
    """
    pair = ["method_a", "method_b"]
    is_chosen = (table[pair] == best).any(axis=1) & (table["verdict"] == "~")
    for column, value in about.items():
        is_chosen &= table[column] == value
    rivals = []
    for a, b in table.loc[is_chosen, pair].itertuples(index=False):
        rivals.append(b if a == best else a)
    return rivals


def name_tied(names: Sequence[str]) -> str:
    """Write the end of a sentence about the best row: the rows that are not
    significantly different from it.

    >>> name_tied(["pi", "ntk"]), name_tied([])
    (', not significantly different from pi and ntk', '')
    """
    if not names:
        return ""
    tied_rows = f"{len(names)} others" if len(names) > 3 else join_names(names)
    return f", not significantly different from {tied_rows}"


def describe_significance(table: pd.DataFrame) -> str:
    """Write a sentence with the number of significant comparisons; empty if none of them
    is tested.

    Comparisons with a row that fails are not counted.
    """
    if table.empty:
        return "There is nothing to compare."

    # The two columns with the names of the compared rows, such as `method_a` and
    # `method_b`. All other columns that are not among MEASURES say which question the
    # comparison answers.
    columns = list(map(str, table))
    name_a, name_b = (column for column in columns if column.endswith(("_a", "_b")))
    question = [
        column for column in columns if column not in (*MEASURES, name_a, name_b)
    ]
    a = pd.MultiIndex.from_frame(table[[*question, name_a]])
    b = pd.MultiIndex.from_frame(table[[*question, name_b]])
    # Of several rows with the same values only the first row counts. Every later row
    # with these values is the second row of a pair with the status SAME.
    repeated = b[table["status"] == SAME]
    is_first = ~a.isin(repeated) & ~b.isin(repeated)
    tested = table[(table["status"] == TESTED) & is_first]
    if tested.empty and (table["status"] == TOO_FEW).any():
        return (
            f"Nothing is tested for significance: that takes {FEWEST_UNITS} seeds, or"
            f" {FEWEST_UNITS} documents (sequences)."
        )

    if tested.empty:
        return ""
    significant = int((tested["verdict"] != "~").sum())
    # A row that fails is worse than others for certain.
    left_out = ""
    if (table["status"] == FAILING).any():
        left_out = (
            f" (without rows that recall less than {100 * AT_CHANCE:.0f} %, or lose"
            f" {NO_USE:g} nat per byte more than the best)"
        )
    return (
        f"{significant} of {len(tested)} comparisons are significant, at a false discovery"
        f" rate of {FALSE_DISCOVERIES:.0%} per question{left_out}."
    )
