"""Rows of a run: methods on models, the training of those models, and the cells of all tasks."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.source import Mixture
from ropelab.models.lm.trained import Task, Training
from ropelab.models.lm.training import Recipe
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.methods.method import PAIRING, Method, Reading, Scaled
from ropelab.models.methods.search import LongRopeSearch, Searched, has_parameters
from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.modes import Mode, SlidingWindow, WithMethod
from ropelab.models.tasks.plans import beyond_training, learned
from ropelab.models.tasks.tables import ROW
from ropelab.runs.labels import SEARCHED, WINDOW

LONGER = "trained_at_test_len"
# Learning rates of fine-tuning, as a share of those of training.
GENTLER = 0.25
# Method, factor and arm (`zero_shot`, `searched`, `finetuned` or `ceiling`); the evaluation mode;
# and the model that is evaluated.
Row = tuple[tuple[str, float, str], Mode, Training]


def questions(config: ExtrapolateConfig) -> list[Evaluation]:
    """Return every row of every task, for every training seed."""
    trials = [beyond_training(config, task, config.depths) for task in config.tasks]
    return [
        Evaluation(
            subject=model,
            # The window reads the same at all lengths: the longest is enough.
            task=task.at_the_end(config.test_len) if method == WINDOW else task,
            mode=mode,
            labels=tuple(zip(ROW, (method, factor, base.seed, arm), strict=True)),
            device=config.device,
            dtype=config.dtype,
        )
        for task in trials
        for base in trainings(config)
        for (method, factor, arm), mode, model in rows(config, base)
    ]


def rows(config: ExtrapolateConfig, base: Training) -> Iterator[Row]:
    """Yield all rows of the model trained at the trained length, the baselines last."""
    geometry = config.geometry()
    # Copying is known by now: the periodic rows that training begins with are left out.
    task = config.corpus_at().task(Mixture(periodic_steps=0))
    for arm in ("zero_shot", "finetuned"):
        for method in config.parsed_methods() if arm in config.arms else ():
            if not method.is_tunable:
                continue
            model = base
            if isinstance(method, Reading):
                model = recalibrated(base, task, method, geometry)
                if arm == "finetuned":
                    steps, length = config.finetune_steps, config.tuned_len
                    model = finetuned(base, task, method, geometry, steps, length)
            yield (method.label, method.factor, arm), WithMethod(method, geometry), model
    for method, published in searches(config):
        yield (published.label, published.factor, SEARCHED), WithMethod(method, geometry), base
    plain = WithMethod(UNSCALED, geometry)
    if "ceiling" in config.arms:
        yield (LONGER, 1.0, "ceiling"), plain, trained_longer(base, geometry, config.test_len)
    yield (WINDOW, 1.0, "zero_shot"), SlidingWindow(plain, config.train_len), base


def searches(config: ExtrapolateConfig) -> Iterator[tuple[Method, Method]]:
    """Yield every method that is searched on the trained model, and the one it is called by.

    LongRoPE, which has nothing but parameters, is searched where it is named. With `search` all
    methods with parameters are, each once, with that budget for all, and LongRoPE in any case.
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
    """Return one training per seed."""
    preset, task = config.sizes, learned(config)
    shape = {"layers": preset.layers, "width": preset.width, "heads": preset.heads}
    size = ModelSize(vocabulary=task.vocabulary, head_dim=config.head_dim, **shape)
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


def recalibrated(base: Training, task: Task, method: Reading, geometry: Geometry) -> Training:
    """Train `base` for longer at its own length, at full rates, if `method` includes that."""
    if not method.recalibration:
        return base
    recipe = replace(base.recipe, steps=method.recalibration)
    name = method.encoding(geometry, recipe.window).name
    return _continued(base, task, method, geometry, recipe, {"name": name})


def finetuned(
    base: Training, task: Task, method: Reading, geometry: Geometry, steps: int, length: int
) -> Training:
    """Make `base` ready for `method`, and fine-tune it at a length under that method."""
    base = recalibrated(base, task, method, geometry)
    recipe = replace(
        base.recipe,
        steps=steps,
        window=length,
        tokens_per_step=max(length, base.recipe.tokens_per_step),
        matrix_rate=GENTLER * base.recipe.matrix_rate,
        other_rate=GENTLER * base.recipe.other_rate,
    )
    key = {"method": method.label, "factor": method.factor}
    return _continued(base, task, method, geometry, recipe, key)


def _continued(
    base: Training,
    task: Task,
    method: Reading,
    geometry: Geometry,
    recipe: Recipe,
    key: dict[str, Any],
) -> Training:
    # The model can read by now: its windows have their full length from the first step.
    recipe = replace(recipe, first_window=recipe.window, warmup=min(5, recipe.steps))
    encoding = partial(method.encoding, geometry, recipe.window)
    key = {**base.encoding_key, **key}
    return replace(base, task=task, recipe=recipe, encoding=encoding, encoding_key=key, start=base)


def trained_longer(base: Training, geometry: Geometry, test_len: int) -> Training:
    """Train at the test length from the start, on the same number of tokens."""
    # The curriculum goes on to the longer window; a step holds more tokens than it otherwise would
    # only if one row of the longest window is more than the tokens of a step.
    tokens = max(test_len, base.recipe.tokens_per_step)
    steps = max(1, round(base.recipe.steps * base.recipe.tokens_per_step / tokens))
    recipe = replace(base.recipe, steps=steps, window=test_len, tokens_per_step=tokens)
    longer = replace(geometry, trained_len=test_len)
    return replace(base, recipe=recipe, encoding=partial(UNSCALED.encoding, longer, test_len))
