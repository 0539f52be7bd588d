"""Asking a model for something that stood earlier in its context: copying, and looking up keys.

Accuracy is a surface over how far back it lies and how long the context is. What makes the
sequences is an object that is handed in, so another task needs nothing but a row in `TASKS`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ropelab.context import Advance
from ropelab.lm.evaluation import Readable, correct, token_losses
from ropelab.lm.tasks import SYMBOLS, Batch, copy_trials, recall_trials
from ropelab.trials.grid import Place, places
from ropelab.trials.readers import Reader
from ropelab.trials.text import SEARCH_SEED

TASKS: dict[str, Callable[[int, int, int, int], Batch]] = {
    "copy": copy_trials,
    "recall": recall_trials,
}
"""What makes the sequences of a task, from a seed, a distance, a context and their number."""


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Sequences in which something is to be found again.

    Attributes:
        name: the task, one of TASKS.
        places: where it lies.
        sequences: how many for each place.
        vocabulary: of how many tokens the symbols are drawn; 0: the model knows symbols only.
    """

    name: str
    places: tuple[Place, ...]
    sequences: int
    vocabulary: int = 0
    version: ClassVar[int] = 1

    @property
    def key(self) -> dict[str, Any]:
        """What the values depend on besides the model and the reader."""
        return asdict(self)

    @property
    def steps(self) -> int:
        """How many times a measurement advances."""
        return len(self.places)

    def measure(self, model: Readable, reader: Reader, advance: Advance) -> dict[str, pd.DataFrame]:
        """`trials`: tokens found again in each sequence, by distance and context."""
        found = []
        for place in self.places:
            for _ in reader.passes(model, [place.context]):
                hits = correct(model, self._sequences(0, place, self.sequences))
                found.append(_per_sequence(hits, place))
            advance(1)
        return {"trials": pd.concat(found, ignore_index=True)}

    def examples(self, count: int, length: int) -> Tensor:
        """Sequences of that length with one repeat of half of it."""
        return self._sequences(0, Place(length // 2, length), count).tokens

    def search_loss(self, model: Readable, reader: Reader) -> float:
        """The mean loss of scored tokens on two sequences each at T/4, T/2 and 3 T/4."""
        longest = max(place.context for place in self.places)
        tried = places((longest // 4, longest // 2, longest * 3 // 4), longest)
        losses = [self._loss(model, reader, place) for place in tried]
        return float(torch.stack(losses).mean())

    def _loss(self, model: Readable, reader: Reader, place: Place) -> Tensor:
        batch = self._sequences(SEARCH_SEED, place, 2)
        next(reader.passes(model, [place.context]))
        return token_losses(model, batch.tokens)[batch.scored[:, 1:]].mean()

    def _sequences(self, seed: int, place: Place, count: int) -> Batch:
        batch = TASKS[self.name](seed, place.distance, place.context, count)
        return _in_tokens(batch, self.vocabulary) if self.vocabulary else batch


def _per_sequence(hits: Tensor, place: Place) -> pd.DataFrame:
    """sequence, distance_tokens, context_tokens, trials, correct."""
    return pd.DataFrame(
        {
            "sequence": range(len(hits)),
            "distance_tokens": place.distance,
            "context_tokens": place.context,
            "trials": hits.shape[1],
            "correct": hits.sum(dim=1).tolist(),
        }
    )


def _in_tokens(batch: Batch, vocabulary: int) -> Batch:
    """The same sequences in tokens of another vocabulary."""
    symbols = symbols_of(vocabulary)
    return Batch(symbols[batch.tokens % len(symbols)], batch.scored)


@lru_cache(maxsize=2)
def symbols_of(vocabulary: int) -> Tensor:
    """As many tokens of a vocabulary as copying has symbols, drawn once."""
    return torch.from_numpy(np.random.default_rng(0).permutation(vocabulary)[:SYMBOLS])
