"""Runs as the results files of lm-evaluation-harness 0.4: tasks with metrics and their
errors.

A released model is a file for each evaluation mode, `<model> (<row>)` in a folder of
its own: the harness evaluates one model at a time, and positions are part of the model
there. `differs` under `configs` says in what a measurement is another one than the
harness', and its alias and its version are ropelab's. Models trained here are none that
the harness evaluates.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside
from ropelab.runs.tables import Tables
from ropelab.show.page.views import labelled

# The tasks of RULER (Hsieh et al. 2024, arXiv:2404.06654) as lm-evaluation-harness
# 0.4.9 has them.
KEYS = {"passkey_accuracy": "niah_single_2", "multiquery_accuracy": "niah_multiquery"}
TEXT = "text_nll"
# The differences from what the harness means by a task, or by the metrics of that name.
DIFFERS = table_beside(__file__)


@dataclass(frozen=True)
class Task:
    name: str
    # by name: a value and its standard error
    metrics: Mapping[str, tuple[float, float | None]]
    higher: bool  # more is better
    samples: int  # documents or rows that were evaluated
    config: Mapping[str, Any]
    alias: str = ""


def _document(
    tasks: list[Task],
    manifest: Mapping[str, Any],
    model: str,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    results, configs, better = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for task in tasks:
        entry = results[task.name] = {"alias": task.alias or task.name}
        for name, (value, error) in task.metrics.items():
            # Behind the comma is the harness' filter: answers are scored unchanged.
            entry[f"{name},none"] = value
            entry[f"{name}_stderr,none"] = "N/A" if error is None else error
        better[task.name] = dict.fromkeys(task.metrics, task.higher)
        metrics = [
            {"metric": name, "higher_is_better": task.higher} for name in task.metrics
        ]
        about = {"task": task.name, "metric_list": metrics, "num_fewshot": 0}
        configs[task.name] = {**about, **task.config}
    version = f"ropelab-{manifest['experiment']}-{manifest['version']}"
    return {
        "results": results,
        # Every task is in every part, as in the files that the harness itself writes.
        "group_subtasks": {name: [] for name in results},
        "configs": configs,
        "versions": dict.fromkeys(results, version),
        "n-shot": dict.fromkeys(results, 0),
        "higher_is_better": better,
        "n-samples": {
            t.name: {"original": t.samples, "effective": t.samples} for t in tasks
        },
        "config": dict(config),
        "git_hash": manifest.get("commit"),
        "date": datetime.fromisoformat(manifest["start"]).timestamp(),
        "model_source": "ropelab",
        "model_name": model,
    }


def of_released_model(
    manifest: Mapping[str, Any], tables: Tables
) -> dict[str, dict[str, Any]]:
    """Return the documents of all rows by their paths, as the harness names its
    files.
    """
    if (name := manifest["experiment"]) != "evaluate":
        raise InputError(
            f"lm-eval is for runs of evaluate; those of {name} have no place there"
        )
    config, known = manifest["config"], (*KEYS, TEXT)
    measured = {name: table for name, table in tables.items() if name in known}
    if not measured:
        raise InputError(
            f"lm-eval has a place for none but these tables: {', '.join(known)}"
        )
    named = {name: labelled(table) for name, table in measured.items()}
    found = {}
    for label in dict.fromkeys(
        label for table in named.values() for label in table["label"]
    ):
        rows = {name: table[table["label"] == label] for name, table in named.items()}
        tasks = [
            _text(table) if name == TEXT else _keys(KEYS[name], table)
            for name, table in rows.items()
            if len(table)
        ]
        called = f"{config['model']} ({label})"
        about = {
            "model": "ropelab",
            "model_args": f"pretrained={config['model']},dtype={config['dtype']}",
            "batch_size": 1,
            "device": config["device"],
            "limit": None,
            "read_by": label,
            "ropelab": dict(config),
        }
        folder = re.sub(r"[^\w.=-]+", "_", called.replace(" ×", "-x")).strip("_")
        path = f"{folder}/results_{manifest['start'].replace(':', '-')}.json"
        found[path] = _document(tasks, manifest, called, about)
    return found


def _keys(name: str, table: pd.DataFrame) -> Task:
    """Return the share found, under the length of the context as RULER's metrics are
    named.
    """
    # With several keys to a text the answers depend on each other: no error of a share.
    independent = name != "niah_multiquery"
    metrics, samples = {}, 0
    for length, rows in table.groupby("context_tokens"):
        asked = int(rows["trials"].sum())
        samples += asked if independent else int(rows["trials"].max())
        share = float((rows["accuracy"] * rows["trials"]).sum() / asked)
        error = (
            math.sqrt(share * (1 - share) / (asked - 1))
            if independent and asked > 1
            else None
        )
        metrics[str(length)] = share, error
    about = {
        "output_type": "loglikelihood",
        "differs": DIFFERS[name],
        "depths_percent": [int(depth) for depth in table["depth_percent"].unique()],
        "status": str(table["status"].iloc[0]),
    }
    return Task(name, metrics, True, samples, about, f"{name} (as ropelab asks it)")


def _text(table: pd.DataFrame) -> Task:
    widths = table["bucket_end_tokens"] - table["bucket_start_tokens"]
    nats = float((table["nll_nats_per_byte"] * widths).sum() / widths.sum())
    found = {"byte_perplexity": math.exp(nats), "bits_per_byte": nats / math.log(2)}
    metrics = {name: (value, None) for name, value in found.items()}
    about = {"output_type": "loglikelihood", "differs": DIFFERS["ropelab_text"]}
    about |= {"tokens": int(table["bucket_end_tokens"].max())}
    return Task("ropelab_text", metrics, False, int(table["documents"].iloc[0]), about)
