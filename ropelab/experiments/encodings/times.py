"""How long training and decoding take, against the model without positions in the same run.

Each encoding takes turns with NoPE, so that both see the same machine, and medians are compared.
Times differ from run to run, so they go into the manifest and not into a table.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.encodings.cost import PLAIN
from ropelab.experiments.encodings.plan import encoding_of, shape_of
from ropelab.models.encoding.registry import make_encoding
from ropelab.models.lm.batch import Batch
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import Cache, LanguageModel
from ropelab.models.lm.source import periodic_batch
from ropelab.models.lm.training import make_optimizers, one_step
from ropelab.models.tasks.plans import model_size, recipe_of
from ropelab.models.tasks.readers import defined_length
from ropelab.runs.cell import Advance, Cell, Context, Needs

# How often an encoding and NoPE are timed in turns.
ROUNDS = 5
DECODED = 16
"""Tokens decoded between two readings of the clock."""
STEADY = 0.15
"""Largest spread of the middle half of the rounds, as a share of their median."""
Work = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """The clock as a cell: computed alone, since anything beside it would be timed too."""

    config: EncodingsConfig
    kind: ClassVar[str] = "encodings-times"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "timing against nope"
    starts: ClassVar[tuple[Cell, ...]] = ()
    needs: ClassVar[Needs] = Needs(alone=True, dtype="float32")

    @property
    def key(self) -> dict[str, Any]:
        """Everything that the models are made from."""
        shape = {"layers", "width", "heads", "head_dim", "tokens_per_step", "first_window"}
        named = {"encodings", "train_len", "test_len", "dtype", "device", *shape}
        return self.config.model_dump(mode="json", include=named)

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """`times`: a row per encoding: throughput, time per decoded token, both against NoPE."""
        with context.progress(self.title, len(self.config.encodings)) as advance:
            rows = [_row(self.config, name, ROUNDS, advance) for name in self.config.encodings]
        return {"times": pd.DataFrame(rows)}


def _row(config: EncodingsConfig, name: str, rounds: int, advance: Advance) -> dict[str, Any]:
    context = defined_length(make_encoding(name, shape_of(config)), config.test_len)
    step, slower = in_turns(training_step(config, name), training_step(config, PLAIN), rounds)
    mine, plain = (decoding(config, each, context) for each in (name, PLAIN))
    token, longer = in_turns(mine, plain, rounds)
    advance(1)
    tokens = config.tokens_per_step // config.train_len * config.train_len
    return {
        "encoding": name,
        "training_tokens_per_second": round(tokens / step, 1),
        "training_time_ratio": slower,
        "decode_context_tokens": context,
        "decode_seconds": token / DECODED,
        "decode_time_ratio": longer,
        "threads": torch.get_num_threads(),
    }


def training_step(config: EncodingsConfig, name: str) -> Work:
    """One optimizer step on rows of symbols at the full trained length."""
    model, recipe = model_with(config, name), recipe_of(config, config.first_window)
    optimizers = make_optimizers(model, recipe, config.dtype)

    def data(step: int, window: int, rows: int) -> Batch:
        return periodic_batch(np.random.default_rng(step), window, rows)

    return lambda: one_step(model, optimizers, data, recipe, recipe.steps - 1, config.dtype)


def decoding(config: EncodingsConfig, name: str, context: int) -> Work:
    """A few tokens, one by one, at the end of a context whose keys and values are cached."""
    model, full = model_with(config, name), Cache()
    device = model.head.weight.device
    with torch.inference_mode():
        model(torch.zeros(1, context - DECODED, dtype=torch.long, device=device), full)

    @torch.inference_mode()
    def work() -> None:
        cache = Cache(full.tokens, dict(full.layers))
        for _ in range(DECODED):
            model(torch.zeros(1, 1, dtype=torch.long, device=device), cache)

    return work


def model_with(config: EncodingsConfig, name: str) -> LanguageModel:
    """The model, untrained: times do not depend on weights."""
    size, encoding = model_size(config, VOCABULARY), encoding_of(shape_of(config), name)
    return LanguageModel(size, encoding).to(config.device)


def in_turns(mine: Work, plain: Work, rounds: int) -> tuple[float, float | None]:
    """Median seconds of `mine`, and how many times those of `plain`, measured in turns.

    The ratio is the median over rounds, each round against itself; None where the middle half of
    the rounds lies further apart than STEADY, as on a machine that does something else too.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for work in (mine, plain):
        work()
    for _ in range(rounds):
        for work, taken in zip((mine, plain), seconds, strict=True):
            start = time.perf_counter()
            work()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - start)
    return statistics.median(seconds[0]), _steady([a / b for a, b in zip(*seconds, strict=True)])


def _steady(ratios: list[float]) -> float | None:
    """The median of ratios that agree, rounded to what they can tell."""
    if len(ratios) < 2:
        return None
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return round(middle, 2) if high - low <= STEADY * middle else None
