"""Finding again what stood earlier in a context full of something else.

Accuracy is a surface over the distance and the length of the context. Contexts are full: before,
between and after what is asked for are random symbols or real text. A task is a function that makes
the sequences; another one is a row in `TASKS`. Symbols are bytes for a model trained here, and
ordinary tokens for a released one.

copy      256 random symbols, repeated at the end of a context of random symbols
hidden    64 random symbols in a context of real text, repeated at its end
recall    records of a key and a value among random symbols; keys are shown, values asked for
nearer    the same, where each key stands twice, with two values: the nearer one's is right
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pandas as pd
import torch
from torch import Tensor

from ropelab.models.lm.batch import Batch
from ropelab.models.lm.evaluation import Readable, token_losses
from ropelab.models.lm.matcher import ngram_predictions
from ropelab.models.lm.sequences import Background, copy_trials, recall_trials
from ropelab.models.lm.source import ALPHABET
from ropelab.models.tasks.corpora import CorpusRef, Text
from ropelab.models.tasks.grid import Place, places
from ropelab.models.tasks.readers import Reader
from ropelab.models.tasks.text import SEARCH_SEED, supplied
from ropelab.runs.cell import Advance, Needs, Supply

# Per place, for the loss that a search lowers.
SEARCH_SEQUENCES = 2
# Lengths in tokens of the cues that a reader without a model looks for.
GRAMS = (1, 2, 3)
# Stands where a sequence has text; no symbol.
BLANK = -1


def _copy(seed: int, place: Place, rows: int, background: Background | None) -> Batch:
    return copy_trials(seed, place.distance, place.context, rows, background)


def _recall(seed: int, place: Place, rows: int, background: Background | None) -> Batch:
    return recall_trials(seed, place.distance, place.context, rows, background)


def _nearer(seed: int, place: Place, rows: int, background: Background | None) -> Batch:
    """The further one stands as far again behind the nearer one as there is room, up to as far."""
    distance, context = place
    further = min(2 * distance, distance + (context - distance) // 2)
    return recall_trials(seed, distance, context, rows, background, further=further)


# Makes the sequences of a task from a seed, a place, their number and a background of text.
TASKS: dict[str, Callable[[int, Place, int, Background | None], Batch]] = {
    "copy": _copy,
    "hidden": _copy,
    "recall": _recall,
    "nearer": _nearer,
}


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Sequences in which something is to be found again.

    Attributes:
        name: the task, one of TASKS.
        places: distance and context of each group of sequences.
        sequences: how many for each place.
        corpus: says which tokens are symbols, and has the text that contexts may be made of.
    """

    name: str
    places: tuple[Place, ...]
    sequences: int
    corpus: Text

    @property
    def version(self) -> int:
        """Raised when the numbers change their meaning."""
        return 2 if isinstance(self.corpus, CorpusRef) else 1

    @property
    def key(self) -> dict[str, Any]:
        about = self.corpus.symbols_key(self.name, self.reads_text)
        return {"places": self.places, "sequences": self.sequences, **about}

    @property
    def reads_text(self) -> bool:
        """True if contexts are made of real text."""
        return self.name == "hidden"

    @property
    def steps(self) -> int:
        return len(self.places)

    @property
    def supplies(self) -> tuple[Supply, ...]:
        return supplied(self.corpus)

    @property
    def windows(self) -> list[tuple[int, int]]:
        return [(self.sequences, place.context) for place in self.places]

    @property
    def searched(self) -> list[tuple[int, int]]:
        return [(SEARCH_SEQUENCES, place.context) for place in self._searched_places()]

    def at_the_end(self, length: int) -> Self:
        """The same task in the longest context only."""
        return replace(self, places=tuple(p for p in self.places if p.context == length))

    def inside(self, length: int) -> Self:
        """The same task from half of that length back, in a context of that length."""
        return replace(self, places=(Place(length // 2, length),))

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

    def search_loss(self, model: Readable, reader: Reader) -> float:
        """The mean loss of scored tokens on two sequences each at T/4, T/2 and 3 T/4."""
        losses = []
        for place in self._searched_places():
            batch = self.sequences_at(SEARCH_SEED, place, SEARCH_SEQUENCES)
            next(reader.passes(model, [place.context]))
            losses.append(token_losses(model, batch.tokens)[batch.scored[:, 1:]].mean())
        return float(torch.stack(losses).mean())

    def _searched_places(self) -> tuple[Place, ...]:
        longest = max(place.context for place in self.places)
        return places((longest // 4, longest // 2, longest * 3 // 4), [longest])

    def sequences_at(self, seed: int, place: Place, count: int) -> Batch:
        """The sequences of one place; those to search with (seed not 0) are in learned text."""
        front = torch.tensor(self.corpus.front, dtype=torch.int64).expand(count, -1)
        inner = Place(place.distance, place.context - front.shape[1])
        blank = torch.full((count, inner.context), BLANK) if self.reads_text else None
        made = TASKS[self.name](seed, inner, count, blank)

        symbols = torch.searchsorted(torch.from_numpy(ALPHABET), made.tokens)
        tokens = self.corpus.symbols[symbols]
        if self.reads_text:
            held_out = self.corpus.documents(place.context, count)[0][:, front.shape[1] :]
            text = self.corpus.windows(seed, inner.context, count) if seed else held_out
            tokens = torch.where(made.tokens == BLANK, text, tokens)

        unscored = torch.zeros_like(front, dtype=torch.bool)
        return Batch(torch.cat([front, tokens], 1), torch.cat([unscored, made.scored], 1))


@dataclass(frozen=True, kw_only=True)
class Matched:
    """The same task done without a model: the prediction is what followed the last n tokens before.

    A task that this solves shows whether a model finds what stood before, and not that it knows
    where. It is a cell of a run like the evaluation of a model.
    """

    trial: Retrieval
    labels: ClassVar[tuple[tuple[str, object], ...]] = ()
    starts: ClassVar[tuple[()]] = ()
    kind: ClassVar[str] = "matched"
    version: ClassVar[int] = 1

    @property
    def key(self) -> dict[str, Any]:
        """Everything the values depend on."""
        return {"trial": self.trial.key, "grams": list(GRAMS)}

    @property
    def title(self) -> str:
        """Shown while it is computed."""
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
