"""From a config to tables: train what is not trained yet, measure every row, make intervals.

text_nll       loss by bucket of positions, mean over documents: one causal pass over each
last_window    loss of the same final tokens after growing contexts, mean over documents
text_by_kind, text_by_document, context_by_kind
               the same told apart: see `trials.documents`
copy_accuracy, hidden_accuracy, recall_accuracy, nearer_accuracy
               share of what was found again, by distance and length of context
searched       what a search of knobs chose, and the losses it went by
matched        the same without a model: what followed the last 1, 2 or 3 tokens before
comparisons    every pair of rows under every metric
literature     what was published and this run speaks about, judged
"""

import pandas as pd

from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.given import run as given
from ropelab.experiments.extrapolate.given.config import GivenConfig
from ropelab.experiments.extrapolate.pairs import ABOUT, ROW, retrieval_pairs, text_pairs
from ropelab.experiments.extrapolate.plan import questions, trial
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.tasks import corpora
from ropelab.models.tasks.cells import Labelled, collected
from ropelab.models.tasks.documents import told_apart
from ropelab.models.tasks.retrieval import Matched, Retrieval
from ropelab.models.tasks.tables import BUCKET, PLACE, accuracies, losses
from ropelab.runs.cell import Cell, Values
from ropelab.runs.comparisons import Pair, compared


def cells(config: ExtrapolateConfig | GivenConfig) -> list[Cell]:
    """Every task of every row, with and without a model."""
    if isinstance(config, GivenConfig):
        return []
    return [*questions(config), *without_a_model(config)]


def tables(config: ExtrapolateConfig | GivenConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables that the head of this file describes."""
    if isinstance(config, GivenConfig):
        return given.measure(config, values)
    asked: list[Labelled] = [*questions(config), *without_a_model(config)]
    found: dict[str, pd.DataFrame] = {}
    pairs: list[Pair] = []
    searched: list[pd.DataFrame] = []
    matched: list[pd.DataFrame] = []
    for task, measured in collected(asked, values).items():
        if "searched" in measured:
            searched.append(measured.pop("searched").assign(task=task))
        if "matched" in measured:
            matched.append(measured.pop("matched").assign(task=task))
        if task == "text":
            found["text_nll"] = losses(measured["buckets"], [*ROW, *BUCKET])
            found["last_window"] = losses(measured["last_window"], [*ROW, "context_tokens"])
            found |= by_document(measured["last_window"], config)
            pairs += text_pairs(**measured, short=[config.train_len], test_len=config.test_len)
        else:
            found[f"{task}_accuracy"] = accuracies(measured["trials"], [*ROW, *PLACE])
            pairs += retrieval_pairs(f"{task}_accuracy", measured["trials"])
    for name, table in found.items():
        found[name] = table.assign(train_len_tokens=config.train_len)
    if searched:
        found["searched"] = pd.concat(searched, ignore_index=True)
    if matched:
        found["matched"] = accuracies(pd.concat(matched), ["task", "n_gram_tokens", *PLACE])
    found["comparisons"] = compared(pairs, ABOUT)
    return found


def by_document(last_window: pd.DataFrame, config: ExtrapolateConfig) -> dict[str, pd.DataFrame]:
    """Losses told apart by document and by kind."""
    origins = corpora.origins(config.corpus_at(), config.test_len + 1, config.documents)
    return told_apart(last_window, origins, ROW, {UNSCALED.label}, config.train_len)


def without_a_model(config: ExtrapolateConfig) -> list[Matched]:
    """The tasks of retrieval, answered without a model."""
    trials = [trial(config, task) for task in config.tasks]
    return [Matched(trial=each) for each in trials if isinstance(each, Retrieval)]
