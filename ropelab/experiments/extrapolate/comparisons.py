"""Which of two methods is better, and by how much: paired differences with 95 % intervals.

All methods are tried on the same models, documents and sequences, so they are compared document by
document (sequence by sequence), after averaging over training seeds. An interval therefore says
what other documents would change. What another trained model would change is asked of the seeds: a
verdict needs all of them on the same side, and is `~` otherwise, however narrow the interval.
"""

from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from ropelab.labels import row_labels
from ropelab.stats import Interval, paired_difference, verdict

COLUMNS = [
    "metric",
    "at_tokens",
    "method_a",
    "method_b",
    "unit",
    "n",
    "difference",
    "ci_low",
    "ci_high",
    "seeds",
    "seeds_agreeing",
    "verdict",
]


@dataclass(frozen=True)
class Metric:
    """One number per method and unit.

    Attributes:
        name: as in the table.
        at_tokens: the context, position or distance it is taken at.
        values: index the seed and the unit, one column per method.
        unit: what is paired, `document` or `sequence`.
        smaller_is_better: for losses; not for accuracies.
    """

    name: str
    at_tokens: int
    values: pd.DataFrame
    unit: str
    smaller_is_better: bool


def text_metrics(
    buckets: pd.DataFrame, last_window: pd.DataFrame, train_len: int, test_len: int
) -> list[Metric]:
    """Loss in every bucket, loss of the last window, and loss at the trained length.

    The last one is the tax: what a method costs where none was needed.
    """
    longest = last_window[last_window["context_tokens"] == test_len]
    trained = last_window[last_window["context_tokens"] == train_len]
    by_bucket = [
        _loss("nll_bucket", int(str(end)), group)
        for end, group in buckets.groupby("bucket_end_tokens")
    ]
    return [
        *by_bucket,
        _loss("nll_last_window", test_len, longest),
        _loss("nll_short_context", train_len, trained),
    ]


def _loss(name: str, at_tokens: int, values: pd.DataFrame) -> Metric:
    wide = by_method(values, "document", "nll_nats_per_byte")
    return Metric(name, at_tokens, wide, "document", smaller_is_better=True)


def retrieval_metrics(name: str, counts: pd.DataFrame) -> list[Metric]:
    """Accuracy at every distance."""
    shares = counts.assign(accuracy=counts["correct"] / counts["trials"])
    return [
        Metric(
            name,
            int(str(distance)),
            by_method(group, "sequence", "accuracy"),
            "sequence",
            smaller_is_better=False,
        )
        for distance, group in shares.groupby("distance_tokens")
    ]


def by_method(values: pd.DataFrame, unit: str, column: str) -> pd.DataFrame:
    """One column per method, one row per seed and unit; methods in their order."""
    labels = row_labels(values)
    index = ["seed", unit]
    wide = values.assign(label=labels).pivot_table(index=index, columns="label", values=column)
    return wide[list(dict.fromkeys(labels))]


def comparisons(metrics: list[Metric]) -> pd.DataFrame:
    """Every pair of methods under every metric; `verdict` names the better one, or `~`."""
    records = [
        (metric.name, metric.at_tokens, a, b, metric.unit, *_compare(metric, a, b))
        for metric in metrics
        for a, b in combinations(metric.values.columns, 2)
    ]
    return pd.DataFrame(records, columns=COLUMNS)


def _compare(metric: Metric, a: str, b: str) -> tuple[int, float, float, float, int, int, str]:
    units = metric.values.groupby(metric.unit).mean()
    difference = paired_difference(units[a], units[b])
    by_seed = (metric.values[a] - metric.values[b]).groupby("seed").mean()
    agreeing = int((by_seed * difference.value > 0).sum())
    better = difference if metric.smaller_is_better else _negative(difference)
    winner = verdict(better, (a, b)) if agreeing == len(by_seed) else "~"
    interval = difference.n, difference.value, difference.low, difference.high
    return *interval, len(by_seed), agreeing, winner


def _negative(interval: Interval) -> Interval:
    return Interval(-interval.value, -interval.high, -interval.low, interval.n)
