"""From a config to the pieces of a run: one model, one recipe, one encoding but for its base."""

from functools import partial
from itertools import product

from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.trained import Training
from ropelab.models.tasks.cells import Asked
from ropelab.models.tasks.plans import inside_training, learned, model_size, recipe_of
from ropelab.models.tasks.readers import AsTrained


def questions(config: BaseEmpiricalConfig) -> list[Asked]:
    """Every task under every base, for every training seed."""
    asked = [inside_training(config, task) for task in config.tasks]
    return [
        Asked(
            subject=training(config, base, seed),
            trial=wanted,
            reader=AsTrained(),
            labels=(("base", base), ("seed", seed)),
            device=config.device,
            dtype="float32",
            model_name=f"base {base:g}",
        )
        for wanted, seed, base in product(asked, config.seeds, config.bases)
    ]


def training(config: BaseEmpiricalConfig, base: float, seed: int) -> Training:
    """One model: a base and a seed."""
    task = learned(config)
    return Training(
        task=task,
        size=model_size(config, task.vocabulary),
        recipe=recipe_of(config),
        seed=seed,
        encoding=partial(rope, config.head_dim, base),
        encoding_key={"name": "rope", "pairing": "half", "base": base},
        dtype=config.dtype,
    )


def rope(head_dim: int, base: float) -> Rope:
    """Unscaled RoPE on whole heads."""
    return Rope(RopePlan(inverse_frequencies(head_dim, base)))
