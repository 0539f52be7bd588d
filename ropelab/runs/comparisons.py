"""The one rule by which two rows are said to differ, for every experiment that trains models.

Everything is measured with the same seeds on the same documents (sequences), so two rows are
compared value by value: the difference for each seed and document. Its mean has an interval over
both (see `ropelab.runs.stats`): another model and other text could have come out otherwise. A run
compares many pairs, so a pair differs only as long as of all pairs that differ in one table at most
FALSE_DISCOVERIES (5 %) are expected not to (Benjamini and Hochberg 1995).

**`~` means: among all comparisons of its table, this one is not a discovery at that rate.** Every
other verdict names the better one. With a single seed only documents are drawn anew, and a verdict
speaks of that one trained model; `seeds` says so.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ropelab.runs.stats import FALSE_DISCOVERIES, Mean, crossed_mean, discovery_rates

# The columns of every comparison, behind those that identify it; n: units per seed.
MEASURES = [
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
        about: identifies the comparison, the first columns of the table.
        difference: a - b, over seeds and documents.
        names: the verdicts where a is better, and where b is.
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
    """Return a row per pair, those of one table judged together; `columns` name their `about`."""
    all_pairs = list(pairs)
    p_values = [pair.difference.p_value() for pair in all_pairs]
    records = []
    for pair, p, rate in zip(all_pairs, p_values, discovery_rates(p_values), strict=True):
        mean, interval = pair.difference, pair.difference.interval()
        a_is_better = (mean.value < 0) == pair.smaller_is_better
        verdict = pair.names[0] if a_is_better else pair.names[1]
        if math.isnan(rate) or rate > FALSE_DISCOVERIES:
            verdict = "~"
        found = (mean.seeds, mean.units, mean.value, interval.low, interval.high, p, rate, verdict)
        records.append((*pair.about, *found))
    return pd.DataFrame(records, columns=[*columns, *MEASURES])


def indistinguishable(best: str, table: pd.DataFrame, about: Mapping[str, Hashable]) -> list[str]:
    """Return the methods that are statistically indistinguishable from one of them.

    Args:
        table: comparisons of `method_a` with `method_b`.
        about: which of them, by column.
    """
    pair = ["method_a", "method_b"]
    chosen = (table[pair] == best).any(axis=1) & (table["verdict"] == "~")
    for column, value in about.items():
        chosen &= table[column] == value
    return [b if a == best else a for a, b in table.loc[chosen, pair].itertuples(index=False)]


def tied_with(names: Sequence[str]) -> str:
    """End a sentence about the best where others are indistinguishable from it.

    >>> tied_with([]), tied_with(["pi", "ntk"]), tied_with("abcd")
    ('', ', indistinguishable from pi and ntk', ', indistinguishable from 4 others')
    """
    if len(names) > 3:
        return f", indistinguishable from {len(names)} others"
    together = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return f", indistinguishable from {together}" if names else ""


def significance(table: pd.DataFrame) -> str:
    """Count the significant comparisons in a sentence."""
    found = int((table["verdict"] != "~").sum())
    return (
        f"{found} of {len(table)} comparisons are significant, at a false discovery rate of "
        f"{FALSE_DISCOVERIES:.0%}."
    )
