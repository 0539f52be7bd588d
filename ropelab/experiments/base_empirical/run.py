"""From a config to tables: train and measure a model per base and task, beside the prediction."""

from dataclasses import replace
from functools import partial
from itertools import product

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.measure import retrieved, text_losses
from ropelab.experiments.base_empirical.models import learned, training
from ropelab.experiments.base_empirical.predictions import predictions
from ropelab.experiments.base_empirical.tables import accuracy, text_nll
from ropelab.literature.trained.base_bound import first_fails, judge
from ropelab.lm.model import LanguageModel

CELLS = 1
"""Version of the measurements; raise it when the numbers of a cell change their meaning."""


def run(config: BaseEmpiricalConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; `tables.py` and `predictions.py` say what each table holds."""
    measured: dict[str, pd.DataFrame] = {
        task: cells(config, task, context) for task in config.tasks
    }
    buckets = measured.pop("text", None)
    fails = first_fails(config.similarity(), config.bases, config.train_len)
    accuracies = {task: accuracy(table, fails) for task, table in measured.items()}
    found = {f"{task}_accuracy": table for task, table in accuracies.items()}
    if buckets is not None:
        found["text_nll"] = text_nll(buckets)
    found["predictions"] = judge(predictions(config, fails, measured, accuracies, buckets))
    return found


def cells(config: BaseEmpiricalConfig, task: str, context: Context) -> pd.DataFrame:
    """The measurements of all bases and seeds on one task: base, seed, values."""
    parts = []
    for seed, base in product(config.seeds, config.bases):
        table = one_cell(config, context, task, base, seed)
        parts.append(table.assign(base=base, seed=seed))
    return pd.concat(parts, ignore_index=True)


def one_cell(
    config: BaseEmpiricalConfig, context: Context, task: str, base: float, seed: int
) -> pd.DataFrame:
    """One trained model, measured; from the cache if it was measured before."""
    described = training(config, learned(config, task), base, seed)
    named = replace(context, progress=partial(_named, context, f"base {base:g}"))

    def make() -> dict[str, pd.DataFrame]:
        return {"cell": measure(config, task, described.model(named, config.device))}

    amount = config.documents if task == "text" else config.sequences
    key = {"model": described.key, "amount": amount}
    return context.cells.tables(kind=f"base-empirical-{task}", version=CELLS, key=key, make=make)[
        "cell"
    ]


def measure(config: BaseEmpiricalConfig, task: str, model: LanguageModel) -> pd.DataFrame:
    """What a trained model achieves on a task."""
    if task != "text":
        return retrieved(model, task, config.train_len, config.sequences)
    texts = config.read_corpus().held_out_windows(config.train_len + 1, config.documents)
    return text_losses(model, texts)


def _named(context: Context, which: str, description: str, total: float | None = None):  # type: ignore[no-untyped-def]
    return context.progress(f"{which}: {description}", total)
