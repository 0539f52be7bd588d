"""The answer in words and the short table for the terminal, both from the tables alone."""

from collections.abc import Hashable, Mapping, Sequence

import pandas as pd

from ropelab.labels import row_labels

Tables = Mapping[str, pd.DataFrame]
WINDOW = "sliding_window"
WORKS = 0.9
"""From this accuracy on a method is said to copy."""


def answer(tables: Tables) -> str:
    """How far each method copies, and whether any reads long text better than truncating it."""
    return " ".join(filter(None, [_copying(tables), _text(tables)]))


def summary(tables: Tables) -> pd.DataFrame:
    """One row per method: loss in the first and last bucket, accuracy within and beyond."""
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _by_label(tables["text_nll"], "bucket_end_tokens", "nll_nats_per_byte")
        columns |= {f"nll @{end}": losses[end] for end in _spread(losses)}
    if "copy_accuracy" in tables:
        accuracy = _by_label(tables["copy_accuracy"], "distance_tokens", "accuracy")
        columns |= {f"copy @{at}": accuracy[at] for at in _spread(accuracy, 3)}
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


def _copying(tables: Tables) -> str:
    if "copy_accuracy" not in tables:
        return ""
    accuracy = _by_label(tables["copy_accuracy"], "distance_tokens", "accuracy")
    reach = {label: _reach(row) for label, row in accuracy.iterrows()}
    farthest = max(reach.values())
    if farthest == 0:
        return f"No method copies with an accuracy of {WORKS:g} at any distance measured."
    best = [str(label) for label, distance in reach.items() if distance == farthest]
    sentence = f"{_listed(best)} {_copy(best)} (accuracy {WORKS:g}) from {farthest} tokens back"
    if "unscaled" in reach and "unscaled" not in best:
        sentence += f", unscaled from {reach['unscaled']}"
    return f"{sentence}."


def _reach(accuracies: pd.Series) -> int:
    """The largest distance up to which every one measured is copied; 0 if the first is not."""
    fails = accuracies[accuracies < WORKS]
    within = accuracies.index[accuracies.index < fails.index[0]] if len(fails) else accuracies.index
    return int(within[-1]) if len(within) else 0


def _text(tables: Tables) -> str:
    if "text_nll" not in tables:
        return ""
    losses = _by_label(tables["text_nll"], "bucket_end_tokens", "nll_nats_per_byte").iloc[:, -1]
    methods = losses.drop(index=WINDOW)
    best, window = str(methods.idxmin()), losses[WINDOW]
    verdict = _verdict(tables, best)
    found = {
        "a": "beats the sliding window of the trained length",
        "b": "is worse than the sliding window of the trained length",
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


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _copy(names: list[str]) -> str:
    return "copies" if len(names) == 1 else "copy"
