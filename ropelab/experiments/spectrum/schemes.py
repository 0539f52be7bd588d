"""The arithmetic of each scheme, a model per scheme and seed, and the answer.

schemes        its frequencies and their periods representable  change of a score from
one token to the next, by kind of vectors and format learned        copying and the
nearer of two cues by distance and context, text by context: a row
               per scheme, band removed and place, over all seeds
comparisons    every scheme against the first; removed: the first against itself without
a band
"""

from functools import partial

import numpy as np
import pandas as pd

from ropelab.experiments.spectrum import SpectrumConfig
from ropelab.math.frequencies import Geometry, wavelengths
from ropelab.math.numerics.encoding import returns_after
from ropelab.math.numerics.formats import format_named
from ropelab.math.numerics.scores import score_margins
from ropelab.math.scaling import Scaling, Without
from ropelab.models.encoding.base import Encoding, disable_fused_kernel
from ropelab.models.lm.trained import Training
from ropelab.models.methods.method import PAIRING, Scaled
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.modes import WithMethod
from ropelab.models.tasks.plans import beyond_training, training_of
from ropelab.models.tasks.tables import INTERVAL, PLACE, over_seeds, per_unit
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import Measure, Pair, compare, significance
from ropelab.runs.labels import roughly
from ropelab.runs.own import sources
from ropelab.runs.tables import Tables

# Raise it when a scheme starts or learns differently: its models are then trained anew.
LEARNING_VERSION = 1
# The band that is called removed where a model is evaluated as it was trained.
KEPT = "none"
TEXT, COPY, NEARER = "text loss", "copy accuracy", "most_recent accuracy"
ROW = ["scheme", "removed", "metric", *PLACE]
# Of the arithmetic part.
FORMATS = ("float32", "float16", "bfloat16")
SEED = 0


def cells(config: SpectrumConfig) -> list[Evaluation]:
    geometry, schemes = config.geometry(), tuple(config.parsed_schemes().values())
    # The scheme a model is trained with, the band removed from it, and the rest of the
    # scheme.
    rows = [(scheme, KEPT, scheme) for scheme in schemes]
    rows += [
        (schemes[0], band, Without(band=band, inner=schemes[0]))
        for band in config.bands
    ]
    # Seed by seed, so that interrupted runs have whole seeds.
    return [
        Evaluation(
            subject=training(config, scheme, seed),
            task=task,
            mode=WithMethod(Scaled(scaling=rest), geometry),
            labels=(("scheme", scheme.label), ("removed", removed), ("seed", seed)),
        )
        for seed in config.seeds
        for task in (beyond_training(config, task) for task in config.tasks)
        for scheme, removed, rest in rows
    ]


def training(config: SpectrumConfig, scheme: Scaling, seed: int) -> Training:
    geometry = config.geometry()
    key = {
        "frequencies": scheme.label,
        "base": geometry.base,
        "trained_len": geometry.trained_len,
        "pairing": PAIRING,
        "version": LEARNING_VERSION,
        **sources(scheme),
    }
    encoding = partial(encoding_of, scheme, geometry)
    return training_of(
        config, seed, encoding, key, scheme.label, config.first_window, fused=False
    )


def encoding_of(scheme: Scaling, geometry: Geometry) -> Encoding:
    # Separate products are faster at short windows.
    return disable_fused_kernel(
        Scaled(scaling=scheme).encoding(geometry, geometry.trained_len)
    )


def tables(config: SpectrumConfig, values: Values) -> dict[str, pd.DataFrame]:
    answers, tables = collect(cells(config), values), []
    for task, metric in (("copy", COPY), ("most_recent", NEARER)):
        if task in answers:
            tables.append(per_unit(answers[task]["trials"]).assign(metric=metric))
    if "text" in answers:
        # A place of text is its context alone; its loss is over the same last tokens.
        text = per_unit(answers["text"]["last_window"])
        tables.append(text.assign(metric=TEXT, distance_tokens=0))
    columns = [*ROW, "seed", "unit", "trials", "value"]
    measured = pd.concat([table[columns] for table in tables], ignore_index=True)
    places = measured.groupby(ROW, sort=False)
    learned = pd.DataFrame(
        [(*place, *over_seeds(group)) for place, group in places],
        columns=[*ROW, "seeds", "n", "value", *INTERVAL],
    )
    # Schemes are compared as they were trained.
    first, *others = config.parsed_schemes()
    kept = measured[measured["removed"] == KEPT]
    found = {
        "schemes": schemes_table(config),
        "representable": representable(config),
        "learned": (
            _without_text_distances(learned).assign(train_len_tokens=config.train_len)
        ),
        "comparisons": _compared(kept, "scheme", first, others),
    }
    if config.bands:
        mine = measured[measured["scheme"] == first]
        found["removed"] = _compared(mine, "removed", KEPT, list(config.bands))
    return found


