"""Which way of reading to take for the tested length, by the one rule of comparison.

A row is recommended when it is the best one and is told apart from the model as shipped. What
cannot be told from the best one is named beside it. Where the best one is the model as shipped, or
cannot be told from it, nothing else is recommended.
"""

import shlex
from dataclasses import asdict, dataclass

import pandas as pd

from ropelab.experiments.extrapolate.given.config import GivenConfig
from ropelab.models.tasks.tables import NLL
from ropelab.runs.labels import AS_SHIPPED, WINDOW, method_label, row_labels
from ropelab.runs.tables import Tables

BETTER, KEPT, OPEN, UNDECIDABLE = "better", "as_shipped", "open", "undecidable"
"""The best row is better than as shipped; it is the model as shipped; it is not told from it; the
model does not do the task inside its trained length."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What one task says.

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


def recommendation(config: GivenConfig, tables: Tables) -> pd.DataFrame:
    """A row per task."""
    columns = [advise(task, config, tables) for task in config.tasks]
    return pd.DataFrame([asdict(each) for each in columns])


def advise(task: str, config: GivenConfig, tables: Tables) -> Advice:
    """What one task says about the tested length."""
    values, metric = _values(task, config.test_len, tables)
    if values is None:
        return Advice(task=task, status=UNDECIDABLE, at_tokens=config.test_len)
    compared = tables["comparisons"]
    at = compared[(compared["metric"] == metric) & (compared["context_tokens"] == config.test_len)]
    at = at[at["at_tokens"] == at["at_tokens"].max()]
    best = str(values.idxmin() if task == "text" else values.idxmax())
    told = {name: _compared(at, best, name) for name in values.index if name != best}
    verdict, *gap = told.get(AS_SHIPPED, (AS_SHIPPED, None, None, None))
    status = {AS_SHIPPED: KEPT, "~": OPEN}.get(verdict, BETTER)
    alike = [name for name, (verdict, *_) in told.items() if verdict == "~"]
    return Advice(
        task=task,
        status=status,
        at_tokens=config.test_len,
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
        return _by_label(rows, NLL), "nll_bucket"
    table = tables[f"{task}_accuracy"]
    if (table["status"] != "ok").any():
        return None, ""
    rows = table[table["context_tokens"] == test_len]
    if task == "copy":
        rows = rows[rows["distance_tokens"] == rows["distance_tokens"].max()]
    return _by_label(rows, "accuracy"), f"{task}_accuracy"


def _by_label(rows: pd.DataFrame, value: str) -> pd.Series:
    return rows.groupby(row_labels(rows), sort=False)[value].mean()


def _compared(at: pd.DataFrame, a: str, b: str) -> tuple[str, float, float, float]:
    """Verdict, difference a - b and its interval, whichever of them the table names first."""
    forth = at[(at["method_a"] == a) & (at["method_b"] == b)]
    back = at[(at["method_a"] == b) & (at["method_b"] == a)]
    if len(forth):
        row = forth.iloc[0]
        return row["verdict"], row["difference"], row["ci_low"], row["ci_high"]
    row = back.iloc[0]
    return row["verdict"], -row["difference"], -row["ci_high"], -row["ci_low"]


def _emit(label: str, config: GivenConfig) -> str:
    """The command that writes down the method of a label."""
    methods = {
        method_label(m.label, m.reach): _typed(m.label, m.reach) for m in config.parsed_methods()
    }
    words = ["ropelab", "emit", "--from", config.hf, "--context", str(config.test_len)]
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
