"""From sequences to accuracies beside the prediction, and how far back retrieval works."""

import math

import pandas as pd

from ropelab.trials import tables
from ropelab.trials.tables import PLACE


def accuracy(trials: pd.DataFrame, fails: dict[float, float]) -> pd.DataFrame:
    """base, seed, distance, context, sequences, trials, accuracy, interval, predicted.

    ``predicted``: "fails" where the distance is at or beyond the first position at which the sum of
    cosines is negative for that base, else "holds".
    """
    table = tables.accuracies(trials, ["base", "seed", *PLACE])
    beyond = table["distance_tokens"] >= table["base"].map(fails)
    return table.assign(predicted=beyond.map({True: "fails", False: "holds"}))


def reach(table: pd.DataFrame) -> float:
    """The longest tested distance up to which every accuracy (mean over seeds) is at least 0.5."""
    mean = table.groupby("distance_tokens")["accuracy"].mean().sort_index()
    held = mean[(mean >= 0.5).cummin()]
    return float(held.index[-1]) if len(held) else math.nan
