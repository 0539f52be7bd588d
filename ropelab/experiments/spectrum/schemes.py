"""A model per scheme and seed: its cells, its tables with 95 % intervals, and the answer.

schemes, representable   arithmetic, in tables of their own
learned      copying and the nearer of two cues by distance and context, text by context: one row
             per scheme, band removed and place, over all seeds
comparisons  every scheme against the first one, place by place
removed      the first scheme with a band taken away against itself
"""

from collections.abc import Iterator
from functools import partial

import pandas as pd

from ropelab.experiments.spectrum import SpectrumConfig
from ropelab.experiments.spectrum.arithmetic import representable, schemes_table
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Scaling, Without
from ropelab.models.encoding.base import Encoding, unfused
from ropelab.models.lm.trained import Training
from ropelab.models.methods.method import PAIRING, Scaled
from ropelab.models.tasks.cells import Evaluation, collected
from ropelab.models.tasks.modes import Mode, WithMethod
from ropelab.models.tasks.plans import beyond_training, training_of
from ropelab.models.tasks.tables import INTERVAL, NLL, PLACE, over_seeds
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import Pair, compared, difference, said
from ropelab.runs.labels import roughly
from ropelab.runs.tables import Tables

# Raise it when a scheme starts or learns differently: its models are then trained anew.
LEARNING_VERSION = 1
# The band that is called removed where a model is evaluated as it was trained.
KEPT = "none"
TEXT, COPY, NEARER = "text loss", "copy accuracy", "most_recent accuracy"
ROW = ["scheme", "removed", "metric", *PLACE]


def cells(config: SpectrumConfig) -> list[Evaluation]:
    """Return every task of every row."""
    # Seed by seed, so that interrupted runs have whole seeds.
    return [
        Evaluation(
            subject=training(config, scheme, seed),
            task=task,
            mode=mode,
            labels=(("scheme", scheme.label), ("removed", removed), ("seed", seed)),
            device=config.device,
            # Of evaluation; `config.dtype` is that of training.
            dtype="float32",
            model_name=scheme.label,
        )
        for seed in config.seeds
        for task in (beyond_training(config, task) for task in config.tasks)
        for scheme, removed, mode in _rows(config)
    ]


def _rows(config: SpectrumConfig) -> Iterator[tuple[Scaling, str, Mode]]:
    """Yield a scheme, the band removed from its model, and the evaluation without that band."""
    geometry = config.geometry()
    schemes = tuple(config.parsed_schemes().values())
    for scheme in schemes:
        yield scheme, KEPT, WithMethod(Scaled(scaling=scheme), geometry)
    for band in config.bands:
        without = Without(band=band, inner=schemes[0])
        yield schemes[0], band, WithMethod(Scaled(scaling=without), geometry)


def training(config: SpectrumConfig, scheme: Scaling, seed: int) -> Training:
    """Describe one model."""
    geometry = config.geometry()
    key = {
        "frequencies": scheme.label,
        "base": geometry.base,
        "trained_len": geometry.trained_len,
        "pairing": PAIRING,
        "version": LEARNING_VERSION,
    }
    encoding = partial(encoding_of, scheme, geometry)
    return training_of(config, seed, encoding, key, config.first_window)


def encoding_of(scheme: Scaling, geometry: Geometry) -> Encoding:
    """Return the encoding that a model is trained with."""
    # Separate products are faster at short windows.
    return unfused(Scaled(scaling=scheme).encoding(geometry, geometry.trained_len))


