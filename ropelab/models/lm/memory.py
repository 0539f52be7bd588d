"""How much memory a process needs that trains or reads a model; fitted to measured peaks.

Peaks of training, in GB, for layers x width, tokens in a step, window, and what the formula says:
3x192, 4096, 2048: 1.1 (0.9); 3x192, 16384, 2048: 1.1 (1.5); 6x384, 8192, 1024: 1.8 (2.7);
2x128 with 4 heads and separate products, 4096, 2048: 0.9 (1.4). A worker that goes on to train and
measure other models keeps more of what it once had: up to 2.9 was seen.
"""

from ropelab.models.lm.evaluation import TOKENS_PER_PASS
from ropelab.models.lm.model import SCORES_PER_BLOCK, ModelSize
from ropelab.models.lm.training import Recipe

LIBRARIES = 600_000_000
"""Python with torch, and the corpus."""
OPTIMIZED, READ = 16, 4
"""Bytes per weight: with its gradient and what the optimizer keeps of it, and alone."""
KEPT, PASSED = 100, 40
"""Bytes per token, layer and unit of width: kept for the backward pass, and in a forward pass."""
TOKEN = 40
"""Bytes per token of what is to be read, in whole numbers."""
SCORE = 10
"""Bytes per score of an encoding without a fused kernel, in a layer that is learned from."""


def bytes_of_training(size: ModelSize, recipe: Recipe, fused: bool) -> int:
    """The most that training a model needs at once."""
    tokens = max(recipe.tokens_per_step, recipe.window)
    scores = 0 if fused else tokens * recipe.window * size.heads
    kept = size.layers * (KEPT * tokens * size.width + SCORE * scores)
    return LIBRARIES + OPTIMIZED * weights(size) + kept


def bytes_of_reading(size: ModelSize, rows: int, length: int) -> int:
    """The most that reading so many rows needs, of which some are passed through at once."""
    at_once = max(length, min(rows * length, TOKENS_PER_PASS)) * size.width
    blocks = 16 * 4 * SCORES_PER_BLOCK
    return LIBRARIES + READ * weights(size) + PASSED * at_once + TOKEN * rows * length + blocks


def weights(size: ModelSize) -> int:
    """How many numbers a model has, its encoding left aside."""
    inner = size.heads * size.head_dim
    layer = 4 * inner * size.width + 8 * size.width**2
    return size.layers * layer + 2 * size.vocabulary * size.width
