"""From a config to the pieces of a run: the same model for every encoding, and what it is asked.

Attention runs in separate products for all of them, also for those that allow a fused kernel: times
then differ by what the encodings do, and short windows are trained faster.
"""

from functools import partial
from itertools import product

from ropelab.encoding.base import Encoding, unfused
from ropelab.encoding.registry import make_encoding
from ropelab.encoding.shape import Shape
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.lm.model import ModelSize
from ropelab.lm.trained import COPY, Training
from ropelab.lm.training import Recipe
from ropelab.trials import grid
from ropelab.trials.cells import Asked, Trial
from ropelab.trials.readers import AsTrained
from ropelab.trials.retrieval import Retrieval
from ropelab.trials.text import Texts

LEARNING_VERSION = 3
"""Raise it when an encoding starts or learns differently: its models are then trained anew."""


def questions(config: EncodingsConfig) -> list[Asked]:
    """Every task of every encoding, for every training seed."""
    asked = [trial(config, task) for task in config.tasks]
    return [
        Asked(
            subject=training(config, wanted, encoding, seed),
            trial=wanted,
            reader=AsTrained(),
            labels=(("encoding", encoding), ("task", wanted.name), ("seed", seed)),
            device=config.device,
            dtype="float32",
            model_name=encoding,
        )
        for wanted, encoding, seed in product(asked, config.encodings, config.seeds)
    ]


def trial(config: EncodingsConfig, task: str) -> Trial:
    """What a model is asked in a task."""
    train, test = config.train_len, config.test_len
    if task == "text":
        return Texts(
            source=config.source(),
            documents=config.documents,
            buckets=tuple(grid.buckets(train, test)),
            contexts=tuple(grid.contexts(train, test)),
            last=grid.last_window(train),
        )
    places = grid.places(grid.distances(train, test), test)
    return Retrieval(name=task, places=places, sequences=config.sequences)


def training(config: EncodingsConfig, asked: Trial, encoding: str, seed: int) -> Training:
    """The description of one model: an encoding, what it learns, a seed."""
    task = asked.source.task() if isinstance(asked, Texts) else COPY
    return Training(
        task=task,
        size=size_of(config, task.vocabulary),
        recipe=recipe_of(config, task.name),
        seed=seed,
        encoding=partial(encoding_of, config.shape(), encoding, seed),
        encoding_key={
            "name": encoding,
            "trained_len": config.train_len,
            "version": LEARNING_VERSION,
        },
        dtype=config.dtype,
    )


def size_of(config: EncodingsConfig, vocabulary: int) -> ModelSize:
    """The shape of every model of a task."""
    return ModelSize(
        vocabulary=vocabulary,
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        head_dim=config.head_dim,
    )


def recipe_of(config: EncodingsConfig, task: str) -> Recipe:
    """How every model of a task is trained."""
    return Recipe(
        steps=config.copy_steps if task == "copy" else config.text_steps,
        window=config.train_len,
        tokens_per_step=config.tokens_per_step,
        first_window=min(config.first_window, config.train_len),
    )


def encoding_of(shape: Shape, name: str, seed: int = 0) -> Encoding:
    """The encoding as the models of the experiment carry it."""
    return unfused(make_encoding(name, shape, seed))
