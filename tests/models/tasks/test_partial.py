"""The short table of a run while its cells are computed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ropelab.models.tasks.cells import UNDECIDABLE, Evaluation
from ropelab.models.tasks.partial import summarize_finished
from ropelab.models.tasks.tables import NLL


def finish(task: str, method: str, seed: int, **tables: Any) -> tuple[Any, Any]:
    """A finished cell with its values."""
    labels = (("method", method), ("factor", 4.0), ("seed", seed), ("arm", "zero_shot"))
    about: Any = {"subject": None, "mode": None}
    cell = Evaluation(task=SimpleNamespace(name=task), labels=labels, **about)  # type: ignore[arg-type]
    return cell, {name: pd.DataFrame(rows) for name, rows in tables.items()}


def read(method: str, seed: int, loss: float) -> tuple[Any, Any]:
    contexts = [256, 1024, 1024]
    rows = {"context_tokens": contexts, NLL: [9.0, loss - 0.5, loss + 0.5]}
    return finish("text", method, seed, last_window=rows)


def test_the_rows_are_means_over_what_is_finished_in_the_longest_context() -> None:
    trials = {"context_tokens": [256, 1024], "correct": [8, 2], "trials": [8, 8]}
    finished = [
        read("yarn", 0, 1.0),
        read("pi", 0, 3.0),
        finish("copy", "yarn", 0, trials=trials),
        read("yarn", 1, 2.0),
    ]
    early_table = summarize_finished(finished)
    assert early_table is not None
    table = early_table.table
    assert list(table["method"]) == ["yarn ×4", "pi ×4"]
    assert list(table.columns) == ["method", "loss in 1024", "copy in 1024"]
    assert list(table["loss in 1024"]) == pytest.approx([1.5, 3.0])
    np.testing.assert_array_equal(table["copy in 1024"], [0.25, np.nan])


def test_nothing_is_known_of_trainings_and_undecidable_tasks() -> None:
    undecidable = finish("copy", "yarn", 0, status={"status": [UNDECIDABLE]})
    training: Any = (SimpleNamespace(kind="training"), {})
    assert summarize_finished([training, undecidable]) is None
    assert summarize_finished([]) is None
