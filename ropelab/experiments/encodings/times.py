"""Times of training and decoding, against the model without positions in the same run.

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

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings.cost import PLAIN, countable_model
from ropelab.models.lm.batch import Batch
from ropelab.models.lm.model import Cache, LanguageModel
from ropelab.models.lm.source import periodic_batch
from ropelab.models.lm.training import make_optimizers, one_step
from ropelab.models.tasks.modes import defined_length
from ropelab.models.tasks.plans import recipe_of
from ropelab.runs.cell import Cell, Context, Needs

# Each encoding takes turns with NoPE so often, so that both see the same machine.
ROUNDS = 5
# Tokens decoded between two readings of the clock.
DECODED = 16
# Largest spread of the middle half of the rounds, as a share of their median.
STEADY = 0.15
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
        shape = {"layers", "width", "heads", "head_dim", "tokens_per_step", "first_window"}
        named = {"encodings", "train_len", "test_len", "dtype", "device", *shape}
        return self.config.model_dump(mode="json", include=named)

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return `times`: throughput and time per decoded token of each encoding and of NoPE."""
        config, rows = self.config, []
        tokens = config.tokens_per_step // config.train_len * config.train_len
        with context.progress(self.title, len(config.encodings)) as advance:
            for name in config.encodings:
                step, slower = in_turns(training_step(config, name), training_step(config, PLAIN))
                # New models: those have moved, and their optimizers hold memory.
                model, plain = (
                    countable_model(config, each).to(config.device) for each in (name, PLAIN)
                )
                length = defined_length(model.encoding, config.test_len)
                token, longer = in_turns(decoding(model, length), decoding(plain, length))
                rows.append(
                    {
                        "encoding": name,
                        "training_tokens_per_second": round(tokens / step, 1),
                        "training_time_ratio": slower,
                        "decode_context_tokens": length,
                        "decode_seconds": token / DECODED,
                        "decode_time_ratio": longer,
                        "threads": torch.get_num_threads(),
                    }
                )
                advance(1)
        return {"times": pd.DataFrame(rows)}


def training_step(config: EncodingsConfig, name: str) -> Work:
    """Return one optimizer step on rows of symbols at the full trained length."""
    model = countable_model(config, name).to(config.device)
    recipe = recipe_of(config, config.first_window)
    optimizers = make_optimizers(model, recipe, config.dtype)

    def data(step: int, window: int, rows: int) -> Batch:
        return periodic_batch(np.random.default_rng(step), window, rows)

    return lambda: one_step(model, optimizers, data, recipe, recipe.steps - 1, config.dtype)


def decoding(model: LanguageModel, context: int) -> Work:
    """Return the decoding of DECODED tokens, one by one, at the end of a cached context."""
    full, device = Cache(), model.head.weight.device
    with torch.inference_mode():
        model(torch.zeros(1, context - DECODED, dtype=torch.long, device=device), full)

    @torch.inference_mode()
    def work() -> None:
        cache = Cache(full.tokens, dict(full.layers))
        for _ in range(DECODED):
            model(torch.zeros(1, 1, dtype=torch.long, device=device), cache)

    return work


def in_turns(mine: Work, plain: Work, rounds: int = ROUNDS) -> tuple[float, float | None]:
    """Return the median seconds of `mine`, and the ratio to those of `plain`, measured in turns.

    The ratio is the median over rounds, each round against itself; None where the middle half of
    the rounds is further apart than STEADY, as on a machine that does something else too.
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
    ratios = [a / b for a, b in zip(*seconds, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    steady = round(middle, 2) if high - low <= STEADY * middle else None
    return statistics.median(seconds[0]), steady
