"""The rows that are compared: each method and baseline, with the model it is
evaluated on and how that model is trained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import Recipe
from ropelab.models.methods.method import PAIRING, UNSCALED, FixedMethod, Method, Scaled
from ropelab.models.methods.search import LongRopeSearch, Searched, has_parameters
from ropelab.models.tasks.modes import Mode, SlidingWindow, WithCache, WithMethod
from ropelab.models.tasks.plans import mixture_of
from ropelab.models.tasks.rounded import round_rows
from ropelab.runs import labels
from ropelab.runs.own import key_of_sources

# The name of the model that is trained at the tested length from the start.
LONGER = "trained_at_test_len"
# The learning rates of fine-tuning, as a share of the learning rates of training.
FINETUNING_RATE = 0.25
# Method, factor and arm (one of `config.arms`, or `searched`); the evaluation mode; and
# the model that is evaluated.
Row = tuple[tuple[str, float, str], Mode, Training]


def trainings(config: ExtrapolateConfig, geometry: Geometry) -> list[Training]:
    rest = config.sizes._asdict()
    shape = {name: rest.pop(name) for name in ("layers", "width", "heads")}
    size = ModelSize(vocabulary=VOCABULARY, head_dim=config.head_dim, **shape)
    recipe = Recipe(window=config.train_len, **rest)
    return [
        Training(
            corpus=config.text,
            mixture=mixture_of(config),
            size=size,
            recipe=recipe,
            seed=seed,
            encoding=partial(UNSCALED.encoding, geometry, config.train_len),
            encoding_key={"name": "rope", "pairing": PAIRING, "base": config.base},
            dtype=config.dtype,
            device=config.device,
            pretrained=config.pretrained,
        )
        for seed in config.seeds
    ]


def list_rows(
    config: ExtrapolateConfig,
    base: Training,
    geometry: Geometry,
    methods: Sequence[Method],
) -> Iterator[Row]:
    """Yield all rows of the model trained at the trained length, the baselines last."""
    yield from _method_rows(config, base, geometry, methods)
    for method, published in searches(config, methods):
        name = (published.label, published.factor, labels.SEARCHED)
        yield name, WithMethod(method, geometry), base

    unscaled = WithMethod(UNSCALED, geometry)
    if "ceiling" in config.arms:
        longer = _train_at_test_len(config, base, geometry)
        yield (LONGER, 1.0, "ceiling"), unscaled, longer

    if labels.CACHE in config.arms:
        length = config.train_len
        far = WithCache(unscaled, length, length, None)
        near = WithCache(unscaled, length, 0, length)
        whole = WithCache(unscaled, length, 0, None)
        yield (labels.FAR_CACHE, 1.0, labels.CACHE), far, base
        yield (labels.NEAR_CACHE, 1.0, labels.CACHE), near, base
        yield (labels.WINDOW_CACHE, 1.0, labels.CACHE), whole, base

    window = SlidingWindow(unscaled, config.train_len)
    if "finetuned" in config.arms:
        # The model of the window is fine-tuned for as long as the models of the
        # methods, at the trained length. Whatever these gain is then due to the method.
        tuned = adapt(config, base, geometry, UNSCALED, "finetuned", config.train_len)
        yield (labels.WINDOW, 1.0, "finetuned"), window, tuned
    yield (labels.WINDOW, 1.0, "zero_shot"), window, base


def _method_rows(
    config: ExtrapolateConfig,
    base: Training,
    geometry: Geometry,
    methods: Sequence[Method],
) -> Iterator[Row]:
    """Yield a row per arm and method, then the rows of rounded values."""
    for arm in ("zero_shot", "finetuned"):
        if arm not in config.arms:
            continue
        for method in methods:
            # A method that is searched has no other arm.
            if isinstance(method, FixedMethod):
                model = adapt(config, base, geometry, method, arm)
                name = (method.label, method.factor, arm)
                yield name, WithMethod(method, geometry), model

    for method in methods:
        if isinstance(method, Scaled):
            mode = WithMethod(method, geometry)
            rounded = round_rows(config, method.label, mode, geometry)
            for label, rounded_mode in rounded:
                yield (label, method.factor, labels.ROUNDED), rounded_mode, base


def _train_at_test_len(
    config: ExtrapolateConfig, base: Training, geometry: Geometry
) -> Training:
    """Train at the test length from the start, on the same number of tokens."""
    # The curriculum goes on to the longer window. A step holds more tokens only if one
    # row has more than a step had.
    test_len = config.test_len
    tokens_per_step = max(test_len, base.recipe.tokens_per_step)
    all_tokens = base.recipe.steps * base.recipe.tokens_per_step
    steps = max(1, round(all_tokens / tokens_per_step))
    recipe = replace(
        base.recipe, steps=steps, window=test_len, tokens_per_step=tokens_per_step
    )

    longer_geometry = Geometry(geometry.rotary_dim, geometry.base, test_len)
    encoding = partial(UNSCALED.encoding, longer_geometry, test_len)
    return replace(base, recipe=recipe, encoding=encoding, pretrained=False)


def adapt(
    config: ExtrapolateConfig,
    base: Training,
    geometry: Geometry,
    method: FixedMethod,
    arm: str,
    tuned_len: int | None = None,
) -> Training:
    """Train `base` for longer, as the method (recalibration) and the arm (fine-tuning)
    ask for.

    Fine-tuning is on as many tokens at any `tuned_len`.
    """

    def train_on(start: Training, key: dict[str, Any], **changes: Any) -> Training:
        recipe = replace(start.recipe, **changes)
        # The model can read already, so windows have their full length from the first
        # step.
        recipe = replace(
            recipe, first_window=recipe.window, warmup=min(5, recipe.steps)
        )
        # The model can copy already, so the periodic rows that training begins with are
        # left out.
        mixture = replace(start.mixture, periodic_steps=0)
        return replace(
            start,
            mixture=mixture,
            recipe=recipe,
            encoding=partial(method.encoding, geometry, recipe.window),
            encoding_key={**start.encoding_key, **key},
            start=start,
            pretrained=False,
        )

    model = base
    own = key_of_sources(method)
    if method.recalibration:
        name = method.encoding(geometry, base.recipe.window).name
        key = {"name": name, **own}
        if own:
            # The name of the encoding may not tell the parameters of a user's method.
            key["method"] = method.label
        model = train_on(base, key, steps=method.recalibration)

    if arm == "finetuned":
        model = train_on(
            model,
            {"method": method.label, "factor": method.factor, **own},
            steps=config.finetune_steps,
            window=tuned_len or config.tuned_len,
            tokens_per_step=max(config.tuned_len, base.recipe.tokens_per_step),
            matrix_rate=FINETUNING_RATE * base.recipe.matrix_rate,
            other_rate=FINETUNING_RATE * base.recipe.other_rate,
        )
    return model


def searches(
    config: ExtrapolateConfig, methods: Sequence[Method]
) -> Iterator[tuple[Method, Method]]:
    """Yield every method that is searched on the trained model, and the method whose
    name its row has.
    """
    # LongRoPE, whose parameters are all open, is searched wherever it is named. With
    # `search` each method that has parameters is searched once, with that budget, and
    # LongRoPE is searched in any case.
    if "zero_shot" not in config.arms:
        methods = ()
    longropes = [method for method in methods if isinstance(method, LongRopeSearch)]
    if not config.search:
        for longrope in longropes:
            yield longrope, longrope
        return

    # A method may be named with several factors. Only its first one is searched.
    first_by_label: dict[str, Scaled] = {}
    for method in methods:
        if isinstance(method, Scaled) and has_parameters(method.scaling):
            first_by_label.setdefault(method.label, method)
    for scaled in first_by_label.values():
        yield Searched(inner=scaled.scaling, budget=config.search), scaled

    default = LongRopeSearch(factor=config.test_len / config.train_len)
    same_budget = [
        replace(method, budget=default.budget) for method in (*longropes, default)
    ]
    for longrope in dict.fromkeys(same_budget):
        yield replace(longrope, budget=config.search), longrope
