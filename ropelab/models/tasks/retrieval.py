"""Asking a model for something that stood earlier in a context full of something else.

Accuracy is a surface over how far back it lies and how long the context is. The contexts are full:
before, between and after what is asked for stand random symbols or real text. A task is a function
that makes the sequences; another one needs nothing but a row in `TASKS`.

copy      256 random symbols, repeated at the end of a context of random symbols
hidden    64 random symbols in a context of real text, repeated at its end
recall    records of a key and a value among random symbols; keys are shown, values asked for
nearer    the same, where each key stands twice, with two values: the nearer one's is right
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor

from ropelab.models.lm.batch import Batch
from ropelab.models.lm.evaluation import Readable, token_losses
from ropelab.models.lm.matcher import ngram_predictions
from ropelab.models.lm.sequences import copy_trials, nearer_trials, recall_trials
from ropelab.models.tasks.corpora import CorpusRef
from ropelab.models.tasks.grid import Place, places
from ropelab.models.tasks.readers import Reader
from ropelab.models.tasks.text import SEARCH_SEED
from ropelab.runs.cell import Advance, Cell, Needs, Supply

SEARCH_SEQUENCES = 2
"""Per place, for the loss that a search lowers."""
GRAMS = (1, 2, 3)
"""Of how many tokens the cues are that a reader without a model looks for."""
BYTES = 0
"""The vocabulary that the symbols are drawn from, as keys name it."""


def _copy(seed: int, place: Place, rows: int, corpus: CorpusRef) -> Batch:
    return copy_trials(seed, place.distance, place.context, rows)


def _hidden(seed: int, place: Place, rows: int, corpus: CorpusRef) -> Batch:
    """What is searched with (seed not 0) stands in text that is learned from."""
    held_out = corpus.documents(place.context, rows)[0]
    background = corpus.windows(seed, place.context, rows) if seed else held_out
    return copy_trials(seed, place.distance, place.context, rows, background)


def _recall(seed: int, place: Place, rows: int, corpus: CorpusRef) -> Batch:
    return recall_trials(seed, place.distance, place.context, rows)


def _nearer(seed: int, place: Place, rows: int, corpus: CorpusRef) -> Batch:
    """The further one stands as far again behind the nearer one as there is room, up to as far."""
    distance, context = place
    further = min(2 * distance, distance + (context - distance) // 2)
    return nearer_trials(seed, distance, further, context, rows)


TASKS: dict[str, Callable[[int, Place, int, CorpusRef], Batch]] = {
    "copy": _copy,
    "hidden": _hidden,
    "recall": _recall,
    "nearer": _nearer,
}
"""What makes the sequences of a task from a seed, a place, their number and a corpus."""


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Sequences in which something is to be found again.

    Attributes:
        name: the task, one of TASKS.
        places: where it lies.
        sequences: how many for each place.
        corpus: the real text that contexts may be made of.
    """

    name: str
    places: tuple[Place, ...]
    sequences: int
    corpus: CorpusRef
    version: ClassVar[int] = 2

    @property
    def key(self) -> dict[str, Any]:
        """What the values depend on besides the model and the reader."""
        corpus = self.corpus.fingerprint if self.reads_text else ""
        return {**asdict(self), "corpus": corpus, "vocabulary": BYTES}

    @property
    def reads_text(self) -> bool:
        """Whether contexts are made of real text."""
        return self.name == "hidden"

    @property
    def steps(self) -> int:
        """How many times a measurement advances."""
        return len(self.places)

    @property
    def supplies(self) -> tuple[Supply, ...]:
        """The text that contexts may be made of."""
        return (self.corpus,)

    @property
    def windows(self) -> list[tuple[int, int]]:
        """How many rows of how many tokens are read, pass by pass."""
        return [(self.sequences, place.context) for place in self.places]

    def measure(self, model: Readable, reader: Reader, advance: Advance) -> dict[str, pd.DataFrame]:
        """`trials`: tokens found again in each sequence, by distance and context."""
        found = []
        for place in self.places:
            for _ in reader.passes(model, [place.context]):
                hits = reader.correct(model, self.sequences_at(0, place, self.sequences))
                found.append(per_sequence(hits, place))
            advance(1)
        return {"trials": pd.concat(found, ignore_index=True)}

    def examples(self, count: int, length: int) -> Tensor:
        """Sequences of that length in which half of it lies between question and answer."""
        return self.sequences_at(0, Place(length // 2, length), count).tokens

    @property
    def searched(self) -> list[tuple[int, int]]:
        """What is read for the loss that a search lowers."""
        return [(SEARCH_SEQUENCES, place.context) for place in self._searched_places()]

    def search_loss(self, model: Readable, reader: Reader) -> float:
        """The mean loss of scored tokens on two sequences each at T/4, T/2 and 3 T/4."""
        losses = [self._loss(model, reader, place) for place in self._searched_places()]
        return float(torch.stack(losses).mean())

    def _searched_places(self) -> tuple[Place, ...]:
        longest = max(place.context for place in self.places)
        return places((longest // 4, longest // 2, longest * 3 // 4), [longest])

    def sequences_at(self, seed: int, place: Place, count: int) -> Batch:
        """The sequences of one place."""
        return TASKS[self.name](seed, place, count, self.corpus)

    def _loss(self, model: Readable, reader: Reader, place: Place) -> Tensor:
        batch = self.sequences_at(SEARCH_SEED, place, SEARCH_SEQUENCES)
        next(reader.passes(model, [place.context]))
        return token_losses(model, batch.tokens)[batch.scored[:, 1:]].mean()


@dataclass(frozen=True, kw_only=True)
class Matched:
    """The same questions answered without a model: by what followed the last n tokens before.

    A task that this answers shows whether a model finds what stood before, and not that it knows
    where. It is a cell of a run like a model's measurement.
    """

    trial: Retrieval
    labels: ClassVar[tuple[tuple[str, object], ...]] = ()
    kind: ClassVar[str] = "matched"
    version: ClassVar[int] = 1
    starts: ClassVar[tuple[Cell, ...]] = ()

    @property
    def key(self) -> dict[str, Any]:
        """Everything the values depend on."""
        return {"trial": self.trial.key, "grams": list(GRAMS)}

    @property
    def title(self) -> str:
        """What is said while it is computed."""
        return f"{self.trial.name}, without a model"

    @property
    def needs(self) -> Needs:
        """Little beside what a model takes."""
        return Needs(supplies=self.trial.supplies)

    def tables(self, context: object) -> dict[str, pd.DataFrame]:
        """`matched`: n_gram_tokens, then the columns of `trials`."""
        found = []
        for place in self.trial.places:
            batch = self.trial.sequences_at(0, place, self.trial.sequences)
            for n in GRAMS:
                right = ngram_predictions(batch.tokens, n) == batch.tokens
                hits = right[batch.scored].view(len(batch.tokens), -1)
                found.append(per_sequence(hits, place).assign(n_gram_tokens=n))
        return {"matched": pd.concat(found, ignore_index=True)}


def per_sequence(hits: Tensor, place: Place) -> pd.DataFrame:
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
