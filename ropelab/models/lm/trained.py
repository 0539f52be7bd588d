"""The description of a trained model, which is also the cell that trains it.

A cell is a piece of a run whose result is stored under a hash of its `key`. The key of
a model has its shape, recipe, seed, encoding and data, so that each model is trained
only once. A model that came with the package is read instead.
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
from ropelab.models.lm.source import Batch, Mixture, make_training_batch
from ropelab.models.lm.training import PARTS, Recipe, count_training_operations, train
from ropelab.runs.cell import CellName, Context, Resources
from ropelab.runs.machine import DtypeName

# This is raised when the same description would train to other weights.
VERSION = 6

# The least memory that a cell is given. A worker that computes several models keeps
# some of the memory that it needed for earlier models; up to 2.9 GB was seen.
MEMORY = Resources().memory_bytes
# The following numbers are bytes, from which estimates of memory are made. They were
# fitted to measured peaks of training, which are 0.6 to 1.2 times the estimates.
#
# Python with torch, and the corpus.
LIBRARY_BYTES = 600_000_000
# In training, a weight with its gradient and the optimizer's state.
BYTES_PER_TRAINED_WEIGHT = 16
# In evaluation, a weight.
BYTES_PER_WEIGHT = 4
# In training, what a token keeps for the backward pass, for each layer and feature of
# the width.
BYTES_PER_TRAINED_FEATURE = 100
# In evaluation, what a token needs in a forward pass, for each feature of the width.
BYTES_PER_FEATURE = 40
# In evaluation, a token of a row with its results.
BYTES_PER_TOKEN = 40
# In training, a score of an encoding without a fused kernel, in one layer.
BYTES_PER_TRAINED_SCORE = 10


@dataclass(frozen=True, kw_only=True)
class Training:
    """The description of a trained model, and the cell that trains it."""

    corpus: CorpusRef
    mixture: Mixture
    # The size of the model. Its vocabulary is the vocabulary of the corpus.
    size: ModelSize
    recipe: Recipe
    # The seed of the initial weights and of the batches.
    seed: int
    # Makes the encoding of the model.
    encoding: Callable[[], Encoding]
    # The values that identify the encoding; json-able.
    encoding_key: dict[str, Any]
    dtype: DtypeName
    device: str
    # The name of the model, where an experiment has several; else empty.
    called: str = ""
    # The training whose weights this training starts from; None: it starts from random
    # weights.
    start: "Training | None" = None
    # False if attention has no fused kernel, so that memory holds all scores. It is not in
    # the key, since the weights are the same.
    fused: bool = True
    # True: the model that came with the package is read, and nothing is trained.
    pretrained: bool = False
    kind: ClassVar[str] = "training"
    version: ClassVar[int] = VERSION

    @property
    def key(self) -> dict[str, Any]:
        key = self._key_of_training
        if self.pretrained:
            key["weights"] = self.stored.sha256
        return key

    @property
    def stored(self) -> Pretrained:
        """The model of this description that came with the package, or InputError."""
        return find_pretrained(self._key_of_training)

    def check_stored(self) -> None:
        """Raise InputError if no model of this description came with the package."""
        find_pretrained(self._key_of_training)

    @property
    def _key_of_training(self) -> dict[str, Any]:
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
            # Nothing is trained, and no folder is written.
            return Resources(
                memory_bytes=LIBRARY_BYTES + BYTES_PER_TRAINED_WEIGHT * size.weights,
                dtype=self.dtype,
                gpu=self.device == "cuda",
                inputs=(self.corpus,),
            )

        tokens = max(recipe.tokens_per_step, recipe.window)
        scores = 0
        if not self.fused:
            scores = tokens * recipe.window * size.heads
        features = tokens * size.width
        layer_bytes = (
            BYTES_PER_TRAINED_FEATURE * features + BYTES_PER_TRAINED_SCORE * scores
        )
        weight_bytes = BYTES_PER_TRAINED_WEIGHT * size.weights
        training_bytes = LIBRARY_BYTES + weight_bytes + size.layers * layer_bytes
        # The cores compute rows side by side. At the last window, where most of the time
        # goes, a step may have few rows.
        rows = max(1, recipe.tokens_per_step // recipe.window)
        return Resources(
            count_training_operations(size, recipe),
            memory_bytes=max(MEMORY, training_bytes),
            dtype=self.dtype,
            gpu=self.device == "cuda",
            cores=min(PARTS, rows),
            folders=self.folders,
            inputs=(self.corpus,),
        )

    @property
    def prerequisites(self) -> "tuple[Training, ...]":
        """The cells that are computed before this cell."""
        return (self.start,) if self.start else ()

    @property
    def folders(self) -> tuple[CellName, ...]:
        """The folders of its weights, and of the weights that it starts from."""
        if self.pretrained:
            return ()
        weights = CellName("model", VERSION, self.key)
        if self.start is None:
            return (weights,)
        return (*self.start.folders, weights)

    def batch(self, step: int, window: int, rows: int) -> Batch:
        """Return the batch of a training step."""
        return make_training_batch(
            self.mixture, self.corpus.corpus(), self.seed, step, window, rows
        )

    def make_untrained(self, context: Context) -> LanguageModel:
        model = LanguageModel(self.size, self.encoding(), self.seed).to(self.device)
        if self.start:
            model.load_state_dict(self.start.model(context).state_dict())
        return model

    def model(self, context: Context) -> LanguageModel:
        """Return the trained model in evaluation mode, trained now if need be."""
        model, _ = self.model_and_losses(context)
        return model

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


def estimate_pass_bytes(size: ModelSize, rows: int, length: int) -> int:
    """Estimate the peak memory of evaluating `rows` rows of `length` tokens."""
    # A pass has several short rows, or a single long one.
    tokens_at_once = max(length, min(rows * length, TOKENS_PER_PASS))
    # Room for sixteen blocks of scores in float32.
    score_bytes = 16 * 4 * SCORES_PER_BLOCK
    return (
        LIBRARY_BYTES
        + BYTES_PER_WEIGHT * size.weights
        + BYTES_PER_FEATURE * tokens_at_once * size.width
        + BYTES_PER_TOKEN * rows * length
        + score_bytes
    )
