"""From measurements per document and sequence to tables with 95 % intervals.

text_nll       loss by bucket of positions, mean over documents, one row per encoding and seed
last_window    loss of the same final tokens after growing contexts, the same way
copy_accuracy  share of tokens copied correctly, by distance and context
quality        the three above where contexts are 1x, 2x, 4x ... the trained length, over seeds
comparisons    every encoding against one baseline
pairs          text losses at the trained length of encodings that the literature sets against each
               other, if there are any
extrapolation  every encoding against itself at the trained length

The first four name the trained length. Where an encoding is not defined the row is there, its
status `undefined` and its value missing.
"""

import math
from collections.abc import Iterator

import pandas as pd

from ropelab.claims.trained.encodings import PAIRS
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.models.tasks import grid
from ropelab.models.tasks.tables import BUCKET, INTERVAL, NLL, PLACE, accuracies, losses, over_seeds
from ropelab.runs.comparisons import Pair, compared, difference

TEXT, COPY = "text loss", "copy accuracy"
ROW = ["encoding", "seed"]


def text_nll(buckets: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    """encoding, seed, bucket_start_tokens, bucket_end_tokens, documents, nll, interval, status."""
    places = pd.DataFrame(grid.buckets(config.train_len, config.test_len), columns=BUCKET)
    return everywhere(losses(buckets, [*ROW, *BUCKET]), places, config, NLL)


def last_window(values: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    """encoding, seed, context_tokens, documents, nll, interval, status."""
    contexts = grid.contexts(config.train_len, config.test_len)
    places = pd.DataFrame({"context_tokens": contexts})
    return everywhere(losses(values, [*ROW, "context_tokens"]), places, config, NLL)


def copy_accuracy(copies: pd.DataFrame, config: EncodingsConfig) -> pd.DataFrame:
    """encoding, seed, distance, context, sequences, trials, accuracy, interval, status."""
    lengths = config.train_len, config.test_len
    tried = grid.places(grid.distances(*lengths), grid.retrieval_contexts(*lengths))
    places = pd.DataFrame(tried, columns=PLACE)
    return everywhere(accuracies(copies, [*ROW, *PLACE]), places, config, "accuracy")


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
    return full.assign(status=status, train_len_tokens=config.train_len)


def multiples(config: EncodingsConfig) -> list[int]:
    """1, 2, 4, ... times the trained length, as far as it is tested."""
    longest = config.test_len // config.train_len
    return [1 << power for power in range(longest.bit_length())]


def units(measured: dict[str, pd.DataFrame], config: EncodingsConfig) -> dict[str, pd.DataFrame]:
    """Per metric a row for every encoding, seed, multiple of the trained length and unit.

    Copying at a multiple is copying from half of that context back, in all of it.
    """
    found = {}
    wanted = pd.DataFrame({"times_trained_len": multiples(config)})
    if "last_window" in measured:
        at = wanted.assign(context_tokens=wanted["times_trained_len"] * config.train_len)
        table = measured["last_window"].merge(at)
        found[TEXT] = table.rename(columns={"document": "unit", NLL: "value"}).assign(trials=0)
    if "trials" in measured:
        contexts = wanted["times_trained_len"] * config.train_len
        at = wanted.assign(distance_tokens=contexts // 2, context_tokens=contexts)
        table = measured["trials"].merge(at).rename(columns={"sequence": "unit"})
        found[COPY] = table.assign(value=table["correct"] / table["trials"])
    columns = ["encoding", "seed", "times_trained_len", "unit", "trials", "value"]
    return {metric: table[columns] for metric, table in found.items()}


def quality(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """metric, encoding, times_trained_len, seeds, n, value, interval, worst_seed_value, status.

    The interval is over seeds and units; ``worst_seed_value`` is the mean of the seed that does it
    worst: whether every model has learned.
    """
    records = [
        (metric, encoding, times, *_told(_rows(table, encoding, times), metric))
        for metric, table in units.items()
        for encoding in config.encodings
        for times in multiples(config)
    ]
    columns = ["metric", "encoding", "times_trained_len", "seeds", "n", "value", *INTERVAL]
    table = pd.DataFrame(records, columns=[*columns, "worst_seed_value", "status"])
    return table.assign(train_len_tokens=config.train_len)


def at(table: pd.DataFrame, encoding: str, times: int) -> pd.Series:
    """The values of an encoding at a multiple of the trained length, by seed and unit."""
    return _rows(table, encoding, times).set_index(["seed", "unit"])["value"]


def _rows(table: pd.DataFrame, encoding: str, times: int) -> pd.DataFrame:
    return table[(table["encoding"] == encoding) & (table["times_trained_len"] == times)]


def _told(rows: pd.DataFrame, metric: str) -> tuple[int, int, float, float, float, float, str]:
    """seeds, units, value, both ends of its interval, the worst seed's value, status."""
    if rows.empty:
        return 0, 0, math.nan, math.nan, math.nan, math.nan, "undefined"
    by_seed = rows.groupby("seed")["value"].mean()
    worst = by_seed.max() if metric == TEXT else by_seed.min()
    return *over_seeds(rows), worst, "ok"


def comparisons(
    units: dict[str, pd.DataFrame], config: EncodingsConfig, baseline: str
) -> pd.DataFrame:
    """Every encoding against `baseline` at each multiple; the verdict names the better one."""

    def pairs() -> Iterator[Pair]:
        for metric, table in units.items():
            for times in multiples(config):
                reference = at(table, baseline, times)
                for encoding in config.encodings:
                    mine = at(table, encoding, times)
                    if encoding != baseline and len(mine) == len(reference) > 0:
                        about, names = (metric, times, encoding, baseline), (encoding, baseline)
                        yield Pair(about, difference(mine, reference), names, metric == TEXT)

    return compared(pairs(), ["metric", "times_trained_len", "encoding_a", "encoding_b"])


def pairs(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """encoding_a, encoding_b, the difference of their losses, its interval, the better one."""

    def found() -> Iterator[Pair]:
        table = units.get(TEXT, pd.DataFrame())
        for names in PAIRS:
            if not table.empty and {*names} <= {*config.encodings}:
                gap = difference(at(table, names[0], 1), at(table, names[1], 1))
                yield Pair(names, gap, names, smaller_is_better=True)

    return compared(found(), ["encoding_a", "encoding_b"])


def extrapolation(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """Every encoding at the longest context against itself at the trained length."""
    longest = multiples(config)[-1]

    def pairs() -> Iterator[Pair]:
        for metric, table in units.items():
            for encoding in config.encodings if longest > 1 else ():
                far, near = (at(table, encoding, times) for times in (longest, 1))
                if not far.empty:
                    about = (metric, longest, encoding)
                    yield Pair(about, difference(far, near), ("better", "worse"), metric == TEXT)

    return compared(pairs(), ["metric", "times_trained_len", "encoding"])