def schemes_table(config: SpectrumConfig) -> pd.DataFrame:
    rows = []
    for label, scheme in config.parsed_schemes().items():
        inv_freq = scheme.plan(config.geometry(), config.train_len).inv_freq
        rotating = inv_freq[inv_freq > 0]
        periods = wavelengths(rotating)
        rows.append(
            {
                "scheme": label,
                # Different ones: pairs of one frequency count once.
                "frequencies": np.unique(rotating).size,
                "rotating_pairs": rotating.size,
                "pairs": inv_freq.size,
                "shortest_period_tokens": periods.min() if rotating.size else None,
                "longest_period_tokens": periods.max() if rotating.size else None,
                # The first position whose rotations equal those of position 0 in exact
                # arithmetic.
                "period_tokens": returns_after(inv_freq.tolist()),
            }
        )
    return pd.DataFrame(rows).astype({"period_tokens": "Int64"})


def representable(config: SpectrumConfig) -> pd.DataFrame:
    """Return a row per scheme, vectors and format: see `score_margins`."""
    # Those of a trained window, for the width of one head.
    distances = np.arange(config.train_len, dtype=np.float64)
    formats = [format_named(name) for name in FORMATS]
    found = []
    for label, scheme in config.parsed_schemes().items():
        inv_freq = scheme.plan(config.geometry(), config.train_len).inv_freq
        table = score_margins(inv_freq, formats, distances, config.draws, SEED)
        table.insert(0, "scheme", label)
        found.append(table)
    return pd.concat(found, ignore_index=True)


def _compared(
    measured: pd.DataFrame, column: str, plain: str, others: list[str]
) -> pd.DataFrame:
    """Compare every other value of a column with the plain one, at each place of each
    metric.
    """
    pairs = []
    for place, group in measured.groupby(["metric", *PLACE], sort=False):
        values = dict(list(group.set_index(["seed", "unit"]).groupby(column)["value"]))
        for other in others:
            measure: Measure = "loss" if place[0] == TEXT else "share"
            names, about = (other, plain), (other, plain, *place)
            trials = int(group["trials"].iloc[0])
            pairs.append(
                Pair(about, values[other], values[plain], names, measure, place, trials)
            )
    columns = [f"{column}_a", f"{column}_b", "metric", *PLACE]
    return _without_text_distances(compare(pairs, columns))


def _without_text_distances(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same table, its distances missing in rows of text."""
    distance = table["distance_tokens"].where(table["metric"] != TEXT).astype("Int64")
    return table.assign(distance_tokens=distance)


def answer(tables: Tables) -> str:
    """Say with how many frequencies models copy, and how much one token changes a
    score.
    """
    learned, said = tables["learned"], []
    copying = learned.query(
        "metric == @COPY and removed == @KEPT and context_tokens == train_len_tokens"
    )
    if not copying.empty:
        mean = (
            copying.groupby("scheme")["value"]
            .mean()
            .reset_index()
            .merge(tables["schemes"])
        )
        best = mean.sort_values("value", ascending=False).drop_duplicates("frequencies")
        parts = [
            f"{row['value']:.0%} with {row['scheme']}"
            for row in best.sort_values("frequencies").to_dict("records")
        ]
        said.append(
            "Trained: for each number of frequencies, the best models copy inside the"
            f" trained length {', '.join(parts)}{_confounded(tables)}."
        )
    said.append(significance(tables["comparisons"]))
    # Without rotations nothing changes.
    random = tables["representable"].query(
        "vectors == 'random' and format == 'float32' and score_step > 0"
    )
    if not random.empty:
        weakest = random.sort_values("score_step").iloc[0]["scheme"]
        moved = [
            f"{roughly(row['score_step'])} with {scheme},"
            f" {roughly(row['step_to_rounding'])} times its rounding in float32"
            for scheme in dict.fromkeys((random.iloc[0]["scheme"], weakest))
            for row in random[random["scheme"] == scheme].to_dict("records")
        ]
        steps = ", and by ".join(moved)
        said.append(
            "Arithmetic: one token on, a score of random vectors changes by a root mean"
            f" square of {steps}."
        )
    return " ".join(said)


def _confounded(tables: Tables) -> str:
    """Name the schemes of few frequencies that leave no pair without position."""
    schemes, trained = tables["schemes"], tables["learned"]["train_len_tokens"].iloc[0]
    # A pair that makes less than a quarter rotation in the window marks hardly any
    # position.
    rotate = (schemes["rotating_pairs"] == schemes["pairs"]) & (
        schemes["frequencies"] > 0
    )
    few = schemes[rotate & (schemes["longest_period_tokens"] < 4 * trained)]
    names = ", ".join(few["scheme"])
    return (
        names
        and f" (every pair of {names} rotates, so that none is left without position)"
    )


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per scheme and band removed: copying near and far, the nearer cue,
    text.
    """
    learned = tables["learned"]
    trained, longest = (
        learned["train_len_tokens"].iloc[0],
        learned["context_tokens"].max(),
    )
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
        at = learned[
            (learned["metric"] == metric) & (learned["context_tokens"] == context)
        ]
        at = at[at["distance_tokens"] == distance] if distance else at
        if not at.empty:
            values = at[["scheme", "removed", "value"]].rename(columns={"value": name})
            short = short.merge(values, how="left")
    return short.reset_index(drop=True)
