"""The results file of lm-evaluation-harness: tasks with metrics, and what is said about each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

NO_FILTER = "none"
"""Answers are scored as they are: the part of a metric's name behind the comma."""
NOT_KNOWN = "N/A"
"""The harness' word for a standard error that is not known."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One value of a task; `error` is its standard error, `higher` whether more is better."""

    value: float | None
    error: float | None = None
    higher: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of the file.

    Attributes:
        metrics: by name, without the filter.
        samples: how many documents or rows were asked.
        alias: what stands in tables in the place of the name.
        config: what else is said about how it was asked.
    """

    name: str
    metrics: Mapping[str, Metric]
    samples: int
    alias: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> dict[str, Any]:
        """Its entry under `results`."""
        entry: dict[str, Any] = {"alias": self.alias or self.name}
        for name, metric in self.metrics.items():
            entry[f"{name},{NO_FILTER}"] = metric.value
            error = NOT_KNOWN if metric.error is None else metric.error
            entry[f"{name}_stderr,{NO_FILTER}"] = error
        return entry

    @property
    def said(self) -> dict[str, Any]:
        """Its entry under `configs`."""
        metrics = [{"metric": n, "higher_is_better": m.higher} for n, m in self.metrics.items()]
        return {"task": self.name, "metric_list": metrics, "num_fewshot": 0, **self.config}


def document(
    tasks: Sequence[Task], manifest: Mapping[str, Any], model: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole file.

    Args:
        manifest: of the run.
        model: what was measured.
        config: what is said under that name.
    """
    version = f"ropelab-{manifest['experiment']}-{manifest['version']}"
    return {
        "results": {task.name: task.result for task in tasks},
        "group_subtasks": {task.name: [] for task in tasks},
        "configs": {task.name: task.said for task in tasks},
        "versions": {task.name: version for task in tasks},
        "n-shot": {task.name: 0 for task in tasks},
        "higher_is_better": {
            task.name: {name: metric.higher for name, metric in task.metrics.items()}
            for task in tasks
        },
        "n-samples": {
            task.name: {"original": task.samples, "effective": task.samples} for task in tasks
        },
        "config": dict(config),
        "git_hash": manifest.get("commit"),
        "date": datetime.fromisoformat(manifest["start"]).timestamp(),
        "model_source": "ropelab",
        "model_name": model,
    }
