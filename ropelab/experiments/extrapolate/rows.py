"""Rows of a run: methods on models, which of them are trained how; and the cells of all tasks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry
from ropelab.models.lm import trained
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.source import Mixture
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import Recipe
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.methods.method import PAIRING, Method, Reading, Scaled
from ropelab.models.methods.search import LongRopeSearch, Searched, has_parameters
from ropelab.models.tasks.cells import Asked
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.plans import beyond_training, learned
from ropelab.models.tasks.readers import Reader, Sliding, Under
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.text import Texts
from ropelab.runs.labels import SEARCHED, WINDOW

Task = Texts | Retrieval | Needles
LONGER = "trained_at_test_len"
# Learning rates of fine-tuning, as a share of those of training.
GENTLER = 0.25


@dataclass(frozen=True)
class Row:
    """One way to evaluate a model in a long context.

    Attributes:
        arm: `zero_shot`, `searched`, `finetuned` or `ceiling`.
        model: the model that is evaluated, from the one trained at the trained length.
    """

    method: str
    factor: float
    arm: str
    reader: Reader
    model: Callable[[Training], Training]


def questions(config: ExtrapolateConfig) -> list[Asked]:
    """Every row of every task, for every training seed."""
    return [
        Asked(
            subject=row.model(base),
            trial=asked,
            reader=row.reader,
            labels=(
                ("method", row.method),
                ("factor", row.factor),
                ("seed", base.seed),
                ("arm", row.arm),
            ),
            device=config.device,
            dtype=config.dtype,
        )
        for wanted in (beyond_training(config, task, config.depths) for task in config.tasks)
        for base in trainings(config)
        for row, asked in rows(config, wanted)
    ]


def rows(config: ExtrapolateConfig, asked: Task) -> Iterator[tuple[Row, Task]]:
    """All rows of one task, the baselines last."""
    geometry = config.geometry()
    for arm in ("zero_shot", "finetuned"):
        for method in config.parsed_methods() if arm in config.arms else ():
            if method.is_tunable:
                reader = Under(method, geometry)
                model = partial(_model, config, method, arm)
                yield Row(method.label, method.reach, arm, reader, model), asked
    for method, published in searches(config):
        reader = Under(method, geometry)
        yield Row(published.label, published.reach, SEARCHED, reader, as_trained), asked
    plain = Under(UNSCALED, geometry)
    if "ceiling" in config.arms:
        longer = partial(trained_longer, geometry=geometry, test_len=config.test_len)
        yield Row(LONGER, 1.0, "ceiling", plain, longer), asked
    window = Sliding(plain, config.train_len)
    yield Row(WINDOW, 1.0, "zero_shot", window, as_trained), asked.at_the_end(config.test_len)


def searches(config: ExtrapolateConfig) -> Iterator[tuple[Method, Method]]:
    """Every method that is searched on the trained model, and the one it is called by.

    LongRoPE, which has nothing but knobs, is searched where it is named. With `search` all methods
    with knobs are, each once, with that budget for all; LongRoPE then is whether named or not.
    """
    methods = config.parsed_methods() if "zero_shot" in config.arms else ()
    named = [method for method in methods if isinstance(method, LongRopeSearch)]
    if not config.search:
        yield from zip(named, named, strict=True)
        return
    first: dict[str, Scaled] = {}  # of a method that is tried with several factors
    for method in methods:
        if isinstance(method, Scaled) and has_parameters(method.scaling):
            first.setdefault(method.label, method)
    for method in first.values():
        yield Searched(inner=method.scaling, budget=config.search), method
    plain = LongRopeSearch(factor=config.test_len / config.train_len)
    for each in dict.fromkeys(replace(one, budget=plain.budget) for one in (*named, plain)):
        yield replace(each, budget=config.search), each


def trainings(config: ExtrapolateConfig) -> list[Training]:
    """One training per seed."""
    preset = config.sizes
    task = learned(config)
    size = ModelSize(
        vocabulary=task.vocabulary,
        layers=preset.layers,
        width=preset.width,
        heads=preset.heads,
        head_dim=config.head_dim,
    )
    recipe = Recipe(
        steps=config.steps or preset.steps,
        window=config.train_len,
        tokens_per_step=preset.tokens_per_step,
        matrix_rate=preset.matrix_rate,
        other_rate=preset.other_rate,
    )
    return [
        Training(
            task=task,
            size=size,
            recipe=recipe,
            seed=seed,
            encoding=partial(UNSCALED.encoding, config.geometry(), config.train_len),
            encoding_key={"name": "rope", "pairing": PAIRING, "base": config.base},
            dtype=config.dtype,
        )
        for seed in config.seeds
    ]


def as_trained(base: Training) -> Training:
    """The model of the zero-shot arm."""
    return base


def _model(config: ExtrapolateConfig, method: Method, arm: str, base: Training) -> Training:
    if not isinstance(method, Reading):
        return base
    # Copying is known by now: the periodic rows that training begins with are left out.
    task = config.corpus_at().task(Mixture(periodic_steps=0))
    if arm == "zero_shot":
        return recalibrated(base, task, method, config.geometry())
    steps, length = config.finetune_steps, config.tuned_len
    return finetuned(base, task, method, config.geometry(), steps, length)


def recalibrated(
    base: Training, task: trained.Task, method: Reading, geometry: Geometry
) -> Training:
    """`base` trained for longer at its own length, at full rates, if `method` includes that.

    Args:
        task: what it learns now.
    """
    if not method.recalibration:
        return base
    length, steps = base.recipe.window, method.recalibration
    recipe = replace(base.recipe, steps=steps, first_window=length, warmup=min(5, steps))
    return replace(
        base,
        task=task,
        recipe=recipe,
        encoding=partial(method.encoding, geometry, length),
        encoding_key={**base.encoding_key, "name": method.encoding(geometry, length).name},
        start=base,
    )


def finetuned(
    base: Training, task: trained.Task, method: Reading, geometry: Geometry, steps: int, length: int
) -> Training:
    """`base`, made ready for `method`, fine-tuned on `task` at a length, reading it by `method`."""
    base = recalibrated(base, task, method, geometry)
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
        task=task,
        recipe=recipe,
        encoding=partial(method.encoding, geometry, length),
        encoding_key={**base.encoding_key, "method": method.label, "factor": method.reach},
        start=base,
    )


def trained_longer(base: Training, geometry: Geometry, test_len: int) -> Training:
    """The same training at the test length from the start, on the same number of tokens.

    The curriculum goes on to the longer window; a step holds one row more than it otherwise would
    only if one row of the longest window is more than the tokens of a step.
    """
    tokens = max(test_len, base.recipe.tokens_per_step)
    steps = max(1, round(base.recipe.steps * base.recipe.tokens_per_step / tokens))
    recipe = replace(base.recipe, steps=steps, window=test_len, tokens_per_step=tokens)
    longer = replace(geometry, trained_len=test_len)
    return replace(base, recipe=recipe, encoding=partial(UNSCALED.encoding, longer, test_len))
