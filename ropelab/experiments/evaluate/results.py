"""The cells and tables of a run.

model
    the facts about positions, and the weights' format
recommendation
    the row to use at the tested length, for text and for each kind of retrieval:
    `ropelab.experiments.evaluate.recommendation`

For `casts` see `ropelab.models.tasks.rounded`, for `divergence`
`ropelab.models.tasks.divergence`, and for all further tables
`ropelab.models.tasks.tables`.

A cell is one evaluation: a task, in a mode such as a method. Each cell starts from a
check that the model loads. If the task has a probe, each cell starts from the probe,
too: the easy version of the task, inside the trained length, by the unmodified model.
If the probe fails, the task is not evaluated beyond the trained length: its status is
`undecidable`, and no methods are compared.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.experiments.evaluate.answer import (
    answer,
    explain_columns,
    make_further_tables,
    suggest_command,
    summary,
)
from ropelab.experiments.evaluate.recommendation import make_recommendation
from ropelab.models.methods.method import UNSCALED, Scaled
from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as task_tables
from ropelab.models.tasks.cells import (
    UNDECIDABLE,
    Evaluation,
    ModelCheck,
    collect,
    is_decidable,
)
from ropelab.models.tasks.divergence import (
    make_divergence,
    make_divergence_tables,
    pair_roundings,
    pair_roundings_of_methods,
)
from ropelab.models.tasks.modes import Mode, SlidingWindow, Unmodified, WithMethod
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.partial import summarize_finished
from ropelab.models.tasks.plans import make_task_beyond_training
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.rounded import make_casts_table, round_rows
from ropelab.models.tasks.task import Texts
from ropelab.runs.cell import Values
from ropelab.runs.labels import AS_SHIPPED, ROUNDED, WINDOW

# The functions that `ropelab.experiments` calls.
__all__ = [
    "answer",
    "cells",
    "check",
    "explain_columns",
    "make_further_tables",
    "suggest_command",
    "summarize_finished",
    "summary",
    "tables",
]


class EvaluatedRow(NamedTuple):
    """A row of the tables: a method, and the mode in which the model is evaluated."""

    label: str
    # The factor of the method; 1 for rows that stretch nothing.
    factor: float
    mode: Mode
    # `zero_shot`, or ROUNDED for a row with rounded values.
    arm: str = "zero_shot"


def check(config: EvaluateConfig) -> None:
    """Raise InputError for a corpus that is too short, or more memory than
    --limit-memory.
    """
    config.reference().check_memory(config.limit_memory, config.context)
    for task in config.tasks:
        make_task_beyond_training(config, task, config.depths).check()


def cells(config: EvaluateConfig) -> list[Evaluation]:
    """Return every task in every mode, and the comparisons of casts."""
    all_cells = []
    for task in config.tasks:
        all_cells += list_evaluations(config, task)
    return [*all_cells, *list_divergence_cells(config)]


def list_divergence_cells(config: EvaluateConfig) -> list[Evaluation]:
    """Return the comparisons of casts (`--against`): a cell per document and pair of
    casts.
    """
    geometry = config.facts.geometry()
    pairs = [*pair_roundings(config, AS_SHIPPED, 1.0, Unmodified(), geometry)]
    for pair in pair_roundings_of_methods(config, geometry):
        # A checkpoint without a scaling was paired as it is, which is the same as under
        # the method `unscaled`.
        if not (is_unscaled_checkpoint(config) and pair.method == UNSCALED.label):
            pairs.append(pair)

    modes: list[Mode] = []
    for pair in pairs:
        modes += [pair.mode, pair.other]
    model_check = check_model(config, modes)

    divergence_cells = []
    for pair in pairs:
        for document_task in make_divergence(config, pair).parts():
            cell = Evaluation(
                subject=config.reference(),
                task=document_task,
                mode=pair.mode,
                labels=pair.labels,
                model_check=model_check,
            )
            divergence_cells.append(cell)
    return divergence_cells


def check_model(config: EvaluateConfig, modes: Sequence[Mode]) -> ModelCheck:
    """Return the check that the model loads and takes these modes."""
    return ModelCheck(
        subject=config.reference(),
        modes=tuple(dict.fromkeys(modes)),
        train_len=config.grid_len,
        longest=config.context,
        limit_memory=config.limit_memory,
    )


def list_evaluations(config: EvaluateConfig, name: str) -> list[Evaluation]:
    """Return a task in every mode: unmodified first, the sliding window last.

    Each cell starts from the check of the model, and from the probe if the task has one.
    """
    rows = list_rows(config)
    task = make_task_beyond_training(config, name, config.depths)
    model_check = check_model(config, [row.mode for row in rows])
    evaluate = partial(Evaluation, subject=config.reference(), model_check=model_check)

    probe = None
    easy_task = task.make_easy_version(config.grid_len)
    if easy_task is not None:
        unmodified, *_ = rows
        probe = evaluate(
            task=easy_task, mode=unmodified.mode, labels=_list_labels(unmodified)
        )

    cells = []
    # There is a cell per document. The results of finished documents are kept if a
    # later document fails, and a later run can ask for more documents.
    document_tasks: Sequence[Texts | Retrieval | Needles] = task.parts()
    for document_task in document_tasks:
        for row in rows:
            row_task = document_task
            if row.label == WINDOW:
                # The window holds the same last tokens in contexts of all lengths. The
                # longest context is enough.
                row_task = document_task.restrict_to_context(config.context)
            cell = evaluate(
                task=row_task, mode=row.mode, labels=_list_labels(row), probe=probe
            )
            # If nothing beyond the trained length is tested, the probe of pass keys is
            # all of the task.
            if probe is not None and cell.key == probe.key:
                cell = probe
            cells.append(cell)
    return cells


def list_rows(config: EvaluateConfig) -> list[EvaluatedRow]:
    """Return the rows of every task: unmodified, methods, rounded rows, the window."""
    geometry = config.facts.geometry()
    unmodified = Unmodified()
    rows = [EvaluatedRow(AS_SHIPPED, 1.0, unmodified)]
    rounded_rows = []
    for label, mode in round_rows(config, AS_SHIPPED, unmodified, geometry):
        rounded_rows.append(EvaluatedRow(label, 1.0, mode, ROUNDED))

    for method in config.parsed_methods():
        if is_unscaled_checkpoint(config) and method.label == UNSCALED.label:
            # The checkpoint is unscaled already, so this row is measured only once.
            rows.append(EvaluatedRow(method.label, method.factor, unmodified))
            continue

        mode_of_method = WithMethod(method, geometry)
        rows.append(EvaluatedRow(method.label, method.factor, mode_of_method))
        if isinstance(method, Scaled):
            for label, mode in round_rows(
                config, method.label, mode_of_method, geometry
            ):
                rounded_rows.append(EvaluatedRow(label, method.factor, mode, ROUNDED))

    rows += rounded_rows
    if config.window < config.context:
        window = SlidingWindow(unmodified, config.window)
        rows.append(EvaluatedRow(WINDOW, 1.0, window))
    return rows


def is_unscaled_checkpoint(config: EvaluateConfig) -> bool:
    """Return True for a checkpoint that is unscaled as it is."""
    return config.facts.rope_type == "default"


def _list_labels(row: EvaluatedRow) -> tuple[tuple[str, object], ...]:
    """Return the columns that identify a row, with their values: method, factor, seed
    and arm.
    """
    # Nothing is drawn and nothing is trained, so the only seed is 0.
    values = (row.label, row.factor, 0, row.arm)
    return tuple(zip(task_tables.ROW, values, strict=True))


def tables(config: EvaluateConfig, values: Values) -> dict[str, pd.DataFrame]:
    # The cells to read, and the status of each task that has a probe.
    chosen_cells: list[Evaluation] = []
    status: dict[str, str] = {}
    for name in config.tasks:
        task_cells = list_evaluations(config, name)
        # All cells of a task have the same probe, except for the first cell, which may be
        # the probe itself.
        probe = task_cells[-1].probe
        if probe is None and name != "text":
            # A single cell, unmodified at the trained length, is its own probe.
            probe = task_cells[0]

        if probe is None:
            chosen_cells += task_cells
        elif is_decidable(values[probe]):
            status[probe.task.name] = task_tables.OK
            chosen_cells += task_cells
        else:
            status[probe.task.name] = UNDECIDABLE
            chosen_cells.append(probe)

    lengths = grid.list_context_lengths(config.grid_len, config.context)
    short_lengths = [length for length in lengths if length <= config.train_len]
    evaluated = collect(chosen_cells, values)
    tables = task_tables.make_tables(
        evaluated, config, AS_SHIPPED, short_lengths, status
    )
    methods = config.parsed_methods()
    geometry = config.facts.geometry()
    tables |= make_casts_table(
        config, methods, geometry, tables["comparisons"], config.facts.head_dim
    )
    tables |= make_divergence_tables(list_divergence_cells(config), values)
    tables["recommendation"] = make_recommendation(config, tables)
    return {"model": make_model_table(config), **tables}


def make_model_table(config: EvaluateConfig) -> pd.DataFrame:
    """Return one row: the facts about the model's positions and the weights' format."""
    facts: dict[str, Any] = asdict(config.facts)
    # Layers may have windows of different lengths: the shortest is listed.
    windows = facts.pop("windows")
    lengths = {
        "train_len_tokens": facts.pop("train_len"),
        "claimed_len_tokens": facts.pop("claimed_len"),
        "layer_window_tokens": windows[0] if windows else None,
        "sliding_window_tokens": config.window,
    }
    return pd.DataFrame([{**facts, **lengths, "dtype": config.dtype}])
