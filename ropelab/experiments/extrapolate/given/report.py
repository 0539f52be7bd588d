"""The answer in words and the short table, from the tables of a model given alone."""

from collections.abc import Iterator

import pandas as pd

from ropelab.experiments.extrapolate.given.advice import BETTER, KEPT, UNDECIDABLE
from ropelab.runs.comparisons import said
from ropelab.runs.labels import AS_SHIPPED, WINDOW, row_labels
from ropelab.runs.tables import Tables

DOES = {
    "text": "reads text",
    "copy": "copies",
    "passkey": "finds the pass key",
    "multiquery": "finds several keys",
}


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
    """What the recommended method costs inside the trained length."""
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
            f"nll @{at}": _by_label(losses[losses["context_tokens"] == at], "nll_nats_per_byte")
            for at in dict.fromkeys((trained, longest))
        }
    for task in ("copy", "passkey", "multiquery"):
        table = tables.get(f"{task}_accuracy")
        if table is None:
            continue
        at = table["context_tokens"].max()
        rows = table[table["context_tokens"] == at]
        columns[f"{task} @{at}"] = _by_label(rows, "accuracy")
    order = dict.fromkeys(label for column in columns.values() for label in column.index)
    return pd.concat(columns, axis=1).loc[list(order)].rename_axis("method").reset_index()


def _by_label(rows: pd.DataFrame, value: str) -> pd.Series:
    return rows.groupby(row_labels(rows), sort=False)[value].mean()
