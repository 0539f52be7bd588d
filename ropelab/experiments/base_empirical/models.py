"""The models: one shape, one recipe, one encoding but for its base."""

from functools import partial

from ropelab.encoding.rope import Rope
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.lm.model import ModelSize
from ropelab.lm.trained import COPY, Task, Training, text_task
from ropelab.lm.training import Recipe
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.scaling import RopePlan


def learned(config: BaseEmpiricalConfig, task: str) -> Task:
    """What the model of a task learns: real text, or copying, which is also how it looks up."""
    return text_task(config.read_corpus()) if task == "text" else COPY


def training(config: BaseEmpiricalConfig, task: Task, base: float, seed: int) -> Training:
    """The description of one model."""
    return Training(
        task=task,
        size=ModelSize(
            vocabulary=task.vocabulary,
            layers=config.layers,
            width=config.width,
            heads=config.heads,
            head_dim=config.head_dim,
        ),
        recipe=Recipe(
            steps=config.text_steps if task.name == "text" else config.retrieval_steps,
            window=config.train_len,
            tokens_per_step=config.tokens_per_step,
        ),
        seed=seed,
        encoding=partial(_rope, config.head_dim, base),
        encoding_key={"name": "rope", "pairing": "half", "base": base},
        dtype=config.dtype,
    )


def _rope(head_dim: int, base: float) -> Rope:
    return Rope(RopePlan(inverse_frequencies(head_dim, base)))
