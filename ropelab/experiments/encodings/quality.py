"""A model per encoding and seed: its cells, its tables with 95 % intervals, and the
answer.

- `text_nll`: loss by bucket of positions, mean over documents, one row per encoding and
  seed
- `last_window`: loss of the same final tokens after growing contexts, the same way
- `copy_accuracy`: share of tokens copied correctly, by distance and context
- `quality`: the three above where contexts are 1x, 2x, 4x ... the trained length, over
  seeds
- `comparisons`: every encoding against one baseline
- `pairs`: text losses at the trained length of encodings that the literature compares
- `extrapolation`: every encoding against itself at the trained length
- `against_methods`: every design against RoPE's models under each method, if methods
  are named

Where an encoding is not defined the row is there, its status `undefined` and its value
missing.
"""

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings.behaviour import Behaviour
from ropelab.experiments.encodings.cost import Timing, costs, encoding_of, memory
from ropelab.experiments.encodings.rows import JOINED_BY, Row, list_rows
from ropelab.math.numerics.casts import CastPlan
from ropelab.models.lm.trained import Training
from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as common
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.plans import task_beyond_training, training_of
from ropelab.runs.cell import Cell, Values
from ropelab.runs.comparisons import UNLEARNED, Measure, Pair, compare, significance
from ropelab.runs.own import find, key_of_sources
from ropelab.runs.sentences import join_names, sentences_of
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import LEARNED

# Raise it when an encoding starts or learns differently: its models are then trained
# anew.
LEARNING_VERSION = 3
BASELINE = "rope"
AGAINST_METHODS = "against_methods"
TEXT, COPY = "text loss", "copy accuracy"
MEASURE: dict[str, Measure] = {TEXT: "loss", COPY: "share"}
ROW = ["encoding", "seed"]
# Encodings whose text losses at the trained length the literature sets against each
# other.
PAIRS = (
    ("learned", "sinusoidal"),
    ("deberta", "transformer_xl"),
    ("rope_values", "rope"),
)


def cells(config: EncodingsConfig) -> list[Cell]:
    """Return every task of every model, the behaviour of the models, and their
    times.
    """
    return [*questions(config), *observations(config), Timing(config)]


def questions(config: EncodingsConfig) -> list[Evaluation]:
    """Return every task of every row, for every training seed."""
    return _ask(config, list_rows(config))


def _ask(config: EncodingsConfig, rows: Sequence[Row]) -> list[Evaluation]:
    tasks = [task_beyond_training(config, task) for task in config.tasks]
    evaluations = []
    for task, row, seed in product(tasks, rows, config.seeds):
        evaluation = Evaluation(
            subject=training(config, row.trained, seed),
            task=task,
            mode=row.mode(config),
            labels=(("encoding", row.name), ("task", task.name), ("seed", seed)),
        )
        evaluations.append(evaluation)
    return evaluations


def observations(config: EncodingsConfig) -> list[Evaluation]:
    """Return the behaviour of every encoding as it was trained."""
    cells = []
    trained = [row for row in list_rows(config) if row.method is None]
    for question in _ask(config, trained):
        behaviour = Behaviour(
            task=question.task, corpus=question.task.corpus, length=config.train_len
        )
        cells.append(replace(question, task=behaviour))
    return cells


def training(config: EncodingsConfig, encoding: str, seed: int) -> Training:
    # Classes of one's own may also stand inside a notation.
    parts = re.split(r"[(),]", encoding)
    own = [find("encodings", part) for part in parts]
    key: dict[str, Any] = {
        "name": encoding,
        "trained_len": config.train_len,
        "version": LEARNING_VERSION,
        **key_of_sources(*own),
    }

    cast_labels = {}
    for part in parts:
        cast = find("casts", part.strip())
        if isinstance(cast, CastPlan):
            cast_labels[part] = cast.label
    if cast_labels:
        key["casts"] = cast_labels

    make = partial(encoding_of, config.shape(), encoding, seed)
    return training_of(
        config, seed, make, key, encoding, config.first_window, fused=False
    )


