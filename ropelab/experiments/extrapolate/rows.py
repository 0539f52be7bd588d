"""The rows that are compared: each method and baseline, with the model that is evaluated
and how that model is trained.

The base model is trained at `train_len`. Most rows evaluate the base model as it is; for
some rows it is trained further.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import Recipe
from ropelab.models.methods.method import PAIRING, UNSCALED, FixedMethod, Method, Scaled
from ropelab.models.methods.search import LongRopeSearch, Searched, has_parameters
from ropelab.models.tasks.modes import Mode, SlidingWindow, WithCache, WithMethod
from ropelab.models.tasks.plans import make_mixture
from ropelab.models.tasks.rounded import round_rows
from ropelab.runs import labels
from ropelab.runs.own import make_sources_key

# The name of the model that is trained at the tested length from the start.
LONGER = "trained_at_test_len"
# The learning rates of fine-tuning, as a share of the learning rates of training.
FINETUNING_RATE = 0.25


class MethodRow(NamedTuple):
    """A row of the tables, and the evaluation that it is about."""

    method: str
    factor: float
    # An arm of the config, or the arm of a searched, rounded or cached row.
    arm: str
    # The change that is made to the model when it is evaluated.
    mode: Mode
    model: Training


def make_trainings(config: ExtrapolateConfig, geometry: Geometry) -> list[Training]:
    """Return the training of the base model for every seed."""
    sizes = config.sizes
    size = ModelSize(
        vocabulary=VOCABULARY,
        head_dim=config.head_dim,
        layers=sizes.layers,
        width=sizes.width,
        heads=sizes.heads,
    )

    recipe = Recipe(
        window=config.train_len,
        steps=sizes.steps,
        tokens_per_step=sizes.tokens_per_step,
        matrix_rate=sizes.matrix_rate,
        other_rate=sizes.other_rate,
    )

    base_models = []
    for seed in config.seeds:
        training = Training(
            corpus=config.text,
            mixture=make_mixture(config),
            size=size,
            recipe=recipe,
            seed=seed,
            encoding=partial(UNSCALED.encoding, geometry, config.train_len),
            encoding_key={"name": "rope", "pairing": PAIRING, "base": config.base},
            dtype=config.dtype,
            device=config.device,
            pretrained=config.pretrained,
        )
        base_models.append(training)
    return base_models


def list_rows(
    config: ExtrapolateConfig,
    base: Training,
    geometry: Geometry,
    methods: Sequence[Method],
) -> Iterator[MethodRow]:
    """Yield all rows of one base model, the baselines last."""
    yield from _list_method_rows(config, base, geometry, methods)
    for method, published in list_searches(config, methods):
        mode = WithMethod(method, geometry)
        yield MethodRow(published.label, published.factor, labels.SEARCHED, mode, base)

    unscaled = WithMethod(UNSCALED, geometry)
    if "ceiling" in config.arms:
        longer_model = _train_at_test_len(config, base, geometry)
        yield MethodRow(LONGER, 1.0, "ceiling", unscaled, longer_model)

    if labels.CACHE in config.arms:
        # The cache counts n-grams from a number of tokens back to another; None: to the
        # start of the text. The sliding window does not see what is farther than its
        # length.
        length = config.train_len
        far_cache = WithCache(unscaled, length, length, None)
        near_cache = WithCache(unscaled, length, 0, length)
        whole_cache = WithCache(unscaled, length, 0, None)
        yield MethodRow(labels.FAR_CACHE, 1.0, labels.CACHE, far_cache, base)
        yield MethodRow(labels.NEAR_CACHE, 1.0, labels.CACHE, near_cache, base)
        yield MethodRow(labels.WINDOW_CACHE, 1.0, labels.CACHE, whole_cache, base)

    window = SlidingWindow(unscaled, config.train_len)
    if "finetuned" in config.arms:
        # The model of the window is fine-tuned for the same number of steps as the models
        # of the methods, at the trained length. What the models of the methods gain over
        # it is then due to the methods.
        tuned = adapt(config, base, geometry, UNSCALED, "finetuned", config.train_len)
        yield MethodRow(labels.WINDOW, 1.0, "finetuned", window, tuned)
    yield MethodRow(labels.WINDOW, 1.0, "zero_shot", window, base)


def _list_method_rows(
    config: ExtrapolateConfig,
    base: Training,
    geometry: Geometry,
    methods: Sequence[Method],
) -> Iterator[MethodRow]:
    """Yield a row per arm and method, then the rows of rounded values."""
    for arm in ("zero_shot", "finetuned"):
        if arm not in config.arms:
            continue
        for method in methods:
            # A method whose parameters are searched on the model has neither arm.
            if isinstance(method, FixedMethod):
                model = adapt(config, base, geometry, method, arm)
                mode = WithMethod(method, geometry)
                yield MethodRow(method.label, method.factor, arm, mode, model)

    for method in methods:
        if isinstance(method, Scaled):
            mode = WithMethod(method, geometry)
            rounded = round_rows(config, method.label, mode, geometry)
            for label, rounded_mode in rounded:
                yield MethodRow(
                    label, method.factor, labels.ROUNDED, rounded_mode, base
                )


def _train_at_test_len(
    config: ExtrapolateConfig, base: Training, geometry: Geometry
) -> Training:
    """Return the training at the tested length from the start, on the same number of
    tokens as the base model.
    """
    # Windows grow during training, here up to the tested length. A step has the number of
    # tokens that a step of the base model has, or more if a single window has more.
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
    """Return the further training of the base model that a method (recalibration) and
    the arm (fine-tuning) ask for. If neither asks for a training, return the base
    model.

    `tuned_len` is the length of fine-tuning, by default the config's. A step has the
    same number of tokens for any length.
    """

    def train_further(start: Training, key: dict[str, Any], **changes: Any) -> Training:
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
    # The source code of a method that the user wrote; empty for the methods of ropelab.
    own_source = make_sources_key(method)
    if method.recalibration:
        encoding = method.encoding(geometry, base.recipe.window)
        key = {"name": encoding.name, **own_source}
        if own_source:
            # The name of the encoding may not tell the parameters of a user's method.
            key["method"] = method.label
        model = train_further(base, key, steps=method.recalibration)

    if arm == "finetuned":
        model = train_further(
            model,
            {"method": method.label, "factor": method.factor, **own_source},
            steps=config.finetune_steps,
            window=tuned_len or config.tuned_len,
            tokens_per_step=max(config.tuned_len, base.recipe.tokens_per_step),
            matrix_rate=FINETUNING_RATE * base.recipe.matrix_rate,
            other_rate=FINETUNING_RATE * base.recipe.other_rate,
        )
    return model


def list_searches(
    config: ExtrapolateConfig, methods: Sequence[Method]
) -> Iterator[tuple[Method, Method]]:
    """Yield every method whose parameters are searched on the trained model, with the
    published method by whose name its row is called.

    LongRoPE has no published parameters, so it is searched wherever it is named. With
    `--search`, each method that has parameters is searched, with that budget, and LongRoPE
    even if it is not named.
    """
    # A search is an evaluation without fine-tuning.
    if "zero_shot" not in config.arms:
        methods = ()
    longropes = [method for method in methods if isinstance(method, LongRopeSearch)]
    if not config.search:
        for longrope in longropes:
            yield longrope, longrope
        return

    # A method may be named with several factors. Only the first factor is searched.
    first_by_label: dict[str, Scaled] = {}
    for method in methods:
        if isinstance(method, Scaled) and has_parameters(method.scaling):
            first_by_label.setdefault(method.label, method)
    for scaled in first_by_label.values():
        yield Searched(inner=scaled.scaling, budget=config.search), scaled

    # Named searches of LongRoPE get the default budget, so that equal searches count
    # once.
    default = LongRopeSearch(factor=config.test_len / config.train_len)
    with_default_budget = [
        replace(method, budget=default.budget) for method in (*longropes, default)
    ]
    for longrope in dict.fromkeys(with_default_budget):
        yield replace(longrope, budget=config.search), longrope
