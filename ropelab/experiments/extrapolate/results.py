"""Cells, tables, answer and summary: see `ropelab.models.tasks.tables` for most tables.

searched       the parameters that a search chose, and the losses it went by
matched        the n-gram baseline: what followed the last 1, 2 or 3 tokens before
"""

from collections.abc import Hashable, Sequence

import pandas as pd

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate.rows import questions
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.tasks.cells import Evaluation, collected
from ropelab.models.tasks.plans import beyond_training
from ropelab.models.tasks.retrieval import NgramBaseline, Retrieval
from ropelab.models.tasks.tables import (
    DOES,
    KEYS,
    NLL,
    PLACE,
    accuracies,
    by_label,
    sentences,
    tables_of_tasks,
)
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import indistinguishable, tied_with
from ropelab.runs.labels import SEARCHED, WINDOW, row_labels
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.runs.thresholds import LEARNED


def check(config: ExtrapolateConfig) -> None:
    """Raise InputError where contexts are too short for pass keys."""
    for task in config.tasks:
        beyond_training(config, task, config.depths).check()


def cells(config: ExtrapolateConfig) -> list[Evaluation | NgramBaseline]:
    """Return every task of every row; retrieval without a model too."""
    trials = [beyond_training(config, task, config.depths) for task in config.tasks]
    without = [NgramBaseline(task=each) for each in trials if isinstance(each, Retrieval)]
    return [*questions(config), *without]


def tables(config: ExtrapolateConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make all tables."""
    measured = collected(cells(config), values)
    more: dict[str, list[pd.DataFrame]] = {"searched": [], "matched": []}
    for task, tables in measured.items():
        for name, parts in more.items():
            parts += [tables.pop(name).assign(task=task)] if name in tables else []
    found = tables_of_tasks(measured, config, UNSCALED.label, [config.train_len], {})
    if more["searched"]:
        found["searched"] = pd.concat(more["searched"], ignore_index=True)
    if more["matched"]:
        found["ngram_baseline"] = accuracies(
            pd.concat(more["matched"]), ["task", "n_gram_tokens", *PLACE]
        )
    return found


def answer(tables: Tables) -> str:
    """Say which methods retrieve best beyond the trained length, and which reads long text best."""
    findings = [_retrieval(tables, task) for task in _retrieved(tables)]
    findings += [_text(tables)] if "text_nll" in tables else []
    return sentences(findings, tables["comparisons"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per method: loss in the first and last bucket, accuracy within and beyond."""
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _by_label(tables["text_nll"], "bucket_end_tokens", NLL)
        columns |= {f"nll @{end}": losses[end] for end in _spread(losses)}
    tasks = _retrieved(tables)
    places = max(1, 4 - len(tasks))
    for task in tasks:
        table = in_longest_context(tables[f"{task}_accuracy"])
        if task in KEYS:
            name = f"{task} @{table['context_tokens'].iloc[0]}"
            columns[name] = by_label(table, "accuracy")
            continue
        accuracy = _by_label(table, "distance_tokens", "accuracy")
        columns |= {f"{task} @{at}": accuracy[at] for at in _spread(accuracy, places)}
    return pd.concat(columns, axis=1).rename_axis("method").reset_index()


def _by_label(table: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Return methods in their order by positions, averaged over seeds."""
    labels = row_labels(table)
    wide = table.assign(label=labels).pivot_table(index="label", columns=column, values=value)
    return wide.loc[list(dict.fromkeys(labels))]


def _spread(table: pd.DataFrame, most: int = 2) -> Sequence[Hashable]:
    """Return a few columns, evenly taken, the last one among them."""
    columns = list(table.columns)
    step = max(1, len(columns) // most)
    return columns[::-1][::step][:most][::-1]


def _retrieved(tables: Tables) -> list[str]:
    return [task for task in DOES if f"{task}_accuracy" in tables]


def _retrieval(tables: Tables, task: str) -> str:
    table, does = tables[f"{task}_accuracy"], DOES[task]
    trained_len = int(table["train_len_tokens"].iloc[0])
    inside = table[table["context_tokens"] == trained_len]
    if task not in KEYS:
        inside = inside[inside["distance_tokens"] == trained_len // 2]
    # A task that no method does where the model was trained says nothing about longer contexts.
    if inside.groupby("method")["accuracy"].mean().max() < LEARNED:
        return f"no model {does} inside {trained_len} tokens, so there is no verdict on that"
    longest = in_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in KEYS:  # compared over all depths at once
        distance, where = context, f"in {context} tokens"
    else:
        distance = min(2 * trained_len, int(longest["distance_tokens"].max()))
        longest = longest[longest["distance_tokens"] == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"from {distance} tokens back, {times}, in {context} tokens"
    published, searched = longest[longest["arm"] != SEARCHED], longest[longest["arm"] == SEARCHED]
    at = by_label(published, "accuracy").sort_values(ascending=False, kind="stable")
    about = {"at_tokens": distance, "context_tokens": context, "metric": f"{task}_accuracy"}
    rivals = indistinguishable(str(at.index[0]), tables["comparisons"], about)
    rivals = [name for name in rivals if name in at.index]
    finding = f"{where} {at.index[0]} {does} best: {at.iloc[0]:.2f} right{tied_with(rivals)}"
    if "unscaled" in at.index[1:]:
        finding += f", unscaled {at['unscaled']:.2f}"
    if not searched.empty:
        found = by_label(searched, "accuracy")
        finding += f", {found.idxmax()} on this model {found.max():.2f}"
    return finding


def _text(tables: Tables) -> str:
    table = tables["text_nll"]
    published = table[table["arm"] != SEARCHED]
    shown = table if set(published["method"]) == {WINDOW} else published
    losses = _by_label(shown, "bucket_end_tokens", NLL).iloc[:, -1]
    methods, window = losses.drop(index=WINDOW), losses[WINDOW]
    best = str(methods.idxmin())
    rows = tables["comparisons"]
    rows = rows[(rows["metric"] == "nll_bucket") & (rows["method_b"] == WINDOW)]
    rows = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    verdict = str(rows.loc[rows["method_a"] == best, "verdict"].iloc[0])
    found = {best: "beats", WINDOW: "is worse than"}.get(verdict, "is indistinguishable from")
    finding = (
        f"at the end of text of {losses.name} bytes the best method, {best} ({methods.min():.3f} "
        f"nats per byte), {found} the sliding window of the trained length ({window:.3f})"
    )
    # Where context is worth little inside the trained length, losses beyond it say little.
    plain = tables["last_window"].query("method == 'unscaled'")
    inside = plain[plain["context_tokens"] <= plain["train_len_tokens"]]
    costs = inside.groupby("context_tokens")[NLL].mean()
    if len(costs) < 2:
        return finding
    first, last = costs.index[0], costs.index[-1]
    saved = costs.iloc[0] - costs.iloc[-1]
    return f"{finding}; context from {first} to {last} tokens saves the unscaled model {saved:.3f}"