def tables(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    answers = collect([*questions(config), *observations(config)], values)
    tables = {"cost": costs(config), "memory": memory(config), **answers["behaviour"]}
    trained_len = config.train_len
    test_len = config.test_len

    text = answers.get("text")
    if text:
        buckets = grid.buckets(trained_len, test_len)
        places = pd.DataFrame(buckets, columns=common.BUCKET)
        by_bucket = common.average_losses(text["buckets"], [*ROW, *common.BUCKET])
        tables["text_nll"] = _everywhere(by_bucket, places, config, common.NLL)

        contexts = grid.contexts(trained_len, test_len)
        places = pd.DataFrame({"context_tokens": contexts})
        by_context = common.average_losses(
            text["last_window"], [*ROW, "context_tokens"]
        )
        tables["last_window"] = _everywhere(by_context, places, config, common.NLL)

    copied = answers.get("copy")
    if copied:
        distances = grid.distances(trained_len, test_len)
        contexts = grid.retrieval_contexts(trained_len, test_len)
        places = pd.DataFrame(grid.places(distances, contexts), columns=common.PLACE)
        by_place = common.average_shares(copied["trials"], [*ROW, *common.PLACE])
        tables["copy_accuracy"] = _everywhere(by_place, places, config, "accuracy")

    rows = _rows(answers, config)
    quality = _quality(rows, config)
    tables["quality"] = quality
    tables |= comparisons(rows, config)
    for name in ("comparisons", "extrapolation", AGAINST_METHODS):
        if name not in tables:
            continue
        tables[name] = mark_unlearned(tables[name], quality)
    return tables


def times(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return measured times, for the manifest: tables hold only reproducible values."""
    return {"encodings": values[Timing(config)]["times"]}


def _everywhere(
    measured: pd.DataFrame, places: pd.DataFrame, config: EncodingsConfig, value: str
) -> pd.DataFrame:
    """Return a row for every encoding, seed and place, with a status and the trained
    length.
    """
    names = [row.name for row in list_rows(config)]
    encodings = pd.DataFrame({"encoding": names})
    seeds = pd.DataFrame({"seed": config.seeds})
    rows = encodings.merge(seeds, how="cross").merge(places, how="cross")
    rows = rows.merge(measured, how="left")

    counts = [name for name in ("documents", "sequences", "trials") if name in rows]
    rows[counts] = rows[counts].fillna(0).astype(int)
    status = rows[value].notna().map({True: "ok", False: "undefined"})
    return rows.assign(status=status, train_len_tokens=config.train_len)


# The values of a metric under an encoding at a multiple of the trained length; none if
# undefined.
Rows = dict[tuple[Hashable, ...], pd.DataFrame]
# How the answer says that one is better than another, what is measured, in which form
# and unit.
SAID = {
    TEXT: ("read text better", "text losses", "{:.3f}", " nats per byte"),
    COPY: ("copy more", "shares copied", "{:.0%}", ""),
}
# What models do, as the answer says it before a value.
WORDS = {TEXT: "read with a loss of", COPY: "copy"}
NAMED = 3  # of those that are better, the rest is counted


def _multiples(config: EncodingsConfig) -> list[int]:
    """1, 2, 4, ... times the trained length, as far as it is tested."""
    longest = config.test_len // config.train_len
    return [1 << power for power in range(longest.bit_length())]


def _rows(answers: dict[str, dict[str, pd.DataFrame]], config: EncodingsConfig) -> Rows:
    """Return a row for every seed and unit: a document or a sequence."""
    wanted = pd.DataFrame({"times_trained_len": _multiples(config)})
    contexts = wanted["times_trained_len"] * config.train_len
    by_metric = {}
    text = answers.get("text")
    if text:
        places = wanted.assign(context_tokens=contexts)
        by_metric[TEXT] = common.list_units(text["last_window"].merge(places))

    copied = answers.get("copy")
    if copied:
        # Copying at a multiple is copying from half of that context back, in all of it.
        places = wanted.assign(distance_tokens=contexts // 2, context_tokens=contexts)
        by_metric[COPY] = common.list_units(copied["trials"].merge(places))

    rows_by_place: Rows = {}
    for metric, table in by_metric.items():
        for place, rows in table.groupby(["encoding", "times_trained_len"]):
            rows_by_place[(metric, *place)] = rows
    return rows_by_place


def _quality(rows: Rows, config: EncodingsConfig) -> pd.DataFrame:
    """Return a row per metric, encoding and multiple, its interval over seeds and
    units.
    """
    records = []
    metrics = dict.fromkeys(metric for metric, _, _ in rows)
    names = [row.name for row in list_rows(config)]
    for place in product(metrics, names, _multiples(config)):
        mean: tuple[object, ...] = (0, 0, *[math.nan] * 4, "undefined")
        if place in rows:
            # The worst seed shows if every model has learned.
            by_seed = rows[place].groupby("seed")["value"].mean()
            worst = by_seed.max() if place[0] == TEXT else by_seed.min()
            mean = (*common.average_over_seeds(rows[place]), worst, "ok")
        records.append((*place, *mean))

    columns = [
        "metric",
        "encoding",
        "times_trained_len",
        "seeds",
        "n",
        "value",
        *common.INTERVAL,
        "worst_seed_value",
        "status",
    ]
    table = pd.DataFrame(records, columns=columns)
    return table.assign(train_len_tokens=config.train_len)


def comparisons(rows: Rows, config: EncodingsConfig) -> dict[str, pd.DataFrame]:
    """Compare encodings, as far as both are defined; the verdict names the better
    one.
    """
    baseline = BASELINE if BASELINE in config.encodings else config.encodings[0]
    all_rows = list_rows(config)
    names = [row.name for row in all_rows]
    others = [name for name in names if name != baseline]
    metrics = list(dict.fromkeys(metric for metric, _, _ in rows))
    multiples = _multiples(config)

    against_baseline = []
    for metric, times, name in product(metrics, multiples, others):
        about = (metric, times, name, baseline)
        places = ((metric, name, times), (metric, baseline, times))
        against_baseline.append((about, *places, (name, baseline)))

    grown = []
    longest = multiples[-1]
    if longest > 1:
        for metric, name in product(metrics, names):
            at_longest = (metric, name, longest)
            at_trained = (metric, name, 1)
            verdicts = ("better", "worse")
            grown.append(((metric, longest, name), at_longest, at_trained, verdicts))

    designs = [name for name in config.encodings if name != baseline]
    tested_by_methods = [row.name for row in all_rows if row.method is not None]
    against_methods = []
    for metric, times in product(metrics, multiples):
        for design, changed in product(designs, tested_by_methods):
            about = (metric, times, design, changed)
            places = ((metric, design, times), (metric, changed, times))
            against_methods.append((about, *places, (design, changed)))

    published = [((a, b), (TEXT, a, 1), (TEXT, b, 1), (a, b)) for a, b in PAIRS]
    place = ("metric", "times_trained_len")
    tables = {
        "comparisons": _compare_places(
            rows, against_baseline, (*place, "encoding_a", "encoding_b")
        ),
        "extrapolation": _compare_places(rows, grown, (*place, "encoding")),
        "pairs": _compare_places(rows, published, ("encoding_a", "encoding_b")),
    }
    if tested_by_methods:
        tables[AGAINST_METHODS] = _compare_places(
            rows, against_methods, (*place, "encoding_a", "encoding_b")
        )
    return tables


def _compare_places(
    rows: Rows, wanted: Iterable[tuple], columns: Sequence[str]
) -> pd.DataFrame:
    """Compare the values of two places per row, where both have values.

    A row of `wanted` is what identifies the comparison, its two places, and their names
    in the verdict.
    """
    pairs = []
    for about, a, b, names in wanted:
        if a not in rows or b not in rows:
            continue

        metric, _, times = a
        pair = Pair(
            about,
            rows[a].set_index(["seed", "unit"])["value"],
            rows[b].set_index(["seed", "unit"])["value"],
            names,
            MEASURE[metric],
            # A metric at a multiple of the trained length is a question of its own.
            (metric, times),
            int(rows[a]["trials"].iloc[0]),
        )
        pairs.append(pair)
    return compare(pairs, columns)


def trained_part(name: str) -> str:
    """Return the encoding that was trained for a row that may be under a method.

    >>> trained_part("rope + yarn ×4"), trained_part("alibi")
    ('rope', 'alibi')
    """
    return name.partition(JOINED_BY)[0]


def learners(quality: pd.DataFrame) -> set[str]:
    """Return the encodings that copy with every seed from half of the trained length
    back.
    """
    inside = quality[(quality["metric"] == COPY) & (quality["times_trained_len"] == 1)]
    learned = set(inside[inside["worst_seed_value"] >= LEARNED]["encoding"])
    if BASELINE not in learned:
        return learned
    # A model that learned stays one that learned, whatever a method does to it.
    for name in quality["encoding"].unique():
        if trained_part(name) == BASELINE:
            learned.add(name)
    return learned


def mark_unlearned(table: pd.DataFrame, quality: pd.DataFrame) -> pd.DataFrame:
    """Mark comparisons of copying beyond the trained length by models that did not
    learn it.
    """
    beyond = (table["metric"] == COPY) & (table["times_trained_len"] > 1)
    able = table.filter(like="encoding").isin(learners(quality)).all(axis=1)
    return table.assign(status=table["status"].mask(beyond & ~able, UNLEARNED))


def answer(tables: Tables) -> str:
    """Name what is shown to be better than the baseline at the longest context, and
    count.
    """
    quality = tables["quality"]
    tested = quality["times_trained_len"].max()
    reached = quality[quality["status"] == "ok"]["times_trained_len"].max()

    sentences = []
    if AGAINST_METHODS in tables:
        against_methods = describe_against_methods(tables, reached)
        if against_methods:
            sentences.append(against_methods)
    findings = [describe_best(metric, tables, reached) for metric in SAID]
    described = "; ".join(filter(None, findings))
    sentence = f"at {reached}x the trained length {described}"
    if reached < tested:
        sentence = (
            f"no encoding has a value beyond {reached}x the trained length; {sentence}"
        )
    sentences.append(sentence)
    counts = significance(tables["comparisons"])
    return f"{sentences_of(sentences)} {counts}"


def describe_against_methods(tables: Tables, times: int) -> str:
    """Compare the best design with the best change of RoPE at test time, for each
    metric.

    Both are the best by their means at that multiple of the trained length.
    """
    labels = tables["cost"].set_index("encoding")["label"]
    quality = tables["quality"].query("times_trained_len == @times and status == 'ok'")
    compared = tables[AGAINST_METHODS].query("times_trained_len == @times")

    findings = []
    for metric, rows in compared.groupby("metric", sort=False):
        _, _, form, unit = SAID[str(metric)]
        means = quality[quality["metric"] == metric].set_index("encoding")["value"]
        best = {}
        for column in ("encoding_a", "encoding_b"):
            candidates = means.filter(rows[column].unique())
            best[column] = candidates.sort_values(ascending=metric == TEXT).index[0]
        design = best["encoding_a"]
        changed = best["encoding_b"]

        row = rows.query("encoding_a == @design and encoding_b == @changed").iloc[0]
        if row["status"] == UNLEARNED:
            continue
        values = (
            f"{form.format(means[design])} with {labels[design]}, the best design, and"
            f" {form.format(means[changed])}{unit} with {labels[changed]}, the best"
            " change without training"
        )
        findings.append(f"{WORDS[str(metric)]} {values} ({_describe_difference(row)})")
    if not findings:
        return ""
    return f"at {times}x the trained length models {'; they '.join(findings)}"


def _describe_difference(row: pd.Series) -> str:
    interval = f"[{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
    if row["verdict"] == "~":
        return f"no difference is shown: {row['difference']:.3f} {interval}"
    return f"a difference of {row['difference']:.3f} {interval}"


def describe_best(metric: str, tables: Tables, times: int) -> str:
    """Say which encodings are better than the baseline, by the means; nothing without
    values.
    """
    better, what, form, unit = SAID[metric]
    labels = tables["cost"].set_index("encoding")["label"]
    baseline = BASELINE if BASELINE in labels else labels.index[0]
    values = tables["quality"].query("metric == @metric and status == 'ok'")
    values = values.set_index("encoding")
    means = values[values["times_trained_len"] == times]["value"]

    among = ""
    if metric == COPY and len(means):
        # An encoding that did not learn the task says nothing about extrapolation.
        able = learners(tables["quality"])
        if not able:
            return "none learned to copy"
        if len(able) == 1:
            return f"only {labels[able.pop()]} learned to copy with every seed"
        means = means.filter([*able])
        among = f"of {len(able)} that learned to copy with every seed "

    if baseline not in means or len(means) == 1:
        if means.empty:
            return ""
        return f"{among}the {what} are {_ranked(means, metric, labels)}{unit}"

    than = f"{better} than {labels[baseline]} at {form.format(means[baseline])}{unit}"
    if metric == TEXT and times > 1:
        near = values[values["times_trained_len"] == 1]["value"][baseline]
        than += f", at {near:.3f} if that is cut to 1x"

    comparisons = tables["comparisons"].query(
        "metric == @metric and times_trained_len == @times"
    )
    won = comparisons.query("status != @UNLEARNED and verdict == encoding_a")
    ahead = means.filter(won["encoding_a"])
    if ahead.empty:
        return f"{among}{'none' if among else 'no encoding'} is shown to {than}"
    verb = "are" if len(ahead) > 1 else "is"
    return f"{among}{_ranked(ahead, metric, labels)} {verb} shown to {than}"


def _ranked(means: pd.Series, metric: str, labels: pd.Series) -> str:
    """List the best by their means, and count the others."""
    _, _, form, _ = SAID[metric]
    first = means.sort_values(ascending=metric == TEXT)[:NAMED]
    names = [
        f"{labels[str(name)]} at {form.format(mean)}" for name, mean in first.items()
    ]
    rest = len(means) - len(first)
    if rest:
        names.append(f"{rest} more")
    return join_names(names)


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per encoding: its cost, losses and copying at 1x and at the longest
    context.
    """
    cost = tables["cost"].set_index("encoding")
    columns = {"adds": cost["parameters"], "work": cost["train_flops_ratio"].round(2)}
    for metric, short in ((TEXT, "text"), (COPY, "copy")):
        rows = tables["quality"][tables["quality"]["metric"] == metric]
        if rows.empty:
            continue

        wide = rows.pivot(index="encoding", columns="times_trained_len", values="value")
        for times in sorted({wide.columns.min(), wide.columns.max()}):
            columns[f"{short} {times}x"] = wide[times]

    return pd.DataFrame(columns).loc[cost.index].rename_axis("encoding").reset_index()
