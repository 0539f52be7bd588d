"""A trained model by its description: continued, or loaded, from its own folder of the cell cache.

The folder's name is a hash of everything the weights depend on (shape, recipe, seed, encoding,
data), so a model is trained once for all experiments and methods that ask for it, and never taken
for another one.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.lm.training import Data, Recipe, train
from ropelab.runs.cell import Context, Supply
from ropelab.runs.cells import CellName
from ropelab.runs.machine import DtypeName

VERSION = 4
"""Raise it when the same description would train to other weights."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model learns.

    Attributes:
        name: for people.
        vocabulary: number of different tokens.
        batches: makes the batch of a step from a seed, the step, the window and the rows.
        key: what identifies those batches, json-able.
        supplies: what they are made from.
    """

    name: str
    vocabulary: int
    batches: Callable[[int, int, int, int], Any]
    key: dict[str, Any]
    supplies: tuple[Supply, ...] = ()

    def data(self, seed: int) -> Data:
        """The batches of one training seed."""
        return partial(self.batches, seed)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The description of a trained model.

    Attributes:
        task: what it learns.
        size: its shape; the vocabulary must be the task's.
        recipe: how it is trained.
        seed: of the initial weights and of the batches.
        encoding: makes the encoding it is trained with.
        encoding_key: what identifies that encoding, json-able.
        dtype: the number format it is trained in.
        start: the trained model whose weights this one starts from, None: from random ones.
        fused: whether its attention runs in a fused kernel; else memory holds all scores. It
            changes no weights.
    """

    task: Task
    size: ModelSize
    recipe: Recipe
    seed: int
    encoding: Callable[[], Encoding]
    encoding_key: dict[str, Any]
    dtype: DtypeName
    start: "Training | None" = None
    fused: bool = True

    @property
    def key(self) -> dict[str, Any]:
        """Everything the trained weights depend on, json-able."""
        start = {"start": self.start.key} if self.start else {}
        return {
            "task": self.task.key,
            "size": asdict(self.size),
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "encoding": self.encoding_key,
            "dtype": self.dtype,
            **start,
        }

    @property
    def folders(self) -> tuple[CellName, ...]:
        """Where its weights lie, and those of the models that it starts from."""
        starts = self.start.folders if self.start else ()
        return (*starts, CellName("model", VERSION, self.key))

    def untrained(self, context: Context, device: str = "cpu") -> LanguageModel:
        """The model at step 0."""
        model = LanguageModel(self.size, self.encoding(), self.seed).to(device)
        if self.start:
            model.load_state_dict(self.start.model(context, device).state_dict())
        return model

    def model(self, context: Context, device: str = "cpu") -> LanguageModel:
        """The trained model, in evaluation mode; trained now as far as it is not yet.

        Raises:
            MachineError: training diverged, or a checkpoint cannot be read or written.
        """
        return self.model_and_losses(context, device)[0]

    def model_and_losses(
        self, context: Context, device: str = "cpu"
    ) -> tuple[LanguageModel, list[float]]:
        """The trained model and the training loss of each step, in nats per scored token."""
        model = self.untrained(context, device)
        doing = "training" if self.start is None else "fine-tuning"
        line = f"{doing} a model, seed {self.seed}"
        with context.cells.directory(kind="model", version=VERSION, key=self.key) as folder:
            progress = partial(context.progress, line)
            losses = train(
                model, self.task.data(self.seed), self.recipe, folder, progress, self.dtype
            )
        return model.eval().requires_grad_(False), losses
