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
    retrieved_under,
    text_truncated,
    text_under,
)
from ropelab.experiments.extrapolate.methods import Method, unscaled
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
        for method in config.parsed_methods() if arm in config.arms else ():
            model = _model(config, method, arm)
            under = partial(measure, method=method)
            yield Row(method.name, method.factor, arm, model, steps, under)
    plain = unscaled(config.geometry())
    if "ceiling" in config.arms:
        longer = partial(trained_longer, geometry=config.geometry(), test_len=config.test_len)
        yield Row(LONGER, 1.0, "ceiling", longer, steps, partial(measure, method=plain))
    if task == "text":
        truncated = partial(
            text_truncated, method=plain, texts=_texts(config), lengths=_lengths(config)
        )
        yield Row(TRUNCATED, 1.0, "zero_shot", as_trained, steps, truncated)


def _model(config: ExtrapolateConfig, method: Method, arm: str) -> Callable[[Training], Training]:
    if arm == "zero_shot":
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
