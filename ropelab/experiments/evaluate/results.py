"""Cells, tables, the recommendation, answer and summary.

model          what the configuration says about positions, and the number format of the weights
recommendation which row to use at the tested length, for text and for each kind of retrieval
               (the other tables: see `ropelab.models.tasks.comparing`)

A task that the model does not do as shipped inside its trained length is not done beyond it: its
status is `undecidable`, and no methods are compared on it.
"""

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.experiments.evaluate.rows import evaluations
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import UNDECIDABLE, Asked, collected, is_found
from ropelab.models.tasks.comparing import ABOUT, KEYS, by_label, pairs_of, tables_of
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.plans import beyond_training
from ropelab.models.tasks.tables import NLL
from ropelab.models.tasks.text import Texts
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import Pair, compared, said
from ropelab.runs.labels import AS_SHIPPED, WINDOW, method_label
from ropelab.runs.tables import Tables

# The best row is better than as shipped; it is the model as shipped; it is not distinguishable from
# it. A fourth status is UNDECIDABLE.
BETTER, KEPT, OPEN = "better", "as_shipped", "open"
DOES = {
    "text": "reads text",
    "copy": "copies",
    "hidden": "finds symbols in text",
    "recall": "looks up keys",
    "nearer": "tells the nearer of two values",
    "passkey": "finds the pass key",
    "multiquery": "finds several keys",
}


def check(config: EvaluateConfig) -> None:
    """Raise InputError for a corpus that is too short, or more memory than --limit-memory."""
    config.reference().check_memory(config.limit_memory, config.context)
    for task in config.tasks:
        asked = beyond_training(config, task, config.depths)
        if isinstance(asked, Texts):
            asked.corpus.documents(asked.length + 1, asked.documents)
        elif isinstance(asked, Needles):
            for context in asked.contexts:
                asked.needle(context, 0)


def cells(config: EvaluateConfig) -> list[Asked]:
    """Every task in every mode."""
    return [cell for task in config.tasks for cell in evaluations(config, task)]


