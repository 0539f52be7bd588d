"""From a config to tables: train what is not trained yet, measure every row, make intervals."""

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.extrapolate.comparisons import (
    Metric,
    comparisons,
    retrieval_metrics,
    text_metrics,
)
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.models import subjects
from ropelab.experiments.extrapolate.orderings import orderings
from ropelab.experiments.extrapolate.rows import Row, Subject, rows
from ropelab.experiments.extrapolate.tables import last_window, retrieval_accuracy, text_nll
from ropelab.machine import computing_in

CELLS = 2
"""Version of the measurements; raise it when the numbers of a cell change their meaning."""


def run(config: ExtrapolateConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; `tables.py` says what each table holds."""
    tables: dict[str, pd.DataFrame] = {}
    metrics: list[Metric] = []
    for task in config.tasks:
        measured = cells(config, task, context)
        if task == "text":
            tables["text_nll"] = text_nll(measured["buckets"])
            tables["last_window"] = last_window(measured["last_window"])
            metrics += text_metrics(
                **measured, train_len=config.train_len, test_len=config.test_len
            )
        else:
            tables[f"{task}_accuracy"] = retrieval_accuracy(measured["trials"])
            metrics += retrieval_metrics(f"{task}_accuracy", measured["trials"])
    for name, table in tables.items():
        tables[name] = table.assign(trained_len_tokens=config.train_len)
    compared = comparisons(metrics)
    ordered = orderings(compared, config.train_len, config.test_len, config.tuned_len)
    return {**tables, "comparisons": compared, "orderings": ordered}


def cells(config: ExtrapolateConfig, task: str, context: Context) -> dict[str, pd.DataFrame]:
    """The measurements of all rows and seeds of a task, one below the other."""
    collected: dict[str, list[pd.DataFrame]] = {}
    wanted = list(rows(config, task))
    for base in subjects(config, task):
        for row in wanted:
            for name, table in one_cell(base, row, task, config, context).items():
                about = {
                    "method": row.method,
                    "factor": row.factor,
                    "seed": base.seed,
                    "arm": row.arm,
                }
                labelled = pd.DataFrame(about, index=table.index).join(table)
                collected.setdefault(name, []).append(labelled)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in collected.items()}


def one_cell(
    base: Subject, row: Row, task: str, config: ExtrapolateConfig, context: Context
) -> dict[str, pd.DataFrame]:
    """One row of a task on one trained model, from the cache if it was measured before."""
    training = row.model(base)

    def make() -> dict[str, pd.DataFrame]:
        model = training.model(context, config.device)
        line = f"{task}, seed {training.seed}, {row.method}"
        computing = computing_in(config.dtype, config.device)
        with context.progress(line, row.steps) as advance, computing:
            return row.measure(model, advance=advance)

    key = {
        "model": training.key,
        "method": row.method,
        "factor": row.factor,
        "train_len": config.train_len,
        "test_len": config.test_len,
        "dtype": config.dtype,
        "samples": config.documents if task == "text" else config.sequences,
    }
    return context.cells.tables(kind=f"extrapolate-{task}", version=CELLS, key=key, make=make)
