"""From a config to tables: train every encoding, measure it, and compare with what is claimed."""

from itertools import product
from typing import NamedTuple

import pandas as pd
from torch import Tensor

from ropelab.context import Context
from ropelab.experiments.encodings import tables
from ropelab.experiments.encodings.behaviour import behaviour
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.encodings.cost import costs, memory
from ropelab.experiments.encodings.models import trained, training
from ropelab.experiments.encodings.quality import copies, text_losses
from ropelab.experiments.encodings.times import times
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.measure import Lengths
from ropelab.literature.judge import judged
from ropelab.lm.model import LanguageModel
from ropelab.lm.tasks import copy_trials
from ropelab.lm.trained import COPY, Task, text_task

CELLS = 1
"""Version of the measurements; raise it when the numbers of a cell change their meaning."""
BASELINE = "rope"
ROUNDS = 5
"""How often an encoding and NoPE are timed in turns."""
TEXTS = 4
"""Texts on which caches and shuffled orders are tried."""


def run(config: EncodingsConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; `tables.py` and the modules it stands beside say what tables hold."""
    measured = cells(config, context)
    found = {"cost": costs(config), "memory": memory(config), "behaviour": measured["behaviour"]}
    if "buckets" in measured:
        found["text_nll"] = tables.text_nll(measured["buckets"], config)
        found["last_window"] = tables.last_window(measured["last_window"], config)
    if "copies" in measured:
        found["copy_accuracy"] = tables.copy_accuracy(measured["copies"], config)
    units = tables.units(measured, config)
    baseline = BASELINE if BASELINE in config.encodings else config.encodings[0]
    found["quality"] = tables.quality(units, config)
    found["comparisons"] = tables.comparisons(units, config, baseline)
    found["extrapolation"] = tables.extrapolation(units, config)
    found["literature"] = judged("encodings", config.model_dump(mode="json"), found)
    with context.progress("timing against nope", len(config.encodings)) as advance:
        context.times["encodings"] = times(config, ROUNDS, advance)
    return found


class Material(NamedTuple):
    """What the models of one task are measured on; no texts where sequences are made up."""

    task: Task
    texts: Tensor | None


def materials(config: EncodingsConfig) -> list[Material]:
    """The tasks, in the order of the config."""
    found = {"copy": Material(COPY, None)}
    if "text" in config.tasks:
        corpus = config.read_corpus()
        texts = corpus.held_out_windows(config.test_len + 1, config.documents)
        found["text"] = Material(text_task(corpus), texts)
    return [found[task] for task in config.tasks]


def cells(config: EncodingsConfig, context: Context) -> dict[str, pd.DataFrame]:
    """The measurements of all models, one below the other: encoding, task, seed, values."""
    collected: dict[str, list[pd.DataFrame]] = {}
    for material, encoding, seed in product(materials(config), config.encodings, config.seeds):
        for name, table in one_cell(config, context, material, encoding, seed).items():
            about = {"encoding": encoding, "task": material.task.name, "seed": seed}
            labelled = pd.DataFrame(about, index=table.index).join(table)
            collected.setdefault(name, []).append(labelled)
    return {name: pd.concat(parts, ignore_index=True) for name, parts in collected.items()}


def one_cell(
    config: EncodingsConfig, context: Context, material: Material, encoding: str, seed: int
) -> dict[str, pd.DataFrame]:
    """One trained model, measured; from the cache if it was measured before."""
    described = training(config, material.task, encoding, seed)

    def make() -> dict[str, pd.DataFrame]:
        model = trained(described, encoding, config, context)
        return measure(model, config, context, material, f"{encoding}: measuring, seed {seed}")

    amount = config.sequences if material.texts is None else config.documents
    key = {"model": described.key, "test_len": config.test_len, "amount": amount}
    kind = f"encodings-{material.task.name}"
    return context.cells.tables(kind=kind, version=CELLS, key=key, make=make)


def measure(
    model: LanguageModel,
    config: EncodingsConfig,
    context: Context,
    material: Material,
    line: str,
) -> dict[str, pd.DataFrame]:
    """Quality and behaviour of one model."""
    lengths = Lengths(config.train_len, config.test_len)
    if material.texts is None:
        near = copy_trials(0, config.train_len // 2, config.train_len, TEXTS).tokens
        with context.progress(line, len(grid.distances(*lengths))) as advance:
            found = copies(model, config.sequences, lengths, advance)
    else:
        near = material.texts[:TEXTS, : config.train_len]
        with context.progress(line, len(material.texts)) as advance:
            found = text_losses(model, material.texts, lengths, advance)
    return {**found, "behaviour": behaviour(model, near)}
