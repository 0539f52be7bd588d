"""The recommendation: which row is best at the tested length, for text and for each kind
of retrieval.

A row is the unmodified model, the model under a method, or with a sliding window. Rows
are named by labels, such as `yarn ×4`.
"""

from typing import Any

import pandas as pd

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.math.scaling.plan import write_as_typed
from ropelab.models.methods.method import Scaled
from ropelab.models.tasks import tables as task_tables
from ropelab.models.tasks.cells import UNDECIDABLE
from ropelab.models.tasks.config import TASKS_WITH_KEYS
from ropelab.models.tasks.plans import make_task_beyond_training
from ropelab.runs.comparisons import select_pair
from ropelab.runs.labels import AS_SHIPPED, ROUNDED, WINDOW, label_method
from ropelab.runs.leading import UNIFORM_LOSS
from ropelab.runs.spelling import write_command
from ropelab.runs.tables import Tables

# The statuses of a recommendation, beside UNDECIDABLE: the best row is better than the
# unmodified model, it is the unmodified model, or the two are indistinguishable.
BETTER = "better"
KEPT = "unmodified"
OPEN = "open"
# The columns of `recommendation`. `best` is the label of the best row. `value` is the
# loss of the best row (nats per byte) or the share that it finds. `unmodified` and
# `window` are the same value of the unmodified model and of the sliding window.
# `difference` is best minus unmodified. `not_significant` lists the labels that are
# indistinguishable from the best, and `emit` is the command that writes the
# configuration of the best.
COLUMNS = [
    "task",
    "status",
    "at_tokens",
    "best",
    "value",
    "unmodified",
    "difference",
    "ci_low",
    "ci_high",
    "not_significant",
    "window",
    "emit",
]


def make_recommendation(config: EvaluateConfig, tables: Tables) -> pd.DataFrame:
    """Return the table `recommendation`, a row per task."""
    rows = []
    for name in config.tasks:
        task = make_task_beyond_training(config, name, config.depths).name
        rows.append(_advise(task, config, tables))
    return pd.DataFrame(rows, columns=COLUMNS)


def _advise(task: str, config: EvaluateConfig, tables: Tables) -> dict[str, Any]:
    """Return the row of COLUMNS about a task."""
    length = config.context
    # This row is returned if no row does the task well enough to be compared.
    undecidable = {
        "task": task,
        "status": UNDECIDABLE,
        "at_tokens": length,
        "best": "",
        "not_significant": "",
        "emit": "",
    }
    # Rounded rows are compared with each other, and not recommended.
    if task == "text":
        metric = "nll_bucket"
        values = average_values(tables, task, length)["value"]
        best = str(values.idxmin())
        if len(values) > 1 and values[best] >= UNIFORM_LOSS:
            return undecidable
    else:
        metric = f"{task}_accuracy"
        table = tables[metric]
        table = table[table["arm"] != ROUNDED]
        if (table["status"] != task_tables.OK).any():
            return undecidable
        values = average_values(tables, task, length)["value"]
        best = str(values.idxmax())

    # Comparisons at the farthest distance of the longest context.
    pairs = tables["comparisons"]
    pairs = pairs[(pairs["metric"] == metric) & (pairs["context_tokens"] == length)]
    pairs = pairs[pairs["at_tokens"] == pairs["at_tokens"].max()]
    # The verdict `~` means that a pair of rows is indistinguishable.
    tied = []
    for label in values.index:
        if label != best and _compare(pairs, best, label)["verdict"] == "~":
            tied.append(label)

    status = KEPT
    difference_columns: dict[str, Any] = {}
    if best != AS_SHIPPED:
        pair = _compare(pairs, best, AS_SHIPPED)
        # The verdict of a pair is the label of the better row, or `~`.
        if pair["verdict"] == "~":
            status = OPEN
        elif pair["verdict"] != AS_SHIPPED:
            status = BETTER
        for name in ("difference", "ci_low", "ci_high"):
            difference_columns[name] = pair.get(name)
    command = ""
    if status == BETTER and best != WINDOW:
        command = _write_command(best, config)
    return {
        "task": task,
        "status": status,
        "at_tokens": length,
        "best": best,
        "value": float(values[best]),
        "unmodified": float(values[AS_SHIPPED]),
        **difference_columns,
        "not_significant": ", ".join(tied),
        "window": float(values[WINDOW]) if WINDOW in values else None,
        "emit": command,
    }


def average_values(tables: Tables, task: str, length: int) -> pd.DataFrame:
    """Return the value of each label in a task with its interval: the columns `value`,
    `value ci_low` and `value ci_high`.

    The value of text is the loss in the bucket of positions that ends at the length. The
    value of a retrieval task is the share found in contexts of the length: at the
    farthest distance, or, in a task of pass keys, at all depths. Rounded rows are left
    out.
    """
    if task == "text":
        table = tables["text_nll"]
        column = task_tables.NLL
        rows = table[table["bucket_end_tokens"] == length]
    else:
        table = tables[f"{task}_accuracy"]
        column = "accuracy"
        rows = table[table["context_tokens"] == length]
        if task not in TASKS_WITH_KEYS:
            rows = rows[rows["distance_tokens"] == rows["distance_tokens"].max()]
    rows = rows[rows["arm"] != ROUNDED]
    return task_tables.average_with_intervals(rows, column, "value")


def _compare(pairs: pd.DataFrame, first: str, second: str) -> pd.Series:
    """Return the comparison of two labels."""
    return select_pair(pairs, first, second).iloc[0]


def _write_command(label: str, config: EvaluateConfig) -> str:
    """Return the command that writes the configuration of the method of a label."""
    texts = set()
    for method in config.parsed_methods():
        if label_method(method.label, method.factor) == label:
            scaling = method.scaling if isinstance(method, Scaled) else method
            texts.add(write_as_typed(scaling))
    # A method that was given twice has one text.
    (method_text,) = texts
    options = {"from": config.model, "context": config.context, "method": method_text}
    return write_command("emit", options)
