"""What the experiments ask, and what a model learns in order to answer it: one place for all.

Another task, another source of text or another grid is put in here.
"""

from ropelab.lm.model import ModelSize
from ropelab.lm.source import Mixture
from ropelab.lm.trained import Task
from ropelab.trials import grid
from ropelab.trials.cells import Trial
from ropelab.trials.config import ShapedConfig, TrialConfig
from ropelab.trials.retrieval import Retrieval
from ropelab.trials.text import HeldOut


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
