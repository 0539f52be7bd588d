"""A model per encoding and seed: its cells, its tables with 95 % intervals, and the answer.

cost, memory   before anything is trained (`cost.py`); behaviour of the trained models
text_nll       loss by bucket of positions, mean over documents, one row per encoding and seed
last_window    loss of the same final tokens after growing contexts, the same way
copy_accuracy  share of tokens copied correctly, by distance and context
quality        the three above where contexts are 1x, 2x, 4x ... the trained length, over seeds
comparisons    every encoding against one baseline
pairs          text losses at the trained length of encodings that the literature sets against each
               other, if there are any
extrapolation  every encoding against itself at the trained length

Where an encoding is not defined the row is there, its status `undefined` and its value missing.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product

import pandas as pd

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings.behaviour import Behaviour
from ropelab.experiments.encodings.cost import costs, memory, shape_of
from ropelab.experiments.encodings.times import Timing
from ropelab.models.encoding.base import Encoding, unfused
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.models.lm.trained import Training
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import Evaluation, collected
from ropelab.models.tasks.modes import AsTrained
from ropelab.models.tasks.plans import beyond_training, training_of
from ropelab.models.tasks.tables import BUCKET, INTERVAL, NLL, PLACE, accuracies, losses, over_seeds
from ropelab.runs.cell import Cell, Values
from ropelab.runs.comparisons import Pair, compared, difference, said
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import LEARNED

# Raise it when an encoding starts or learns differently: its models are then trained anew.
LEARNING_VERSION = 3
BASELINE = "rope"
TEXT, COPY = "text loss", "copy accuracy"
ROW = ["encoding", "seed"]
# Encodings whose text losses at the trained length the literature sets against each other.
PAIRS = (("learned", "sinusoidal"), ("deberta", "transformer_xl"), ("rope_values", "rope"))
# The verdicts of the table `literature` that decide nothing, and that decide against a statement.
UNDECIDED, NOT_REPRODUCED = "not decidable here", "not reproduced here"


def cells(config: EncodingsConfig) -> list[Cell]:
    """Return every task of every model, the behaviour of the models, and the clock."""
    return [*questions(config), *observations(config), Timing(config)]


def questions(config: EncodingsConfig) -> list[Evaluation]:
    """Return every task of every encoding, for every training seed."""
    tasks = [beyond_training(config, task) for task in config.tasks]
    return [
        Evaluation(
            subject=training(config, encoding, seed),
            task=task,
            mode=AsTrained(),
            labels=(("encoding", encoding), ("task", task.name), ("seed", seed)),
            device=config.device,
            # Of evaluation; `config.dtype` is that of training.
            dtype="float32",
            model_name=encoding,
        )
        for task, encoding, seed in product(tasks, config.encodings, config.seeds)
    ]


def observations(config: EncodingsConfig) -> list[Evaluation]:
    """Return every model, observed on the sequences of every task."""
    return [
        replace(
            each,
            task=Behaviour(task=each.task, corpus=each.task.corpus, length=config.train_len),
        )
        for each in questions(config)
    ]


def training(config: EncodingsConfig, encoding: str, seed: int) -> Training:
    """Describe one model."""
    key = {"name": encoding, "trained_len": config.train_len, "version": LEARNING_VERSION}
    make = partial(encoding_of, shape_of(config), encoding, seed)
    return training_of(config, seed, make, key, config.first_window, fused=False)


def encoding_of(shape: Shape, name: str, seed: int) -> Encoding:
    """Return the encoding as the models of the experiment carry it."""
    # Separate products for all, also where a fused kernel is allowed: times then differ by the
    # work of the encodings, and short windows are trained faster.
    return unfused(make_encoding(name, shape, seed))


def tables(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables."""
    answers = collected([*questions(config), *observations(config)], values)
    measured = {**answers.get("text", {}), **answers.get("copy", {})}
    found = {"cost": costs(config), "memory": memory(config), **answers["behaviour"]}
    lengths = config.train_len, config.test_len
    if "buckets" in measured:
        table = losses(measured["buckets"], [*ROW, *BUCKET])
        places = pd.DataFrame(grid.buckets(*lengths), columns=BUCKET)
        found["text_nll"] = _everywhere(table, places, config, NLL)
        table = losses(measured["last_window"], [*ROW, "context_tokens"])
        places = pd.DataFrame({"context_tokens": grid.contexts(*lengths)})
        found["last_window"] = _everywhere(table, places, config, NLL)
    if "trials" in measured:
        table = accuracies(measured["trials"], [*ROW, *PLACE])
        tried = grid.places(grid.distances(*lengths), grid.retrieval_contexts(*lengths))
        places = pd.DataFrame(tried, columns=PLACE)
        found["copy_accuracy"] = _everywhere(table, places, config, "accuracy")
    units = _units(measured, config)
    baseline = BASELINE if BASELINE in config.encodings else config.encodings[0]
    found["quality"] = _quality(units, config)
    found["comparisons"] = comparisons(units, config, baseline)
    found["extrapolation"] = extrapolation(units, config)
    found["pairs"] = pairs(units, config)
    return found


