"""From a config to tables: train every encoding, measure it, compare with what was published."""

from dataclasses import replace

import pandas as pd

from ropelab.claims.judge import judged
from ropelab.experiments.encodings import tables
from ropelab.experiments.encodings.behaviour import Behaviour
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.encodings.cost import costs, memory
from ropelab.experiments.encodings.plan import questions
from ropelab.experiments.encodings.times import times
from ropelab.models.tasks.cells import ask_all, train_all
from ropelab.runs.context import Context

BASELINE = "rope"
ROUNDS = 5
"""How often an encoding and NoPE are timed in turns."""


def run(config: EncodingsConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; `tables.py` and the modules it stands beside say what tables hold."""
    asked = questions(config)
    train_all(asked, context)
    observed = [replace(each, trial=Behaviour(each.trial, config.train_len)) for each in asked]
    answers = ask_all([*asked, *observed], context)
    measured = {**answers.get("text", {}), **answers.get("copy", {})}
    found = {"cost": costs(config), "memory": memory(config), **answers["behaviour"]}
    if "buckets" in measured:
        found["text_nll"] = tables.text_nll(measured["buckets"], config)
        found["last_window"] = tables.last_window(measured["last_window"], config)
    if "trials" in measured:
        found["copy_accuracy"] = tables.copy_accuracy(measured["trials"], config)
    units = tables.units(measured, config)
    baseline = BASELINE if BASELINE in config.encodings else config.encodings[0]
    found["quality"] = tables.quality(units, config)
    found["comparisons"] = tables.comparisons(units, config, baseline)
    found["extrapolation"] = tables.extrapolation(units, config)
    found["pairs"] = tables.pairs(units, config)
    found["literature"] = judged("encodings", config.model_dump(mode="json"), found)
    with context.progress("timing against nope", len(config.encodings)) as advance:
        context.times["encodings"] = times(config, ROUNDS, advance)
    return found
