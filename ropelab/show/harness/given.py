"""A model given, in the harness' own names: a file per way of reading it.

The harness evaluates one model at a time, and a way to make positions is part of the model there.
So each row of a run is a model of its own, `<model> (<row>)`, in a folder of its own.

A task bears a name of the harness where what is measured is of the same kind. It is never the same
measurement: `differs` under `configs` says in what, and its alias and its version are ropelab's.
Copying and the losses by position are nothing that the harness measures; other formats have them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.errors import InputError
from ropelab.runs.labels import row_labels
from ropelab.show.harness.document import Metric, Task, document

Tables = Mapping[str, pd.DataFrame]
DIFFERS = {
    "niah_single_2": "RULER hides a sentence about a named number in essays and looks for the "
    "number in what the model generates. Here the text is that of the corpus, the wording another, "
    "the key has no name, and an answer counts if greedy decoding gives exactly its tokens.",
    "niah_multiquery": "RULER hides four numbers in essays, asks for all in one question and "
    "counts those that the model generates. Here the text is that of the corpus, the wording "
    "another, there is a number at every depth, and each is asked for after the right answers to "
    "the questions before it; an answer counts if greedy decoding gives exactly its tokens.",
    "ropelab_text": "The harness' metrics of the same names are of one published text, weighted "
    "by its bytes, read in windows of the model's length. Here documents of the corpus are read "
    "from their beginnings up to the tested length, and each weighs the same.",
}
"""What a task asks otherwise than the harness does under that name, or under those of its metrics.

RULER: Hsieh et al. 2024, arXiv:2404.06654; its tasks as lm-evaluation-harness 0.4.9 has them.
"""
KEYS = {"passkey_accuracy": "niah_single_2", "multiquery_accuracy": "niah_multiquery"}
TEXT = "text_nll"


def by_reading(manifest: Mapping[str, Any], tables: Tables) -> dict[str, dict[str, Any]]:
    """The documents of all rows by their paths, as the harness names its files.

    Raises:
        InputError: the harness measures nothing like what is in these tables.
    """
    model = manifest["config"]["hf"]
    measured = {name: table for name, table in tables.items() if name in (*KEYS, TEXT)}
    if not measured:
        raise InputError(
            f"lm-eval has a place for none but these tables: {', '.join((*KEYS, TEXT))}"
        )
    labels = {name: row_labels(table) for name, table in measured.items()}
    found = {}
    for label in dict.fromkeys(label for column in labels.values() for label in column):
        rows = {name: t[[each == label for each in labels[name]]] for name, t in measured.items()}
        called = f"{model} ({label})"
        tasks = list(_tasks({name: table for name, table in rows.items() if len(table)}))
        folder = re.sub(r"[^\w.=-]+", "_", called.replace(" ×", "-x")).strip("_")
        time = manifest["start"].replace(":", "-")
        config = _said_of(manifest["config"], label)
        found[f"{folder}/results_{time}.json"] = document(tasks, manifest, called, config)
    return found


def _said_of(config: Mapping[str, Any], label: str) -> dict[str, Any]:
    return {
        "model": "ropelab",
        "model_args": f"pretrained={config['hf']},dtype={config['dtype']}",
        "batch_size": 1,
        "device": config["device"],
        "limit": None,
        "read_by": label,
        "ropelab": dict(config),
    }


def _tasks(rows: Tables) -> Iterator[Task]:
    """The tasks of one way of reading."""
    for name, table in rows.items():
        yield _text(table) if name == TEXT else _keys(KEYS[name], table)


def _keys(task: str, table: pd.DataFrame) -> Task:
    """The share found, under the length of the context as RULER's metrics are named."""
    independent = task != "niah_multiquery"  # whose answers are several to a row
    metrics, samples = {}, 0
    for length, rows in table.groupby("context_tokens"):
        asked = int(rows["trials"].sum())
        samples += asked if independent else int(rows["trials"].max())
        share = float((rows["accuracy"] * rows["trials"]).sum() / asked)
        error = math.sqrt(share * (1 - share) / (asked - 1)) if independent and asked > 1 else None
        metrics[str(length)] = Metric(value=share, error=error, higher=True)
    depths = [int(depth) for depth in table["depth_percent"].unique()]
    return _task(task, metrics, samples, depths_percent=depths, status=str(table["status"].iloc[0]))


def _text(table: pd.DataFrame) -> Task:
    """Nats per byte over all positions of the longest pass, in the harness' two units."""
    widths = table["bucket_end_tokens"] - table["bucket_start_tokens"]
    nats = float((table["nll_nats_per_byte"] * widths).sum() / widths.sum())
    metrics = {
        "byte_perplexity": Metric(value=math.exp(nats), higher=False),
        "bits_per_byte": Metric(value=nats / math.log(2), higher=False),
    }
    tokens = int(table["bucket_end_tokens"].max())
    return _task("ropelab_text", metrics, int(table["documents"].iloc[0]), tokens=tokens)


def _task(name: str, metrics: Mapping[str, Metric], samples: int, **more: object) -> Task:
    alias = f"{name} (as ropelab asks it)" if name in KEYS.values() else name
    config = {"output_type": "loglikelihood", "differs": DIFFERS[name], **more}
    return Task(name=name, metrics=metrics, samples=samples, alias=alias, config=config)
