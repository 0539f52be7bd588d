"""Finding again an earlier part of a context full of random symbols or real text.

Symbols are bytes for a model trained here, and ordinary tokens for a released one.
Sequences are pure functions of their arguments. Their questions are at the end, and the
answer occurs once more, exactly `distance` tokens before.

copy                up to 256 random symbols, repeated at the end of a context of random
symbols copy_in_text        64 random symbols in a context of real text, repeated at its
end associative_recall  records of a key and a value among random symbols; the values
are asked for most_recent         the same, each key twice, with two values: the nearer
one's is right
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from ropelab.models.lm.corpus import ALPHABET, EVALUATION, CorpusRef
from ropelab.models.lm.evaluation import Readable, token_losses
from ropelab.models.lm.matcher import ngram_predictions
from ropelab.models.lm.source import CUE, KEY, RECORD, Batch, random_symbols
from ropelab.models.tasks.grid import Place, places
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.task import SEARCH_SEED, EvaluationTask, Windows
from ropelab.runs.cell import Advance, Needs
from ropelab.runs.errors import InputError
from ropelab.runs.own import find

# Per place, for the loss that a search lowers.
SEARCH_SEQUENCES = 2
# Lengths in tokens of the cues that the n-gram baseline looks for.
GRAMS = (1, 2, 3)
# Marks text in a sequence; no symbol.
BLANK = -1
# Tokens at the end of a row that hold the questions; fewer where the distance is
# shorter.
QUESTIONS = 256
# As many in a background of other tokens, which should stay most of the row.
HIDDEN = 64

Background = Int[Tensor, "rows length"]


def copy_trials(
    seed: int,
    distance: int,
    length: int,
    rows: int,
    background: Background | None = None,
) -> Batch:
    """Ask for a stretch of symbols whose only other occurrence is exactly `distance`
    back.

    Its first CUE tokens, its mark, are not scored. ValueError: a row or distance is too
    short.
    """
    size = min(distance, length - distance, QUESTIONS if background is None else HIDDEN)
    if size <= CUE:
        raise ValueError(
            f"of a copy of {size} tokens nothing is left after a cue of {CUE}"
        )
    random = np.random.default_rng((EVALUATION, seed, distance, length, 0))
    tokens = _context(random, rows, length, background)
    stretch = random_symbols(random, rows, size)
    tokens[:, _places(length, size, 0)] = stretch
    tokens[:, _places(length, size, distance)] = stretch
    scored = torch.arange(length) >= length - size + CUE
    return Batch(torch.from_numpy(tokens), scored.expand(rows, length))


def recall_trials(
    seed: int,
    distance: int,
    length: int,
    rows: int,
    background: Background | None = None,
    *,
    further: int | None = None,
) -> Batch:
    """Ask for records, a key and a value, exactly `distance` back; the value is scored.

    The key may occur at a `further` distance too, always with another value: the nearer
    one's is right. ValueError: a row is too short, or too little is between the
    records.
    """
    furthest = distance if further is None else further
    between = distance if further is None else min(distance, further - distance)
    questions = QUESTIONS if background is None else HIDDEN
    size = min(between, length - furthest, questions) // RECORD * RECORD
    # The last word keeps the draws apart: 0 for copies, 1 for recall, else the further
    # distance.
    random = np.random.default_rng((EVALUATION, seed, distance, length, further or 1))
    tokens = _context(random, rows, length, background)
    records = random_symbols(random, rows, size)
    # Every second record at the end of a row repeats the one `distance` back; those
    # between are new, or the repeats together would be a copied stretch.
    asked = np.arange(size) % (2 * RECORD) < RECORD
    value = np.arange(size) % RECORD == KEY
    if further is not None:
        # The value of the older record is another symbol, all others being equally
        # probable.
        steps = random.integers(1, len(ALPHABET), size=records.shape)
        others = ALPHABET[(np.searchsorted(ALPHABET, records) + steps) % len(ALPHABET)]
        tokens[:, _places(length, size, further)] = np.where(value, others, records)
    tokens[:, _places(length, size, distance)] = records
    unasked = random_symbols(random, rows, size)
    tokens[:, _places(length, size, 0)] = np.where(asked, records, unasked)
    scored = np.zeros(length, np.bool_)
    scored[_places(length, size, 0)] = asked & value
    return Batch(
        torch.from_numpy(tokens), torch.from_numpy(scored).expand(rows, length)
    )


def _most_recent(
    seed: int, distance: int, context: int, rows: int, background: Background | None
) -> Batch:
    # The further one is as far again behind the nearer one as there is room, up to as
    # far.
    further = min(2 * distance, distance + (context - distance) // 2)
    return recall_trials(seed, distance, context, rows, background, further=further)


# Seed, distance, context, number of sequences and a background of text give sequences.
TASKS: dict[str, Callable[[int, int, int, int, Background | None], Batch]] = {
    "copy": copy_trials,
    "copy_in_text": copy_trials,
    "associative_recall": recall_trials,
    "most_recent": _most_recent,
}


@dataclass(frozen=True, kw_only=True)
class Retrieval(EvaluationTask):
    """Sequences in which something is to be found again, by a task of TASKS."""

    places: tuple[Place, ...]
    sequences: int  # for each place
    # the reference of a task from outside, and its source
    own: tuple[str, str] | None = None

    @property
    def version(self) -> int:
        return 2 if isinstance(self.corpus, CorpusRef) else 1

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.symbols_key(self.name, self.reads_text)

    @property
    def reads_text(self) -> bool:
        return self.name == "copy_in_text"

    @property
    def windows(self) -> Windows:
        return [(self.sequences, place.context) for place in self.places]

    @property
    def searched(self) -> Windows:
        return [(SEARCH_SEQUENCES, place.context) for place in self._searched_places]

    def check(self) -> None:
        if self.own is None:  # one's own code is called where it is computed
            self.sequences_at(0, self.places[-1], self.sequences)

    def at_the_end(self, length: int) -> Self:
        return replace(
            self, places=tuple(p for p in self.places if p.context == length)
        )

    def inside(self, length: int) -> Self:
        return replace(self, places=(Place(length // 2, length),))

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `trials`: tokens found again in each sequence, by distance and
        context.
        """
        found = []
        for place in self.places:
            for _ in mode.passes(model, [place.context]):
                hits = mode.correct(model, self.sequences_at(0, place, self.sequences))
                found.append(_per_sequence(hits, place))
            advance(self.sequences)
        return {"trials": pd.concat(found, ignore_index=True)}

    def examples(self, count: int, length: int) -> Tensor:
        return self.sequences_at(0, Place(length // 2, length), count).tokens

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss of scored tokens on two sequences each at T/4, T/2 and 3
        T/4.
        """
        losses = []
        for place in self._searched_places:
            batch = self.sequences_at(SEARCH_SEED, place, SEARCH_SEQUENCES)
            next(mode.passes(model, [place.context]))
            asked = token_losses(model, batch.tokens, batch.last_scored)
            losses.append(asked[batch.scored[:, -batch.last_scored :]].mean())
        return float(torch.stack(losses).mean())

    @property
    def _searched_places(self) -> tuple[Place, ...]:
        longest = max(place.context for place in self.places)
        return places((longest // 4, longest // 2, longest * 3 // 4), [longest])

    def sequences_at(self, seed: int, place: Place, count: int) -> Batch:
        """Make the sequences of a place; those to search with (seed not 0) are in
        learned text.
        """
        front = torch.tensor(self.corpus.front, dtype=torch.int64).expand(count, -1)
        context = place.context - front.shape[1]
        blank = torch.full((count, context), BLANK) if self.reads_text else None
        own = self.own and find("tasks", self.own[0])
        made = (own or TASKS[self.name])(seed, place.distance, context, count, blank)
        shape = count, context
        if self.own and not (
            made.tokens.shape == shape and np.isin(made.tokens, ALPHABET).all()
        ):
            raise InputError(
                f"{self.own[0]} must return {count} rows of {context} symbols"
            )
        symbols = torch.searchsorted(torch.from_numpy(ALPHABET), made.tokens)
        tokens = self.corpus.symbols[symbols]
        if self.reads_text:
            held_out = self.corpus.documents(place.context, count)[0][
                :, front.shape[1] :
            ]
            if len(held_out) < count:
                raise InputError(
                    f"{self.name} has {len(held_out)} texts for {count} sequences"
                )
            text = self.corpus.windows(seed, context, count) if seed else held_out
            tokens = torch.where(made.tokens == BLANK, text, tokens)

        unscored = torch.zeros_like(front, dtype=torch.bool)
        return Batch(
            torch.cat([front, tokens], 1), torch.cat([unscored, made.scored], 1)
        )


@dataclass(frozen=True, kw_only=True)
class NgramBaseline:
    """A cell: the task done without a model, by predicting what followed the last n
    tokens.

    Where this solves a task, a model shows that it finds tokens, not that it knows
    their distance.
    """

    task: Retrieval
    labels: ClassVar[tuple[tuple[str, object], ...]] = ()
    starts: ClassVar[tuple[()]] = ()
    kind: ClassVar[str] = "matched"
    version: ClassVar[int] = 1

    @property
    def key(self) -> dict[str, Any]:
        return {"trial": self.task.key, "grams": list(GRAMS)}

    @property
    def title(self) -> str:
        return f"{self.task.name}, without a model"

    @property
    def needs(self) -> Needs:
        return Needs(supplies=self.task.supplies)

    def tables(self, context: object) -> dict[str, pd.DataFrame]:
        """Return `matched`: n_gram_tokens, then the columns of `trials`."""
        found = []
        for place in self.task.places:
            batch = self.task.sequences_at(0, place, self.task.sequences)
            for n in GRAMS:
                right = ngram_predictions(batch.tokens, n) == batch.tokens
                hits = right[batch.scored].view(len(batch.tokens), -1)
                found.append(_per_sequence(hits, place).assign(n_gram_tokens=n))
        return {"matched": pd.concat(found, ignore_index=True)}


def _per_sequence(hits: Tensor, place: Place) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sequence": range(len(hits)),
            "distance_tokens": place.distance,
            "context_tokens": place.context,
            "trials": hits.shape[1],
            "correct": hits.sum(dim=1).tolist(),
        }
    )


def _places(length: int, size: int, distance: int) -> slice:
    """Return the last `size` places of a row, `distance` earlier."""
    start = length - size - distance
    if start < 0 or size < RECORD:
        raise ValueError(
            f"{length} tokens do not hold a question and its answer {distance} back"
        )
    return slice(start, start + size)


def _context(
    random: np.random.Generator, rows: int, length: int, background: Background | None
) -> np.ndarray:
    if background is None:
        return random_symbols(random, rows, length)
    if background.shape != (rows, length):
        raise ValueError(
            f"the background is {tuple(background.shape)}, not {(rows, length)}"
        )
    return background.numpy().copy()
