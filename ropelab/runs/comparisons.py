"""The one rule by which two rows are said to differ, for every experiment that trains models.

Everything is tried with the same seeds on the same documents (sequences), so two rows are compared
cell by cell: the difference for each seed and document. Its mean has an interval over both (see
`ropelab.runs.stats`): another model and other text could have come out otherwise. A run compares
many pairs, so a pair is said to differ only as long as of all pairs said to differ in one table at
most FALSE_DISCOVERIES (5 %) are expected not to (Benjamini and Hochberg 1995).

**`~` means: among all comparisons of its table, this one is not a discovery at that rate.** Every
other verdict names the better one. With a single seed only documents are drawn anew, and a verdict
speaks of that one trained model; `seeds` says so.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ropelab.runs.stats import FALSE_DISCOVERIES, Mean, crossed_mean, discovery_rates

# The columns of every comparison, behind those that say what was compared; n: units per seed.
TOLD = [
    "seeds",
    "n",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "false_discovery_rate",
    "verdict",
]


@dataclass(frozen=True)
class Pair:
    """Two rows to be compared.

    Attributes:
        about: what identifies the comparison, the first columns of the table.
        difference: of the two, a - b, over seeds and documents.
        names: what the verdict says where a is better, and where b is.
        smaller_is_better: for losses; not for accuracies.
    """

    about: tuple[Hashable, ...]
    difference: Mean
    names: tuple[str, str]
    smaller_is_better: bool


def difference(a: pd.Series, b: pd.Series) -> Mean:
    """Return the mean of a - b, both with the index (seed, unit), in any order.

    Raises:
        ValueError: they are not about the same seeds and units.
    """
    if len(a) != len(b) or not a.index.isin(b.index).all():
        raise ValueError("only what was measured with the same seeds and units can be compared")
    return crossed_mean((a - b).unstack(level=-1).to_numpy())


def compared(pairs: Iterable[Pair], columns: Sequence[str]) -> pd.DataFrame:
    """Return a row per pair, those of one table judged together.

    Args:
        columns: what `about` holds.
    """
    all_pairs = list(pairs)
    p_values = [pair.difference.p_value() for pair in all_pairs]
    records = []
    for pair, p, rate in zip(all_pairs, p_values, discovery_rates(p_values), strict=True):
        mean, interval = pair.difference, pair.difference.interval()
        verdict = _verdict(pair, rate)
        told = (mean.seeds, mean.units, mean.value, interval.low, interval.high, p, rate, verdict)
        records.append((*pair.about, *told))
    return pd.DataFrame(records, columns=[*columns, *TOLD])


def _verdict(pair: Pair, rate: float) -> str:
    if math.isnan(rate) or rate > FALSE_DISCOVERIES:
        return "~"
    a_is_better = (pair.difference.value < 0) == pair.smaller_is_better
    return pair.names[0] if a_is_better else pair.names[1]


def not_told_from(best: str, table: pd.DataFrame, about: Mapping[str, Hashable]) -> list[str]:
    """Return the rows that are statistically indistinguishable from one of them.

    Args:
        table: comparisons of `method_a` with `method_b`.
        about: which of them, by column.
    """
    pair = ["method_a", "method_b"]
    chosen = (table[pair] == best).any(axis=1) & (table["verdict"] == "~")
    for column, value in about.items():
        chosen &= table[column] == value
    return [b if a == best else a for a, b in table.loc[chosen, pair].itertuples(index=False)]


def and_rivals(names: Sequence[str]) -> str:
    """End a sentence about the best where others are indistinguishable from it.

    >>> and_rivals([]), and_rivals(["pi"]), and_rivals(["pi", "ntk"]), and_rivals("abcd")
    ('', ', not told from pi', ', not told from pi and ntk', ', not told from 4 others')
    """
    if len(names) > 3:
        return f", not told from {len(names)} others"
    together = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return f", not told from {together}" if names else ""


def said(table: pd.DataFrame) -> str:
    """In a sentence: how many of the comparisons found a difference, and how surely."""
    found = int((table["verdict"] != "~").sum())
    return (
        f"{found} of {len(table)} comparisons tell the two apart, at a false discovery rate of "
        f"{FALSE_DISCOVERIES:.0%}."
    )