def tables(config: EvaluateConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make all tables."""
    train_len, longest = config.train_len, config.context
    short = [length for length in grid.contexts(train_len, longest) if length <= train_len]
    found: dict[str, pd.DataFrame] = {}
    pairs: list[Pair] = []
    for task in config.tasks:
        asked = evaluations(config, task)
        probe = asked[-1].probe
        if probe is not None and not is_found(values[probe]):
            asked, decided = [probe], False
        else:
            decided = True
        measured = collected(asked, values)[task]
        made = tables_of(task, measured, config, {AS_SHIPPED})
        status = {} if task == "text" else {"status": "ok" if decided else UNDECIDABLE}
        found |= {name: table.assign(**status) for name, table in made.items()}
        pairs += pairs_of(task, measured, short, longest) if decided else ()
    found = {name: table.assign(train_len_tokens=train_len) for name, table in found.items()}
    found["comparisons"] = compared(pairs, ABOUT)
    found["recommendation"] = recommendation(config, found)
    return {"model": model_table(config), **found}


def model_table(config: EvaluateConfig) -> pd.DataFrame:
    """One row."""
    facts: dict[str, Any] = asdict(config.facts)
    windows = facts.pop("windows")
    lengths = {f"{name}_tokens": facts.pop(name) for name in ("train_len", "claimed_len")}
    row = {
        **facts,
        **lengths,
        "layer_window_tokens": windows[0] if windows else None,
        "sliding_window_tokens": config.window,
        "dtype": config.dtype,
    }
    return pd.DataFrame([row])


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The recommendation of one task.

    Attributes:
        status: one of the four above.
        best: the label of the best row; empty where nothing was compared.
        value: its loss (nats per byte) or the share that it finds.
        shipped: that of the model as shipped.
        difference, ci_low, ci_high: best minus as shipped, with its interval.
        alike: labels that cannot be told from the best one.
        window: that of the sliding window, where it was measured.
        emit: the command that writes the best one's configuration, if there is one.
    """

    task: str
    status: str
    at_tokens: int
    best: str = ""
    value: float | None = None
    shipped: float | None = None
    difference: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    alike: str = ""
    window: float | None = None
    emit: str = ""


def recommendation(config: EvaluateConfig, tables: Tables) -> pd.DataFrame:
    """A row per task."""
    columns = [advise(task, config, tables) for task in config.tasks]
    return pd.DataFrame([asdict(each) for each in columns])


def advise(task: str, config: EvaluateConfig, tables: Tables) -> Advice:
    """Recommend a row for the tested length, by one task.

    The best row is recommended where it differs from the model as shipped by the one rule of
    comparison; rows that do not differ from the best one are named beside it.
    """
    values, metric = _values(task, config.context, tables)
    if values is None:
        return Advice(task=task, status=UNDECIDABLE, at_tokens=config.context)
    compared = tables["comparisons"]
    at = compared[(compared["metric"] == metric) & (compared["context_tokens"] == config.context)]
    at = at[at["at_tokens"] == at["at_tokens"].max()]
    best = str(values.idxmin() if task == "text" else values.idxmax())
    others = {name: _compared(at, best, name) for name in values.index if name != best}
    verdict, *gap = others.get(AS_SHIPPED, (AS_SHIPPED, None, None, None))
    status = {AS_SHIPPED: KEPT, "~": OPEN}.get(verdict, BETTER)
    alike = [name for name, (verdict, *_) in others.items() if verdict == "~"]
    return Advice(
        task=task,
        status=status,
        at_tokens=config.context,
        best=best,
        value=float(values[best]),
        shipped=float(values[AS_SHIPPED]),
        difference=gap[0],
        ci_low=gap[1],
        ci_high=gap[2],
        alike=", ".join(alike),
        window=float(values[WINDOW]) if WINDOW in values else None,
        emit=_emit(best, config) if status == BETTER and best != WINDOW else "",
    )


def _values(task: str, test_len: int, tables: Tables) -> tuple[pd.Series | None, str]:
    """The mean value of each label at the tested length, in their order, and what it is called."""
    if task == "text":
        table = tables["text_nll"]
        rows = table[table["bucket_end_tokens"] == test_len]
        return by_label(rows, NLL), "nll_bucket"
    table = tables[f"{task}_accuracy"]
    if (table["status"] != "ok").any():
        return None, ""
    rows = table[table["context_tokens"] == test_len]
    if task not in KEYS:
        rows = rows[rows["distance_tokens"] == rows["distance_tokens"].max()]
    return by_label(rows, "accuracy"), f"{task}_accuracy"


def _compared(at: pd.DataFrame, a: str, b: str) -> tuple[str, float, float, float]:
    """Verdict, difference a - b and its interval, whichever of them the table names first."""
    forth = at[(at["method_a"] == a) & (at["method_b"] == b)]
    back = at[(at["method_a"] == b) & (at["method_b"] == a)]
    if len(forth):
        row = forth.iloc[0]
        return row["verdict"], row["difference"], row["ci_low"], row["ci_high"]
    row = back.iloc[0]
    return row["verdict"], -row["difference"], -row["ci_high"], -row["ci_low"]


def _emit(label: str, config: EvaluateConfig) -> str:
    """The command that writes down the method of a label."""
    methods = {
        method_label(m.label, m.reach): _typed(m.label, m.reach) for m in config.parsed_methods()
    }
    words = ["ropelab", "emit", "--from", config.model, "--context", str(config.context)]
    return shlex.join([*words, "--method", methods[label]])


def _typed(label: str, factor: float) -> str:
    """A method as it is typed, its factor among its knobs.

    >>> _typed("yarn(beta_fast=8)", 4.0), _typed("ntk", 2.0), _typed("unscaled", 1.0)
    ('yarn(factor=4, beta_fast=8)', 'ntk(factor=2)', 'unscaled')
    """
    if factor == 1:
        return label
    name, bracket, rest = label.partition("(")
    return f"{name}(factor={factor:g}{', ' + rest if bracket else ')'}"


def answer(tables: Tables) -> str:
    """The recommendation, what retrieval says, what it costs, and what to write down."""
    model = tables["model"].iloc[0]
    # An empty text comes back from disk as a missing value.
    recommended = tables["recommendation"].astype({"alike": object, "emit": object})
    advice = [row for _, row in recommended.fillna({"alike": "", "emit": ""}).iterrows()]
    sentences = [_sentence(row, model, first=number == 0) for number, row in enumerate(advice)]
    sentences += [*_costs(tables, advice), *_windows(model), *_emits(advice)]
    return " ".join([*sentences, said(tables["comparisons"])])


def _sentence(row: pd.Series, model: pd.Series, first: bool) -> str:
    does, length = DOES[row["task"]], row["at_tokens"]
    if row["status"] == UNDECIDABLE:
        trained = model["train_len_tokens"]
        return f"Whether it {does} is undecidable: as shipped it does not inside {trained} tokens."
    lead = f"For {length} tokens: " if first else f"At {length} tokens "
    best = _named(row["best"], model)
    alike = f"; not told from it: {row['alike']}" if row["alike"] else ""
    if row["status"] == KEPT:
        return f"{lead}the model as shipped {does} best ({_value(row, 'value')}){alike}."
    gap = f"{row['difference']:+.3g} ({row['ci_low']:.3g} to {row['ci_high']:.3g})"
    unit = " nats per byte" if row["task"] == "text" else ""
    if row["status"] == BETTER:
        return f"{lead}{best} {does} best, {gap}{unit} against the model as shipped{alike}."
    return (
        f"{lead}nothing can be said: {best} {does} best, but cannot be told from the model as "
        f"shipped, {gap}{unit}."
    )


def _named(label: str, model: pd.Series) -> str:
    return f"a sliding window of {model['sliding_window_tokens']}" if label == WINDOW else label


def _value(row: pd.Series, name: str) -> str:
    unit = " nats per byte" if row["task"] == "text" else " found"
    return f"{row[name]:.3f}{unit}"


def _costs(tables: Tables, advice: list[pd.Series]) -> Iterator[str]:
    """The loss of the recommended method inside the trained length."""
    better = [row for row in advice if row["status"] == BETTER and row["best"] != WINDOW]
    costs = short_costs(tables)
    for label in dict.fromkeys(row["best"] for row in better):
        rows = costs[costs["method_b"] == label]
        parts = [
            f"{-row.difference:+.3f} at {row.at_tokens}{' (~)' if row.verdict == '~' else ''}"
            for row in rows.itertuples()
        ]
        if parts:
            yield f"Where it is not needed {label} costs {', '.join(parts)} nats per byte."


def short_costs(tables: Tables) -> pd.DataFrame:
    """The comparisons of all rows with the model as shipped inside its trained length."""
    table = tables["comparisons"]
    return table[(table["metric"] == "nll_short_context") & (table["method_a"] == AS_SHIPPED)]


def _windows(model: pd.Series) -> Iterator[str]:
    if model["windowed_layers"]:
        yield (
            f"{model['windowed_layers']} of its {model['layers']} layers read a window of "
            f"{model['layer_window_tokens']:.0f} tokens, which no method changes."
        )


def _emits(advice: list[pd.Series]) -> Iterator[str]:
    for command in dict.fromkeys(row["emit"] for row in advice if row["emit"]):
        yield f"To write it down: {command}"


def summary(tables: Tables) -> pd.DataFrame:
    """One row per way of reading: cost at short length, loss at the end, shares found."""
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = tables["last_window"]
        trained, longest = losses["train_len_tokens"].iloc[0], losses["context_tokens"].max()
        columns |= {
            f"nll @{at}": by_label(losses[losses["context_tokens"] == at], NLL)
            for at in dict.fromkeys((trained, longest))
        }
    for task in DOES:
        table = tables.get(f"{task}_accuracy")
        if table is None:
            continue
        at = table["context_tokens"].max()
        rows = table[table["context_tokens"] == at]
        columns[f"{task} @{at}"] = by_label(rows, "accuracy")
    order = dict.fromkeys(label for column in columns.values() for label in column.index)
    return pd.concat(columns, axis=1).loc[list(order)].rename_axis("method").reset_index()
