"""From a config to the pieces of a run: one model, one recipe, one encoding but for its base."""

from functools import partial
from itertools import product

from ropelab.encoding.rope import Rope
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.lm.model import ModelSize
from ropelab.lm.trained import COPY, Training
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
            subject=training(config, wanted, base, seed),
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
        return Texts(source=config.source(), documents=config.documents, buckets=buckets)
    places = grid.places(grid.inner_distances(length), length)
    return Retrieval(name=task, places=places, sequences=config.sequences)


def training(config: BaseEmpiricalConfig, asked: Trial, base: float, seed: int) -> Training:
    """One model: it learns real text, or copying, which is also how it looks up."""
    is_text = isinstance(asked, Texts)
    task = asked.source.task() if isinstance(asked, Texts) else COPY
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
            steps=config.text_steps if is_text else config.retrieval_steps,
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
