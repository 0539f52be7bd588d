"""The cells and tables of a run. A cell is one evaluation of a trained model.

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
from ropelab.experiments.extrapolate.answer import (
    answer,
    explain_columns,
    make_further_tables,
    summary,
)
from ropelab.experiments.extrapolate.pretrained import describe_pretrained
from ropelab.experiments.extrapolate.rows import MethodRow, list_rows, make_trainings
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import count_operations_per_token
from ropelab.models.methods.method import UNSCALED
from ropelab.models.tasks import tables as task_tables
from ropelab.models.tasks.cells import FORWARD_SHARE, Evaluation, collect
from ropelab.models.tasks.divergence import (
    make_divergence,
    make_divergence_tables,
    pair_roundings_of_methods,
)
from ropelab.models.tasks.modes import SlidingWindow
from ropelab.models.tasks.partial import summarize_finished
from ropelab.models.tasks.plans import make_task_beyond_training
from ropelab.models.tasks.retrieval import NgramBaseline, Retrieval
from ropelab.models.tasks.rounded import make_casts_table
from ropelab.runs import labels
from ropelab.runs.cell import Values
from ropelab.runs.tables import Tables

# The functions that `ropelab.experiments` calls.
__all__ = [
    "answer",
    "cells",
    "check",
    "describe_pretrained",
    "explain_columns",
    "make_further_tables",
    "summarize_finished",
    "summary",
    "tables",
]


def check(config: ExtrapolateConfig) -> None:
    """Raise InputError if a context is too short for pass keys, or if the config asks
    for models that came with ropelab and none came.
    """
    if config.pretrained:
        for model in make_trainings(config, config.geometry()):
            model.check_stored()

    for task in config.tasks:
        make_task_beyond_training(config, task, config.depths).check()


def cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, and the comparisons of casts."""
    return [*list_task_cells(config), *list_divergence_cells(config)]


def list_divergence_cells(config: ExtrapolateConfig) -> list[Evaluation]:
    """Return the comparisons of casts (`--against`): a cell per model and pair of
    casts.
    """
    geometry = config.geometry()
    divergence_cells = []
    for model in make_trainings(config, geometry):
        for pair in pair_roundings_of_methods(config, geometry):
            cell = Evaluation(
                subject=model,
                task=make_divergence(config, pair),
                mode=pair.mode,
                labels=(*pair.labels, ("seed", model.seed)),
                dtype=config.dtype,
            )
            divergence_cells.append(cell)
    return divergence_cells


def list_task_cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, for every training seed, and what n-grams retrieve
    without a model.
    """
    geometry = config.geometry()
    methods = config.parsed_methods()
    tasks = [
        make_task_beyond_training(config, task, config.depths) for task in config.tasks
    ]
    all_rows: list[MethodRow] = []
    for base_model in make_trainings(config, geometry):
        all_rows.extend(list_rows(config, base_model, geometry, methods))

    evaluations = []
    for task in tasks:
        for row in all_rows:
            if row.arm == labels.CACHE and task.name != "text":
                continue

            evaluated_task = task
            if isinstance(row.mode, SlidingWindow):
                # The window holds the same last tokens in contexts of all lengths. The
                # longest context is enough.
                evaluated_task = task.restrict_to_context(config.test_len)
            values = (row.method, row.factor, row.model.seed, row.arm)
            evaluation = Evaluation(
                subject=row.model,
                task=evaluated_task,
                mode=row.mode,
                labels=tuple(zip(task_tables.ROW, values, strict=True)),
                dtype=config.dtype,
            )
            evaluations.append(evaluation)

    baselines = [
        NgramBaseline(task=task) for task in tasks if isinstance(task, Retrieval)
    ]
    return [*evaluations, *baselines]


def tables(config: ExtrapolateConfig, values: Values) -> dict[str, pd.DataFrame]:
    evaluated = collect(list_task_cells(config), values)
    tables = task_tables.make_tables(
        evaluated, config, UNSCALED.label, [config.train_len], {}
    )

    searched_tables = _list_tables(evaluated, "searched")
    if searched_tables:
        tables["searched"] = pd.concat(searched_tables, ignore_index=True)
    matched_tables = _list_tables(evaluated, "matched")
    if matched_tables:
        columns = ["task", "n_gram_tokens", *task_tables.PLACE]
        tables["ngram_baseline"] = task_tables.average_shares(
            pd.concat(matched_tables), columns
        )

    methods = config.parsed_methods()
    tables |= make_casts_table(
        config, methods, config.geometry(), tables["comparisons"]
    )
    tables |= make_divergence_tables(list_divergence_cells(config), values)
    tables["cost"] = _count_cost(config)
    return tables


def _list_tables(evaluated: Mapping[str, Tables], name: str) -> list[pd.DataFrame]:
    """Return the table of that name of each task that has one, with the task as a
    column.
    """
    tables_of_tasks = []
    for task, tables in evaluated.items():
        if name in tables:
            tables_of_tasks.append(tables[name].assign(task=task))
    return tables_of_tasks


def _count_cost(config: ExtrapolateConfig) -> pd.DataFrame:
    """Return the table `cost`."""
    geometry = config.geometry()
    # Models of all seeds cost the same.
    base_model, *_ = make_trainings(config, geometry)
    length = config.test_len
    records = []
    for row in list_rows(config, base_model, geometry, config.parsed_methods()):
        # A sliding window moves on by half of its tokens, so that most tokens are in two
        # passes.
        passes = 1
        tokens_per_pass = length
        if isinstance(row.mode, SlidingWindow):
            passes, tokens_per_pass = row.mode.count_passes(length)
        passes_per_token = passes * tokens_per_pass / length

        # A token attends to all tokens up to itself, on average to half of a pass.
        attended = (tokens_per_pass + 1) / 2
        operations = (
            count_operations_per_token(row.model.size, tokens_per_pass) * FORWARD_SHARE
        )
        # Two operations are one multiplication.
        multiplications = operations / 2
        record = {
            "method": row.method,
            "factor": row.factor,
            "arm": row.arm,
            "context_tokens": length,
            "attended_positions": passes_per_token * attended,
            "multiplications": round(passes_per_token * multiplications),
            "further_training_tokens": _count_further_training(row.model),
        }
        records.append(record)
    return pd.DataFrame(records)


def _count_further_training(model: Training) -> int:
    """Count the tokens of all trainings after the first."""
    tokens = 0
    while model.start is not None:
        recipe = model.recipe
        tokens += recipe.steps * max(recipe.tokens_per_step, recipe.window)
        model = model.start
    return tokens
