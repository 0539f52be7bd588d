"""A trained model by its description, and its memory."""
# Its folder is named by a hash of shape, recipe, seed, encoding and data: it is trained only once.

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.evaluation import TOKENS_PER_PASS
from ropelab.models.lm.model import SCORES_PER_BLOCK, LanguageModel, ModelSize
from ropelab.models.lm.training import Data, Recipe, train
from ropelab.runs.cell import Context, Supply
from ropelab.runs.cells import CellName
from ropelab.runs.machine import DtypeName

# Raise it when the same description would train to other weights.
VERSION = 4

# Memory in bytes, fitted to measured peaks of training. Layers x width, tokens in a step, window:
# GB, and the formula's: 3x192, 4096, 2048: 1.1 (0.9); 3x192, 16384, 2048: 1.1 (1.5); 6x384, 8192,
# 1024: 1.8 (2.7); 2x128 with 4 heads and separate products, 4096, 2048: 0.9 (1.4). A worker that
# goes on to other models keeps more of its memory: up to 2.9 was seen.
LIBRARIES = 600_000_000  # Python with torch, and the corpus
OPTIMIZED, READ = 16, 4  # a weight with its gradient and the optimizer's state, and alone
KEPT, PASSED = 100, 40  # token, layer and unit of width: for the backward pass, in a forward pass
TOKEN = 40  # a token in whole numbers
SCORE = 10  # a score of an encoding without a fused kernel, in a layer that is trained


@dataclass(frozen=True, kw_only=True)
class Task:
    """The data that a model learns."""

    name: str  # for people
    vocabulary: int
    batches: Callable[[int, int, int, int], Any]  # from seed, step, window and rows
    key: dict[str, Any]  # identifies those batches, json-able
    supplies: tuple[Supply, ...] = ()  # inputs that they are made from

    def data(self, seed: int) -> Data:
        return partial(self.batches, seed)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The description of a trained model."""

    task: Task
    size: ModelSize  # its vocabulary is the task's
    recipe: Recipe
    seed: int  # of the initial weights and of the batches
    encoding: Callable[[], Encoding]
    encoding_key: dict[str, Any]  # identifies that encoding, json-able
    dtype: DtypeName
    start: "Training | None" = None  # whose weights this one starts from
    # Without a fused kernel memory holds all scores. The weights are the same: not in the key.
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
        """The folders of its weights, and of the models that it starts from."""
        starts = self.start.folders if self.start else ()
        return (*starts, CellName("model", VERSION, self.key))

    def untrained(self, context: Context, device: str = "cpu") -> LanguageModel:
        model = LanguageModel(self.size, self.encoding(), self.seed).to(device)
        if self.start:
            model.load_state_dict(self.start.model(context, device).state_dict())
        return model

    def model(self, context: Context, device: str = "cpu") -> LanguageModel:
        return self.model_and_losses(context, device)[0]

    def model_and_losses(
        self, context: Context, device: str = "cpu"
    ) -> tuple[LanguageModel, list[float]]:
        """Return the trained model, in evaluation mode, and the loss of each step per token.

        MachineError: training diverged, or a checkpoint cannot be read or written.
        """
        model, data = self.untrained(context, device), self.task.data(self.seed)
        doing = "training" if self.start is None else "fine-tuning"
        progress = partial(context.progress, f"{doing} a model, seed {self.seed}")
        with context.cells.directory(CellName("model", VERSION, self.key)) as folder:
            losses = train(model, data, self.recipe, folder, progress, self.dtype)
        return model.eval().requires_grad_(False), losses


def bytes_of_training(size: ModelSize, recipe: Recipe, fused: bool) -> int:
    tokens = max(recipe.tokens_per_step, recipe.window)
    scores = 0 if fused else tokens * recipe.window * size.heads
    kept = size.layers * (KEPT * tokens * size.width + SCORE * scores)
    return LIBRARIES + OPTIMIZED * size.weights + kept


def bytes_of_reading(size: ModelSize, rows: int, length: int) -> int:
    """Estimate the peak memory of evaluating rows, of which some are passed through at once."""
    at_once = max(length, min(rows * length, TOKENS_PER_PASS)) * size.width
    blocks = 16 * 4 * SCORES_PER_BLOCK
    return LIBRARIES + READ * size.weights + PASSED * at_once + TOKEN * rows * length + blocks
