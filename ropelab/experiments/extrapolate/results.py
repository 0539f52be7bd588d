"""Cells, tables, answer and summary.

For most tables see `ropelab.models.tasks.tables`, for `casts`
`ropelab.models.tasks.rounded`, for `divergence` `ropelab.models.tasks.divergence`.
`searched`: the parameters that a search chose, and the
losses it went by. `ngram_baseline`: what followed the last 1, 2 or 3 tokens before.
`cost`: of each row in text of the tested length, positions attended to and
multiplications of the model per token, and the tokens of further training.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.pretrained import list_pretrained
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import Recipe, operations_per_token
from ropelab.models.methods.method import PAIRING, UNSCALED, FixedMethod, Method, Scaled
from ropelab.models.methods.search import LongRopeSearch, Searched, has_parameters
from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as common
from ropelab.models.tasks.cells import FORWARD, Evaluation, collect
from ropelab.models.tasks.divergence import (
    describe_divergence,
    divergence_tables,
    make_divergence,
    pair_method_plans,
    shorten_divergence,
)
from ropelab.models.tasks.modes import Mode, SlidingWindow, WithCache, WithMethod
from ropelab.models.tasks.plans import beyond_training, mixture_of
from ropelab.models.tasks.retrieval import NgramBaseline, Retrieval
from ropelab.models.tasks.rounded import casts_table, describe_casts, rounded_rows
from ropelab.runs import labels
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import tied_with
from ropelab.runs.leading import UNIFORM, find_lead
from ropelab.runs.own import sources
from ropelab.runs.sentences import count_of
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.runs.thresholds import LEARNED

LONGER = "trained_at_test_len"
# Learning rates of fine-tuning, as a share of those of training.
GENTLER = 0.25
# What decides a model, as the models that come with ropelab have it.
OF_PRETRAINED: dict[str, Any] = {
    "train_len": 512,
    "base": 10000.0,
    "head_dim": 64,
    "preset": "small",
    "steps": None,
    "tokens_per_step": None,
    "heads": None,
    "corpus": "",
}
# Method, factor and arm (one of `config.arms`, or `searched`); the evaluation mode; and
# the model that is evaluated.
Row = tuple[tuple[str, float, str], Mode, Training]


def check(config: ExtrapolateConfig) -> None:
    """Raise InputError where contexts are too short for pass keys, or where a model
    that is to come with ropelab does not.
    """
    if config.pretrained:
        for model in trainings(config, config.geometry()):
            model.check_stored()

    for task in config.tasks:
        beyond_training(config, task, config.depths).check()


def describe_pretrained(given: Mapping[str, Any]) -> str:
    """Say which models that came with ropelab can answer; nothing if none can.

    `given` are the values of a config that are not its defaults.
    """
    stored = list_pretrained()
    for name, value in OF_PRETRAINED.items():
        if given.get(name, value) != value:
            return ""
    seeds = given.get("seeds", tuple(stored))
    if not stored or not set(seeds) <= set(stored):
        return ""

    made = stored[seeds[0]].made
    length = OF_PRETRAINED["train_len"]
    return (
        f"nothing is trained here: {count_of(len(seeds), 'model')} of the default size"
        f" came with ropelab, trained at {length} tokens on {made['day']} by"
        f" `{made['command']}`; without --quick your own are trained"
    )


def cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, and the comparisons of casts."""
    return [*task_cells(config), *divergences(config)]


def divergences(config: ExtrapolateConfig) -> list[Evaluation]:
    """Return a cell per model and cast, beside the cast of the comparison."""
    geometry = config.geometry()
    compared = []
    for model in trainings(config, geometry):
        for pair in pair_method_plans(config, geometry):
            cell = Evaluation(
                subject=model,
                task=make_divergence(config, pair),
                mode=pair.mode,
                labels=(*pair.labels, ("seed", model.seed)),
                dtype=config.dtype,
            )
            compared.append(cell)
    return compared


