"""A trained model by its description, and its memory.

Its folder is named by a hash of shape, recipe, seed, encoding and data: it is trained
only once. One that came with the package is read instead.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import pandas as pd

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.corpus import CorpusRef
from ropelab.models.lm.evaluation import TOKENS_PER_PASS
from ropelab.models.lm.model import SCORES_PER_BLOCK, LanguageModel, ModelSize
from ropelab.models.lm.pretrained import Pretrained, find_pretrained
from ropelab.models.lm.source import Batch, Mixture, training_batch
from ropelab.models.lm.training import PARTS, Recipe, operations_of_training, train
from ropelab.runs.cell import CellName, Context, Resources
from ropelab.runs.machine import DtypeName

# Raise it when the same description would train to other weights.
VERSION = 5

# A worker keeps some of the memory that it needed for other cells.
MEMORY = Resources().memory_bytes
# Memory in bytes, fitted to measured peaks of training, which are 0.6 to 1.2 times
# these. A worker that goes on to other models keeps more of its memory: up to 2.9 GB
# was seen.
# Python with torch, and the corpus.
LIBRARIES = 600_000_000
# A weight with its gradient and the optimizer's state, and a weight alone.
OPTIMIZED = 16
READ = 4
# For each token, layer and unit of width: for the backward pass, and in a forward pass.
KEPT = 100
PASSED = 40
# A token in whole numbers.
TOKEN = 40
# A score of an encoding without a fused kernel, in a layer that is trained.
SCORE = 10


@dataclass(frozen=True, kw_only=True)
class Training:
    """The description of a trained model, and the cell that trains it."""

    corpus: CorpusRef
    mixture: Mixture
    # The vocabulary of the size is that of the corpus.
    size: ModelSize
    recipe: Recipe
    # The seed of the initial weights and of the batches.
    seed: int
    encoding: Callable[[], Encoding]
    # The values that identify the encoding; json-able.
    encoding_key: dict[str, Any]
    dtype: DtypeName
    device: str
    # The name of the model, where an experiment has several.
    called: str = ""
    # The training whose weights this one starts from.
    start: "Training | None" = None
    # Without a fused kernel memory holds all scores. The weights are the same: it is
    # not in the key.
    fused: bool = True
    # The model that came with the package is read instead of being trained.
    pretrained: bool = False
    kind: ClassVar[str] = "training"
    version: ClassVar[int] = VERSION

    @property
    def key(self) -> dict[str, Any]:
        key = self._described
        if self.pretrained:
            key["weights"] = self.stored.sha256
        return key

    @property
    def stored(self) -> Pretrained:
        """The model of this description that came with the package, or InputError."""
        return find_pretrained(self._described)

    def check_stored(self) -> None:
        """Raise InputError if no model of this description came with the package."""
        find_pretrained(self._described)

    @property
    def _described(self) -> dict[str, Any]:
        key: dict[str, Any] = {
            "task": {"corpus": self.corpus.fingerprint, "mixture": self.mixture.key},
            "size": asdict(self.size),
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "encoding": self.encoding_key,
            "dtype": self.dtype,
        }
        if self.start:
            key["start"] = self.start.key
        return key

    @property
    def title(self) -> str:
        return f"{self.called or 'mixture'}, seed {self.seed}"

    @property
    def resources(self) -> Resources:
        size = self.size
        recipe = self.recipe
        if self.pretrained:
            return Resources(
                memory_bytes=LIBRARIES + OPTIMIZED * size.weights,
                dtype=self.dtype,
                gpu=self.device == "cuda",
                inputs=(self.corpus,),
            )

        tokens = max(recipe.tokens_per_step, recipe.window)
        scores = 0 if self.fused else tokens * recipe.window * size.heads
        kept = size.layers * (KEPT * tokens * size.width + SCORE * scores)
        # At the last window, where most of the time goes, a step may have few rows.
        rows = max(1, recipe.tokens_per_step // recipe.window)
        return Resources(
            operations_of_training(size, recipe),
            memory_bytes=max(MEMORY, LIBRARIES + OPTIMIZED * size.weights + kept),
            dtype=self.dtype,
            gpu=self.device == "cuda",
            cores=min(PARTS, rows),
            folders=self.folders,
            inputs=(self.corpus,),
        )

    @property
    def starts(self) -> "tuple[Training, ...]":
        return (self.start,) if self.start else ()

    @property
    def folders(self) -> tuple[CellName, ...]:
        """The folders of its weights, and of the models that it starts from."""
        if self.pretrained:
            return ()
        starts = self.start.folders if self.start else ()
        return (*starts, CellName("model", VERSION, self.key))

    def batch(self, step: int, window: int, rows: int) -> Batch:
        return training_batch(
            self.mixture, self.corpus.corpus(), self.seed, step, window, rows
        )

    def make_untrained(self, context: Context) -> LanguageModel:
        model = LanguageModel(self.size, self.encoding(), self.seed).to(self.device)
        if self.start:
            model.load_state_dict(self.start.model(context).state_dict())
        return model

    def model(self, context: Context) -> LanguageModel:
        return self.model_and_losses(context)[0]

    def model_and_losses(
        self, context: Context, called: str = ""
    ) -> tuple[LanguageModel, list[float]]:
        """Return the trained model in evaluation mode, and the loss of each step.

        The losses are per token. MachineError: training diverged, or a checkpoint
        cannot be read or written.
        """
        model = self.make_untrained(context)
        if self.pretrained:
            weights, losses = self.stored.read()
            model.load_state_dict(weights)
            return model.eval().requires_grad_(False), losses

        doing = "training" if self.start is None else "fine-tuning"
        title = f"{called}{doing} a model, seed {self.seed}"
        progress = partial(context.progress, title)
        with context.cells.directory(CellName("model", VERSION, self.key)) as folder:
            losses = train(
                model,
                self.batch,
                self.recipe,
                folder,
                progress,
                self.dtype,
                context.cores,
            )
        return model.eval().requires_grad_(False), losses

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return `loss`: the training loss of each step, in nats per scored token."""
        prefix = f"{self.called}: " if self.called else ""
        _, losses = self.model_and_losses(context, prefix)
        columns = {"step": range(len(losses)), "nll_nats_per_token": losses}
        return {"loss": pd.DataFrame(columns)}


def bytes_of_reading(size: ModelSize, rows: int, length: int) -> int:
    """Estimate the peak memory of evaluating rows, some of them at once."""
    tokens_at_once = max(length, min(rows * length, TOKENS_PER_PASS))
    blocks = 16 * 4 * SCORES_PER_BLOCK
    return (
        LIBRARIES
        + READ * size.weights
        + PASSED * tokens_at_once * size.width
        + TOKEN * rows * length
        + blocks
    )
