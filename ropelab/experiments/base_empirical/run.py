"""From a config to tables: train and measure a model per base and task, beside the prediction."""

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.base_empirical.plan import questions
from ropelab.experiments.base_empirical.predictions import first_fails, predictions
from ropelab.experiments.base_empirical.tables import accuracy
from ropelab.trials.cells import ask_all, train_all
from ropelab.trials.tables import BUCKET, losses


def run(config: BaseEmpiricalConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; `tables.py` and `predictions.py` say what each table holds."""
    asked = questions(config)
    train_all(asked, context)
    measured: dict[str, dict[str, pd.DataFrame]] = {
        task: ask_all([each for each in asked if each.trial.name == task], context)
        for task in config.tasks
    }
    buckets = measured.pop("text")["buckets"] if "text" in measured else None
    trials = {task: found["trials"] for task, found in measured.items()}
    fails = first_fails(config)
    accuracies = {task: accuracy(table, fails) for task, table in trials.items()}
    found = {f"{task}_accuracy": table for task, table in accuracies.items()}
    if buckets is not None:
        found["text_nll"] = losses(buckets, ["base", "seed", *BUCKET])
    found["predictions"] = predictions(config, trials, accuracies, buckets)
    return found