def task_cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, for every training seed; retrieval without a
    model too.
    """
    geometry = config.geometry()
    methods = config.parsed_methods()
    tasks = [beyond_training(config, task, config.depths) for task in config.tasks]
    all_rows: list[Row] = []
    for base in trainings(config, geometry):
        all_rows.extend(rows(config, base, geometry, methods))

    evaluations = []
    for task in tasks:
        for (method, factor, arm), mode, model in all_rows:
            if arm == labels.CACHE and task.name != "text":
                continue

            evaluated_task = task
            if isinstance(mode, SlidingWindow):
                # The window sees the same at all lengths: the longest is enough.
                evaluated_task = task.at_the_end(config.test_len)
            row = zip(common.ROW, (method, factor, model.seed, arm), strict=True)
            evaluation = Evaluation(
                subject=model,
                task=evaluated_task,
                mode=mode,
                labels=tuple(row),
                dtype=config.dtype,
            )
            evaluations.append(evaluation)

    baselines = [
        NgramBaseline(task=task) for task in tasks if isinstance(task, Retrieval)
    ]
    return [*evaluations, *baselines]


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


def rows(
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
        # Trained on as long as the methods, at its own length: a gain of theirs is of
        # the method.
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
            rounded = rounded_rows(config, method.label, mode, geometry)
            for label, rounded_mode in rounded:
                yield (label, method.factor, labels.ROUNDED), rounded_mode, base


def _train_at_test_len(
    config: ExtrapolateConfig, base: Training, geometry: Geometry
) -> Training:
    """Train at the test length from the start, on the same number of tokens."""
    # The curriculum goes on to the longer window; a step holds more tokens only if one
    # row of it does.
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
        # The model can read by now: windows have their full length from the first
        # step.
        recipe = replace(
            recipe, first_window=recipe.window, warmup=min(5, recipe.steps)
        )
        # Copying is known by now: the periodic rows that training begins with are
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
    own = sources(method)
    if method.recalibration:
        name = method.encoding(geometry, base.recipe.window).name
        key = {"name": name, **own}
        if own:
            # A method of one's own has parameters that the name of its encoding may
            # not tell.
            key["method"] = method.label
        model = train_on(base, key, steps=method.recalibration)

    if arm == "finetuned":
        model = train_on(
            model,
            {"method": method.label, "factor": method.factor, **own},
            steps=config.finetune_steps,
            window=tuned_len or config.tuned_len,
            tokens_per_step=max(config.tuned_len, base.recipe.tokens_per_step),
            matrix_rate=GENTLER * base.recipe.matrix_rate,
            other_rate=GENTLER * base.recipe.other_rate,
        )
    return model


def searches(
    config: ExtrapolateConfig, methods: Sequence[Method]
) -> Iterator[tuple[Method, Method]]:
    """Yield every method that is searched on the trained model, and the one it is
    called by.
    """
    # LongRoPE, all parameters, is searched where it is named. With `search` all methods
    # with parameters are, each once, with that budget, and LongRoPE in any case.
    if "zero_shot" not in config.arms:
        methods = ()
    longropes = [method for method in methods if isinstance(method, LongRopeSearch)]
    if not config.search:
        for longrope in longropes:
            yield longrope, longrope
        return

    # A method may be tried with several factors: its first is searched.
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


def tables(config: ExtrapolateConfig, values: Values) -> dict[str, pd.DataFrame]:
    evaluated = collect(task_cells(config), values)
    tables = common.tables_of_tasks(
        evaluated, config, UNSCALED.label, [config.train_len], {}
    )

    searched = _tables_by_task(evaluated, "searched")
    if searched:
        tables["searched"] = pd.concat(searched, ignore_index=True)
    matched = _tables_by_task(evaluated, "matched")
    if matched:
        by = ["task", "n_gram_tokens", *common.PLACE]
        tables["ngram_baseline"] = common.accuracies(pd.concat(matched), by)

    methods = config.parsed_methods()
    tables |= casts_table(config, methods, config.geometry(), tables["comparisons"])
    tables |= divergence_tables(divergences(config), values)
    tables["cost"] = _cost(config)
    return tables


def _tables_by_task(evaluated: Mapping[str, Tables], name: str) -> list[pd.DataFrame]:
    """Return that table of every task that has it, with the task as a column."""
    return [
        tables[name].assign(task=task)
        for task, tables in evaluated.items()
        if name in tables
    ]


def _cost(config: ExtrapolateConfig) -> pd.DataFrame:
    geometry = config.geometry()
    base = trainings(config, geometry)[0]
    length = config.test_len
    records = []
    for row, mode, model in rows(config, base, geometry, config.parsed_methods()):
        # A window that moves on by half of its tokens passes most tokens twice.
        if isinstance(mode, SlidingWindow):
            passes, tokens = mode.count_passes(length)
        else:
            passes = 1
            tokens = length
        times = passes * tokens / length

        # Two operations are one multiplication.
        multiplications = operations_per_token(model.size, tokens) * FORWARD / 2
        record = (
            *row,
            length,
            times * (tokens + 1) / 2,
            round(times * multiplications),
            _further_training_tokens(model),
        )
        records.append(record)

    columns = [
        "method",
        "factor",
        "arm",
        "context_tokens",
        "attended_positions",
        "multiplications",
        "further_training_tokens",
    ]
    return pd.DataFrame(records, columns=columns)


def _further_training_tokens(model: Training) -> int:
    """Count the tokens of all trainings after the first."""
    tokens = 0
    while model.start is not None:
        recipe = model.recipe
        tokens += recipe.steps * max(recipe.tokens_per_step, recipe.window)
        model = model.start
    return tokens


def answer(tables: Tables) -> str:
    """Name the best methods at retrieval beyond the trained length, and at the end of
    long text.
    """
    findings = describe_divergence(tables)
    if "casts" in tables:
        findings += describe_casts(tables["casts"])

    exact = {}
    for name, table in tables.items():
        if "arm" in table:
            exact[name] = table[table["arm"] != labels.ROUNDED]
        else:
            exact[name] = table

    findings += [_retrieval(exact, task) for task in common.retrieval_of(tables)]
    if "text_nll" in tables:
        findings.append(_text(exact))
    return common.sentences(findings, tables["comparisons"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per method: loss in the first and last bucket, accuracy within and
    beyond.
    """
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _wide(tables["text_nll"], "bucket_end_tokens", common.NLL)
        for end in _spread(losses, 2):
            columns[f"nll @{end}"] = losses[end]

    tasks = common.retrieval_of(tables)
    for task in tasks:
        table = in_longest_context(tables[f"{task}_accuracy"])
        if task in common.KEYS:
            context = table["context_tokens"].iloc[0]
            columns[f"{task} @{context}"] = common.by_label(table, "accuracy")
            continue

        accuracy = _wide(table, "distance_tokens", "accuracy")
        for distance in _spread(accuracy, max(1, 4 - len(tasks))):
            columns[f"{task} @{distance}"] = accuracy[distance]

    return pd.concat(columns, axis=1).rename_axis("method").reset_index()


