"""The cells of a run that trains and measures: models, and evaluation tasks that start from them.

Tables come last, from the values of all cells together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import pandas as pd
from torch import Tensor

from ropelab.models.lm.evaluation import Readable
from ropelab.models.lm.trained import VERSION, Training, bytes_of_reading, bytes_of_training
from ropelab.models.lm.training import operations_of_training, operations_per_token
from ropelab.models.tasks.readers import Reader
from ropelab.runs.cell import Advance, Cell, Context, Needs, Supply, Values
from ropelab.runs.machine import DtypeName, computing_in

FORWARD = 1 / 3
"""The share of the forward pass in the operations of a training step."""
MEMORY = Needs().memory_bytes
"""What a cell is taken to need at least: a worker keeps some of what it needed for others."""


class Question(Protocol):
    """Real text, or something to be found again. Small, and identified by its key."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def key(self) -> dict[str, Any]: ...

    @property
    def steps(self) -> int:
        """How often it reports progress."""
        ...

    def measure(self, model: Any, reader: Reader, advance: Advance) -> dict[str, pd.DataFrame]:
        """Values per document or sequence."""
        ...


class Trial(Question, Protocol):
    """A question to a model trained here, whose cost is known and for which knobs are searched."""

    @property
    def supplies(self) -> tuple[Supply, ...]:
        """The text it may be made of."""
        ...

    @property
    def windows(self) -> Sequence[tuple[int, int]]:
        """What is read, roughly: how many rows of how many tokens, pass by pass."""
        ...

    @property
    def searched(self) -> Sequence[tuple[int, int]]:
        """What is read for one evaluation of a search."""
        ...

    def examples(self, count: int, length: int) -> Tensor:
        """Some of the sequences that are measured, cut to a length."""
        ...

    def search_loss(self, model: Readable, reader: Reader) -> float:
        """What a search lowers, on material that is not measured."""
        ...


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One training as a piece of a run; its weights lie in the folder of its checkpoints."""

    training: Training
    device: str
    called: str = ""
    kind: ClassVar[str] = "training"
    version: ClassVar[int] = VERSION

    @property
    def key(self) -> dict[str, Any]:
        """Everything the weights depend on."""
        return self.training.key

    @property
    def title(self) -> str:
        """What is said while it is computed."""
        return f"{self.called or self.training.task.name}, seed {self.training.seed}"

    @property
    def needs(self) -> Needs:
        """Every measurement waits for its model."""
        training = self.training
        return Needs(
            operations_of_training(training.size, training.recipe),
            memory_bytes=max(
                MEMORY, bytes_of_training(training.size, training.recipe, training.fused)
            ),
            dtype=training.dtype,
            gpu=self.device == "cuda",
            folders=training.folders,
            supplies=training.task.supplies,
        )

    @property
    def starts(self) -> "tuple[Trained, ...]":
        """The training whose weights this one begins with."""
        start = self.training.start
        return (replace(self, training=start),) if start else ()

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """`loss`: the training loss of each step, in nats per scored token."""
        named = replace(context, progress=partial(_named, context, self.called))
        _, losses = self.training.model_and_losses(named, self.device)
        return {"loss": pd.DataFrame({"step": range(len(losses)), "nll_nats_per_token": losses})}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question asked of one model under one reader.

    Attributes:
        labels: what its rows say in front of the values; no part of what is computed.
        dtype: the number format of the products.
        model_name: how the model is called while it is trained, where a task has several.
    """

    subject: Training
    trial: Trial
    reader: Reader
    labels: tuple[tuple[str, object], ...]
    device: str
    dtype: DtypeName
    model_name: str = ""

    @property
    def kind(self) -> str:
        """What is asked."""
        return self.trial.name

    @property
    def version(self) -> int:
        """Of the question."""
        return self.trial.version

    @property
    def key(self) -> dict[str, Any]:
        """Everything its values depend on."""
        return {
            "model": self.subject.key,
            "trial": self.trial.key,
            "reader": self.reader.key,
            "dtype": self.dtype,
        }

    @property
    def title(self) -> str:
        """What is said while it is computed."""
        who = next(iter(dict(self.labels).values()))
        return f"{self.trial.name}, seed {self.subject.seed}, {who}"

    @property
    def needs(self) -> Needs:
        """Forward passes over all that is read, and those of a search before it."""
        searched = self.reader.evaluations * self._operations(self.trial.searched)
        return Needs(
            self._operations(self.trial.windows) + searched,
            memory_bytes=self._bytes(),
            dtype=self.dtype,
            gpu=self.device == "cuda",
            folders=self.subject.folders,
            supplies=self.trial.supplies,
        )

    @property
    def starts(self) -> tuple[Trained, ...]:
        """The training of its model."""
        trained = Trained(training=self.subject, device=self.device, called=self.model_name)
        return (trained,)

    def _operations(self, windows: Sequence[tuple[int, int]]) -> float:
        return sum(
            rows * length * operations_per_token(self.subject.size, length) * FORWARD
            for rows, length in windows
        )

    def _bytes(self) -> int:
        size, windows = self.subject.size, self.trial.windows
        return max(MEMORY, *(bytes_of_reading(size, *window) for window in windows))

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """The values of the trial, per document or sequence."""
        model = self.subject.model(context, self.device)
        computing = computing_in(self.dtype, self.device)
        with context.progress(self.title, self.trial.steps) as advance, computing:
            reader = self.reader.found(self.trial.search_loss, model)
            tables = self.trial.measure(model, reader, advance)
        return {**tables, "searched": pd.DataFrame([reader.chosen])} if reader.chosen else tables


class Labelled(Cell, Protocol):
    """A cell whose values are rows of tables: a question, and what stands in front of each row."""

    @property
    def trial(self) -> Question: ...

    @property
    def labels(self) -> tuple[tuple[str, object], ...]: ...


def collected(asked: Sequence[Labelled], values: Values) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the values of all tasks: by the name of the task and of the table.

    In a table the values of all models follow one another, under their labels.
    """
    found: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for cell in asked:
        of_trial = found.setdefault(cell.trial.name, {})
        for name, table in values[cell].items():
            labelled = pd.DataFrame(dict(cell.labels), index=table.index).join(table)
            of_trial.setdefault(name, []).append(labelled)
    return {
        trial: {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
        for trial, tables in found.items()
    }


def _named(context: Context, called: str, description: str, total: float | None = None) -> Any:
    return context.progress(f"{called}: {description}" if called else description, total)
