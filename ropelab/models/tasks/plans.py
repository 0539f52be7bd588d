"""What the experiments ask, and what a model learns in order to answer it: one place for all.

Another task, another source of text or another grid is put in here.
"""

from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.source import Mixture
from ropelab.models.lm.trained import Task
from ropelab.models.lm.training import FIRST_WINDOW, Recipe
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import Trial
from ropelab.models.tasks.config import ShapedConfig, TrialConfig
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.text import HeldOut


def beyond_training(config: TrialConfig, task: str) -> Trial:
    """A task at lengths up to the longest that is tested."""
    train, test = config.train_len, config.longest
    if task == "text":
        return HeldOut(
            corpus=config.corpus_at(),
            documents=config.documents,
            buckets=tuple(grid.buckets(train, test)),
            contexts=tuple(grid.contexts(train, test)),
            last=grid.last_window(train),
            beyond=train,
        )
    return Retrieval(
        name=task,
        places=grid.places(grid.distances(train, test), grid.retrieval_contexts(train, test)),
        sequences=config.sequences,
        corpus=config.corpus_at(),
    )


def inside_training(config: TrialConfig, task: str) -> Trial:
    """A task at lengths that were all trained."""
    length = config.train_len
    if task == "text":
        buckets = tuple(grid.inner_buckets(length))
        return HeldOut(corpus=config.corpus_at(), documents=config.documents, buckets=buckets)
    return Retrieval(
        name=task,
        places=grid.places(grid.inner_distances(length), [length]),
        sequences=config.sequences,
        corpus=config.corpus_at(),
    )


def learned(config: TrialConfig) -> Task:
    """What every model learns: to read, to copy and to look up, from one mixture."""
    return config.corpus_at().task(Mixture())


def model_size(config: ShapedConfig, vocabulary: int) -> ModelSize:
    """The shape of every model of an experiment whose config gives it."""
    return ModelSize(
        vocabulary=vocabulary,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        head_dim=config.head_dim,
    )


def recipe_of(config: ShapedConfig, first_window: int = FIRST_WINDOW) -> Recipe:
    """How every model of an experiment is trained whose config gives its shape.

    Args:
        first_window: tokens in a window when training begins, if models are trained at more.
    """
    return Recipe(
        steps=config.steps,
        window=config.train_len,
        tokens_per_step=config.tokens_per_step,
        first_window=min(first_window, config.train_len),
    )
