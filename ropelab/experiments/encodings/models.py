"""The models of the experiment: the same one for every encoding, trained on text or on copying.

Attention runs in separate products for all of them, also for those that allow a fused kernel: times
then differ by what the encodings do, and short windows are trained faster.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ropelab.context import Context
from ropelab.encoding.base import Encoding, unfused
from ropelab.encoding.registry import make_encoding
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.lm.model import LanguageModel, ModelSize
from ropelab.lm.trained import Task, Training
from ropelab.lm.training import Recipe

LEARNING_VERSION = 3
"""Raise it when an encoding starts or learns differently: its models are then trained anew."""


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


def encoding_of(config: EncodingsConfig, name: str, seed: int = 0) -> Encoding:
    """The encoding as the models of the experiment carry it."""
    return unfused(make_encoding(name, config.shape(), seed))


def training(config: EncodingsConfig, task: Task, encoding: str, seed: int) -> Training:
    """The description of one model: an encoding, a task, a seed."""
    return Training(
        task=task,
        size=size_of(config, task.vocabulary),
        recipe=recipe_of(config, task.name),
        seed=seed,
        encoding=partial(encoding_of, config, encoding, seed),
        encoding_key={
            "name": encoding,
            "trained_len": config.train_len,
            "version": LEARNING_VERSION,
        },
        dtype=config.dtype,
    )


def trained(
    described: Training, encoding: str, config: EncodingsConfig, context: Context
) -> LanguageModel:
    """The trained model, its progress told under the name of its encoding."""
    named = replace(context, progress=_named(context.progress, encoding))
    return described.model(named, config.device)


def _named(progress: Callable[..., Any], encoding: str) -> Callable[..., Any]:
    def opened(description: str, total: float | None = None) -> Any:
        return progress(f"{encoding}: {description}", total)

    return opened
