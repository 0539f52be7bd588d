"""From a config to tables: train every encoding, measure it, compare with what was published."""

from dataclasses import replace

import pandas as pd

from ropelab.experiments.encodings import tables as made
from ropelab.experiments.encodings.behaviour import Behaviour
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.encodings.cost import costs, memory
from ropelab.experiments.encodings.plan import questions
from ropelab.experiments.encodings.times import Timing
from ropelab.models.tasks.cells import Asked, collected
from ropelab.runs.cell import Cell, Values

BASELINE = "rope"


def cells(config: EncodingsConfig) -> list[Cell]:
    """Every task of every model, how the models behave, and the clock."""
    return [*questions(config), *observations(config), Timing(config)]


def observations(config: EncodingsConfig) -> list[Asked]:
    """Every model, observed on the sequences of every task."""
    asked = questions(config)
    return [replace(each, trial=Behaviour(each.trial, config.train_len)) for each in asked]


def tables(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables; `tables.py` and the modules beside it describe them."""
    answers = collected([*questions(config), *observations(config)], values)
    measured = {**answers.get("text", {}), **answers.get("copy", {})}
    found = {"cost": costs(config), "memory": memory(config), **answers["behaviour"]}
    if "buckets" in measured:
        found["text_nll"] = made.text_nll(measured["buckets"], config)
        found["last_window"] = made.last_window(measured["last_window"], config)
    if "trials" in measured:
        found["copy_accuracy"] = made.copy_accuracy(measured["trials"], config)
    units = made.units(measured, config)
    baseline = BASELINE if BASELINE in config.encodings else config.encodings[0]
    found["quality"] = made.quality(units, config)
    found["comparisons"] = made.comparisons(units, config, baseline)
    found["extrapolation"] = made.extrapolation(units, config)
    found["pairs"] = made.pairs(units, config)
    return found


def times(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return measured times, for the manifest: tables hold only what can be reproduced."""
    return {"encodings": values[Timing(config)]["times"]}
