"""Finding again an earlier part of a context full of random symbols or real text.

Symbols are bytes for a model trained here, and ordinary tokens for a released one.
Sequences are pure functions of their arguments. Their questions are at the end, and the
answer occurs once more, exactly `distance` tokens before.

copy
    up to 256 random symbols, repeated at the end of a context of random symbols
copy_in_text
    64 random symbols in a context of real text, repeated at its end
associative_recall
    records of a key and a value among random symbols; the values are asked for
most_recent
    the same, each key twice, with two values: the nearer one's is right
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
from ropelab.runs.cell import Advance, Resources
from ropelab.runs.errors import InputError
from ropelab.runs.own import find

# Sequences at each place for the loss that a search lowers.
SEARCH_SEQUENCES = 2
# Lengths in tokens of the cues that the n-gram baseline looks for.
GRAMS = (1, 2, 3)
# This marks text in a sequence and is no symbol.
BLANK = -1
# Tokens at the end of a row that hold the questions; fewer where the distance is
# shorter.
QUESTIONS = 256
# The same in a background of other tokens, which should stay most of the row.
HIDDEN = 64

Background = Int[Tensor, "rows length"]


def copy_trials(
    seed: int,
    distance: int,
    length: int,
    rows: int,
    background: Background | None = None,
) -> Batch:
    """Ask for a stretch of symbols that occurs only once more, `distance` tokens back.

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
    if further is None:
        furthest = distance
        between = distance
    else:
        furthest = further
        between = min(distance, further - distance)
    questions = QUESTIONS if background is None else HIDDEN
    size = min(between, length - furthest, questions) // RECORD * RECORD

    # The last word keeps the draws apart: 0 for copies, 1 for recall, else the further
    # distance.
    random = np.random.default_rng((EVALUATION, seed, distance, length, further or 1))
    tokens = _context(random, rows, length, background)
    records = random_symbols(random, rows, size)
    # Every second record at the end of a row repeats the one `distance` back; those
    # between are new, or the repeats together would be a copied stretch.
    is_asked = np.arange(size) % (2 * RECORD) < RECORD
    is_value = np.arange(size) % RECORD == KEY
    if further is not None:
        # The value of the older record is another symbol, all others being equally
        # probable.
        steps = random.integers(1, len(ALPHABET), size=records.shape)
        others = ALPHABET[(np.searchsorted(ALPHABET, records) + steps) % len(ALPHABET)]
        tokens[:, _places(length, size, further)] = np.where(is_value, others, records)
    tokens[:, _places(length, size, distance)] = records
    unasked = random_symbols(random, rows, size)
    tokens[:, _places(length, size, 0)] = np.where(is_asked, records, unasked)
    scored = np.zeros(length, np.bool_)
    scored[_places(length, size, 0)] = is_asked & is_value
    scored_rows = torch.from_numpy(scored).expand(rows, length)
    return Batch(torch.from_numpy(tokens), scored_rows)


