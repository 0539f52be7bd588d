"""The cells and tables of the experiment: a model per encoding and training seed.

A row of the tables is an encoding, or RoPE under a method, which changes the trained
models of RoPE when they are tested. All intervals are 95 % intervals.

- `cost` and `memory`: see `ropelab.experiments.encodings.cost`
- `behaviour`: see `ropelab.experiments.encodings.behaviour`
- `text_nll`: loss by bucket of positions, mean over documents, by encoding and seed
- `last_window`: loss of the same final tokens after growing contexts, mean over
  documents, by encoding and seed
- `copy_accuracy`: share of tokens copied correctly, by distance and context
- `quality`: loss and share copied where contexts are 1x, 2x, 4x ... the trained length,
  over seeds
- `comparisons`, `extrapolation`, `pairs`, `against_methods`: see
  `ropelab.experiments.encodings.comparisons`

Where an encoding is not defined, its status is `undefined` and its value is missing.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, cast

import pandas as pd

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings.answer import answer, explain_columns, summary
from ropelab.experiments.encodings.behaviour import Behaviour
from ropelab.experiments.encodings.comparisons import (
    AGAINST_METHODS,
    COPY,
    TEXT,
    MetricPlace,
    ValuesByPlace,
    compare_all_encodings,
    list_multiples,
    mark_unlearned,
)
from ropelab.experiments.encodings.cost import (
    Timing,
    build_seeded_encoding,
    measure_costs,
    measure_memory,
)
from ropelab.experiments.encodings.rows import Row, list_rows
from ropelab.math.numerics.casts import CastPlan
from ropelab.models.lm.trained import Training
from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as task_tables
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.plans import describe_training, make_task_beyond_training
from ropelab.runs.cell import Cell, Values
from ropelab.runs.own import find_own, make_sources_key
from ropelab.runs.tables import Tables

# The functions that `ropelab.experiments` calls.
__all__ = ["answer", "cells", "explain_columns", "summary", "tables", "times"]

# The version of the trained models. Raise it when an encoding starts or learns
# differently: all models are then trained again.
LEARNING_VERSION = 3
# The columns that identify a trained model in a table.
MODEL = ["encoding", "seed"]


def cells(config: EncodingsConfig) -> list[Cell]:
    """Return every task of every model, the behaviour of the models, and their
    times.
    """
    evaluations = list_evaluations(config)
    return [*evaluations, *list_observations(config), Timing(config)]


def list_evaluations(config: EncodingsConfig) -> list[Evaluation]:
    """Return every task of every row, for every training seed."""
    return _evaluate(config, list_rows(config))


def _evaluate(config: EncodingsConfig, rows: Sequence[Row]) -> list[Evaluation]:
    tasks = [make_task_beyond_training(config, task) for task in config.tasks]
    evaluations = []
    for task, row, seed in product(tasks, rows, config.seeds):
        evaluation = Evaluation(
            subject=make_training(config, row.encoding_name, seed),
            task=task,
            mode=row.mode(config),
            labels=(("encoding", row.name), ("task", task.name), ("seed", seed)),
        )
        evaluations.append(evaluation)
    return evaluations


def list_observations(config: EncodingsConfig) -> list[Evaluation]:
    """Return the behaviour of every encoding as it was trained."""
    observations = []
    rows_as_trained = [row for row in list_rows(config) if row.method is None]
    for evaluation in _evaluate(config, rows_as_trained):
        task = evaluation.task
        behaviour = Behaviour(task=task, corpus=task.corpus, length=config.train_len)
        observations.append(replace(evaluation, task=behaviour))
    return observations


def make_training(config: EncodingsConfig, encoding: str, seed: int) -> Training:
    """Return the training of a model with an encoding."""
    # The name may be a notation such as layers(rope, mine). Its parts may be classes and
    # casts of the user's own, whose sources decide what is learned.
    parts = re.split(r"[(),]", encoding)
    own_encodings = [find_own("encodings", part) for part in parts]
    key: dict[str, Any] = {
        "name": encoding,
        "trained_len": config.train_len,
        "version": LEARNING_VERSION,
        **make_sources_key(*own_encodings),
    }

    cast_labels = {}
    for part in parts:
        own_cast = find_own("casts", part.strip())
        if isinstance(own_cast, CastPlan):
            cast_labels[part] = own_cast.label
    if cast_labels:
        key["casts"] = cast_labels

    make = partial(build_seeded_encoding, config.shape(), encoding, seed)
    return describe_training(
        config, seed, make, key, encoding, config.first_window, fused=False
    )


def tables(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    evaluated = collect([*list_evaluations(config), *list_observations(config)], values)
    tables = {
        "cost": measure_costs(config),
        "memory": measure_memory(config),
        **evaluated["behaviour"],
    }
    trained_len = config.train_len
    test_len = config.test_len

    text = evaluated.get("text")
    if text:
        buckets = grid.list_buckets(trained_len, test_len)
        places = pd.DataFrame(buckets, columns=task_tables.BUCKET)
        by_bucket = task_tables.average_losses(
            text["buckets"], [*MODEL, *task_tables.BUCKET]
        )
        tables["text_nll"] = _fill_places(by_bucket, places, config, task_tables.NLL)

        contexts = grid.list_context_lengths(trained_len, test_len)
        places = pd.DataFrame({"context_tokens": contexts})
        by_context = task_tables.average_losses(
            text["last_window"], [*MODEL, "context_tokens"]
        )
        tables["last_window"] = _fill_places(
            by_context, places, config, task_tables.NLL
        )

    copied = evaluated.get("copy")
    if copied:
        distances = grid.list_retrieval_distances(trained_len, test_len)
        contexts = grid.list_retrieval_contexts(trained_len, test_len)
        places = pd.DataFrame(
            grid.pair_places(distances, contexts), columns=task_tables.PLACE
        )
        by_place = task_tables.average_shares(
            copied["trials"], [*MODEL, *task_tables.PLACE]
        )
        tables["copy_accuracy"] = _fill_places(by_place, places, config, "accuracy")

    values_by_place = _list_values(evaluated, config)
    quality = _summarize_values(values_by_place, config)
    tables["quality"] = quality
    tables |= compare_all_encodings(values_by_place, config)
    for name in ("comparisons", "extrapolation", AGAINST_METHODS):
        if name in tables:
            tables[name] = mark_unlearned(tables[name], quality)
    return tables


def times(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return measured times, for the manifest: tables hold only reproducible values."""
    return {"encodings": values[Timing(config)]["times"]}


