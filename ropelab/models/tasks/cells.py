"""The cells of a run that evaluates models.

A cell is a piece of a run whose tables are stored under a hash of its `key`. An
`Evaluation` is one task done by one model in one mode. Before a released model is
evaluated, a cell `ModelCheck` finds out if that is possible.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from ropelab.models.lm.trained import MEMORY, Training, estimate_pass_bytes
from ropelab.models.lm.training import count_operations_per_token
from ropelab.models.released.model import ModelRef
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.retrieval import NgramBaseline
from ropelab.models.tasks.task import EvaluationTask, Windows
from ropelab.runs.cell import Context, Resources, Values
from ropelab.runs.estimate import Estimate, refuse_beyond
from ropelab.runs.labels import label_method
from ropelab.runs.machine import DtypeName, computing_in
from ropelab.runs.thresholds import KNOWN

# The share of the forward pass in the operations of a training step.
FORWARD_SHARE = 1 / 3
# The status of a task that a model does not even solve inside its trained length.
UNDECIDABLE = "undecidable"


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """A check that a released model loads and takes all methods, before evaluations."""

    # The model.
    subject: ModelRef
    # The modes of all evaluations.
    modes: tuple[Mode, ...]
    train_len: int
    # The longest context, in tokens.
    longest: int
    # The bytes that may be used; None: all that are free.
    limit_memory: int | None = None
    title: ClassVar[str] = "loading the model"
    kind: ClassVar[str] = "given-checked"
    version: ClassVar[int] = 1
    # The cells that are computed before this cell: none.
    prerequisites: ClassVar[tuple[()]] = ()

    @property
    def key(self) -> dict[str, Any]:
        return {
            "model": self.subject.key,
            "readers": [mode.key for mode in self.modes],
            "longest": self.longest,
            "limit_memory": self.limit_memory,
        }

    @property
    def resources(self) -> Resources:
        return self.subject.resources([(1, self.longest)])

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return the table `model`, which says if long contexts are passed in parts.

        InputError: a method does not fit, or the longest context needs too much memory.
        """
        with context.progress(self.title, 1) as advance:
            model = self.subject.model()
            for mode in self.modes:
                # The first pass is prepared only for the errors that this may raise. If
                # the encoding is not defined for the trained length, there is no pass.
                next(mode.passes(model, [self.train_len]), None)
            # Now that the model is loaded, it is known if long contexts are passed in
            # parts, and how much memory of a GPU is free.
            pass_bytes = model.estimate_pass_bytes(self.longest)
            self.subject.check_memory(self.limit_memory, self.longest, pass_bytes)
            if context.limits:
                refuse_beyond(Estimate(bytes=pass_bytes), 1, model.free_bytes())
            advance(1)
        return {"model": pd.DataFrame([{"reads_in_parts": model.in_parts}])}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One task done by one model in one evaluation mode."""

    # The model: one that is trained here, or a released one.
    subject: Training | ModelRef
    task: EvaluationTask
    mode: Mode
    # The first columns of the rows in tables, and their values; not in the key.
    labels: tuple[tuple[str, object], ...]
    # The number format of matrix products. A released model has its own.
    dtype: DtypeName = "float32"
    # The check of a released model; None for a model that is trained here.
    model_check: ModelCheck | None = None
    # The evaluation of the same task inside the trained length. If the model finds too
    # little there, this task is undecidable and not computed. None: the task is
    # computed in any case.
    probe: "Evaluation | None" = None

    @property
    def kind(self) -> str:
        prefix = "given-" if isinstance(self.subject, ModelRef) else ""
        return f"{prefix}{self.task.name}"

    @property
    def version(self) -> int:
        # The version is raised by one, because older stored results are wrong: they
        # moved the keys of released models as if all models paired the halves of a
        # head, although some models pair neighbours.
        if isinstance(self.subject, ModelRef) and self.mode.moves_keys:
            return self.task.version + 1
        return self.task.version

    @property
    def key(self) -> dict[str, Any]:
        key: dict[str, Any] = {
            "model": self.subject.key,
            "trial": self.task.key,
            "reader": self.mode.key,
        }
        # The key of a released model has its number format.
        if isinstance(self.subject, Training):
            key["dtype"] = self.dtype
        return key

    @property
    def title(self) -> str:
        labels = dict(self.labels)
        # The first label names the method, or what else the experiment compares.
        name = str(next(iter(labels.values())))
        factor = labels.get("factor")
        if isinstance(factor, int | float):
            name = label_method(name, factor, str(labels.get("arm", "")))
        if isinstance(self.subject, Training):
            return f"{self.task.title}, seed {self.subject.seed}, {name}"
        return f"{self.task.title}, {name}"

    @property
    def resources(self) -> Resources:
        windows = self.task.windows
        if isinstance(self.subject, ModelRef):
            return self.subject.resources(windows)
        size = self.subject.size
        # If few tokens are scored, the last layer makes only the keys and values of all
        # other tokens. The weights of keys and values are a sixth of the layer's
        # weights if heads * head_dim is the width.
        share_of_last_layer = 1 if self.task.scores_all else 1 / 6
        without_last_layer = replace(size, layers=size.layers - 1)

        def count_per_token(length: int) -> float:
            before = count_operations_per_token(without_last_layer, length)
            in_last_layer = count_operations_per_token(size, length) - before
            return before + share_of_last_layer * in_last_layer

        def count_operations(windows: Windows) -> float:
            total = 0.0
            for rows, length in windows:
                total += rows * length * count_per_token(length) * FORWARD_SHARE
            return total

        operations = count_operations(windows)
        operations_of_loss = count_operations(self.task.search_windows)
        operations += self.mode.evaluations * operations_of_loss
        memory = [estimate_pass_bytes(size, rows, length) for rows, length in windows]
        return Resources(
            operations,
            memory_bytes=max(MEMORY, *memory),
            dtype=self.dtype,
            gpu=self.subject.device == "cuda",
            folders=self.subject.folders,
            inputs=self.task.inputs,
        )

    @property
    def prerequisites(self) -> "tuple[Training | ModelCheck | Evaluation, ...]":
        """The cells that are computed before this cell.

        They are the training of a model that is trained here, or the check of a
        released model and the probe.
        """
        if isinstance(self.subject, Training):
            return (self.subject,)
        prerequisites = (self.model_check, self.probe)
        return tuple(cell for cell in prerequisites if cell is not None)

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return the tables of the task; of an undecidable task the table `status`."""
        # The threshold KNOWN decides the status and is not in the key. Whoever changes it
        # raises the version of the task.
        if self.probe is not None:
            tables_of_probe = context.compute(self.probe)
            if not is_decidable(tables_of_probe):
                return {"status": pd.DataFrame({"status": [UNDECIDABLE]})}

        model = self.subject.model(context)
        computing = computing_in(self.dtype, self.subject.device)
        with context.progress(self.title, self.task.steps) as advance, computing:
            mode, chosen = self.mode.search(self.task.search_loss, model)
            tables = self.task.measure(model, mode, advance)
        if chosen:
            tables = {**tables, "searched": pd.DataFrame([chosen])}
        return tables


def is_decidable(tables_of_probe: Mapping[str, pd.DataFrame]) -> bool:
    """Return True if the model of the probe finds enough inside its trained length."""
    # Retrieval has the table `trials`, tasks with keys the table `answers`.
    name = "trials" if "trials" in tables_of_probe else "answers"
    table = tables_of_probe[name]
    return bool(table["correct"].sum() >= KNOWN * table["trials"].sum())


def collect(
    cells: Iterable[Evaluation | NgramBaseline], values: Values
) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the tables of finished cells by task and name.

    A table has the rows of all cells of its task, with the labels of each cell in the
    first columns.
    """
    parts: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for cell in cells:
        for name, table in values[cell].items():
            labels = pd.DataFrame(dict(cell.labels), index=table.index)
            parts_of_task = parts.setdefault(cell.task.name, {})
            parts_of_task.setdefault(name, []).append(labels.join(table))

    tables: dict[str, dict[str, pd.DataFrame]] = {}
    for task, parts_of_task in parts.items():
        tables[task] = {}
        for name, parts_of_table in parts_of_task.items():
            tables[task][name] = pd.concat(parts_of_table, ignore_index=True)
    return tables
