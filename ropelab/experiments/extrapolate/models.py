"""The two models of the experiment: what they are trained on, and how."""

from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.methods import PAIRING, unscaled
from ropelab.experiments.extrapolate.presets import Budget
from ropelab.lm.model import ModelSize
from ropelab.lm.trained import COPY, Task, Training, text_task
from ropelab.lm.training import Recipe


def trainings(config: ExtrapolateConfig, task_name: str) -> list[Training]:
    """One training per seed of the model for `text` or `copy`."""
    if task_name == "copy":
        return _seeds(config, COPY, config.sizes.copy, config.copy_steps)
    return _seeds(config, text_task(config.read_corpus()), config.sizes.text, config.text_steps)


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
    geometry = config.geometry()
    return [
        Training(
            task=task,
            size=size,
            recipe=recipe,
            seed=seed,
            encoding=lambda: unscaled(geometry).encoding(config.train_len),
            encoding_key={"name": "rope", "pairing": PAIRING, "base": config.base},
        )
        for seed in config.seeds
    ]
