"""The rows of the tables: every method in every arm, and the baselines, on every task."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pandas as pd
from torch import Tensor

from ropelab.context import Advance
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.measure import (
    Lengths,
    retrieval_loss_beyond,
    retrieved_under,
    text_loss_beyond,
    text_truncated,
    text_under,
)
from ropelab.experiments.extrapolate.methods import Choice, Method, unscaled
from ropelab.experiments.extrapolate.models import finetuned, trained_longer
from ropelab.lm.model import LanguageModel
from ropelab.lm.tasks import copy_trials, recall_trials
from ropelab.lm.trained import Training

TRUNCATED = "sliding_window"
LONGER = "trained_at_test_len"
TRIALS = {"copy": copy_trials, "recall": recall_trials}


class Measure(Protocol):
    """Measures a trained model, reporting progress; values per document or sequence."""

    def __call__(self, model: LanguageModel, *, advance: Advance) -> dict[str, pd.DataFrame]: ...


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
    model: Callable[[Training], Training]
    steps: int
    measure: Measure


def as_trained(base: Training) -> Training:
    """The model of the zero-shot arm."""
    return base


def rows(config: ExtrapolateConfig, task: str) -> Iterator[Row]:
    """All rows of one task, the baselines last."""
    measure, steps = _measure(config, task)
    for arm in ("zero_shot", "finetuned"):
        for choice in config.parsed_methods() if arm in config.arms else ():
            if arm == "finetuned" and not isinstance(choice, Method):
                continue  # searched on the model as trained, so there is nothing to train under
            model = _model(config, choice, arm)
            under = partial(_found_and_measured, choice, _fitness(config, task), measure)
            yield Row(choice.name, choice.factor, arm, model, steps, under)
    plain = unscaled(config.geometry())
    if "ceiling" in config.arms:
        longer = partial(trained_longer, geometry=config.geometry(), test_len=config.test_len)
        yield Row(LONGER, 1.0, "ceiling", longer, steps, partial(measure, method=plain))
    if task == "text":
        truncated = partial(
            text_truncated, method=plain, texts=_texts(config), lengths=_lengths(config)
        )
        yield Row(TRUNCATED, 1.0, "zero_shot", as_trained, steps, truncated)


def _found_and_measured(
    choice: Choice,
    fitness: Callable[[LanguageModel, Method], float],
    measure: Callable[..., dict[str, pd.DataFrame]],
    model: LanguageModel,
    advance: Advance,
) -> dict[str, pd.DataFrame]:
    """Measure a method, after searching for it where it is one that has to be found."""
    return measure(model, method=choice.found(partial(fitness, model)), advance=advance)


def _fitness(config: ExtrapolateConfig, task: str) -> Callable[[LanguageModel, Method], float]:
    """What a search lowers: the loss beyond the trained length, on sequences not measured later."""
    lengths = _lengths(config)
    if task == "text":
        return partial(text_loss_beyond, batches=config.read_corpus().windows, lengths=lengths)
    return partial(retrieval_loss_beyond, trials=TRIALS[task], lengths=lengths)


def _model(config: ExtrapolateConfig, method: Choice, arm: str) -> Callable[[Training], Training]:
    if arm == "zero_shot" or not isinstance(method, Method):
        return as_trained
    steps, length = config.finetune_steps, config.test_len
    return partial(finetuned, method=method, steps=steps, test_len=length)


def _measure(
    config: ExtrapolateConfig, task: str
) -> tuple[Callable[..., dict[str, pd.DataFrame]], int]:
    """What measures a task under a method still to be given, and how many advances it makes."""
    if task == "text":
        measure = partial(text_under, texts=_texts(config), lengths=_lengths(config))
        return measure, config.documents
    lengths = _lengths(config)
    return partial(
        retrieved_under, trials=TRIALS[task], sequences=config.sequences, lengths=lengths
    ), len(grid.distances(*lengths))


def _texts(config: ExtrapolateConfig) -> Tensor:
    return config.read_corpus().held_out_windows(config.test_len + 1, config.documents)


def _lengths(config: ExtrapolateConfig) -> Lengths:
    return Lengths(config.train_len, config.test_len)
