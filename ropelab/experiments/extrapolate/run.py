"""From a config to tables: train what is not trained yet, measure every method, make intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pandas as pd

from ropelab.context import Advance, Context
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.comparisons import (
    Metric,
    comparisons,
    copy_metrics,
    text_metrics,
)
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.measure import (
    Lengths,
    copies_under,
    text_truncated,
    text_under,
)
from ropelab.experiments.extrapolate.methods import unscaled
from ropelab.experiments.extrapolate.models import trainings
from ropelab.experiments.extrapolate.tables import copy_accuracy, last_window, text_nll
from ropelab.lm.model import LanguageModel
from ropelab.lm.trained import Training

CELLS = 1
"""Version of the measurements; raise it when the numbers of a cell change their meaning."""
TRUNCATED = "sliding_window"


class Measure(Protocol):
    """Measures a trained model, reporting progress; values per document or sequence."""

    def __call__(self, model: LanguageModel, *, advance: Advance) -> dict[str, pd.DataFrame]: ...


@dataclass(frozen=True)
class Row:
    """One way to read a long context, and how it is measured on a trained model.

    Attributes:
        steps: how many advances the measurement makes.
    """

    method: str
    factor: float
    steps: int
    measure: Measure


def run(config: ExtrapolateConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; `tables.py` says what each table holds."""
    tables: dict[str, pd.DataFrame] = {}
    metrics: list[Metric] = []
    if "text" in config.tasks:
        measured = cells(
            "text", text_rows(config), {"documents": config.documents}, config, context
        )
        tables["text_nll"] = text_nll(measured["buckets"])
        tables["last_window"] = last_window(measured["last_window"])
        metrics += text_metrics(**measured, train_len=config.train_len, test_len=config.test_len)
    if "copy" in config.tasks:
        measured = cells(
            "copy", copy_rows(config), {"sequences": config.sequences}, config, context
        )
        tables["copy_accuracy"] = copy_accuracy(measured["copies"])
        metrics += copy_metrics(measured["copies"])
    for name, table in tables.items():
        tables[name] = table.assign(trained_len_tokens=config.train_len)
    return {**tables, "comparisons": comparisons(metrics)}


def text_rows(config: ExtrapolateConfig) -> list[Row]:
    """Every method, and the sliding window of the trained length."""
    lengths = Lengths(config.train_len, config.test_len)
    texts = config.read_corpus().held_out_windows(config.test_len + 1, config.documents)
    rows = [
        Row(
            method.name,
            method.factor,
            config.documents,
            partial(text_under, method=method, texts=texts, lengths=lengths),
        )
        for method in config.parsed_methods()
    ]
    trained = unscaled(config.geometry())
    truncated = partial(text_truncated, trained=trained, texts=texts, lengths=lengths)
    return [*rows, Row(TRUNCATED, 1.0, config.documents, truncated)]


def copy_rows(config: ExtrapolateConfig) -> list[Row]:
    """Every method."""
    lengths = Lengths(config.train_len, config.test_len)
    steps = len(grid.distances(*lengths))
    return [
        Row(
            method.name,
            method.factor,
            steps,
            partial(copies_under, method=method, sequences=config.sequences, lengths=lengths),
        )
        for method in config.parsed_methods()
    ]


def cells(
    task: str,
    rows: Sequence[Row],
    settings: dict[str, Any],
    config: ExtrapolateConfig,
    context: Context,
) -> dict[str, pd.DataFrame]:
    """The measurements of all rows and seeds, one below the other: method, factor, seed, values."""
    collected: dict[str, list[pd.DataFrame]] = {}
    for training in trainings(config, task):
        for row in rows:
            for name, table in one_cell(training, row, settings, config, context).items():
                about = {"method": row.method, "factor": row.factor, "seed": training.seed}
                labelled = pd.DataFrame(about, index=table.index).join(table)
                collected.setdefault(name, []).append(labelled)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in collected.items()}


def one_cell(
    training: Training,
    row: Row,
    settings: dict[str, Any],
    config: ExtrapolateConfig,
    context: Context,
) -> dict[str, pd.DataFrame]:
    """One row on one trained model, from the cache if it was measured before."""

    def make() -> dict[str, pd.DataFrame]:
        model = training.model(context, config.device)
        line = f"{training.task.name}, seed {training.seed}, {row.method}"
        with context.progress(line, row.steps) as advance:
            return row.measure(model, advance=advance)

    key = {
        "model": training.key,
        "method": row.method,
        "factor": row.factor,
        "test_len": config.test_len,
        **settings,
    }
    kind = f"extrapolate-{training.task.name}"
    return context.cells.tables(kind=kind, version=CELLS, key=key, make=make)
