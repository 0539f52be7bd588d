"""From measurements per document and sequence to tables with 95 % intervals.

text_nll       loss by bucket of positions, mean over documents, one row per encoding and seed
last_window    loss of the same final tokens after growing contexts, the same way
copy_accuracy  share of tokens copied correctly, by distance
quality        the three above where contexts are 1x, 2x, 4x ... the trained length, over seeds
comparisons    every encoding against one baseline, paired
extrapolation  every encoding against itself at the trained length, paired

The first four name the trained length. Where an encoding is not defined the row is there, its
status `undefined` and its value missing.
"""

from collections.abc import Sequence

import pandas as pd

from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.tables import clustered_proportion
from ropelab.stats import Interval, mean_interval, paired_difference, verdict

NLL = "nll_nats_per_byte"
INTERVAL = ["ci_low", "ci_high"]
SEEDS_TO_PAIR = 3
"""With fewer seeds documents (or sequences) are paired: of these models, not of the encodings."""


def text_nll(buckets: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    """encoding, seed, bucket_start_tokens, bucket_end_tokens, documents, nll, interval, status."""
    places = pd.DataFrame(
        grid.buckets(config.train_len, config.test_len),
        columns=["bucket_start_tokens", "bucket_end_tokens"],
    )
    return _losses(buckets, places, config)


def last_window(values: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    """encoding, seed, context_tokens, documents, nll, interval, status."""
    contexts = grid.contexts(config.train_len, config.test_len)
    return _losses(values, pd.DataFrame({"context_tokens": contexts}), config)


def _losses(values: pd.DataFrame, places: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    records = []
    columns = ["encoding", "seed", *places.columns]
    for key, group in values.groupby(columns, sort=False):
        mean = mean_interval(group[NLL])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    measured = pd.DataFrame(records, columns=[*columns, "documents", NLL, *INTERVAL])
    return everywhere(measured, places, config, NLL)


def copy_accuracy(copies: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    """encoding, seed, distance_tokens, sequences, trials, accuracy, interval, status."""
    places = pd.DataFrame({"distance_tokens": grid.distances(config.train_len, config.test_len)})
    records = []
    columns = ["encoding", "seed", "distance_tokens"]
    for key, group in copies.groupby(columns, sort=False):
        trials, correct = group["trials"].to_numpy(), group["correct"].to_numpy()
        share = clustered_proportion(correct, trials)
        records.append((*key, len(group), trials.sum(), share.value, share.low, share.high))
    names = [*columns, "sequences", "trials", "accuracy", *INTERVAL]
    return everywhere(pd.DataFrame(records, columns=names), places, config, "accuracy")


def everywhere(
    measured: pd.DataFrame, places: pd.DataFrame, config: EncodingsConfig, value: str
) -> pd.DataFrame:
    """A row for every encoding, seed and place, with a status and the trained length."""
    rows = pd.DataFrame({"encoding": config.encodings}).merge(
        pd.DataFrame({"seed": config.seeds}), how="cross"
    )
    full = rows.merge(places, how="cross").merge(measured, how="left")
    counts = [name for name in ("documents", "sequences", "trials") if name in full]
    full[counts] = full[counts].fillna(0).astype(int)
    status = full[value].notna().map({True: "ok", False: "undefined"})
    return full.assign(status=status, trained_len_tokens=config.train_len)


def multiples(config: EncodingsConfig) -> list[int]:
    """1, 2, 4, ... times the trained length, as far as it is tested."""
    longest = config.test_len // config.train_len
    return [1 << power for power in range(longest.bit_length())]


def units(measured: dict[str, pd.DataFrame], config: EncodingsConfig) -> dict[str, pd.DataFrame]:
    """Per metric a row for every encoding, seed, multiple of the trained length and unit.

    Copying at a multiple is copying over half of that context: a segment and one repeat fill it.
    """
    found = {}
    wanted = pd.DataFrame({"times_trained_len": multiples(config)})
    if "last_window" in measured:
        at = wanted.assign(context_tokens=wanted["times_trained_len"] * config.train_len)
        table = measured["last_window"].merge(at)
        found["text loss"] = table.rename(columns={"document": "unit", NLL: "value"})
    if "copies" in measured:
        at = wanted.assign(distance_tokens=wanted["times_trained_len"] * config.train_len // 2)
        table = measured["copies"].merge(at).rename(columns={"sequence": "unit"})
        found["copy accuracy"] = table.assign(value=table["correct"] / table["trials"])
    columns = ["encoding", "seed", "times_trained_len", "unit", "value"]
    return {metric: table[columns] for metric, table in found.items()}


def quality(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """metric, encoding, times_trained_len, seeds, value, interval over the seeds, status."""
    records = []
    for metric, table in units.items():
        for encoding in config.encodings:
            for times in multiples(config):
                chosen = table[
                    (table["encoding"] == encoding) & (table["times_trained_len"] == times)
                ]
                over = mean_interval(chosen.groupby("seed")["value"].mean())
                status = "ok" if over.n else "undefined"
                records.append(
                    (metric, encoding, times, over.n, over.value, over.low, over.high, status)
                )
    columns = ["metric", "encoding", "times_trained_len", "seeds", "value", *INTERVAL, "status"]
    table = pd.DataFrame(records, columns=columns)
    return table.assign(trained_len_tokens=config.train_len)


def comparisons(
    units: dict[str, pd.DataFrame], config: EncodingsConfig, baseline: str
) -> pd.DataFrame:
    """Every encoding against `baseline` at each multiple; the verdict names the better one."""
    records = []
    for metric, table in units.items():
        for times in multiples(config):
            at = table[table["times_trained_len"] == times]
            for encoding in config.encodings:
                pair = [at[at["encoding"] == name] for name in (encoding, baseline)]
                if encoding != baseline and not pair[0].empty and not pair[1].empty:
                    unit, gap = paired(*pair)
                    better = _better(gap, metric, (encoding, baseline))
                    records.append((metric, times, encoding, baseline, *_told(unit, gap), better))
    columns = ["metric", "times_trained_len", "encoding_a", "encoding_b", *TOLD, "verdict"]
    return pd.DataFrame(records, columns=columns)


def extrapolation(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """Every encoding at the longest context against itself at the trained length."""
    records = []
    longest = multiples(config)[-1]
    for metric, table in units.items():
        for encoding in config.encodings:
            mine = table[table["encoding"] == encoding]
            far, near = (mine[mine["times_trained_len"] == times] for times in (longest, 1))
            if longest > 1 and not far.empty:
                unit, gap = paired(far, near)
                better = _better(gap, metric, ("better", "worse"))
                records.append((metric, longest, encoding, *_told(unit, gap), better))
    columns = ["metric", "times_trained_len", "encoding", *TOLD, "verdict"]
    return pd.DataFrame(records, columns=columns)


TOLD = ["unit", "n", "difference", *INTERVAL]


def paired(a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, Interval]:
    """The mean difference a - b: over seeds where there are enough, else over documents."""
    seeds = a["seed"].nunique()
    unit = "seed" if seeds >= SEEDS_TO_PAIR else "unit"
    first, second = (side.groupby(unit)["value"].mean().to_numpy() for side in (a, b))
    name = "seed" if unit == "seed" else "document or sequence"
    return name, paired_difference(first, second)


def _told(unit: str, gap: Interval) -> tuple[str, int, float, float, float]:
    return unit, gap.n, gap.value, gap.low, gap.high


def _better(gap: Interval, metric: str, names: Sequence[str]) -> str:
    """Which side is better: the smaller loss, the larger accuracy, or `~`."""
    return verdict(gap, names if metric == "text loss" else tuple(reversed(names)))
