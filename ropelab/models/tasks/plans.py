"""The tasks of the experiments, and the models that learn them: one place for all."""

from collections.abc import Callable
from typing import Any

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.source import Mixture
from ropelab.models.lm.trained import Task, Training
from ropelab.models.lm.training import FIRST_WINDOW, Recipe
from ropelab.models.tasks import grid
from ropelab.models.tasks.config import Evaluated, ShapedConfig, TrialConfig
from ropelab.models.tasks.corpora import CorpusRef
from ropelab.models.tasks.needles import WORDINGS, Needles
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.text import Texts


def beyond_training(
    config: Evaluated, task: str, depths: tuple[int, ...] = ()
) -> Texts | Retrieval | Needles:
    """Return a task at lengths up to the longest that is tested.

    Args:
        depths: of pass keys, in percent of the text.
    """
    train, test, corpus = config.train_len, config.longest, config.corpus_at()
    contexts = tuple(grid.retrieval_contexts(train, test))
    if task == "text":
        return Texts(
            corpus=corpus,
            documents=config.documents,
            buckets=tuple(grid.buckets(train, test)),
            contexts=tuple(grid.contexts(train, test)),
            last=grid.last_window(train),
            # Nothing is searched on a released model.
            beyond=train if isinstance(corpus, CorpusRef) else None,
        )
    many = config.sequences
    if task in WORDINGS:
        return Needles(name=task, contexts=contexts, depths=depths, sequences=many, corpus=corpus)
    places = grid.places(grid.distances(train, test), contexts)
    return Retrieval(name=task, places=places, sequences=many, corpus=corpus)


def inside_training(config: TrialConfig, task: str) -> Texts | Retrieval:
    """Return a task at lengths that were all trained."""
    length, corpus = config.train_len, config.corpus_at()
    if task == "text":
        buckets = tuple(grid.inner_buckets(length))
        return Texts(corpus=corpus, documents=config.documents, buckets=buckets, beyond=0)
    places = grid.places(grid.inner_distances(length), [length])
    return Retrieval(name=task, places=places, sequences=config.sequences, corpus=corpus)


def learned(config: TrialConfig) -> Task:
    """Return the data of every training: to read, to copy and to look up, from one mixture."""
    return config.corpus_at().task(Mixture())


def training_of(
    config: ShapedConfig,
    seed: int,
    encoding: Callable[[], Encoding],
    encoding_key: dict[str, Any],
    first_window: int = FIRST_WINDOW,
    fused: bool = True,
) -> Training:
    """Describe a model of an experiment whose config gives its shape."""
    task = learned(config)
    return Training(
        task=task,
        size=model_size(config, task.vocabulary),
        recipe=recipe_of(config, first_window),
        seed=seed,
        encoding=encoding,
        encoding_key=encoding_key,
        dtype=config.dtype,
        fused=fused,
    )


def model_size(config: ShapedConfig, vocabulary: int) -> ModelSize:
    """Return the shape of every model of an experiment whose config gives it."""
    shape = {name: getattr(config, name) for name in ("layers", "width", "heads", "head_dim")}
    return ModelSize(vocabulary=vocabulary, **shape)


def recipe_of(config: ShapedConfig, first_window: int = FIRST_WINDOW) -> Recipe:
    """Return the recipe of those models.

    Args:
        first_window: tokens in a window when training begins, if models are trained at more.
    """
    return Recipe(
        steps=config.steps,
        window=config.train_len,
        tokens_per_step=config.tokens_per_step,
        first_window=min(first_window, config.train_len),
    )
