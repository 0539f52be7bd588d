"""Retrieval tasks: finding earlier parts of a context of random symbols or real text.

copy
    A stretch of random symbols is repeated, in a context of random symbols. The model
    has to predict the repeated symbols.
copy_in_text
    The same as `copy`, in a context of real text.
associative_recall
    Records of a key and a value are repeated, among random symbols. The model has to
    predict the values.
most_recent
    The same as `associative_recall`, but each key occurs twice before, with two values.
    The nearer value is right.

The repeated stretch is called a question, its earlier occurrence a source. The source
begins exactly `distance` tokens before the question. A context has a question for each
distance; `ropelab.models.tasks.geometry` says where. Symbols are bytes for a model
trained here, and ordinary tokens for a released one. Contexts are pure functions of
their arguments.

The file has the functions that make contexts (`TASKS`), then the task that evaluates a
model on these contexts (`Retrieval`), and the same task done without a model
(`NgramBaseline`).
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
from ropelab.models.lm.evaluation import EvaluableModel, compute_token_losses
from ropelab.models.lm.matcher import predict_by_ngrams
from ropelab.models.lm.source import CUE, KEY, RECORD, Batch, draw_symbols
from ropelab.models.tasks.geometry import place_questions, stretch_length
from ropelab.models.tasks.grid import RetrievalPlace, pair_places
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.task import SEARCH_SEED, EvaluationTask, Windows
from ropelab.runs.cell import Advance, Resources
from ropelab.runs.errors import InputError
from ropelab.runs.own import find_own, keep_surroundings
from ropelab.runs.sentences import join_names

# The number of contexts on which a search for parameters of a method measures its loss.
SEARCH_SEQUENCES = 4
# The numbers of tokens from which the baseline without a model predicts the next token.
GRAMS = (1, 2, 3)
# This value stands for a token of text, which is filled in later. No symbol has it.
BLANK = -1
# The least number of scored symbols in a stretch.
FEWEST_SCORED = 2
# The number of a task is a part of the random seed, so that different tasks draw
# different symbols. `copy` and `copy_in_text` draw the same symbols.
COPY, RECALL, MOST_RECENT = range(3)

# The symbols around the stretches. They are BLANK where text is filled in later.
Background = Int[Tensor, "rows length"]


class Trials(NamedTuple):
    """Contexts, and which of their tokens have to be predicted."""

    tokens: Int[Tensor, "rows length"]
    # At each token that has to be predicted, the distance to its source. At all other
    # tokens, 0. Every row has the same number of tokens at each distance.
    distances: Int[Tensor, "rows length"]

    @property
    def batch(self) -> Batch:
        """The contexts, with a mark at the tokens that have to be predicted."""
        return Batch(self.tokens, self.distances > 0)


def copy_trials(
    seed: int,
    distances: Sequence[int],
    length: int,
    rows: int,
    background: Background | None = None,
) -> Trials:
    """Make contexts in which stretches of symbols are repeated, each at its distance.

    The first CUE tokens of a repeated stretch are not scored, since they say which
    stretch is repeated. InputError: the stretches do not fit into the context.
    """
    sources = [(distance,) for distance in distances]
    size = stretch_length(length, sources)
    _check_size(size, CUE + FEWEST_SCORED, length, distances)

    contexts = []
    for row in range(rows):
        random = np.random.default_rng((EVALUATION, seed, length, row, COPY))
        context = _Context(random, length, rows, row, background)

        for question in place_questions(random, length, sources, size):
            stretch = draw_symbols(random, size)
            (source,) = question.sources
            context.put(source, stretch)
            context.put(question.start, stretch)
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
    """Make contexts in which records are repeated, each at its distance.

    Only the values of the repeated records are scored. InputError: the records do not
    fit into the context.
    """
    sources = [(distance,) for distance in distances]
    return _record_trials(seed, RECALL, sources, length, rows, background)


def make_most_recent_trials(
    seed: int,
    distances: Sequence[int],
    length: int,
    rows: int,
    background: Background | None = None,
) -> Trials:
    """Make contexts as `recall_trials` does, in which each key has two earlier values.

    The key also occurs further back, with another value. The value of the nearer
    occurrence is right.
    """
    # The further key is twice as far from the question as the nearer key. In a context
    # that is too short for this, the further key is in the middle between the nearer
    # key and the beginning.
    sources = []

    for distance in distances:
        further_distance = min(2 * distance, distance + (length - distance) // 2)
        sources.append((distance, further_distance))

    return _record_trials(seed, MOST_RECENT, sources, length, rows, background)


def _record_trials(
    seed: int,
    task: int,
    sources: Sequence[tuple[int, ...]],
    length: int,
    rows: int,
    background: Background | None,
) -> Trials:
    """Make contexts with repeated records.

    Args:
        seed: the seed of the symbols and places.
        task: RECALL or MOST_RECENT.
        sources: for each question the distances of its sources, the nearest first.
        length: the length of a context.
        rows: the number of contexts.
        background: the symbols around the stretches; None: random symbols.
    """
    distances = [nearest for nearest, *_ in sources]
    # A stretch has whole records.
    size = stretch_length(length, sources) // RECORD * RECORD
    _check_size(size, RECORD, length, distances)
    # Only every second record of a question repeats its source. The records between are
    # new: if all were repeated, the question would be a copied stretch.
    places = np.arange(size)
    is_repeated = places % (2 * RECORD) < RECORD
    is_value = places % RECORD == KEY
    contexts = []
    for row in range(rows):
        random = np.random.default_rng((EVALUATION, seed, length, row, task))
        context = _Context(random, length, rows, row, background)
        for question in place_questions(random, length, sources, size):
            records = draw_symbols(random, size)
            nearest_start, *further_starts = question.sources
            context.put(nearest_start, records)
            for start in further_starts:
                other_values = _draw_others(random, records)
                context.put(start, np.where(is_value, other_values, records))

            new_records = draw_symbols(random, size)
            context.put(question.start, np.where(is_repeated, records, new_records))
            for place in np.flatnonzero(is_repeated & is_value):
                context.ask(question.start + int(place), 1, question.distance)
        contexts.append(context)
    return _join(contexts)


def _draw_others(random: np.random.Generator, symbols: np.ndarray) -> np.ndarray:
    """Draw another symbol for each symbol. All other symbols are equally probable."""
    # Each symbol moves on by at least one place in the alphabet, and by less than all.
    steps = random.integers(1, len(ALPHABET), size=symbols.shape)
    places = np.searchsorted(ALPHABET, symbols) + steps
    return ALPHABET[places % len(ALPHABET)]


def _check_size(size: int, least: int, length: int, distances: Sequence[int]) -> None:
    """Raise InputError if stretches of `size` tokens are shorter than `least`."""
    if size < least:
        raise InputError(
            f"{length} tokens do not hold stretches of {least} tokens at the distances"
            f" {join_names([str(distance) for distance in distances])}"
        )


class _Context:
    """A context that is being filled with stretches.

    It is number `row` of `rows` contexts. It begins as this row of the background, or
    as random symbols if there is no background.
    """

    def __init__(
        self,
        random: np.random.Generator,
        length: int,
        rows: int,
        row: int,
        background: Background | None,
    ) -> None:
        if background is None:
            self.tokens = draw_symbols(random, length)
        elif background.shape == (rows, length):
            self.tokens = background[row].numpy().copy()
        else:
            raise ValueError(
                f"the background is {tuple(background.shape)}, not {(rows, length)}"
            )
        self.distances = np.zeros(length, np.int64)

    def put(self, start: int, symbols: np.ndarray) -> None:
        """Put symbols into the context, from the place `start` on."""
        self.tokens[start : start + len(symbols)] = symbols

    def ask(self, start: int, count: int, distance: int) -> None:
        """Note that `count` tokens from `start` on have to be predicted.

        `distance` is the distance of their source.
        """
        self.distances[start : start + count] = distance


def _join(contexts: Sequence[_Context]) -> Trials:
    tokens = np.stack([context.tokens for context in contexts])
    distances = np.stack([context.distances for context in contexts])
    return Trials(torch.from_numpy(tokens), torch.from_numpy(distances))


# The function of each task. Its arguments are the seed, the distances, the length of a
# context, the number of contexts, and the background (None: random symbols).
TASKS: dict[
    str, Callable[[int, Sequence[int], int, int, Background | None], Trials]
] = {
    "copy": copy_trials,
    "copy_in_text": copy_trials,
    "associative_recall": recall_trials,
    "most_recent": make_most_recent_trials,
}


@dataclass(frozen=True, kw_only=True)
class Retrieval(EvaluationTask):
    """The evaluation of a model on contexts that a function of TASKS makes."""

    # The distances that are asked for, each with the length of the context.
    places: tuple[RetrievalPlace, ...]
    # The number of contexts of each length. Each asks for all distances of its length.
    sequences: int
    # For a task that the user defined, the reference of its function (`module:name`) and
    # the fingerprint of its source; None for a task of TASKS.
    own: tuple[str, str] | None = None

    @property
    def version(self) -> int:
        # Versions of stored results with bytes, and with tokens of released models.
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
        # A function of the user is called only when results are computed.
        if self.own is None:
            for context in self.contexts:
                self.trials(0, context, self.sequences)

    def restrict_to_context(self, length: int) -> Self:
        """Return the same task in contexts of one length only."""
        places = [place for place in self.places if place.context == length]
        return replace(self, places=tuple(places))

    def make_easy_version(self, length: int) -> Self:
        return replace(self, places=(RetrievalPlace(length // 2, length),))

    def measure(
        self, model: EvaluableModel, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `trials`: the number of right predictions by context and distance."""
        tables = []
        for context in self.contexts:
            for _ in mode.passes(model, [context]):
                trials = self.trials(0, context, self.sequences)
                hits = mode.find_correct(model, trials.batch)
                tables.append(_count_hits(hits, trials, context))
            advance(self.sequences)
        return {"trials": pd.concat(tables, ignore_index=True)}

    def examples(self, count: int, length: int) -> Tensor:
        """Return some of the contexts that are measured."""
        return self.trials(0, length, count).tokens

    def search_loss(self, model: EvaluableModel, mode: Mode) -> float:
        """Return the mean loss at distances T/4, T/2 and 3 T/4 in contexts of T tokens.

        T is the length of the longest context.
        """
        longest = max(self.contexts)
        distances = [longest // 4, longest // 2, longest * 3 // 4]
        search_task = replace(self, places=pair_places(distances, [longest]))
        batch = search_task.trials(SEARCH_SEED, longest, SEARCH_SEQUENCES).batch
        mode.prepare(model, [longest])
        losses = compute_token_losses(model, batch.tokens, batch.last_scored)
        is_scored = batch.scored[:, -batch.last_scored :]
        return float(losses[is_scored].mean())

    def trials(self, seed: int, context: int, count: int) -> Trials:
        """Make `count` contexts of a length, each with all distances of that length.

        The seed is 0 for contexts that are measured. Any other seed is the seed of a
        search. The text around the symbols is then training text.
        """
        # The tokens with which every row begins are put in front: [count, tokens].
        front = torch.tensor(self.corpus.front, dtype=torch.int64).expand(count, -1)
        length = context - front.shape[1]
        symbols = self._make_symbols(seed, self.distances_in(context), length, count)
        # Each symbol is replaced by the token of the corpus that stands for it.
        numbers = torch.searchsorted(torch.from_numpy(ALPHABET), symbols.tokens)
        tokens = self.corpus.symbols[numbers]
        if self.reads_text:
            text = self._read_text(seed, context, length, count)
            tokens = torch.where(symbols.tokens == BLANK, text, tokens)

        distances_of_front = torch.zeros_like(front)
        return Trials(
            torch.cat([front, tokens], dim=1),
            torch.cat([distances_of_front, symbols.distances], dim=1),
        )

    def _make_symbols(
        self, seed: int, distances: list[int], length: int, count: int
    ) -> Trials:
        """Call the function of the task; its tokens are symbols of ALPHABET or BLANK.

        InputError: a function of the user returns something else.
        """
        background = None
        if self.reads_text:
            background = torch.full((count, length), BLANK)
        if self.own is None:
            return TASKS[self.name](seed, distances, length, count, background)

        reference, _ = self.own
        function = find_own("tasks", reference) or TASKS[self.name]
        # The result of the user's function is compared with the distances. The function
        # gets a copy of the distances, which it may change.
        with keep_surroundings():
            trials = function(seed, [*distances], length, count, background)
        if not isinstance(trials, Trials):
            raise InputError(f"{reference} must return a Trials (docs/own.md)")
        shape = (count, length)
        has_shape = trials.tokens.shape == shape and trials.distances.shape == shape
        if not (has_shape and np.isin(trials.tokens, ALPHABET).all()):
            raise InputError(
                f"{reference} must return {count} rows of {length} symbols"
            )
        if not _asks_equally(trials, distances):
            raise InputError(
                f"{reference} must ask in each row for as many symbols at each of the"
                " distances"
            )
        return trials

    def _read_text(self, seed: int, context: int, length: int, count: int) -> Tensor:
        """Return the text around the symbols, the last `length` tokens of contexts."""
        documents, _ = self.corpus.documents(context, count)
        # A search, which takes other text, is refused in this case, too.
        if len(documents) < count:
            raise InputError(
                f"{self.name} has {len(documents)} texts for {count} sequences"
            )
        is_for_search = seed != 0
        if is_for_search:
            return self.corpus.windows(seed, length, count)
        return documents[:, context - length :]


@dataclass(frozen=True, kw_only=True)
class NgramBaseline:
    """A cell: the task done without a model, by repeating what followed the same n-gram.

    If this solves a task, a model that solves it shows that it finds tokens, but not that
    it uses their distance.
    """

    task: Retrieval
    labels: ClassVar[tuple[tuple[str, object], ...]] = ()
    # The cells that are computed before this cell: none.
    prerequisites: ClassVar[tuple[()]] = ()
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
        for length in self.task.contexts:
            trials = self.task.trials(0, length, self.task.sequences)
            for n in GRAMS:
                is_right = predict_by_ngrams(trials.tokens, n) == trials.tokens
                hits = is_right[trials.distances > 0].view(len(trials.tokens), -1)
                table = _count_hits(hits, trials, length)
                tables.append(table.assign(n_gram_tokens=n))
        return {"matched": pd.concat(tables, ignore_index=True)}


def _count_hits(hits: Tensor, trials: Trials, context: int) -> pd.DataFrame:
    """Return a row for each distance and row of `trials`.

    `hits` is True at the right predictions of the scored tokens, [rows, scored]. All
    rows have contexts of the length `context`.
    """
    rows = len(hits)
    # The distance of each scored token, [rows, scored].
    scored_distances = trials.distances[trials.distances > 0].view(rows, -1)

    tables = []
    for distance in scored_distances.unique().tolist():
        is_at_distance = scored_distances == distance
        table = pd.DataFrame(
            {
                "sequence": range(rows),
                "distance_tokens": distance,
                "context_tokens": context,
                "trials": is_at_distance.sum(dim=1).tolist(),
                "correct": (hits & is_at_distance).sum(dim=1).tolist(),
            }
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _asks_equally(trials: Trials, distances: Sequence[int]) -> bool:
    """Return True if every row asks equally often for each distance, at least once.

    No other distances may be asked for.
    """
    asked_tokens = 0
    for distance in distances:
        # The number of tokens at this distance in each row.
        counts = (trials.distances == distance).sum(dim=1)
        is_equal = bool((counts == counts[0]).all())
        if counts[0] == 0 or not is_equal:
            return False
        asked_tokens += int(counts.sum())
    return asked_tokens == int((trials.distances > 0).sum())
