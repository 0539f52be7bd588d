"""From sequences to accuracies beside the prediction, and how far back retrieval works."""

import math

import numpy as np
import pandas as pd

from ropelab.math.bounds import Similarity
from ropelab.models.tasks import tables
from ropelab.models.tasks.tables import PLACE
from ropelab.runs.thresholds import FAILS


def accuracy(
    trials: pd.DataFrame, fails: dict[float, float], similarity: Similarity
) -> pd.DataFrame:
    """base, seed, distance, context, sequences, trials, accuracy, interval, predicted, cosine_sum.

    ``predicted``: "fails" where the distance is at or beyond the first position at which the sum of
    cosines is negative for that base, else "holds". ``cosine_sum``: that sum at the distance.
    """
    table = tables.accuracies(trials, ["base", "seed", *PLACE])
    beyond = table["distance_tokens"] >= table["base"].map(fails)
    distances = table["distance_tokens"].to_numpy(dtype=float)
    return table.assign(
        predicted=beyond.map({True: "fails", False: "holds"}),
        cosine_sum=similarity.at(distances, np.log(table["base"].to_numpy())),
    )


def reach(table: pd.DataFrame) -> float:
    """The longest tested distance up to which every accuracy (mean over seeds) is at least 0.5."""
    mean = table.groupby("distance_tokens")["accuracy"].mean().sort_index()
    held = mean[(mean >= FAILS).cummin()]
    return float(held.index[-1]) if len(held) else math.nan


def failures(table: pd.DataFrame) -> dict[str, int]:
    """At how many distances retrieval fails (mean over seeds), before the prediction and beyond."""
    mean = table.groupby(["predicted", "distance_tokens"], as_index=False)["accuracy"].mean()
    counts: dict[str, int] = {}
    for predicted, side in (("holds", "before"), ("fails", "beyond")):
        there = mean.loc[mean["predicted"] == predicted, "accuracy"]
        counts |= {f"distances_{side}": len(there), f"failing_{side}": int((there < FAILS).sum())}
    return counts