def further(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of two casts, if they were compared."""
    return shorten_divergence(tables)


def _wide(table: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Return methods in their order by positions, averaged over seeds."""
    names = labels.row_labels(table)
    wide = table.assign(label=names).pivot_table(
        index="label", columns=column, values=value
    )
    return wide.loc[list(dict.fromkeys(names))]


def _spread(table: pd.DataFrame, most: int) -> Sequence[Hashable]:
    """Return a few columns, evenly taken, the last one among them."""
    columns = list(table.columns)
    step = max(1, len(columns) // most)
    return columns[::-1][::step][:most][::-1]


def _retrieval(tables: Tables, task: str) -> str:
    """Say which method retrieves best beyond the trained length."""
    table = tables[f"{task}_accuracy"]
    does = common.describe_success(task)
    trained_len = int(table["train_len_tokens"].iloc[0])
    if not _has_learned(table, task, trained_len):
        return (
            f"no model {does} inside {trained_len} tokens, so there is no verdict on"
            " that"
        )

    longest = in_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in common.KEYS:
        # Keys are compared over all depths at once.
        distance = context
        where = f"in {context} tokens"
    else:
        distance = min(2 * trained_len, int(longest["distance_tokens"].max()))
        longest = longest[longest["distance_tokens"] == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"from {distance} tokens back, {times}, in {context} tokens"

    is_searched = longest["arm"] == labels.SEARCHED
    published = common.by_label(longest[~is_searched], "accuracy")
    published = published.sort_values(ascending=False, kind="stable")
    compared = {
        "at_tokens": distance,
        "context_tokens": context,
        "metric": f"{task}_accuracy",
    }
    lead = find_lead(published, tables["comparisons"], compared, lower_is_better=False)
    assert lead is not None, "a run has a row"

    if len(published) > 1 and not lead.is_shown:
        finding = (
            f"{where} no method is shown to be better than another; {lead.first} has"
            f" {lead.value:.2f} right"
        )
    else:
        finding = (
            f"{where} {lead.first} {does} best: {lead.value:.2f} right"
            f"{tied_with(lead.tied)}"
        )
    if "unscaled" in published.index and lead.first != "unscaled":
        finding += f"; unscaled {published['unscaled']:.2f}"
    if is_searched.any():
        searched = common.by_label(longest[is_searched], "accuracy")
        finding += f", {searched.idxmax()} on this model {searched.max():.2f}"
    return finding


def _has_learned(table: pd.DataFrame, task: str, trained_len: int) -> bool:
    """Tell whether some method does the task where the model was trained."""
    inside = table[table["context_tokens"] == trained_len]
    if task not in common.KEYS:
        inside = inside[inside["distance_tokens"] == trained_len // 2]

    # A task that no method does there, with every seed, says nothing about longer
    # contexts.
    by_seed = inside.groupby(["method", "seed"])["accuracy"].mean()
    worst_seed = by_seed.groupby("method").min()
    return not worst_seed.max() < LEARNED


def _text(tables: Tables) -> str:
    """Say which method reads best at the end of the longest text."""
    table = tables["text_nll"]
    losses = _wide(table, "bucket_end_tokens", common.NLL).iloc[:, -1]
    methods = table.assign(label=labels.row_labels(table)).drop_duplicates("label")
    methods = methods.set_index("label")
    # Searched parameters are the best ones of this model only where no formula is
    # shown.
    is_baseline = (methods["method"] == labels.WINDOW) | (
        methods["arm"] == labels.CACHE
    )
    own = methods[~is_baseline]
    published = own[own["arm"] != labels.SEARCHED]
    shown = own if published.empty else published

    comparisons = tables["comparisons"]
    at_end = comparisons["at_tokens"] == losses.name
    comparisons = comparisons[(comparisons["metric"] == "nll_bucket") & at_end]
    finding = f"at the end of text of {losses.name} bytes "
    if shown.empty:
        finding += f"the sliding window has {losses[labels.WINDOW]:.3f} nats per byte"
    else:
        shown_losses = losses[shown.index]
        best = str(shown_losses.idxmin())
        lead = find_lead(shown_losses, comparisons, {}, lower_is_better=True)
        if lead is None:
            return (
                f"{finding}nothing is ranked: no method reads better than guessing,"
                f" which has {UNIFORM:.3f} nats per byte ({best}: {losses[best]:.3f}"
                " nats per byte)"
            )
        if len(shown) > 1 and not lead.is_shown:
            finding += (
                f"no method is shown to be better than another; {best} has"
                f" {losses[best]:.3f} nats per byte"
            )
        else:
            finding += (
                f"the best method is {best} ({losses[best]:.3f} nats per byte)"
                f"{tied_with(lead.tied)}"
            )
        finding += _against_window(
            best, str(shown.loc[best, "arm"]), losses, comparisons
        )

    if labels.FAR_CACHE in losses:
        finding += (
            "; counts of the n-grams that the window does not see lower its loss to "
            f"{losses[labels.FAR_CACHE]:.3f}, those that it sees to "
            f"{losses[labels.NEAR_CACHE]:.3f}, all to {losses[labels.WINDOW_CACHE]:.3f}"
        )
    return finding + _worth_of_context(tables["last_window"])


def _against_window(
    best: str, arm: str, losses: pd.Series, comparisons: pd.DataFrame
) -> str:
    """Say how the best method compares with the sliding window."""
    # A method is compared with the window of a model that was trained as long.
    tuned = labels.method_label(labels.WINDOW, 1, arm)
    window = tuned if tuned in losses else labels.WINDOW
    of_best = comparisons["method_a"] == best
    pair = comparisons[of_best & (comparisons["method_b"] == window)]
    verdict = str(pair["verdict"].iloc[0])
    if verdict == best:
        relation = "beats"
    elif verdict == window:
        relation = "is worse than"
    else:
        relation = "does not differ significantly from"

    note = ""
    if "finetuned" in tuned and window == labels.WINDOW:
        # Runs from before that window have only the one of the model before
        # fine-tuning.
        note = ", less trained"
    return (
        f"; it {relation} the sliding window of the trained length"
        f" ({losses[window]:.3f}{note})"
    )


def _worth_of_context(last_window: pd.DataFrame) -> str:
    """Say what context inside the trained length saves; nothing where one is tested."""
    # Where context is worth little inside the trained length, losses beyond it say
    # little.
    unscaled = last_window.query("method == 'unscaled'")
    inside = unscaled[unscaled["context_tokens"] <= unscaled["train_len_tokens"]]
    costs = inside.groupby("context_tokens")[common.NLL].mean()
    if len(costs) < 2:
        return ""

    scored = grid.last_window(int(unscaled["train_len_tokens"].iloc[0]))
    saved = costs.iloc[0] - costs.iloc[-1]
    return (
        f"; {costs.index[-1] - scored} instead of"
        f" {costs.index[0] - scored} tokens before the last {scored} save the unscaled"
        f" model {saved:.3f}"
    )
