"""From a config to the pieces of a run: one model, one recipe, one encoding but for its base."""

from functools import partial
from itertools import product

from ropelab.encoding.rope import Rope
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.lm.model import ModelSize
from ropelab.lm.source import Mixture
from ropelab.lm.trained import Training
from ropelab.lm.training import Recipe
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.scaling import RopePlan
from ropelab.trials import grid
from ropelab.trials.cells import Asked, Trial
from ropelab.trials.readers import AsTrained
from ropelab.trials.retrieval import Retrieval
from ropelab.trials.text import Texts


def questions(config: BaseEmpiricalConfig) -> list[Asked]:
    """Every task under every base, for every training seed."""
    asked = [trial(config, task) for task in config.tasks]
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


def trial(config: BaseEmpiricalConfig, task: str) -> Trial:
    """What a model is asked in a task, all of it inside the trained length."""
    length = config.train_len
    if task == "text":
        buckets = tuple(grid.inner_buckets(length))
        return Texts(corpus=config.corpus_at(), documents=config.documents, buckets=buckets)
    return Retrieval(
        name=task,
        places=grid.places(grid.inner_distances(length), [length]),
        sequences=config.sequences,
        corpus=config.corpus_at(),
    )


def training(config: BaseEmpiricalConfig, base: float, seed: int) -> Training:
    """One model: a base and a seed."""
    task = config.corpus_at().task(Mixture())
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
            steps=config.steps,
            window=config.train_len,
            tokens_per_step=config.tokens_per_step,
        ),
        seed=seed,
        encoding=partial(rope, config.head_dim, base),
        encoding_key={"name": "rope", "pairing": "half", "base": base},
        dtype=config.dtype,
    )


def rope(head_dim: int, base: float) -> Rope:
    """Unscaled RoPE on whole heads."""
    return Rope(RopePlan(inverse_frequencies(head_dim, base)))
