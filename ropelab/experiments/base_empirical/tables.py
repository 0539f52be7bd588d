"""From documents and sequences to tables with 95 % intervals.

The unit of an interval is the training seed where there are several, else the document or the
sequence; column ``unit`` says which.
"""

import math
from typing import cast

import pandas as pd

from ropelab.experiments.extrapolate.tables import clustered_proportion
from ropelab.stats import mean_interval

BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]


def text_nll(buckets: pd.DataFrame) -> pd.DataFrame:
    """base, seed, bucket, documents, nll_nats_per_byte, interval over documents."""
    rows = []
    for key, group in buckets.groupby(["base", "seed", *BUCKET], sort=False):
        mean = mean_interval(group["nll_nats_per_byte"])
        rows.append((*key, mean.n, mean.value, mean.low, mean.high))
    names = ["base", "seed", *BUCKET, "documents", "nll_nats_per_byte", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=names)


def accuracy(trials: pd.DataFrame, fails: dict[float, float]) -> pd.DataFrame:
    """base, seed, distance_tokens, trials, accuracy, interval over sequences, predicted.

    ``predicted``: "fails" where the distance is at or beyond the first position at which the sum of
    cosines is negative for that base, else "holds".
    """
    rows = []
    for key, group in trials.groupby(["base", "seed", "distance_tokens"], sort=False):
        counts, correct = group["trials"].to_numpy(), group["correct"].to_numpy()
        share = clustered_proportion(correct, counts)
        base, seed, distance = cast("tuple[float, int, int]", key)
        predicted = "fails" if distance >= fails[base] else "holds"
        rows.append(
            (base, seed, distance, counts.sum(), share.value, share.low, share.high, predicted)
        )
    names = ["base", "seed", "distance_tokens", "trials", "accuracy", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=[*names, "predicted"])


def per_unit(values: pd.Series, seeds: pd.Series, units: pd.Series) -> tuple[pd.Series, str]:
    """Means per seed if there are several, else per document or sequence; and the unit's name."""
    if seeds.nunique() > 1:
        return values.groupby(seeds).mean(), "seed"
    return values.groupby(units).mean(), str(units.name)


def reach(table: pd.DataFrame) -> float:
    """The longest tested distance up to which every accuracy (mean over seeds) is at least 0.5."""
    mean = table.groupby("distance_tokens")["accuracy"].mean().sort_index()
    held = mean[(mean >= 0.5).cummin()]
    return float(held.index[-1]) if len(held) else math.nan
