"""The rows of the tables: every method in every arm, and the baselines, on every task."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pandas as pd
import torch

from ropelab.context import Advance
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.facts import vocabulary_of
from ropelab.experiments.extrapolate.given import Given, copy_trials_in
from ropelab.experiments.extrapolate.measure import (
    Lengths,
    Texts,
    Trials,
    retrieval_loss_beyond,
    retrieved_under,
    text_loss_beyond,
    text_truncated,
    text_under,
)
from ropelab.experiments.extrapolate.methods import Choice, Method, unscaled
from ropelab.experiments.extrapolate.models import finetuned, recalibrated, trained_longer
from ropelab.labels import WINDOW
from ropelab.lm.evaluation import Readable
from ropelab.lm.huggingface import tokenized
from ropelab.lm.tasks import copy_trials, recall_trials
from ropelab.lm.trained import Training

LONGER = "trained_at_test_len"
TRIALS = {"copy": copy_trials, "recall": recall_trials}


Subject = Training | Given
"""What can be measured: a model to be trained, or one's own."""


class Measure(Protocol):
    """Measures a trained model, reporting progress; values per document or sequence."""

    def __call__(self, model: Readable, *, advance: Advance) -> dict[str, pd.DataFrame]: ...


@dataclass(frozen=True)
class Row:
    """One way to read a long context, and how it is measured.

    Attributes:
        arm: `zero_shot`, `finetuned` or `ceiling`.
        model: which model is measured, given the one trained at the trained length.
        steps: how many advances the measurement makes.
    """

    method: str
    factor: float
    arm: str
    model: Callable[[Subject], Subject]
    steps: int
    measure: Measure


def as_trained(base: Subject) -> Subject:
    """The model of the zero-shot arm."""
    return base


def rows(config: ExtrapolateConfig, task: str) -> Iterator[Row]:
    """All rows of one task, the baselines last."""
    measure, steps = _measure(config, task)
    for arm in ("zero_shot", "finetuned"):
        for choice in config.parsed_methods() if arm in config.arms else ():
            if arm == "finetuned" and not choice.is_tunable:
                continue
            model = _model(config, choice, arm)
            under = partial(_found_and_measured, choice, _fitness(config, task), measure)
            yield Row(choice.name, choice.factor, arm, model, steps, under)
    plain = unscaled(config.geometry())
    if "ceiling" in config.arms:
        longer = partial(trained_longer, geometry=config.geometry(), test_len=config.test_len)
        yield Row(LONGER, 1.0, "ceiling", longer, steps, partial(measure, method=plain))
    if task == "text":
        truncated = partial(
            text_truncated, method=plain, texts=texts(config), lengths=_lengths(config)
        )
        yield Row(WINDOW, 1.0, "zero_shot", as_trained, steps, truncated)


def _found_and_measured(
    choice: Choice,
    fitness: Callable[[Readable, Method], float],
    measure: Callable[..., dict[str, pd.DataFrame]],
    model: Readable,
    advance: Advance,
) -> dict[str, pd.DataFrame]:
    """Measure a method, after searching for it where it is one that has to be found."""
    return measure(model, method=choice.found(partial(fitness, model)), advance=advance)


def _fitness(config: ExtrapolateConfig, task: str) -> Callable[[Readable, Method], float]:
    """What a search lowers: the loss beyond the trained length, on sequences not measured later."""
    lengths = _lengths(config)
    if task == "text":
        return partial(text_loss_beyond, batches=config.read_corpus().windows, lengths=lengths)
    return partial(retrieval_loss_beyond, trials=_trials(config, task), lengths=lengths)


def _model(config: ExtrapolateConfig, method: Choice, arm: str) -> Callable[[Subject], Subject]:
    if config.hf or not isinstance(method, Method):
        return as_trained
    if arm == "zero_shot":
        return partial(recalibrated, method=method)
    steps, length = config.finetune_steps, config.tuned_len
    return partial(finetuned, method=method, steps=steps, length=length)


def _measure(
    config: ExtrapolateConfig, task: str
) -> tuple[Callable[..., dict[str, pd.DataFrame]], int]:
    """What measures a task under a method still to be given, and how many advances it makes."""
    if task == "text":
        measure = partial(text_under, texts=texts(config), lengths=_lengths(config))
        return measure, config.documents
    lengths = _lengths(config)
    return partial(
        retrieved_under, trials=_trials(config, task), sequences=config.sequences, lengths=lengths
    ), len(grid.distances(*lengths))


def texts(config: ExtrapolateConfig) -> Texts:
    """The held-out windows of the corpus, in bytes, or in the tokens of a model given."""
    corpus = config.read_corpus()
    length = config.test_len + 1
    if config.hf:
        return Texts(*tokenized(Path(config.hf), corpus.held_out, length, config.documents))
    tokens = corpus.held_out_windows(length, config.documents)
    return Texts(tokens, torch.ones(len(tokens), dtype=torch.float64))


def _trials(config: ExtrapolateConfig, task: str) -> Trials:
    """What makes the sequences of a retrieval task."""
    if config.hf:
        return copy_trials_in(vocabulary_of(config.hf))
    return TRIALS[task]


def _lengths(config: ExtrapolateConfig) -> Lengths:
    return Lengths(config.train_len, config.test_len)