def _fill_places(
    measured: pd.DataFrame, places: pd.DataFrame, config: EncodingsConfig, value: str
) -> pd.DataFrame:
    """Return a row for every encoding, seed and place, with a status and the trained
    length.

    A place is a row of `places`: a bucket of positions, a context, or a distance and a
    context. The column `value` is missing where an encoding is not defined.
    """
    names = [row.name for row in list_rows(config)]
    encodings = pd.DataFrame({"encoding": names})
    seeds = pd.DataFrame({"seed": config.seeds})
    rows = encodings.merge(seeds, how="cross").merge(places, how="cross")
    # The tables are joined by all columns that both have.
    rows = rows.merge(measured, how="left")

    for column in ("documents", "sequences", "trials"):
        if column in rows:
            rows[column] = rows[column].fillna(0).astype(int)
    status = rows[value].notna().map({True: "ok", False: "undefined"})
    return rows.assign(status=status, train_len_tokens=config.train_len)


def _list_values(
    evaluated: Mapping[str, Tables], config: EncodingsConfig
) -> ValuesByPlace:
    """Return the values of each metric, encoding and multiple of the trained length: a
    row for every seed and unit, which is a document or a sequence.
    """
    multiples = pd.DataFrame({"times_trained_len": list_multiples(config)})
    contexts = multiples["times_trained_len"] * config.train_len
    values_by_metric = {}
    text = evaluated.get("text")
    if text:
        places = multiples.assign(context_tokens=contexts)
        # Only the contexts that are multiples of the trained length are kept.
        at_places = text["last_window"].merge(places)
        values_by_metric[TEXT] = task_tables.list_units(at_places)

    copied = evaluated.get("copy")
    if copied:
        # Copying at a multiple of the trained length uses the whole context, and the
        # copied symbols stood half of the context back.
        places = multiples.assign(
            distance_tokens=contexts // 2, context_tokens=contexts
        )
        at_places = copied["trials"].merge(places)
        values_by_metric[COPY] = task_tables.list_units(at_places)

    values_by_place: ValuesByPlace = {}
    for metric, table in values_by_metric.items():
        groups = table.groupby(["encoding", "times_trained_len"])
        for (encoding, times_trained_len), values in groups:
            times = cast(int, times_trained_len)
            place = MetricPlace(metric, str(encoding), times)
            values_by_place[place] = values
    return values_by_place


def _summarize_values(
    values_by_place: ValuesByPlace, config: EncodingsConfig
) -> pd.DataFrame:
    """Return `quality`: a row per metric, encoding and multiple of the trained length,
    with an interval over seeds and units.
    """
    names = [row.name for row in list_rows(config)]
    metrics = dict.fromkeys(place.metric for place in values_by_place)
    columns = [
        "metric",
        "encoding",
        "times_trained_len",
        "seeds",
        "n",
        "value",
        *task_tables.INTERVAL,
        "worst_seed_value",
        "status",
    ]
    rows = []
    for place in map(
        MetricPlace._make, product(metrics, names, list_multiples(config))
    ):
        if place not in values_by_place:
            missing = (0, 0, math.nan, math.nan, math.nan, math.nan, "undefined")
            rows.append((*place, *missing))
            continue

        values = values_by_place[place]
        # The worst seed shows whether every model has learned.
        by_seed = values.groupby("seed")["value"].mean()
        worst = by_seed.max() if place.metric == TEXT else by_seed.min()
        rows.append((*place, *task_tables.average_over_seeds(values), worst, "ok"))

    table = pd.DataFrame(rows, columns=columns)
    return table.assign(train_len_tokens=config.train_len)
