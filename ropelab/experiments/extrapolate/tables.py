"""From measurements per document or sequence to tables with 95 % intervals.

text_nll       loss by bucket of positions, mean over documents: one causal pass over each
last_window    loss of the same final tokens after growing contexts, mean over documents
copy_accuracy, recall_accuracy   share of tokens copied, or values recalled, by distance

The document is the unit of every interval, and so is the copied sequence: tokens of one sequence
succeed or fail together, and intervals that counted them singly would be too narrow.
"""

import numpy as np
import pandas as pd

from ropelab.stats import Interval, mean_interval, proportion_interval

ROW = ["method", "factor", "seed", "arm"]
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]


def text_nll(buckets: pd.DataFrame) -> pd.DataFrame:
    """method, factor, seed, arm, bucket, documents, nll_nats_per_byte, interval."""
    return _mean_over_documents(buckets, [*ROW, *BUCKET])


def last_window(values: pd.DataFrame) -> pd.DataFrame:
    """method, factor, seed, arm, context_tokens, documents, nll_nats_per_byte, interval."""
    return _mean_over_documents(values, [*ROW, "context_tokens"])


def _mean_over_documents(values: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    records = []
    for key, group in values.groupby(columns, sort=False):
        mean = mean_interval(group["nll_nats_per_byte"])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    names = [*columns, "documents", "nll_nats_per_byte", "ci_low", "ci_high"]
    return pd.DataFrame(records, columns=names)


def retrieval_accuracy(counts: pd.DataFrame) -> pd.DataFrame:
    """method, factor, seed, arm, distance_tokens, sequences, trials, accuracy, interval."""
    records = []
    columns = [*ROW, "distance_tokens"]
    for key, group in counts.groupby(columns, sort=False):
        trials, correct = group["trials"].to_numpy(), group["correct"].to_numpy()
        share = clustered_proportion(correct, trials)
        records.append((*key, len(group), trials.sum(), share.value, share.low, share.high))
    names = [*columns, "sequences", "trials", "accuracy", "ci_low", "ci_high"]
    return pd.DataFrame(records, columns=names)


def clustered_proportion(correct: np.ndarray, trials: np.ndarray) -> Interval:
    """A proportion over clusters of equal size, with Wilson's interval for the effective trials.

    The effective number of trials is the one at which independent trials would vary as much as the
    clusters do (Korn and Graubard 1998), never more than there are; where all clusters agree it is
    the actual number (Parker et al. 2017, data presentation standards of the NCHS).
    """
    total = int(trials.sum())
    share = float(correct.sum() / total)
    between = np.var(correct / trials, ddof=1) / len(trials) if len(trials) > 1 else 0.0
    effective = share * (1 - share) / between if between > 0 else total
    n = max(1, min(round(effective), total))
    wilson = proportion_interval(round(share * n), n)
    return Interval(share, min(wilson.low, share), max(wilson.high, share), len(trials))
