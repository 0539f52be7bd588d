"""Runs as the results files of lm-evaluation-harness 0.4: tasks with metrics and their errors.

Models trained here are one file: every line of a measured table at every place is a task. A
released model is a file for each evaluation mode, `<model> (<row>)` in a folder of its own: the
harness evaluates one model at a time, and positions are part of the model there. A task has a name
of the harness only if the measurement is of the same kind; `differs` under `configs` says in what
it is another one, and its alias and its version are ropelab's.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from typing import Any

import pandas as pd

from ropelab.runs.errors import InputError
from ropelab.runs.stats import CONFIDENCE, normal_quantile, student_quantile
from ropelab.runs.tables import Tables
from ropelab.show.page.shown import Shown
from ropelab.show.page.views import OUTCOMES, intervals, kinds_of, labelled, views_of
from ropelab.show.terminal import format_value

# The tasks of RULER (Hsieh et al. 2024, arXiv:2404.06654) as lm-evaluation-harness 0.4.9 has them.
KEYS = {"passkey_accuracy": "niah_single_2", "multiquery_accuracy": "niah_multiquery"}
TEXT = "text_nll"
# The differences from what the harness means by a task, or by the metrics of that name.
DIFFERS = tomllib.loads((files("ropelab.show") / "harness.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Metric:
    """One value of a task, its standard error, and True if more is better."""

    value: float | None
    error: float | None = None
    higher: bool | None = None


@dataclass(frozen=True)
class Task:
    """One task of a file: its metrics by name, and how many documents or rows were evaluated."""

    name: str
    metrics: Mapping[str, Metric]
    samples: int
    alias: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


def files_of(run: Shown, tables: Tables) -> dict[str, dict[str, Any]]:
    """Return documents by the path of their file below the folder of the export."""
    experiment, config = run.manifest["experiment"], run.manifest.get("config", {})
    if experiment == "evaluate":
        return of_released_model(run.manifest, tables)
    if not (tasks := list(_every_line(experiment, tables))):
        raise InputError(f"lm-eval has a place for no table of {experiment}")
    return {"results.json": _document(tasks, run.manifest, f"ropelab {experiment}", config)}


def _document(
    tasks: list[Task], manifest: Mapping[str, Any], model: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    results, configs, better = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for task in tasks:
        entry = results[task.name] = {"alias": task.alias or task.name}
        for name, metric in task.metrics.items():
            # Behind the comma is the harness' filter: answers are scored unchanged.
            entry[f"{name},none"] = metric.value
            entry[f"{name}_stderr,none"] = "N/A" if metric.error is None else metric.error
        better[task.name] = {name: metric.higher for name, metric in task.metrics.items()}
        metrics = [{"metric": n, "higher_is_better": m.higher} for n, m in task.metrics.items()]
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
        "n-samples": {t.name: {"original": t.samples, "effective": t.samples} for t in tasks},
        "config": dict(config),
        "git_hash": manifest.get("commit"),
        "date": datetime.fromisoformat(manifest["start"]).timestamp(),
        "model_source": "ropelab",
        "model_name": model,
    }


def _every_line(experiment: str, tables: Tables) -> Iterator[Task]:
    """Yield `<experiment>/<table>/<line>@<place>`, each with one metric.

    Tables without intervals or seeds measure nothing.
    """
    for name, table in tables.items():
        table = labelled(table)
        view = views_of(name, table)
        if view is None or len(view.y) != 1:
            continue
        (metric,) = view.y
        bounds = intervals([str(column) for column in table.columns]).get(metric)
        kinds = kinds_of(table)
        seeds = [column for column, kind in kinds.items() if kind == "repeat"]
        if bounds is None and not seeds:
            continue
        # And at whatever else tells rows of one seed apart, which the view holds at one value.
        by = [*view.where, *view.series, view.x]
        for key in (c for c, kind in kinds.items() if kind == "key" and c not in (*OUTCOMES, *by)):
            others = table.groupby([*by, *seeds], dropna=False)[key].nunique(dropna=False)
            if (others > 1).any():
                by.insert(0, key)
        for values, rows in table.groupby(by, sort=False, dropna=False):
            *line, at = (format_value(value) for value in values)
            found = rows.dropna(subset=metric)
            one = Metric(None) if found.empty else _over_seeds(found, metric, bounds)
            place = f"{experiment}/{name}/{','.join(line)}@{at}"
            yield Task(place, {metric: one}, len(found))


def _over_seeds(rows: pd.DataFrame, metric: str, bounds: tuple[str, str] | None) -> Metric:
    values = rows[metric].to_numpy(dtype=float)
    if len(values) > 1:
        return Metric(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))
    if bounds is None or rows[list(bounds)].isna().any(axis=None):
        return Metric(float(values[0]))
    low, high = rows[list(bounds)].to_numpy(dtype=float)[0]
    # Half of the interval in standard errors: Student's for a mean over a few documents.
    below = (1 + CONFIDENCE) / 2
    few = "documents" in rows
    half = student_quantile(below, rows["documents"].iloc[0] - 1) if few else normal_quantile(below)
    return Metric(float(values[0]), float((high - low) / (2 * half)))


def of_released_model(manifest: Mapping[str, Any], tables: Tables) -> dict[str, dict[str, Any]]:
    """Return the documents of all rows by their paths, as the harness names its files."""
    config, known = manifest["config"], (*KEYS, TEXT)
    measured = {name: table for name, table in tables.items() if name in known}
    if not measured:
        raise InputError(f"lm-eval has a place for none but these tables: {', '.join(known)}")
    named = {name: labelled(table) for name, table in measured.items()}
    found = {}
    for label in dict.fromkeys(label for table in named.values() for label in table["label"]):
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
    """Return the share found, under the length of the context as RULER's metrics are named."""
    # With several keys to a text the answers depend on each other: no error of a share.
    independent = name != "niah_multiquery"
    metrics, samples = {}, 0
    for length, rows in table.groupby("context_tokens"):
        asked = int(rows["trials"].sum())
        samples += asked if independent else int(rows["trials"].max())
        share = float((rows["accuracy"] * rows["trials"]).sum() / asked)
        error = math.sqrt(share * (1 - share) / (asked - 1)) if independent and asked > 1 else None
        metrics[str(length)] = Metric(share, error, higher=True)
    about = {
        "output_type": "loglikelihood",
        "differs": DIFFERS[name],
        "depths_percent": [int(depth) for depth in table["depth_percent"].unique()],
        "status": str(table["status"].iloc[0]),
    }
    return Task(name, metrics, samples, f"{name} (as ropelab asks it)", about)


def _text(table: pd.DataFrame) -> Task:
    widths = table["bucket_end_tokens"] - table["bucket_start_tokens"]
    nats = float((table["nll_nats_per_byte"] * widths).sum() / widths.sum())
    metrics = {
        "byte_perplexity": Metric(math.exp(nats), higher=False),
        "bits_per_byte": Metric(nats / math.log(2), higher=False),
    }
    about = {"output_type": "loglikelihood", "differs": DIFFERS["ropelab_text"]}
    about |= {"tokens": int(table["bucket_end_tokens"].max())}
    return Task("ropelab_text", metrics, int(table["documents"].iloc[0]), config=about)