def _most_recent(
    seed: int, distance: int, context: int, rows: int, background: Background | None
) -> Batch:
    # The further one is as far behind the nearer one as that is behind the question,
    # or as there is room for.
    further = min(2 * distance, distance + (context - distance) // 2)
    return recall_trials(seed, distance, context, rows, background, further=further)


# Functions of the seed, distance, context, number of sequences and a background of text.
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
    # For each place.
    sequences: int
    # The reference of a task from outside, and its source.
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
    def search_windows(self) -> Windows:
        return [(SEARCH_SEQUENCES, place.context) for place in self._searched_places]

    def check(self) -> None:
        # Code of one's own is called only where it is computed.
        if self.own is None:
            self.sequences_at(0, self.places[-1], self.sequences)

    def at_the_end(self, length: int) -> Self:
        places = [place for place in self.places if place.context == length]
        return replace(self, places=tuple(places))

    def inside(self, length: int) -> Self:
        return replace(self, places=(Place(length // 2, length),))

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `trials`: the tokens found again in each sequence, by place."""
        tables = []
        for place in self.places:
            for _ in mode.passes(model, [place.context]):
                batch = self.sequences_at(0, place, self.sequences)
                tables.append(_per_sequence(mode.correct(model, batch), place))
            advance(self.sequences)
        return {"trials": pd.concat(tables, ignore_index=True)}

    def examples(self, count: int, length: int) -> Tensor:
        return self.sequences_at(0, Place(length // 2, length), count).tokens

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss of two sequences each at T/4, T/2 and 3 T/4."""
        losses = []
        for place in self._searched_places:
            batch = self.sequences_at(SEARCH_SEED, place, SEARCH_SEQUENCES)
            next(mode.passes(model, [place.context]))
            last_losses = token_losses(model, batch.tokens, batch.last_scored)
            is_scored = batch.scored[:, -batch.last_scored :]
            losses.append(last_losses[is_scored].mean())
        return float(torch.stack(losses).mean())

    @property
    def _searched_places(self) -> tuple[Place, ...]:
        longest = max(place.context for place in self.places)
        return places((longest // 4, longest // 2, longest * 3 // 4), [longest])

    def sequences_at(self, seed: int, place: Place, count: int) -> Batch:
        """Make the sequences of a place.

        Those to search with (seed not 0) are in training text.
        """
        front = torch.tensor(self.corpus.front, dtype=torch.int64).expand(count, -1)
        context = place.context - front.shape[1]
        batch = self._make_symbols(seed, place.distance, context, count)
        symbols = torch.searchsorted(torch.from_numpy(ALPHABET), batch.tokens)
        tokens = self.corpus.symbols[symbols]
        if self.reads_text:
            text = self._background(seed, place.context, context, count)
            tokens = torch.where(batch.tokens == BLANK, text, tokens)

        unscored = torch.zeros_like(front, dtype=torch.bool)
        return Batch(
            torch.cat([front, tokens], 1), torch.cat([unscored, batch.scored], 1)
        )

    def _make_symbols(
        self, seed: int, distance: int, context: int, count: int
    ) -> Batch:
        """Call the function of the task; InputError if one's own returns no symbols."""
        blank = torch.full((count, context), BLANK) if self.reads_text else None
        if self.own is None:
            return TASKS[self.name](seed, distance, context, count, blank)

        reference, _ = self.own
        function = find("tasks", reference) or TASKS[self.name]
        batch: Batch = function(seed, distance, context, count, blank)
        has_shape = batch.tokens.shape == (count, context)
        if not (has_shape and np.isin(batch.tokens, ALPHABET).all()):
            raise InputError(
                f"{reference} must return {count} rows of {context} symbols"
            )
        return batch

    def _background(self, seed: int, length: int, context: int, count: int) -> Tensor:
        """Return the text around the symbols, `context` tokens of each row."""
        documents, _ = self.corpus.documents(length, count)
        if len(documents) < count:
            raise InputError(
                f"{self.name} has {len(documents)} texts for {count} sequences"
            )
        if seed:
            return self.corpus.windows(seed, context, count)
        return documents[:, length - context :]


@dataclass(frozen=True, kw_only=True)
class NgramBaseline:
    """A cell: the task done without a model, from the tokens that followed n-grams.

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
    def resources(self) -> Resources:
        return Resources(inputs=self.task.inputs)

    def tables(self, context: object) -> dict[str, pd.DataFrame]:
        """Return `matched`: n_gram_tokens, then the columns of `trials`."""
        tables = []
        for place in self.task.places:
            batch = self.task.sequences_at(0, place, self.task.sequences)
            for n in GRAMS:
                is_right = ngram_predictions(batch.tokens, n) == batch.tokens
                hits = is_right[batch.scored].view(len(batch.tokens), -1)
                tables.append(_per_sequence(hits, place).assign(n_gram_tokens=n))
        return {"matched": pd.concat(tables, ignore_index=True)}


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
