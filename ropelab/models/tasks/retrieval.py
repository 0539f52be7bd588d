"""Finding again earlier parts of a context full of random symbols or real text.

Symbols are bytes for a model trained here, and ordinary tokens for a released one.
Contexts are pure functions of their arguments. A context asks once for every distance,
at the places of `ropelab.models.tasks.geometry`. The right answer stands exactly that
distance before the question.

copy
    stretches of random symbols, repeated at the end of a context of random symbols
copy_in_text
    the same in a context of real text
associative_recall
    records of a key and a value among random symbols; the values are asked for
most_recent
    the same, each key twice, with two values: the nearer one's is right
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from ropelab.models.lm.corpus import ALPHABET, EVALUATION, CorpusRef
from ropelab.models.lm.evaluation import Readable, token_losses
from ropelab.models.lm.matcher import ngram_predictions
from ropelab.models.lm.source import CUE, KEY, RECORD, Batch, random_symbols
from ropelab.models.tasks.geometry import place_questions, stretch_length
from ropelab.models.tasks.grid import Place, places
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.task import SEARCH_SEED, EvaluationTask, Windows
from ropelab.runs.cell import Advance, Resources
from ropelab.runs.errors import InputError
from ropelab.runs.own import find, keep_surroundings
from ropelab.runs.sentences import join_names

# Contexts in which a search for the parameters of a method measures its loss.
SEARCH_SEQUENCES = 4
# Lengths in tokens of the cues that the n-gram baseline looks for.
GRAMS = (1, 2, 3)
# The token in places where text is filled in later. No symbol has this value.
BLANK = -1
# The least number of scored symbols in a stretch.
FEWEST_SCORED = 2
# Part of the random seed, so that tasks draw differently.
COPY, RECALL, MOST_RECENT = range(3)

Background = Int[Tensor, "rows length"]


class Trials(NamedTuple):
    """Contexts and what they ask for."""

    tokens: Int[Tensor, "rows length"]
    # The distance at each token that is to be predicted, 0 at all others. Each row asks
    # for as many tokens at each distance.
    distances: Int[Tensor, "rows length"]

    @property
    def batch(self) -> Batch:
        return Batch(self.tokens, self.distances > 0)


def copy_trials(
    seed: int,
    distances: Sequence[int],
    length: int,
    rows: int,
    background: Background | None = None,
) -> Trials:
    """Ask for stretches of symbols that occur only once more, each at its distance.

    The first CUE tokens of each, its mark, are not scored. InputError: they do not fit
    into the context.
    """
    sources = [(distance,) for distance in distances]
    size = stretch_length(length, sources)
    _check_size(size, CUE + FEWEST_SCORED, length, distances)
    contexts = []
    for row in range(rows):
        random = np.random.default_rng((EVALUATION, seed, length, row, COPY))
        context = _Context(random, length, rows, row, background)
        for question in place_questions(random, length, sources, size):
            stretch = random_symbols(random, size)
            context.put(question.start, stretch)
            context.put(question.sources[0], stretch)
            context.ask(question.start + CUE, size - CUE, question.distance)
        contexts.append(context)
    return _join(contexts)


def recall_trials(
    seed: int,
    distances: Sequence[int],
    length: int,
    rows: int,
    background: Background | None = None,
) -> Trials:
    """Ask for records, a key and a value, each at its distance; the value is scored.

    InputError: they do not fit into the context.
    """
    sources = [(distance,) for distance in distances]
    return _record_trials(seed, RECALL, sources, length, rows, background)


def most_recent_trials(
    seed: int,
    distances: Sequence[int],
    length: int,
    rows: int,
    background: Background | None = None,
) -> Trials:
    """Ask as `recall_trials` does, where each key also stands further back with another
    value: the value of the nearer key is right.
    """
    # The further key is as far behind the nearer one as that is behind the question.
    # Where the context is too short for it, it is half of the way to the beginning.
    sources = []
    for distance in distances:
        further = min(2 * distance, distance + (length - distance) // 2)
        sources.append((distance, further))
    return _record_trials(seed, MOST_RECENT, sources, length, rows, background)


def _record_trials(
    seed: int,
    task: int,
    sources: Sequence[tuple[int, ...]],
    length: int,
    rows: int,
    background: Background | None,
) -> Trials:
    distances = [distance for distance, *_ in sources]
    size = stretch_length(length, sources) // RECORD * RECORD
    _check_size(size, RECORD, length, distances)
    # Every second record of a question repeats its source; those between are new:
    # otherwise the repeats together would be a copied stretch.
    is_asked = np.arange(size) % (2 * RECORD) < RECORD
    is_value = np.arange(size) % RECORD == KEY
    contexts = []
    for row in range(rows):
        random = np.random.default_rng((EVALUATION, seed, length, row, task))
        context = _Context(random, length, rows, row, background)
        for question in place_questions(random, length, sources, size):
            records = random_symbols(random, size)
            nearer, *further = question.sources
            context.put(nearer, records)
            for start in further:
                others = _other_symbols(random, records)
                context.put(start, np.where(is_value, others, records))

            unasked = random_symbols(random, size)
            context.put(question.start, np.where(is_asked, records, unasked))
            for value in np.flatnonzero(is_asked & is_value):
                context.ask(question.start + int(value), 1, question.distance)
        contexts.append(context)
    return _join(contexts)


def _other_symbols(random: np.random.Generator, symbols: np.ndarray) -> np.ndarray:
    """Draw for each symbol another one, all others being equally probable."""
    steps = random.integers(1, len(ALPHABET), size=symbols.shape)
    return ALPHABET[(np.searchsorted(ALPHABET, symbols) + steps) % len(ALPHABET)]


def _check_size(size: int, least: int, length: int, distances: Sequence[int]) -> None:
    if size < least:
        raise InputError(
            f"{length} tokens do not hold stretches of {least} tokens at the distances"
            f" {join_names([str(distance) for distance in distances])}"
        )


class _Context:
    """A context that is being filled."""

    def __init__(
        self,
        random: np.random.Generator,
        length: int,
        rows: int,
        row: int,
        background: Background | None,
    ) -> None:
        if background is None:
            self.tokens = random_symbols(random, length)
        elif background.shape == (rows, length):
            self.tokens = background[row].numpy().copy()
        else:
            raise ValueError(
                f"the background is {tuple(background.shape)}, not {(rows, length)}"
            )
        self.distances = np.zeros(length, np.int64)

    def put(self, start: int, symbols: np.ndarray) -> None:
        self.tokens[start : start + len(symbols)] = symbols

    def ask(self, start: int, count: int, distance: int) -> None:
        self.distances[start : start + count] = distance


def _join(contexts: Sequence[_Context]) -> Trials:
    tokens = np.stack([context.tokens for context in contexts])
    distances = np.stack([context.distances for context in contexts])
    return Trials(torch.from_numpy(tokens), torch.from_numpy(distances))


# Functions of the seed, the distances, the length of the context, the number of
# contexts and a background of text.
TASKS: dict[
    str, Callable[[int, Sequence[int], int, int, Background | None], Trials]
] = {
    "copy": copy_trials,
    "copy_in_text": copy_trials,
    "associative_recall": recall_trials,
    "most_recent": most_recent_trials,
}


@dataclass(frozen=True, kw_only=True)
class Retrieval(EvaluationTask):
    """Contexts in which something is to be found again, by a task of TASKS."""

    places: tuple[Place, ...]
    # Of each length; all distances are asked for in each.
    sequences: int
    # The reference of a task from outside, and its source.
    own: tuple[str, str] | None = None

    @property
    def version(self) -> int:
        return 3 if isinstance(self.corpus, CorpusRef) else 2

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.symbols_key(self.name, self.reads_text)

    @property
    def reads_text(self) -> bool:
        return self.name == "copy_in_text"

    @property
    def contexts(self) -> tuple[int, ...]:
        """The lengths of the contexts."""
        return tuple(dict.fromkeys(place.context for place in self.places))

    def distances_in(self, context: int) -> list[int]:
        """Return the distances that are asked for in contexts of that length."""
        return [place.distance for place in self.places if place.context == context]

    @property
    def windows(self) -> Windows:
        return [(self.sequences, context) for context in self.contexts]

    @property
    def search_windows(self) -> Windows:
        return [(SEARCH_SEQUENCES, max(self.contexts))]

    def check(self) -> None:
        # Code of one's own is called only where it is computed.
        if self.own is None:
            for context in self.contexts:
                self.trials(0, context, self.sequences)

    def at_the_end(self, length: int) -> Self:
        places = [place for place in self.places if place.context == length]
        return replace(self, places=tuple(places))

    def inside(self, length: int) -> Self:
        return replace(self, places=(Place(length // 2, length),))

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `trials`: the tokens found again in each context, by place."""
        tables = []
        for context in self.contexts:
            for _ in mode.passes(model, [context]):
                trials = self.trials(0, context, self.sequences)
                hits = mode.correct(model, trials.batch)
                tables.append(_count_hits(hits, trials, context))
            advance(self.sequences)
        return {"trials": pd.concat(tables, ignore_index=True)}

    def examples(self, count: int, length: int) -> Tensor:
        return self.trials(0, length, count).tokens

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss at T/4, T/2 and 3 T/4 in contexts of T tokens."""
        longest = max(self.contexts)
        distances = [longest // 4, longest // 2, longest * 3 // 4]
        searched = replace(self, places=places(distances, [longest]))
        batch = searched.trials(SEARCH_SEED, longest, SEARCH_SEQUENCES).batch
        mode.prepare(model, [longest])
        losses = token_losses(model, batch.tokens, batch.last_scored)
        is_scored = batch.scored[:, -batch.last_scored :]
        return float(losses[is_scored].mean())

    def trials(self, seed: int, context: int, count: int) -> Trials:
        """Make contexts of a length, each with all of its distances.

        With a seed other than 0, that of a search, the text around is training text.
        """
        front = torch.tensor(self.corpus.front, dtype=torch.int64).expand(count, -1)
        length = context - front.shape[1]
        made = self._make_symbols(seed, self.distances_in(context), length, count)
        symbols = torch.searchsorted(torch.from_numpy(ALPHABET), made.tokens)
        tokens = self.corpus.symbols[symbols]
        if self.reads_text:
            text = self._background(seed, context, length, count)
            tokens = torch.where(made.tokens == BLANK, text, tokens)

        unscored = torch.zeros_like(front)
        return Trials(
            torch.cat([front, tokens], 1), torch.cat([unscored, made.distances], 1)
        )

    def _make_symbols(
        self, seed: int, distances: list[int], length: int, count: int
    ) -> Trials:
        """Call the function of the task; InputError if one's own returns something
        else.
        """
        blank = torch.full((count, length), BLANK) if self.reads_text else None
        if self.own is None:
            return TASKS[self.name](seed, distances, length, count, blank)

        reference, _ = self.own
        function = find("tasks", reference) or TASKS[self.name]
        # The answer of the user's function is compared with the distances. The function
        # gets a copy of them, which it may change.
        with keep_surroundings():
            made = function(seed, [*distances], length, count, blank)
        if not isinstance(made, Trials):
            raise InputError(f"{reference} must return a Trials (docs/own.md)")
        shape = (count, length)
        has_shape = made.tokens.shape == shape and made.distances.shape == shape
        if not (has_shape and np.isin(made.tokens, ALPHABET).all()):
            raise InputError(
                f"{reference} must return {count} rows of {length} symbols"
            )
        if not _asks_alike(made, distances):
            raise InputError(
                f"{reference} must ask in each row for as many symbols at each of the"
                " distances"
            )
        return made

    def _background(self, seed: int, context: int, length: int, count: int) -> Tensor:
        """Return the text around the symbols, the last `length` tokens of contexts."""
        documents, _ = self.corpus.documents(context, count)
        if len(documents) < count:
            raise InputError(
                f"{self.name} has {len(documents)} texts for {count} sequences"
            )
        if seed:
            return self.corpus.windows(seed, length, count)
        return documents[:, context - length :]


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
    version: ClassVar[int] = 2

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
        for context in self.task.contexts:
            trials = self.task.trials(0, context, self.task.sequences)
            for n in GRAMS:
                is_right = ngram_predictions(trials.tokens, n) == trials.tokens
                hits = is_right[trials.distances > 0].view(len(trials.tokens), -1)
                table = _count_hits(hits, trials, context)
                tables.append(table.assign(n_gram_tokens=n))
        return {"matched": pd.concat(tables, ignore_index=True)}


def _count_hits(hits: Tensor, trials: Trials, context: int) -> pd.DataFrame:
    """Return a row for each distance and context; `hits` is [rows, scored]."""
    rows = len(hits)
    asked = trials.distances[trials.distances > 0].view(rows, -1)
    tables = []
    for distance in asked.unique().tolist():
        is_here = asked == distance
        table = pd.DataFrame(
            {
                "sequence": range(rows),
                "distance_tokens": distance,
                "context_tokens": context,
                "trials": is_here.sum(dim=1).tolist(),
                "correct": (hits & is_here).sum(dim=1).tolist(),
            }
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _asks_alike(made: Trials, distances: Sequence[int]) -> bool:
    """Return True if every row asks for as many symbols at each of the distances."""
    counts = [(made.distances == distance).sum(dim=1) for distance in distances]
    total = sum(int(count.sum()) for count in counts)
    others = int((made.distances > 0).sum()) - total
    return not others and all(
        int(count[0]) > 0 and bool((count == count[0]).all()) for count in counts
    )
