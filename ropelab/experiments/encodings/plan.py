"""From a config to the pieces of a run: the same model for every encoding, and what it is asked.

Attention runs in separate products for all of them, also for those that allow a fused kernel: times
then differ by what the encodings do, and short windows are trained faster.
"""

from functools import partial
from itertools import product

from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.models.encoding.base import Encoding, unfused
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.models.lm.trained import Training
from ropelab.models.tasks.cells import Asked
from ropelab.models.tasks.plans import beyond_training, learned, model_size, recipe_of
from ropelab.models.tasks.readers import AsTrained

LEARNING_VERSION = 3
"""Raise it when an encoding starts or learns differently: its models are then trained anew."""


def questions(config: EncodingsConfig) -> list[Asked]:
    """Every task of every encoding, for every training seed."""
    asked = [beyond_training(config, task) for task in config.tasks]
    return [
        Asked(
            subject=training(config, encoding, seed),
            trial=wanted,
            reader=AsTrained(),
            labels=(("encoding", encoding), ("task", wanted.name), ("seed", seed)),
            device=config.device,
            dtype="float32",
            model_name=encoding,
        )
        for wanted, encoding, seed in product(asked, config.encodings, config.seeds)
    ]


def training(config: EncodingsConfig, encoding: str, seed: int) -> Training:
    """The description of one model: an encoding and a seed."""
    task = learned(config)
    return Training(
        task=task,
        size=model_size(config, task.vocabulary),
        recipe=recipe_of(config, config.first_window),
        seed=seed,
        encoding=partial(encoding_of, shape_of(config), encoding, seed),
        encoding_key={
            "name": encoding,
            "trained_len": config.train_len,
            "version": LEARNING_VERSION,
        },
        dtype=config.dtype,
        fused=False,
    )


def shape_of(config: EncodingsConfig) -> Shape:
    """What the encodings must know of the model."""
    return Shape(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        head_dim=config.head_dim,
        trained_len=config.train_len,
    )


def encoding_of(shape: Shape, name: str, seed: int = 0) -> Encoding:
    """The encoding as the models of the experiment carry it."""
    return unfused(make_encoding(name, shape, seed))
