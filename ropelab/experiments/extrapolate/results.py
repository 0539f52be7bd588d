"""Cells, tables, answer and summary.

For most tables see `ropelab.models.tasks.tables`, for `casts`
`ropelab.models.tasks.rounded`. `searched`: the parameters that a search chose, and the
losses it went by. `ngram_baseline`: what followed the last 1, 2 or 3 tokens before.
`cost`: of each row in text of the tested length, positions attended to and
multiplications of the model per token, and the tokens of further training.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import ModelSize
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import Recipe, operations_per_token
from ropelab.models.methods.method import PAIRING, UNSCALED, Method, Reading, Scaled
from ropelab.models.methods.search import LongRopeSearch, Searched, has_parameters
from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as common
from ropelab.models.tasks.cells import FORWARD, Evaluation, collect
from ropelab.models.tasks.modes import Mode, SlidingWindow, WithCache, WithMethod
from ropelab.models.tasks.plans import beyond_training, mixture_of
from ropelab.models.tasks.retrieval import NgramBaseline, Retrieval
from ropelab.models.tasks.rounded import casts_table, rounded_rows, said_of_casts
from ropelab.runs import labels
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import tied_with
from ropelab.runs.leading import UNIFORM, find_lead
from ropelab.runs.own import sources
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.runs.thresholds import LEARNED

LONGER = "trained_at_test_len"
# Learning rates of fine-tuning, as a share of those of training.
GENTLER = 0.25
# Method, factor and arm (one of `config.arms`, or `searched`); the evaluation mode; and
# the model that is evaluated.
Row = tuple[tuple[str, float, str], Mode, Training]


def check(config: ExtrapolateConfig) -> None:
    """Raise InputError where contexts are too short for pass keys."""
    for task in config.tasks:
        beyond_training(config, task, config.depths).check()


def cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row, for every training seed; retrieval without a
    model too.
    """
    geometry, methods = config.geometry(), config.parsed_methods()
    tasks = [beyond_training(config, task, config.depths) for task in config.tasks]
    all_rows = [
        row
        for base in trainings(config, geometry)
        for row in rows(config, base, geometry, methods)
    ]
    evaluations = [
        Evaluation(
            subject=model,
            # The window sees the same at all lengths: the longest is enough.
            task=(
                task.at_the_end(config.test_len)
                if isinstance(mode, SlidingWindow)
                else task
            ),
            mode=mode,
            labels=tuple(
                zip(common.ROW, (method, factor, model.seed, arm), strict=True)
            ),
            dtype=config.dtype,
        )
        for task in tasks
        for (method, factor, arm), mode, model in all_rows
        if arm != labels.CACHE or task.name == "text"
    ]
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
    for arm in ("zero_shot", "finetuned"):
        for method in methods if arm in config.arms else ():
            # A method that is searched has no other arm.
            if isinstance(method, Reading):
                model = adapted(config, base, geometry, method, arm)
                yield (
                    (method.label, method.factor, arm),
                    WithMethod(method, geometry),
                    model,
                )
    for scaled in (method for method in methods if isinstance(method, Scaled)):
        mode = WithMethod(scaled, geometry)
        for name, rounded in rounded_rows(config, scaled.label, mode, geometry):
            yield (name, scaled.factor, labels.ROUNDED), rounded, base
    for method, published in searches(config, methods):
        row = published.label, published.factor, labels.SEARCHED
        yield row, WithMethod(method, geometry), base
    plain = WithMethod(UNSCALED, geometry)
    if "ceiling" in config.arms:
        # Trained at the test length from the start, on the same number of tokens. The
        # curriculum goes on to the longer window; a step holds more tokens only if one
        # row of it does.
        recipe, test_len = base.recipe, config.test_len
        tokens = max(test_len, recipe.tokens_per_step)
        steps = max(1, round(recipe.steps * recipe.tokens_per_step / tokens))
        recipe = replace(recipe, steps=steps, window=test_len, tokens_per_step=tokens)
        encoding = partial(
            UNSCALED.encoding, replace(geometry, trained_len=test_len), test_len
        )
        yield (
            (LONGER, 1.0, "ceiling"),
            plain,
            replace(base, recipe=recipe, encoding=encoding),
        )
    window = SlidingWindow(plain, config.train_len)
    if labels.CACHE in config.arms:
        length = config.train_len
        for name, beyond, within in (
            (labels.FAR_CACHE, length, None),
            (labels.NEAR_CACHE, 0, length),
            (labels.WINDOW_CACHE, 0, None),
        ):
            yield (
                (name, 1.0, labels.CACHE),
                WithCache(plain, length, beyond, within),
                base,
            )
    if "finetuned" in config.arms:
        # Trained on as long as the methods, at its own length: a gain of theirs is of
        # the method.
        tuned = adapted(config, base, geometry, UNSCALED, "finetuned", config.train_len)
        yield (labels.WINDOW, 1.0, "finetuned"), window, tuned
    yield (labels.WINDOW, 1.0, "zero_shot"), window, base


