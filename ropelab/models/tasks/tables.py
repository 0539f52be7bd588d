"""From values per document or sequence to tables with 95 % intervals, the same in all experiments.

`losses` and `accuracies` are of one training seed: documents (sequences) are drawn anew, the model
is given; `over_seeds` is of all. A copied sequence is a unit, not a token: tokens of one sequence
succeed or fail together.
"""

from collections.abc import Sequence

import pandas as pd

from ropelab.runs.stats import crossed_mean, crossed_proportion, mean_interval

NLL = "nll_nats_per_byte"
INTERVAL = ["ci_low", "ci_high"]
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]
PLACE = ["distance_tokens", "context_tokens"]


def losses(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The columns given, documents, nll_nats_per_byte, ci_low, ci_high: means over documents."""
    records = []
    for key, group in values.groupby(list(columns), sort=False):
        mean = mean_interval(group[NLL])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    return pd.DataFrame(records, columns=[*columns, "documents", NLL, *INTERVAL])


def accuracies(counts: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The columns given, sequences, trials, accuracy, ci_low, ci_high: share of what was found."""
    records = []
    for key, group in counts.groupby(list(columns), sort=False):
        shares = (group["correct"] / group["trials"]).to_numpy()
        found = crossed_proportion(shares[None, :], int(group["trials"].iloc[0]))
        ends = (found.value, found.low, found.high)
        records.append((*key, len(group), int(group["trials"].sum()), *ends))
    return pd.DataFrame(records, columns=[*columns, "sequences", "trials", "accuracy", *INTERVAL])


def over_seeds(rows: pd.DataFrame) -> tuple[int, int, float, float, float]:
    """Seeds, units, value, both ends of its interval over both.

    Args:
        rows: seed, unit, trials (of a share; 0 for a mean) and value, each seed with each unit.
    """
    wide = rows.pivot(index="seed", columns="unit", values="value").to_numpy()
    trials = int(rows["trials"].iloc[0])
    found = crossed_proportion(wide, trials) if trials else crossed_mean(wide).interval()
    return *wide.shape, found.value, found.low, found.high
