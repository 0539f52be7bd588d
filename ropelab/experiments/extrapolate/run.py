"""From a config to tables: train what is not trained yet, measure every row, make intervals.

text_nll       loss by bucket of positions, mean over documents: one causal pass over each
last_window    loss of the same final tokens after growing contexts, mean over documents
text_by_kind   loss at the end of the longest context, by kind of document
copy_accuracy, hidden_accuracy, recall_accuracy, nearer_accuracy
               share of what was found again, by distance and length of context
searched       what a search of knobs chose, and the losses it went by
matched        the same without a model: what followed the last 1, 2 or 3 tokens before
comparisons    every pair of rows under every metric
literature     what was published and this run speaks about, judged
"""

from collections.abc import Iterator
from itertools import combinations

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.plan import questions, trial
from ropelab.labels import row_labels
from ropelab.literature.judge import judged
from ropelab.trials import corpora
from ropelab.trials.cells import Trial, ask_all, train_all
from ropelab.trials.comparisons import Pair, compared, difference
from ropelab.trials.retrieval import Matched, Retrieval
from ropelab.trials.tables import BUCKET, NLL, PLACE, accuracies, losses

ROW = ["method", "factor", "seed", "arm"]


def run(config: ExtrapolateConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Train and measure; the head of this file says what each table holds."""
    asked = questions(config)
    train_all(asked, context)
    tables: dict[str, pd.DataFrame] = {}
    pairs: list[Pair] = []
    searched: list[pd.DataFrame] = []
    for task, measured in ask_all(asked, context).items():
        if "searched" in measured:
            searched.append(measured.pop("searched").assign(task=task))
        if task == "text":
            tables["text_nll"] = losses(measured["buckets"], [*ROW, *BUCKET])
            tables["last_window"] = losses(measured["last_window"], [*ROW, "context_tokens"])
            tables["text_by_kind"] = losses(at_the_end(measured, config), [*ROW, "kind"])
            pairs += text_pairs(**measured, train_len=config.train_len, test_len=config.test_len)
        else:
            tables[f"{task}_accuracy"] = accuracies(measured["trials"], [*ROW, *PLACE])
            pairs += retrieval_pairs(f"{task}_accuracy", measured["trials"])
    for name, table in tables.items():
        tables[name] = table.assign(train_len_tokens=config.train_len)
    if searched:
        tables["searched"] = pd.concat(searched, ignore_index=True)
    if retrieval := [task for task in config.tasks if task != "text"]:
        tables["matched"] = matched([trial(config, task) for task in retrieval], context)
    about = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
    tables["comparisons"] = compared(pairs, about)
    return {**tables, "literature": judged("extrapolate", config.model_dump(mode="json"), tables)}


def at_the_end(measured: dict[str, pd.DataFrame], config: ExtrapolateConfig) -> pd.DataFrame:
    """The losses after the longest context, with the kind of every document."""
    table = measured["last_window"]
    table = table[table["context_tokens"] == config.test_len]
    if config.hf:
        return table.assign(kind="document")
    kinds = corpora.kinds(config.corpus_at(), config.test_len + 1, config.documents)
    return table.assign(kind=table["document"].map(dict(enumerate(kinds))))


def matched(trials: list[Trial], context: Context) -> pd.DataFrame:
    """task, n_gram_tokens, distance, context, sequences, trials, accuracy, interval."""
    asked = [Matched(trial=trial) for trial in trials if isinstance(trial, Retrieval)]
    found = [
        tables["matched"].assign(task=each.trial.name)
        for each, tables in zip(asked, context.phase(asked), strict=True)
    ]
    return accuracies(pd.concat(found), ["task", "n_gram_tokens", *PLACE])


def text_pairs(
    buckets: pd.DataFrame, last_window: pd.DataFrame, train_len: int, test_len: int
) -> Iterator[Pair]:
    """Loss in every bucket, loss of the last window, and loss at the trained length.

    The last one is the tax: what a method costs where none was needed.
    """
    for end, group in buckets.groupby("bucket_end_tokens"):
        yield from _pairs(("nll_bucket", end, end), group, "document", NLL)
    for name, length in (("nll_last_window", test_len), ("nll_short_context", train_len)):
        group = last_window[last_window["context_tokens"] == length]
        yield from _pairs((name, length, length), group, "document", NLL)


def retrieval_pairs(name: str, counts: pd.DataFrame) -> Iterator[Pair]:
    """Accuracy at every distance and context."""
    shares = counts.assign(accuracy=counts["correct"] / counts["trials"])
    for place, group in shares.groupby(PLACE):
        yield from _pairs((name, *place), group, "sequence", "accuracy")


def _pairs(about: tuple, values: pd.DataFrame, unit: str, column: str) -> Iterator[Pair]:
    """Every pair of rows, each row once, in their order."""
    labels = row_labels(values)
    by_row = {
        label: rows.set_index(["seed", unit])[column]
        for label, rows in values.groupby(pd.Series(labels, values.index), sort=False)
    }
    for a, b in combinations(map(str, by_row), 2):
        gap = difference(by_row[a], by_row[b])
        yield Pair((*about, a, b), gap, (a, b), smaller_is_better=column == NLL)
