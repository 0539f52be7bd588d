"""The models of the experiment: what they are trained on, how, and how they are trained on."""

from dataclasses import replace
from pathlib import Path

from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.given import Given, GivenTask
from ropelab.experiments.extrapolate.methods import PAIRING, Method, unscaled
from ropelab.experiments.extrapolate.presets import Budget
from ropelab.lm.model import ModelSize
from ropelab.lm.trained import COPY, Task, Training, text_task
from ropelab.lm.training import Recipe
from ropelab.rope.frequencies import Geometry

GENTLER = 0.25
"""Learning rates of training on, as a share of those of training."""


def trainings(config: ExtrapolateConfig, task_name: str) -> list[Training]:
    """One training per seed of the model for `text`, or of the one that copies and recalls."""
    sizes = config.sizes
    if task_name != "text":
        return _seeds(config, COPY, sizes.copy, config.copy_steps)
    return _seeds(config, text_task(config.read_corpus()), sizes.text, config.text_steps)


def _seeds(
    config: ExtrapolateConfig, task: Task, budget: Budget, steps: int | None
) -> list[Training]:
    size = ModelSize(
        vocabulary=task.vocabulary,
        layers=budget.layers,
        width=budget.width,
        heads=budget.heads,
        head_dim=config.head_dim,
    )
    recipe = Recipe(
        steps=steps or budget.steps,
        window=config.train_len,
        tokens_per_step=budget.tokens_per_step,
        matrix_rate=budget.matrix_rate,
    )
    plain = unscaled(config.geometry())
    return [
        Training(
            task=task,
            size=size,
            recipe=recipe,
            seed=seed,
            encoding=lambda: plain.encoding(config.train_len),
            encoding_key={"name": "rope", "pairing": PAIRING, "base": config.base},
            dtype=config.dtype,
        )
        for seed in config.seeds
    ]


def subjects(config: ExtrapolateConfig, task_name: str) -> list[Training] | list[Given]:
    """What is measured on a task: a model per training seed, or the one given."""
    if config.hf:
        return [Given(Path(config.hf), GivenTask(task_name))]
    return trainings(config, task_name)


def recalibrated(base: Training, method: Method) -> Training:
    """`base` trained on at its own length, at full rates, if that is a part of `method`."""
    if not method.recalibration:
        return base
    length, steps = base.recipe.window, method.recalibration
    recipe = replace(base.recipe, steps=steps, first_window=length, warmup=min(5, steps))
    encoding = method.encoding(length)
    return replace(
        base,
        recipe=recipe,
        encoding=lambda: encoding,
        encoding_key={**base.encoding_key, "name": encoding.name},
        start=base,
    )


def finetuned(base: Training, method: Method, steps: int, length: int) -> Training:
    """`base`, made ready for `method`, trained on at a length, reading it by `method`."""
    base = recalibrated(base, method)
    recipe = replace(
        base.recipe,
        steps=steps,
        window=length,
        first_window=length,
        tokens_per_step=max(length, base.recipe.tokens_per_step),
        warmup=min(5, steps),
        matrix_rate=GENTLER * base.recipe.matrix_rate,
        other_rate=GENTLER * base.recipe.other_rate,
    )
    return replace(
        base,
        recipe=recipe,
        encoding=lambda: method.encoding(length),
        encoding_key={**base.encoding_key, "method": method.name, "factor": method.factor},
        start=base,
    )


def trained_longer(base: Training, geometry: Geometry, test_len: int) -> Training:
    """The same training at the test length from the start, on the same number of tokens.

    The curriculum goes on to the longer window; a step holds one row more than it otherwise would
    only if one row of the longest window is more than the tokens of a step.
    """
    longer = unscaled(replace(geometry, trained_len=test_len))
    tokens = max(test_len, base.recipe.tokens_per_step)
    steps = max(1, round(base.recipe.steps * base.recipe.tokens_per_step / tokens))
    recipe = replace(base.recipe, steps=steps, window=test_len, tokens_per_step=tokens)
    return replace(base, recipe=recipe, encoding=lambda: longer.encoding(test_len))
