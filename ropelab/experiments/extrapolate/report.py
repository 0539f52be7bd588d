"""The answer in words and the short table for the terminal, both from the tables alone."""

from collections.abc import Hashable, Mapping, Sequence

import pandas as pd

from ropelab.labels import WINDOW, row_labels
from ropelab.trials.comparisons import said

Tables = Mapping[str, pd.DataFrame]
DOING = {"copy": "Copying", "recall": "Looking up keys"}


def answer(tables: Tables) -> str:
    """How far each method retrieves, and whether any reads long text better than truncating it."""
    sentences = [_retrieval(tables, task) for task in _retrieved(tables)]
    text = [_text(tables)] if "text_nll" in tables else []
    compared = [said(tables["comparisons"])] if "comparisons" in tables else []
    return " ".join([*sentences, *text, *compared])


def summary(tables: Tables) -> pd.DataFrame:
    """One row per method: loss in the first and last bucket, accuracy within and beyond."""
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _by_label(tables["text_nll"], "bucket_end_tokens", "nll_nats_per_byte")
        columns |= {f"nll @{end}": losses[end] for end in _spread(losses)}
    tasks = _retrieved(tables)
    for task in tasks:
        accuracy = _by_label(tables[f"{task}_accuracy"], "distance_tokens", "accuracy")
        columns |= {f"{task} @{at}": accuracy[at] for at in _spread(accuracy, 4 - len(tasks))}
    table = pd.concat(columns, axis=1)
    return table.rename_axis("method").reset_index()


def _by_label(table: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Methods in their order by positions, averaged over seeds."""
    labels = row_labels(table)
    wide = table.assign(label=labels).pivot_table(index="label", columns=column, values=value)
    return wide.loc[list(dict.fromkeys(labels))]


def _spread(table: pd.DataFrame, most: int = 2) -> Sequence[Hashable]:
    """A few columns, evenly taken, the last one among them."""
    columns = list(table.columns)
    step = max(1, len(columns) // most)
    return columns[::-1][::step][:most][::-1]


def _retrieved(tables: Tables) -> list[str]:
    """The retrieval tasks that were measured."""
    return [task for task in DOING if f"{task}_accuracy" in tables]


def _retrieval(tables: Tables, task: str) -> str:
    table = tables[f"{task}_accuracy"]
    trained_len = int(table["train_len_tokens"].iloc[0])
    accuracy = _by_label(table, "distance_tokens", "accuracy")
    distance = min(2 * trained_len, int(accuracy.columns[-1]))
    at = accuracy[distance].sort_values(ascending=False, kind="stable")
    share = f"{distance / trained_len:g} times the trained length"
    best = f"{at.index[0]} gets {at.iloc[0]:.2f} right"
    sentence = f"{DOING[task]} from {distance} tokens back, {share}: {best}"
    plain = f", unscaled {at['unscaled']:.2f}" if "unscaled" in at.index[1:] else ""
    return f"{sentence}{plain}."


def _text(tables: Tables) -> str:
    losses = _by_label(tables["text_nll"], "bucket_end_tokens", "nll_nats_per_byte").iloc[:, -1]
    methods = losses.drop(index=WINDOW)
    best, window = str(methods.idxmin()), losses[WINDOW]
    verdict = _verdict(tables, best)
    found = {
        best: "beats the sliding window of the trained length",
        WINDOW: "is worse than the sliding window of the trained length",
        "~": "cannot be told from the sliding window of the trained length",
    }[verdict]
    return (
        f"At the end of text of {losses.name} bytes the best method, {best} "
        f"({methods.min():.3f} nats per byte), {found} ({window:.3f})."
    )


def _verdict(tables: Tables, method: str) -> str:
    rows = tables["comparisons"]
    rows = rows[(rows["metric"] == "nll_bucket") & (rows["method_b"] == WINDOW)]
    rows = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    return str(rows.loc[rows["method_a"] == method, "verdict"].iloc[0])