def tables(config: SpectrumConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables."""
    measured = _measured(collected(cells(config), values))
    found = {"schemes": schemes_table(config), "representable": representable(config)}
    found["learned"] = _learned(measured, config)
    # Every scheme against the first, each as it was trained.
    first, *others = config.parsed_schemes()
    kept = measured[measured["removed"] == KEPT]
    found["comparisons"] = _compared(kept, "scheme", first, others)
    if config.bands:
        mine = measured[measured["scheme"] == first]
        found["removed"] = _compared(mine, "removed", KEPT, list(config.bands))
    return found


def _measured(answers: dict[str, dict[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return every value, one per seed and unit."""
    found = []
    for task, metric in (("copy", COPY), ("most_recent", NEARER)):
        if task in answers:
            trials = answers[task]["trials"].rename(columns={"sequence": "unit"})
            found.append(trials.assign(metric=metric, value=trials["correct"] / trials["trials"]))
    if "text" in answers:
        text = answers["text"]["last_window"].rename(columns={"document": "unit", NLL: "value"})
        # A place of text is its context alone; its loss is over the same last tokens.
        found.append(text.assign(metric=TEXT, distance_tokens=0, trials=0))
    columns = [*ROW, "seed", "unit", "trials", "value"]
    return pd.concat([table[columns] for table in found], ignore_index=True)


def _learned(measured: pd.DataFrame, config: SpectrumConfig) -> pd.DataFrame:
    """Return a row for every value of ROW, its interval over seeds and units."""
    rows = [(*place, *over_seeds(group)) for place, group in measured.groupby(ROW, sort=False)]
    table = pd.DataFrame(rows, columns=[*ROW, "seeds", "n", "value", *INTERVAL])
    return _without_text_distances(table).assign(train_len_tokens=config.train_len)


def _compared(
    measured: pd.DataFrame, column: str, reference: str, others: list[str]
) -> pd.DataFrame:
    """Compare every other value of a column with `reference`, at each place of each metric."""

    def pairs() -> Iterator[Pair]:
        for place, group in measured.groupby(["metric", *PLACE], sort=False):
            indexed = group.set_index(["seed", "unit"])
            values = {
                name: indexed.loc[indexed[column] == name, "value"] for name in (*others, reference)
            }
            for other in others:
                mean = difference(values[other], values[reference])
                yield Pair((other, reference, *place), mean, (other, reference), place[0] == TEXT)

    names = [f"{column}_a", f"{column}_b"]
    return _without_text_distances(compared(pairs(), [*names, "metric", *PLACE]))


def _without_text_distances(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same table, its distances missing in rows of text."""
    distance = table["distance_tokens"].where(table["metric"] != TEXT).astype("Int64")
    return table.assign(distance_tokens=distance)


def answer(tables: Tables) -> str:
    """Say how much one token changes a score, and with how many frequencies models copy."""
    signals, learned = tables["representable"], tables["learned"]
    sentences = []
    random = signals[(signals["vectors"] == "random") & (signals["format"] == "float32")]
    random = random[random["score_step"] > 0]  # without rotations nothing changes
    if not random.empty:
        weakest = random.sort_values("score_step").iloc[0]["scheme"]
        moved = [
            f"{roughly(row['score_step'])} with {scheme} ({roughly(row['step_to_rounding'])} times "
            "its rounding in float32)"
            for scheme in dict.fromkeys((random.iloc[0]["scheme"], weakest))
            for row in random[random["scheme"] == scheme].to_dict("records")
        ]
        sentences.append(
            f"Arithmetic: one token on, a score of random vectors changes by {' and '.join(moved)}."
        )
    trained = said(tables["comparisons"])
    copying = learned[(learned["metric"] == COPY) & (learned["removed"] == KEPT)]
    copying = copying[copying["context_tokens"] == copying["train_len_tokens"]]
    if not copying.empty:
        mean = copying.groupby("scheme")["value"].mean().reset_index().merge(tables["schemes"])
        best = mean.sort_values("value", ascending=False).drop_duplicates("frequencies")
        parts = [
            f"{row['value']:.0%} with {row['scheme']}"
            for row in best.sort_values("frequencies").to_dict("records")
        ]
        trained = (
            "for each number of frequencies, the best models copy inside the trained length "
            f"{', '.join(parts)}; {trained}"
        )
    return " ".join([*sentences, f"Trained: {trained}"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per scheme and band removed: copying near and far, the nearer cue, text."""
    learned = tables["learned"]
    trained, longest = learned["train_len_tokens"].iloc[0], learned["context_tokens"].max()
    numbers = tables["schemes"].set_index("scheme")["frequencies"]
    rows = learned[["scheme", "removed"]].drop_duplicates()
    short = rows.assign(frequencies=rows["scheme"].map(numbers))
    wanted = [
        ("copy near", COPY, trained // 8, trained),
        ("copy far", COPY, trained // 2, trained),
        (f"copy in {longest}", COPY, longest // 2, longest),
        ("most_recent", NEARER, trained // 8, trained),
        ("text", TEXT, None, trained),
        (f"text at {longest}", TEXT, None, longest),
    ]
    for name, metric, distance, context in wanted:
        at = learned[(learned["metric"] == metric) & (learned["context_tokens"] == context)]
        at = at[at["distance_tokens"] == distance] if distance else at
        if not at.empty:
            values = at[["scheme", "removed", "value"]].rename(columns={"value": name})
            short = short.merge(values, how="left")
    return short.reset_index(drop=True)
