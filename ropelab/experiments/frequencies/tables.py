"""From measurements of trained models to tables with 95 % intervals over seeds and sequences.

learned      copying and the nearer of two cues by distance and context, text by context: one row
             per scheme, band removed and place, over all seeds
comparisons  every scheme against the first one, place by place
removed      the first scheme with a band taken away against itself

A place of text is its context alone; its loss is that of the same last tokens.
"""

from collections.abc import Callable, Iterator

import pandas as pd

from ropelab.experiments.frequencies.config import FrequenciesConfig
from ropelab.experiments.frequencies.plan import KEPT
from ropelab.models.tasks.tables import INTERVAL, NLL, PLACE, over_seeds
from ropelab.runs.comparisons import Pair, compared, difference

TEXT, COPY, NEARER = "text loss", "copy accuracy", "nearer accuracy"
ROW = ["scheme", "removed", "metric", *PLACE]


def units(answers: dict[str, dict[str, pd.DataFrame]]) -> pd.DataFrame:
    """Every value that was measured: metric, scheme, removed, seed, place, unit, trials, value."""
    found = [
        _found_again(metric, answers[task]["trials"])
        for task, metric in (("copy", COPY), ("nearer", NEARER))
        if task in answers
    ]
    if "text" in answers:
        found.append(_read(answers["text"]["last_window"]))
    columns = [*ROW, "seed", "unit", "trials", "value"]
    return pd.concat([table[columns] for table in found], ignore_index=True)


def _found_again(metric: str, trials: pd.DataFrame) -> pd.DataFrame:
    value = trials["correct"] / trials["trials"]
    return trials.rename(columns={"sequence": "unit"}).assign(metric=metric, value=value)


def _read(last_window: pd.DataFrame) -> pd.DataFrame:
    named = last_window.rename(columns={"document": "unit", NLL: "value"})
    return named.assign(metric=TEXT, distance_tokens=0, trials=0)


def learned(measured: pd.DataFrame, config: FrequenciesConfig) -> pd.DataFrame:
    """scheme, removed, metric, distance, context, seeds, n, value, interval, train_len."""
    rows = [(*place, *over_seeds(group)) for place, group in measured.groupby(ROW, sort=False)]
    table = pd.DataFrame(rows, columns=[*ROW, "seeds", "n", "value", *INTERVAL])
    return told(table).assign(train_len_tokens=config.train_len)


def comparisons(measured: pd.DataFrame, config: FrequenciesConfig) -> pd.DataFrame:
    """Every scheme against the first, each as it was trained."""
    first, *others = config.parsed_schemes()
    kept = measured[measured["removed"] == KEPT]
    pairs = _pairs(kept, "scheme", first, others)
    return told(compared(pairs, ["scheme_a", "scheme_b", "metric", *PLACE]))


def removed(measured: pd.DataFrame, config: FrequenciesConfig) -> pd.DataFrame:
    """The first scheme without a band against itself; the verdict names a band or none."""
    first = next(iter(config.parsed_schemes()))
    mine = measured[measured["scheme"] == first]
    pairs = _pairs(mine, "removed", KEPT, list(config.bands))
    return told(compared(pairs, ["removed_a", "removed_b", "metric", *PLACE]))


def _pairs(
    measured: pd.DataFrame, column: str, reference: str, others: list[str]
) -> Iterator[Pair]:
    """Every other value of a column against one, at each place of each metric."""
    for place, group in measured.groupby(["metric", *PLACE], sort=False):
        values = by_seed_and_unit(group, column)
        for other in others:
            about = (other, reference, *place)
            mean = difference(values(other), values(reference))
            yield Pair(about, mean, (other, reference), place[0] == TEXT)


def by_seed_and_unit(group: pd.DataFrame, column: str) -> Callable[[str], pd.Series]:
    """From a value of a column to the values measured there, by seed and unit."""
    indexed = group.set_index(["seed", "unit"])

    def values(name: str) -> pd.Series:
        return indexed.loc[indexed[column] == name, "value"]

    return values


def told(table: pd.DataFrame) -> pd.DataFrame:
    """The same table, its distances missing where text was read."""
    distance = table["distance_tokens"].where(table["metric"] != TEXT).astype("Int64")
    return table.assign(distance_tokens=distance)
