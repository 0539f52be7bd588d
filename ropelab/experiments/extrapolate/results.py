"""Cells, tables, answer and summary: see `ropelab.models.tasks.comparing` for most tables.

searched       the parameters that a search chose, and the losses it went by
matched        retrieval without a model: what followed the last 1, 2 or 3 tokens before
"""

from collections.abc import Hashable, Iterator, Sequence

import pandas as pd

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate.rows import questions
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.tasks.cells import Labelled, collected
from ropelab.models.tasks.comparing import ABOUT, KEYS, by_label, pairs_of, tables_of
from ropelab.models.tasks.documents import worth_of_context
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.plans import beyond_training
from ropelab.models.tasks.retrieval import Matched, Retrieval
from ropelab.models.tasks.tables import NLL, PLACE, accuracies
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import Pair, and_rivals, compared, not_told_from, said
from ropelab.runs.labels import SEARCHED, WINDOW, row_labels
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.runs.thresholds import LEARNED

DOING = {
    "copy": "Copying",
    "hidden": "Finding symbols in text",
    "recall": "Looking up keys",
    "nearer": "Telling the nearer of two values",
    "passkey": "Finding the pass key",
    "multiquery": "Finding several keys",
}


def check(config: ExtrapolateConfig) -> None:
    """Raise InputError where contexts are too short for pass keys."""
    for task in KEYS:
        if task in config.tasks:
            asked = beyond_training(config, task, config.depths)
            assert isinstance(asked, Needles)
            for context in asked.contexts:
                asked.needle(context, 0)


def cells(config: ExtrapolateConfig) -> list[Labelled]:
    """Every task of every row; retrieval without a model too."""
    trials = [beyond_training(config, task, config.depths) for task in config.tasks]
    without = [Matched(trial=each) for each in trials if isinstance(each, Retrieval)]
    return [*questions(config), *without]


def tables(config: ExtrapolateConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make all tables."""
    found: dict[str, pd.DataFrame] = {}
    pairs: list[Pair] = []
    searched: list[pd.DataFrame] = []
    matched: list[pd.DataFrame] = []
    for task, measured in collected(cells(config), values).items():
        if "searched" in measured:
            searched.append(measured.pop("searched").assign(task=task))
        if "matched" in measured:
            matched.append(measured.pop("matched").assign(task=task))
        found |= tables_of(task, measured, config, {UNSCALED.label})
        pairs += pairs_of(task, measured, [config.train_len], config.test_len)
    for name, table in found.items():
        found[name] = table.assign(train_len_tokens=config.train_len)
    if searched:
        found["searched"] = pd.concat(searched, ignore_index=True)
    if matched:
        found["matched"] = accuracies(pd.concat(matched), ["task", "n_gram_tokens", *PLACE])
    found["comparisons"] = compared(pairs, ABOUT)
    return found


def answer(tables: Tables) -> str:
    """The distance to which methods retrieve, and the best one on long text."""
    sentences = [_retrieval(tables, task) for task in _retrieved(tables)]
    text = [*_context_pays(tables), _text(tables)] if "text_nll" in tables else []
    return " ".join([*sentences, *text, said(tables["comparisons"])])


def summary(tables: Tables) -> pd.DataFrame:
    """One row per method: loss in the first and last bucket, accuracy within and beyond."""
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _by_label(tables["text_nll"], "bucket_end_tokens", "nll_nats_per_byte")
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
    if not _learned(table, trained_len):
        return f"{DOING[task]} was not learned inside {trained_len} tokens: no verdict on it."
    longest = in_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in KEYS:  # compared over all depths at once
        distance, where = context, f"in {context} tokens"
    else:
        distances = longest["distance_tokens"]
        distance = min(2 * trained_len, int(distances.max()))
        longest = longest[distances == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"from {distance} tokens back, {times}, in {context} tokens"
    published, searched = longest[longest["arm"] != SEARCHED], longest[longest["arm"] == SEARCHED]
    at = by_label(published, "accuracy").sort_values(ascending=False, kind="stable")
    about = {"at_tokens": distance, "context_tokens": context, "metric": f"{task}_accuracy"}
    rivals = not_told_from(str(at.index[0]), tables["comparisons"], about)
    rivals = [name for name in rivals if name in at.index]
    best = f"{at.index[0]} gets {at.iloc[0]:.2f} right{and_rivals(rivals)}"
    sentence = f"{DOING[task]} {where}: {best}"
    plain = f"; unscaled {at['unscaled']:.2f}" if "unscaled" in at.index[1:] else ""
    if searched.empty:
        return f"{sentence}{plain}."
    found = by_label(searched, "accuracy")
    return (
        f"{sentence}{plain}; with knobs searched on the model {found.idxmax()} {found.max():.2f}."
    )


def _learned(table: pd.DataFrame, trained_len: int) -> bool:
    """Return True if the model finds, as trained, keys or symbols from half of that length back."""
    inside = table[table["context_tokens"] == trained_len]
    if "depth_percent" not in table:
        inside = inside[inside["distance_tokens"] == trained_len // 2]
    return bool(inside.groupby("method")["accuracy"].mean().max() >= LEARNED)


def _context_pays(tables: Tables) -> Iterator[str]:
    """The worth of context to the model as it was trained, by kind of document."""
    table = tables["last_window"]
    worth = worth_of_context(table[table["method"] == "unscaled"])
    if worth:
        yield worth
        if "context_by_kind" in tables:
            yield _worth(tables["context_by_kind"])


def _worth(table: pd.DataFrame) -> str:
    """The loss that all of that context saves on each kind of document, the least first."""
    losses = table.pivot_table(index="kind", columns="context_tokens", values=NLL)
    saved = (losses.iloc[:, 0] - losses.iloc[:, -1]).sort_values()
    kinds = ", ".join(f"{value:.3f} ({kind})" for kind, value in saved.items())
    return f"From {losses.columns[0]} to {losses.columns[-1]} tokens that saves {kinds}."


def _text(tables: Tables) -> str:
    table = tables["text_nll"]
    published = table[table["arm"] != SEARCHED]
    shown = table if set(published["method"]) == {WINDOW} else published
    losses = _by_label(shown, "bucket_end_tokens", "nll_nats_per_byte").iloc[:, -1]
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
