"""The cells and tables of a run.

For most tables see `ropelab.models.tasks.tables`, for `casts`
`ropelab.models.tasks.rounded`, for `divergence` `ropelab.models.tasks.divergence`.

searched
    the parameters that a search chose, and the losses that it compared
ngram_baseline
    how often the next token is the token that followed the last 1, 2 or 3 tokens before
cost
    for each row, in text of the tested length: the positions attended to and the
    multiplications of the model per token, and the tokens of further training
"""

from collections.abc import Mapping

import pandas as pd

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate.answer import answer, further, summary
from ropelab.experiments.extrapolate.pretrained import describe_pretrained
from ropelab.experiments.extrapolate.rows import Row, list_rows, trainings
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import operations_per_token
from ropelab.models.methods.method import UNSCALED
from ropelab.models.tasks import tables as common
from ropelab.models.tasks.cells import FORWARD, Evaluation, collect
from ropelab.models.tasks.divergence import (
    divergence_tables,
    make_divergence,
    pair_roundings_of_methods,
)
from ropelab.models.tasks.modes import SlidingWindow
from ropelab.models.tasks.partial import summarize_finished
from ropelab.models.tasks.plans import task_beyond_training
from ropelab.models.tasks.retrieval import NgramBaseline, Retrieval
from ropelab.models.tasks.rounded import casts_table
from ropelab.runs import labels
from ropelab.runs.cell import Values
from ropelab.runs.tables import Tables

# The functions that `ropelab.experiments` calls.
__all__ = [
    "answer",
    "cells",
    "check",
    "describe_pretrained",
    "further",
    "summarize_finished",
    "summary",
    "tables",
]


def check(config: ExtrapolateConfig) -> None:
    """Raise InputError if a context is too short for pass keys, or if the config asks
    for models that came with ropelab and none came.
    """
    if config.pretrained:
        for model in trainings(config, config.geometry()):
            model.check_stored()

    for task in config.tasks:
        task_beyond_training(config, task, config.depths).check()


def cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, and the comparisons of casts."""
    return [*task_cells(config), *divergences(config)]


def divergences(config: ExtrapolateConfig) -> list[Evaluation]:
    """Return a cell per model and cast, beside the cast of the comparison."""
    geometry = config.geometry()
    compared = []
    for model in trainings(config, geometry):
        for pair in pair_roundings_of_methods(config, geometry):
            cell = Evaluation(
                subject=model,
                task=make_divergence(config, pair),
                mode=pair.mode,
                labels=(*pair.labels, ("seed", model.seed)),
                dtype=config.dtype,
            )
            compared.append(cell)
    return compared


def task_cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, for every training seed; retrieval without a
    model too.
    """
    geometry = config.geometry()
    methods = config.parsed_methods()
    tasks = [task_beyond_training(config, task, config.depths) for task in config.tasks]
    all_rows: list[Row] = []
    for base in trainings(config, geometry):
        all_rows.extend(list_rows(config, base, geometry, methods))

    evaluations = []
    for task in tasks:
        for (method, factor, arm), mode, model in all_rows:
            if arm == labels.CACHE and task.name != "text":
                continue

            evaluated_task = task
            if isinstance(mode, SlidingWindow):
                # The window sees the same at all lengths: the longest is enough.
                evaluated_task = task.at_the_end(config.test_len)
            row = zip(common.ROW, (method, factor, model.seed, arm), strict=True)
            evaluation = Evaluation(
                subject=model,
                task=evaluated_task,
                mode=mode,
                labels=tuple(row),
                dtype=config.dtype,
            )
            evaluations.append(evaluation)

    baselines = [
        NgramBaseline(task=task) for task in tasks if isinstance(task, Retrieval)
    ]
    return [*evaluations, *baselines]


def tables(config: ExtrapolateConfig, values: Values) -> dict[str, pd.DataFrame]:
    evaluated = collect(task_cells(config), values)
    tables = common.tables_of_tasks(
        evaluated, config, UNSCALED.label, [config.train_len], {}
    )

    searched = _tables_by_task(evaluated, "searched")
    if searched:
        tables["searched"] = pd.concat(searched, ignore_index=True)
    matched = _tables_by_task(evaluated, "matched")
    if matched:
        by = ["task", "n_gram_tokens", *common.PLACE]
        tables["ngram_baseline"] = common.average_shares(pd.concat(matched), by)

    methods = config.parsed_methods()
    tables |= casts_table(config, methods, config.geometry(), tables["comparisons"])
    tables |= divergence_tables(divergences(config), values)
    tables["cost"] = _count_cost(config)
    return tables


def _tables_by_task(evaluated: Mapping[str, Tables], name: str) -> list[pd.DataFrame]:
    """Return the table of that name of each task that has one, with the task as a
    column.
    """
    return [
        tables[name].assign(task=task)
        for task, tables in evaluated.items()
        if name in tables
    ]


def _count_cost(config: ExtrapolateConfig) -> pd.DataFrame:
    geometry = config.geometry()
    base = trainings(config, geometry)[0]
    length = config.test_len
    records = []
    for row, mode, model in list_rows(config, base, geometry, config.parsed_methods()):
        # A window that moves on by half of its tokens passes most tokens twice.
        if isinstance(mode, SlidingWindow):
            passes, tokens = mode.count_passes(length)
        else:
            passes = 1
            tokens = length
        times = passes * tokens / length

        # Two operations are one multiplication.
        multiplications = operations_per_token(model.size, tokens) * FORWARD / 2
        record = (
            *row,
            length,
            times * (tokens + 1) / 2,
            round(times * multiplications),
            _further_training_tokens(model),
        )
        records.append(record)

    columns = [
        "method",
        "factor",
        "arm",
        "context_tokens",
        "attended_positions",
        "multiplications",
        "further_training_tokens",
    ]
    return pd.DataFrame(records, columns=columns)


def _further_training_tokens(model: Training) -> int:
    """Count the tokens of all trainings after the first."""
    tokens = 0
    while model.start is not None:
        recipe = model.recipe
        tokens += recipe.steps * max(recipe.tokens_per_step, recipe.window)
        model = model.start
    return tokens
