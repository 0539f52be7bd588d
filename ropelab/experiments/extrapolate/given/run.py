"""A model given, asked by every row, as shipped first: from a config to tables.

model          what its configuration says about positions, and what it was read in
text_nll, last_window, text_by_kind, text_by_document, context_by_kind, copy_accuracy
               as for models trained here, in its own tokens; copying has a status
passkey_accuracy, multiquery_accuracy
               share of pass keys found and log-probability of the answer, by depth and context
comparisons    every pair of rows under every metric
recommendation which row to read the tested length with, by text and by each kind of retrieval

What the model does not find as shipped inside its trained length, it is not asked for beyond: the
status of that task is `undecidable`, and no methods are compared on it.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from ropelab.experiments.extrapolate.given import estimate
from ropelab.experiments.extrapolate.given.advice import UNDECIDABLE, recommendation
from ropelab.experiments.extrapolate.given.config import GivenConfig
from ropelab.experiments.extrapolate.given.plan import cells, probe, window_of
from ropelab.experiments.extrapolate.pairs import ABOUT, ROW, pairs_of, retrieval_pairs, text_pairs
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import collected
from ropelab.models.tasks.documents import told_apart
from ropelab.models.tasks.tables import BUCKET, PLACE, accuracies, losses
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import Pair, compared
from ropelab.runs.labels import AS_SHIPPED
from ropelab.runs.thresholds import KNOWN

LOG_PROBABILITY = "log_probability_nats"
DEPTH = ["depth_percent", "context_tokens"]
Measured = dict[str, pd.DataFrame]


def measure(config: GivenConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Ask and compare; the head of this file says what each table holds."""
    probes = [first for task in config.tasks if (first := probe(config, task))]
    every = [*probes, *(cell for task in config.tasks for cell in cells(config, task))]
    if left := [cell for cell in every if not values.context.is_finished(cell)]:
        estimate.prepare(config, left, values.context)
    missed = {task: t for task, t in collected(probes, values).items() if not is_learned(t)}
    asked = [cell for task in config.tasks if task not in missed for cell in cells(config, task)]
    found = missed | collected(asked, values)
    tables: dict[str, pd.DataFrame] = {}
    pairs: list[Pair] = []
    for task in config.tasks:
        status = UNDECIDABLE if task in missed else "ok"
        tables |= _tables(task, found[task], status, config)
        pairs += _pairs(task, found[task], config) if status == "ok" else ()
    tables = {n: t.assign(train_len_tokens=config.facts.train_len) for n, t in tables.items()}
    tables["comparisons"] = compared(pairs, ABOUT)
    tables["recommendation"] = recommendation(config, tables)
    return {"model": _model(config), **tables}


def is_learned(measured: Measured) -> bool:
    """Whether enough of what was asked for is found."""
    found = measured["trials" if "trials" in measured else "answers"]
    return bool(found["correct"].sum() >= KNOWN * found["trials"].sum())


def _tables(task: str, measured: Measured, status: str, config: GivenConfig) -> Measured:
    if task == "text":
        return {
            "text_nll": losses(measured["buckets"], [*ROW, *BUCKET]),
            "last_window": losses(measured["last_window"], [*ROW, "context_tokens"]),
            **_by_document(measured["last_window"], config),
        }
    if task == "copy":
        found = accuracies(measured["trials"], [*ROW, *PLACE])
    else:
        found = _found_keys(measured["answers"])
    return {f"{task}_accuracy": found.assign(status=status)}


def _by_document(last_window: pd.DataFrame, config: GivenConfig) -> Measured:
    """Losses told apart by document and by kind."""
    origins = config.text().origins(config.test_len + 1, config.documents)
    return told_apart(last_window, origins, ROW, {AS_SHIPPED}, config.facts.train_len)


def _found_keys(answers: pd.DataFrame) -> pd.DataFrame:
    """By depth and context: share found, and mean log-probability of the answer."""
    by = [*ROW, *DEPTH]
    shares = accuracies(answers, by)
    groups = answers.groupby(by, sort=False)
    more = groups.agg(
        distance_tokens=("distance_tokens", "mean"), **{LOG_PROBABILITY: (LOG_PROBABILITY, "mean")}
    )
    return shares.merge(more.reset_index(), on=by)


def _pairs(task: str, measured: Measured, config: GivenConfig) -> Iterator[Pair]:
    train_len, test_len = config.facts.train_len, config.test_len
    if task == "text":
        short = [length for length in grid.contexts(train_len, test_len) if length <= train_len]
        yield from text_pairs(**measured, short=short, test_len=test_len)
    elif task == "copy":
        yield from retrieval_pairs("copy_accuracy", measured["trials"])
    else:
        yield from _key_pairs(task, measured["answers"])


def _key_pairs(task: str, answers: pd.DataFrame) -> Iterator[Pair]:
    """Keys found and their log-probability in every context, over all depths and sequences."""
    place = answers["depth_percent"].astype(str) + " " + answers["sequence"].astype(str)
    answers = answers.assign(place=place)
    for context, group in answers.groupby("context_tokens"):
        yield from pairs_of((f"{task}_accuracy", context, context), group, "place", "correct")
        about = (f"{task}_log_probability", context, context)
        yield from pairs_of(about, group, "place", LOG_PROBABILITY)


def _model(config: GivenConfig) -> pd.DataFrame:
    """One row."""
    facts: dict[str, Any] = asdict(config.facts)
    windows = facts.pop("windows")
    lengths = {f"{name}_tokens": facts.pop(name) for name in ("train_len", "claimed_len")}
    row = {
        **facts,
        **lengths,
        "layer_window_tokens": windows[0] if windows else None,
        "sliding_window_tokens": window_of(config),
        "dtype": config.dtype,
    }
    return pd.DataFrame([row])