def times(config: EncodingsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return measured times, for the manifest: tables hold only reproducible values."""
    return {"encodings": values[Timing(config)]["times"]}


def _everywhere(
    measured: pd.DataFrame, places: pd.DataFrame, config: EncodingsConfig, value: str
) -> pd.DataFrame:
    """Return a row for every encoding, seed and place, with a status and the trained length."""
    rows = pd.DataFrame({"encoding": config.encodings}).merge(
        pd.DataFrame({"seed": config.seeds}), how="cross"
    )
    full = rows.merge(places, how="cross").merge(measured, how="left")
    counts = [name for name in ("documents", "sequences", "trials") if name in full]
    full[counts] = full[counts].fillna(0).astype(int)
    status = full[value].notna().map({True: "ok", False: "undefined"})
    return full.assign(status=status, train_len_tokens=config.train_len)


def _multiples(config: EncodingsConfig) -> list[int]:
    """1, 2, 4, ... times the trained length, as far as it is tested."""
    longest = config.test_len // config.train_len
    return [1 << power for power in range(longest.bit_length())]


def _units(measured: dict[str, pd.DataFrame], config: EncodingsConfig) -> dict[str, pd.DataFrame]:
    """Return per metric a row for every encoding, seed, multiple of the trained length and unit."""
    found = {}
    wanted = pd.DataFrame({"times_trained_len": _multiples(config)})
    contexts = wanted["times_trained_len"] * config.train_len
    if "last_window" in measured:
        table = measured["last_window"].merge(wanted.assign(context_tokens=contexts))
        found[TEXT] = table.rename(columns={"document": "unit", NLL: "value"}).assign(trials=0)
    if "trials" in measured:
        # Copying at a multiple is copying from half of that context back, in all of it.
        at = wanted.assign(distance_tokens=contexts // 2, context_tokens=contexts)
        table = measured["trials"].merge(at).rename(columns={"sequence": "unit"})
        found[COPY] = table.assign(value=table["correct"] / table["trials"])
    columns = ["encoding", "seed", "times_trained_len", "unit", "trials", "value"]
    return {metric: table[columns] for metric, table in found.items()}


def _quality(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """Return a row per metric, encoding and multiple, its interval over seeds and units."""
    records = []
    for metric, table in units.items():
        for encoding, times in product(config.encodings, _multiples(config)):
            rows = _rows(table, encoding, times)
            told: tuple[object, ...] = (0, 0, *[math.nan] * 4, "undefined")
            if not rows.empty:
                # The worst seed shows if every model has learned.
                by_seed = rows.groupby("seed")["value"].mean()
                worst = by_seed.max() if metric == TEXT else by_seed.min()
                told = (*over_seeds(rows), worst, "ok")
            records.append((metric, encoding, times, *told))
    columns = ["metric", "encoding", "times_trained_len", "seeds", "n", "value", *INTERVAL]
    table = pd.DataFrame(records, columns=[*columns, "worst_seed_value", "status"])
    return table.assign(train_len_tokens=config.train_len)


def _rows(table: pd.DataFrame, encoding: str, times: int) -> pd.DataFrame:
    return table[(table["encoding"] == encoding) & (table["times_trained_len"] == times)]


# A metric, two encodings at multiples of the trained length, their names in the verdict, and the
# first columns of the row.
Wanted = tuple[str, tuple[str, int], tuple[str, int], tuple[str, str], tuple[Hashable, ...]]


def _compared(
    units: dict[str, pd.DataFrame], wanted: Iterable[Wanted], columns: list[str]
) -> pd.DataFrame:
    """Compare what is wanted, as far as both are defined."""
    pairs = []
    for metric, a, b, names, about in wanted:
        mine, other = (
            _rows(units[metric], *one).set_index(["seed", "unit"])["value"] for one in (a, b)
        )
        if len(mine) == len(other) > 0:
            pairs.append(Pair(about, difference(mine, other), names, metric == TEXT))
    return compared(pairs, columns)


def comparisons(
    units: dict[str, pd.DataFrame], config: EncodingsConfig, baseline: str
) -> pd.DataFrame:
    """Compare every encoding with `baseline` at each multiple; the verdict names the better one."""
    wanted = (
        (metric, (a, times), (baseline, times), (a, baseline), (metric, times, a, baseline))
        for metric, times, a in product(units, _multiples(config), config.encodings)
        if a != baseline
    )
    return _compared(units, wanted, ["metric", "times_trained_len", "encoding_a", "encoding_b"])


def pairs(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """Compare the text losses of PAIRS at the trained length."""
    wanted = (
        (TEXT, (a, 1), (b, 1), (a, b), (a, b))
        for a, b in PAIRS
        if TEXT in units and {a, b} <= {*config.encodings}
    )
    return _compared(units, wanted, ["encoding_a", "encoding_b"])


def extrapolation(units: dict[str, pd.DataFrame], config: EncodingsConfig) -> pd.DataFrame:
    """Compare every encoding at the longest context with itself at the trained length."""
    longest = _multiples(config)[-1]
    wanted = (
        (metric, (name, longest), (name, 1), ("better", "worse"), (metric, longest, name))
        for metric, name in product(units, config.encodings)
        if longest > 1
    )
    return _compared(units, wanted, ["metric", "times_trained_len", "encoding"])


def answer(tables: Tables) -> str:
    """Name the best encodings at the longest context, and count differences and statements."""
    labels = tables["cost"].set_index("encoding")["label"]
    defined = tables["quality"][tables["quality"]["status"] == "ok"]
    best = []
    text = defined[defined["metric"] == TEXT]
    if not text.empty:
        longest = text[text["times_trained_len"] == text["times_trained_len"].max()]
        row = longest.sort_values("value").iloc[0]
        best.append(
            f"at {row['times_trained_len']}x the trained length {labels[row['encoding']]} has the "
            f"lowest text loss ({row['value']:.3f} nats per byte)"
        )
    copying = defined[defined["metric"] == COPY]
    if not copying.empty:
        inside = copying[copying["times_trained_len"] == 1]
        # An encoding that did not learn the task says nothing about extrapolation.
        able = inside[inside["value"] >= LEARNED]["encoding"]
        longest = copying[copying["times_trained_len"] == copying["times_trained_len"].max()]
        longest = longest[longest["encoding"].isin(able)]
        if longest.empty:
            best.append("none learned to copy")
        else:
            row = longest.sort_values("value").iloc[-1]
            best.append(
                f"of {len(able)} that learned to copy {labels[row['encoding']]} copies best "
                f"({row['value']:.0%} at {row['times_trained_len']}x)"
            )
    finding = " and ".join(best)
    counts = said(tables["comparisons"])
    if judged := _literature(tables.get("literature")):
        counts = f"{counts[:-1]}; {judged}"
    return f"{finding[0].upper()}{finding[1:]}. {counts}"


def _literature(judged: pd.DataFrame | None) -> str:
    if judged is None or (judged["verdict"] == UNDECIDED).all():
        return ""
    decided = judged[judged["verdict"] != UNDECIDED]
    shown = (decided["verdict"] != NOT_REPRODUCED).sum()
    return f"of {len(decided)} published statements decided here {shown} are reproduced."


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per encoding: its cost, losses and copying at 1x and at the longest context."""
    cost = tables["cost"].set_index("encoding")
    columns = {"adds": cost["parameters"], "work": cost["train_flops_ratio"].round(2)}
    for metric, short in ((TEXT, "text"), (COPY, "copy")):
        rows = tables["quality"][tables["quality"]["metric"] == metric]
        wide = rows.pivot(index="encoding", columns="times_trained_len", values="value")
        for times in sorted({wide.columns.min(), wide.columns.max()}) if len(wide) else []:
            columns[f"{short} {times}x"] = wide[times]
    return pd.DataFrame(columns).loc[cost.index].rename_axis("encoding").reset_index()