def adapted(
    config: ExtrapolateConfig,
    base: Training,
    geometry: Geometry,
    method: Reading,
    arm: str,
    tuned_len: int | None = None,
) -> Training:
    """Train `base` for longer, as the method (recalibration) and the arm (fine-tuning)
    ask for.

    Fine-tuning is on as many tokens at any `tuned_len`.
    """

    def continued(start: Training, key: dict[str, Any], **changes: Any) -> Training:
        recipe = replace(start.recipe, **changes)
        return replace(
            start,
            # Copying is known by now: the periodic rows that training begins with are
            # left out.
            mixture=replace(start.mixture, periodic_steps=0),
            # The model can read by now: windows have their full length from the first
            # step.
            recipe=replace(
                recipe, first_window=recipe.window, warmup=min(5, recipe.steps)
            ),
            encoding=partial(method.encoding, geometry, recipe.window),
            encoding_key={**start.encoding_key, **key},
            start=start,
        )

    model = base
    if method.recalibration:
        name = method.encoding(geometry, base.recipe.window).name
        # which has parameters that the name of its encoding may not tell
        own = sources(method)
        key = {"name": name, **own, **({"method": method.label} if own else {})}
        model = continued(base, key, steps=method.recalibration)
    if arm == "finetuned":
        model = continued(
            model,
            {"method": method.label, "factor": method.factor, **sources(method)},
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
    methods = methods if "zero_shot" in config.arms else ()
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
    for each in dict.fromkeys(
        replace(one, budget=plain.budget) for one in (*named, plain)
    ):
        yield replace(each, budget=config.search), each


def tables(config: ExtrapolateConfig, values: Values) -> dict[str, pd.DataFrame]:
    evaluated = collect(cells(config), values)
    found = common.tables_of_tasks(
        evaluated, config, UNSCALED.label, [config.train_len], {}
    )
    searched, matched = (
        [
            tables[name].assign(task=task)
            for task, tables in evaluated.items()
            if name in tables
        ]
        for name in ("searched", "matched")
    )
    if searched:
        found["searched"] = pd.concat(searched, ignore_index=True)
    if matched:
        by = ["task", "n_gram_tokens", *common.PLACE]
        found["ngram_baseline"] = common.accuracies(pd.concat(matched), by)
    methods = config.parsed_methods()
    found |= casts_table(config, methods, config.geometry(), found["comparisons"])
    return {**found, "cost": _cost(config)}


def _cost(config: ExtrapolateConfig) -> pd.DataFrame:
    geometry, records = config.geometry(), []
    base, length = trainings(config, geometry)[0], config.test_len
    for row, mode, model in rows(config, base, geometry, config.parsed_methods()):
        # A window that moves on by half of its tokens passes most tokens twice.
        passes, tokens = (
            mode.count_passes(length)
            if isinstance(mode, SlidingWindow)
            else (1, length)
        )
        times = passes * tokens / length
        # Two operations are one multiplication.
        multiplications = operations_per_token(model.size, tokens) * FORWARD / 2
        further, at = 0, model
        while at.start is not None:
            further += at.recipe.steps * max(
                at.recipe.tokens_per_step, at.recipe.window
            )
            at = at.start
        costs = (times * (tokens + 1) / 2, round(times * multiplications), further)
        records.append((*row, length, *costs))
    costs_of = ("attended_positions", "multiplications", "further_training_tokens")
    return pd.DataFrame(
        records, columns=["method", "factor", "arm", "context_tokens", *costs_of]
    )


def answer(tables: Tables) -> str:
    """Name the best methods at retrieval beyond the trained length, and at the end of
    long text.
    """
    rounded = said_of_casts(tables["casts"]) if "casts" in tables else []
    exact = {
        name: table[table["arm"] != labels.ROUNDED] if "arm" in table else table
        for name, table in tables.items()
    }
    findings = [_retrieval(exact, task) for task in common.retrieval_of(tables)]
    findings += [_text(exact)] if "text_nll" in tables else []
    return common.sentences([*rounded, *findings], tables["comparisons"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per method: loss in the first and last bucket, accuracy within and
    beyond.
    """
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _wide(tables["text_nll"], "bucket_end_tokens", common.NLL)
        columns |= {f"nll @{end}": losses[end] for end in _spread(losses, 2)}
    tasks = common.retrieval_of(tables)
    for task in tasks:
        table = in_longest_context(tables[f"{task}_accuracy"])
        if task in common.KEYS:
            at = table["context_tokens"].iloc[0]
            columns[f"{task} @{at}"] = common.by_label(table, "accuracy")
        else:
            accuracy = _wide(table, "distance_tokens", "accuracy")
            shown = _spread(accuracy, max(1, 4 - len(tasks)))
            columns |= {f"{task} @{at}": accuracy[at] for at in shown}
    return pd.concat(columns, axis=1).rename_axis("method").reset_index()


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
    table, does = tables[f"{task}_accuracy"], common.does_of(task)
    trained_len = int(table["train_len_tokens"].iloc[0])
    inside = table[table["context_tokens"] == trained_len]
    if task not in common.KEYS:
        inside = inside[inside["distance_tokens"] == trained_len // 2]
    # A task that no method does where the model was trained, with every seed, says
    # nothing about longer contexts.
    by_seed = inside.groupby(["method", "seed"])["accuracy"].mean()
    if by_seed.groupby("method").min().max() < LEARNED:
        return (
            f"no model {does} inside {trained_len} tokens, so there is no verdict on"
            " that"
        )
    longest = in_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in common.KEYS:  # compared over all depths at once
        distance, where = context, f"in {context} tokens"
    else:
        distance = min(2 * trained_len, int(longest["distance_tokens"].max()))
        longest = longest[longest["distance_tokens"] == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"from {distance} tokens back, {times}, in {context} tokens"
    is_searched = longest["arm"] == labels.SEARCHED
    published, searched = longest[~is_searched], longest[is_searched]
    at = common.by_label(published, "accuracy").sort_values(
        ascending=False, kind="stable"
    )
    about = {
        "at_tokens": distance,
        "context_tokens": context,
        "metric": f"{task}_accuracy",
    }
    lead = find_lead(at, tables["comparisons"], about, lower_is_better=False)
    assert lead is not None  # a run has a row
    if len(at) > 1 and not lead.is_shown:
        finding = (
            f"{where} no method is shown to be better than another; {lead.first} has"
            f" {lead.value:.2f} right"
        )
    else:
        finding = (
            f"{where} {lead.first} {does} best: {lead.value:.2f} right"
            f"{tied_with(lead.tied)}"
        )
    if "unscaled" in at.index and lead.first != "unscaled":
        finding += f"; unscaled {at['unscaled']:.2f}"
    if not searched.empty:
        found = common.by_label(searched, "accuracy")
        finding += f", {found.idxmax()} on this model {found.max():.2f}"
    return finding


def _text(tables: Tables) -> str:
    table = tables["text_nll"]
    losses = _wide(table, "bucket_end_tokens", common.NLL).iloc[:, -1]
    named = (
        table.assign(label=labels.row_labels(table))
        .drop_duplicates("label")
        .set_index("label")
    )
    # Searched parameters are the best ones of this model only where no formula is
    # shown.
    own = named[(named["method"] != labels.WINDOW) & (named["arm"] != labels.CACHE)]
    published = own[own["arm"] != labels.SEARCHED]
    shown = own if published.empty else published
    finding = f"at the end of text of {losses.name} bytes "
    rows = tables["comparisons"]
    rows = rows[(rows["metric"] == "nll_bucket") & (rows["at_tokens"] == losses.name)]
    if not shown.empty:
        best = str(losses[shown.index].idxmin())
        # A method is compared with the window of a model that was trained as long.
        tuned = labels.method_label(labels.WINDOW, 1, str(shown.loc[best, "arm"]))
        window = tuned if tuned in losses else labels.WINDOW
        pair = rows[(rows["method_a"] == best) & (rows["method_b"] == window)]
        verdict = str(pair["verdict"].iloc[0])
        same = "does not differ significantly from"
        found = {best: "beats", window: "is worse than"}.get(verdict, same)
        loss = f"{losses[best]:.3f} nats per byte"
        lead = find_lead(losses[shown.index], rows, {}, lower_is_better=True)
        if lead is None:
            return (
                f"{finding}nothing is ranked: no method reads better than guessing,"
                f" which has {UNIFORM:.3f} nats per byte ({best}: {loss})"
            )
        if len(shown) > 1 and not lead.is_shown:
            finding += (
                f"no method is shown to be better than another; {best} has {loss}"
            )
        else:
            finding += f"the best method is {best} ({loss}){tied_with(lead.tied)}"
        # Runs from before that window have only the one of the model before
        # fine-tuning.
        behind = (
            ", less trained" if "finetuned" in tuned and window == labels.WINDOW else ""
        )
        length = "the sliding window of the trained length"
        finding += f"; it {found} {length} ({losses[window]:.3f}{behind})"
    else:
        finding += f"the sliding window has {losses[labels.WINDOW]:.3f} nats per byte"
    if labels.FAR_CACHE in losses:
        finding += (
            "; counts of the n-grams that the window does not see lower its loss to "
            f"{losses[labels.FAR_CACHE]:.3f}, those that it sees to "
            f"{losses[labels.NEAR_CACHE]:.3f}, all to {losses[labels.WINDOW_CACHE]:.3f}"
        )
    # Where context is worth little inside the trained length, losses beyond it say
    # little.
    plain = tables["last_window"].query("method == 'unscaled'")
    inside = plain[plain["context_tokens"] <= plain["train_len_tokens"]]
    costs = inside.groupby("context_tokens")[common.NLL].mean()
    if len(costs) < 2:
        return finding
    scored = grid.last_window(int(plain["train_len_tokens"].iloc[0]))
    saved = costs.iloc[0] - costs.iloc[-1]
    return (
        f"{finding}; {costs.index[-1] - scored} instead of"
        f" {costs.index[0] - scored} tokens before the last {scored} save the unscaled"
        f" model {saved:.3f}"
    )
