"""The cells of a run that evaluates models: tasks of trained or released ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from ropelab.models.lm.trained import MEMORY, Training, bytes_of_reading
from ropelab.models.lm.training import operations_per_token
from ropelab.models.released.model import ModelRef
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.retrieval import NgramBaseline
from ropelab.models.tasks.task import EvaluationTask, Windows
from ropelab.runs.cell import Context, Resources, Values
from ropelab.runs.estimate import Estimate, refuse_beyond
from ropelab.runs.labels import method_label
from ropelab.runs.machine import DtypeName, computing_in
from ropelab.runs.thresholds import KNOWN

# The share of the forward pass in the operations of a training step.
FORWARD = 1 / 3
UNDECIDABLE = "undecidable"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A check, before any evaluation, that a released model loads and takes all methods."""

    subject: ModelRef
    modes: tuple[Mode, ...]
    train_len: int
    # The longest context, in tokens.
    longest: int
    # In bytes; None: all that is free.
    limit_memory: int | None = None
    title: ClassVar[str] = "loading the model"
    kind: ClassVar[str] = "given-checked"
    version: ClassVar[int] = 1
    starts: ClassVar[tuple[()]] = ()

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
        """Return `model`: True if long contexts are passed in parts.

        InputError: a method does not fit, or the longest context needs too much memory.
        """
        with context.progress(self.title, 1) as advance:
            model = self.subject.model()
            for mode in self.modes:
                # Only the errors of the first pass are of interest here. There is no
                # pass if the encoding is not defined for the trained length.
                next(mode.passes(model, [self.train_len]), None)
            # Only now is it known if long contexts are passed in parts, and how much
            # memory of a GPU is free.
            added = model.bytes_of_reading(self.longest)
            self.subject.check_memory(self.limit_memory, self.longest, added)
            if context.limits:
                refuse_beyond(Estimate(bytes=added), 1, model.free_bytes())
            advance(1)
        return {"model": pd.DataFrame([{"reads_in_parts": model.in_parts}])}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One task done by one model in one evaluation mode."""

    subject: Training | ModelRef
    task: EvaluationTask
    mode: Mode
    # The first columns of its rows; not in the key.
    labels: tuple[tuple[str, object], ...]
    # The format of products; a released model has its own.
    dtype: DtypeName = "float32"
    # The check of a released model.
    checked: Checked | None = None
    # The same task inside the trained length. Where too little is found there, this one
    # is undecidable, and is not computed.
    probe: "Evaluation | None" = None

    @property
    def kind(self) -> str:
        prefix = "given-" if isinstance(self.subject, ModelRef) else ""
        return f"{prefix}{self.task.name}"

    @property
    def version(self) -> int:
        # Earlier ones moved keys of released models in halves, also where a model
        # rotates interleaved pairs.
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
        mode = str(next(iter(labels.values())))
        factor = labels.get("factor")
        if isinstance(factor, int | float):
            mode = method_label(mode, factor, str(labels.get("arm", "")))
        if isinstance(self.subject, Training):
            return f"{self.task.title}, seed {self.subject.seed}, {mode}"
        return f"{self.task.title}, {mode}"

    @property
    def resources(self) -> Resources:
        windows = self.task.windows
        if isinstance(self.subject, ModelRef):
            return self.subject.resources(windows)
        size = self.subject.size
        # Where few tokens are scored, the last layer makes of all others keys and
        # values alone, a sixth of its products.
        last = 1 if self.task.scores_all else 1 / 6
        shorter = replace(size, layers=size.layers - 1)

        def per_token(length: int) -> float:
            before = operations_per_token(shorter, length)
            return before + last * (operations_per_token(size, length) - before)

        def operations(windows: Windows) -> float:
            total = 0.0
            for rows, length in windows:
                total += rows * length * per_token(length) * FORWARD
            return total

        search = self.mode.evaluations * operations(self.task.search_windows)
        memory = [bytes_of_reading(size, rows, length) for rows, length in windows]
        return Resources(
            operations(windows) + search,
            memory_bytes=max(MEMORY, *memory),
            dtype=self.dtype,
            gpu=self.subject.device == "cuda",
            folders=self.subject.folders,
            inputs=self.task.inputs,
        )

    @property
    def starts(self) -> "tuple[Training | Checked | Evaluation, ...]":
        """The training of its model, or the check of a released one and the probe."""
        if isinstance(self.subject, Training):
            return (self.subject,)
        starts = (self.checked, self.probe)
        return tuple(start for start in starts if start is not None)

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return values per document or sequence, or the status of an undecidable task."""
        # KNOWN decides the status and is not in the key: raise the version where it is
        # changed.
        if self.probe is not None and not is_found(context.compute(self.probe)):
            return {"status": pd.DataFrame({"status": [UNDECIDABLE]})}
        model = self.subject.model(context)
        computing = computing_in(self.dtype, self.subject.device)
        with context.progress(self.title, self.task.steps) as advance, computing:
            mode, chosen = self.mode.search(self.task.search_loss, model)
            tables = self.task.measure(model, mode, advance)
        if chosen:
            tables = {**tables, "searched": pd.DataFrame([chosen])}
        return tables


def is_found(values: Mapping[str, pd.DataFrame]) -> bool:
    """Return True if enough is found for a task to be decidable."""
    table = values["trials" if "trials" in values else "answers"]
    return bool(table["correct"].sum() >= KNOWN * table["trials"].sum())


def collect(
    cells: Iterable[Evaluation | NgramBaseline], values: Values
) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the values of all tasks by task and table, one model after the other."""
    parts: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for cell in cells:
        for name, table in values[cell].items():
            labels = pd.DataFrame(dict(cell.labels), index=table.index)
            of_task = parts.setdefault(cell.task.name, {})
            of_task.setdefault(name, []).append(labels.join(table))

    tables: dict[str, dict[str, pd.DataFrame]] = {}
    for task, of_task in parts.items():
        tables[task] = {}
        for name, rows in of_task.items():
            tables[task][name] = pd.concat(rows, ignore_index=True)
    return tables
