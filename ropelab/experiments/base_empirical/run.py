"""From a config to tables: train and measure a model per base and task, beside the prediction."""

import pandas as pd

from ropelab.claims.trained.base_bound import first_fails, judge
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.plan import questions
from ropelab.experiments.base_empirical.predictions import predictions
from ropelab.experiments.base_empirical.tables import accuracy
from ropelab.models.tasks.cells import collected
from ropelab.models.tasks.tables import BUCKET, losses
from ropelab.runs.cell import Cell, Values


def cells(config: BaseEmpiricalConfig) -> list[Cell]:
    """Every task of every model."""
    return [*questions(config)]


def tables(config: BaseEmpiricalConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables that `tables.py` and `predictions.py` describe."""
    measured = collected(questions(config), values)
    buckets = measured.pop("text")["buckets"] if "text" in measured else None
    trials = {task: found["trials"] for task, found in measured.items()}
    similarity = config.similarity()
    fails = first_fails(similarity, config.bases, config.train_len)
    accuracies = {task: accuracy(table, fails, similarity) for task, table in trials.items()}
    found = {f"{task}_accuracy": table for task, table in accuracies.items()}
    if buckets is not None:
        found["text_nll"] = losses(buckets, ["base", "seed", *BUCKET])
    found["predictions"] = judge(predictions(config, fails, trials, accuracies, buckets))
    return found
