"""The base of the tasks that models are evaluated on, and the first task: real text."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import pandas as pd
from torch import Tensor

from ropelab.models.lm.corpus import CorpusRef
from ropelab.models.lm.evaluation import Readable
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.tokens import Text
from ropelab.runs.cell import Advance, Input

# The passes of a measurement: for each the number of rows, and of tokens in a row.
Windows = Sequence[tuple[int, int]]
# The seed of the sequences on which parameters are searched. No training has this seed,
# and the sequences that are measured have the seed 0.
SEARCH_SEED = 1_000_003
# The number of documents between two reports of progress.
ROWS_AT_ONCE = 5
# The number of windows of text on which parameters are searched.
SEARCH_WINDOWS = 2
# The mean loss of each document, by the end of the bucket or the length of the context.
Losses = defaultdict[int, list[float]]


@dataclass(frozen=True, kw_only=True)
class EvaluationTask(ABC):
    """A description of what a model is evaluated on: text, or symbols to find again.

    It holds no data, and is identified by its key.
    """

    # The name in configs, which is the kind of its cells.
    name: str
    corpus: Text
    # True if all tokens of the longest pass are scored.
    scores_all: ClassVar[bool] = False

    @property
    def version(self) -> int:
        """A number that is raised when the values of the task change their meaning."""
        return 1

    @property
    def title(self) -> str:
        return self.name

    @property
    def key(self) -> dict[str, Any]:
        """All that the values depend on besides the model and the evaluation mode."""
        key = {}
        for field in fields(self):
            value = getattr(self, field.name)
            # The name is the kind of the cell, and `text_key` stands for the corpus.
            if field.name not in ("name", "corpus") and value is not None:
                key[field.name] = value
        return {**key, **self.text_key}

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.key

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The corpus, if it is an input that can be sent to another machine."""
        if isinstance(self.corpus, CorpusRef):
            return (self.corpus,)
        # A released model is evaluated where its files are, and so is its text.
        return ()

    @property
    @abstractmethod
    def windows(self) -> Windows:
        """The passes of a measurement, near enough to estimate its cost.

        The exact passes depend on the mode, which may serve several lengths in one pass.
        """

    @property
    def steps(self) -> int:
        """The number of rows that are reported as progress."""
        return sum(rows for rows, _ in self.windows)

    @property
    def search_windows(self) -> Windows:
        """The passes of one evaluation of a search."""
        return []

    def check(self) -> None:
        """Raise InputError if the text or the contexts of the task are too short."""
        return

    def inside(self, length: int) -> Self | None:
        """Return an easy version of the task, in a context of that length.

        None means that the task needs no easy version: every model reads text somehow.
        """
        return None

    def parts(self) -> Sequence[Self]:
        """Return the tasks that this task consists of; results are kept part by part."""
        return [self]

    @abstractmethod
    def measure(
        self, model: Any, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return values per document or sequence."""

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return a loss on material that is not measured, which a search lowers."""
        raise NotImplementedError(f"nothing is searched on {self.name}")


@dataclass(frozen=True, kw_only=True)
class DocumentTask(EvaluationTask):
    """A task on documents of real text, with values in buckets of positions."""

    scores_all: ClassVar[bool] = True
    documents: int
    # The number of the one document that is evaluated; None: all of them.
    only: int | None = None
    # Ranges [start, end) of positions, without a gap.
    buckets: Sequence[tuple[int, int]]

    @property
    def title(self) -> str:
        if self.only is None:
            return self.name
        return f"document {self.only + 1} of {self.documents}"

    @property
    def key(self) -> dict[str, Any]:
        key = super().key
        if self.only is not None:
            # The values of one document do not depend on the number of the others.
            del key["documents"]
        return key

    @property
    def steps(self) -> int:
        return self.documents if self.only is None else 1

    @property
    def length(self) -> int:
        """The number of tokens of a document that are predicted."""
        return self.buckets[-1][1]

    def check(self) -> None:
        self.corpus.documents(self.length + 1, self.documents)

    def parts(self) -> Sequence[Self]:
        return [replace(self, only=number) for number in range(self.documents)]


@dataclass(frozen=True, kw_only=True)
class Texts(DocumentTask):
    """The loss of real text, by position and by length of the context."""

    name: str = "text"
    # Lengths in tokens of the contexts before the end of the text. The same final tokens
    # are compared as this context grows.
    contexts: Sequence[int] = ()
    # The number of these final tokens.
    last: int = 0
    # The first position of the loss that a search lowers; None: nothing is searched.
    beyond: int | None = None

    @property
    def windows(self) -> Windows:
        return [(self.steps, length) for length in {self.length, *self.contexts}]

    @property
    def search_windows(self) -> Windows:
        return [(SEARCH_WINDOWS, self.length + 1)]

    def at_the_end(self, length: int) -> Self:
        """Return the same task with one context, of that length, before the end."""
        return replace(self, contexts=(length,))

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return nats per byte of each document: `buckets`, and `last_window`.

        All buckets come from one pass, if one serves them; the last window is measured
        in each of the contexts.
        """
        tokens, bytes_per_token = self.corpus.documents(self.length + 1, self.documents)
        first_document = self.only or 0
        evaluated = slice(first_document, first_document + self.steps)
        row_blocks = tokens[evaluated].split(ROWS_AT_ONCE)
        size_blocks = bytes_per_token[evaluated].split(ROWS_AT_ONCE)
        ends_of_buckets = [end for _, end in self.buckets]

        by_bucket = Losses(list)
        by_context = Losses(list)
        for rows, sizes in zip(row_blocks, size_blocks, strict=True):
            contexts = set(self.contexts)
            for ends in mode.passes(model, ends_of_buckets):
                losses = self._measure_buckets(
                    model, mode, rows, sizes, ends, by_bucket
                )
                if ends[-1] == self.length and self.length in contexts:
                    # The same pass has the last window of the longest context.
                    last = losses[:, -self.last :]
                    by_context[self.length] += _nats_per_byte(last, sizes)
                    contexts.remove(self.length)
            for context in contexts:
                # The loop has one step, which sets the model's encoding for this context.
                # It has no step if the encoding is not defined for the context.
                for _ in mode.passes(model, [context]):
                    part = rows[:, -context - 1 :]
                    losses = mode.losses(model, part, self.last).double()
                    by_context[context] += _nats_per_byte(losses, sizes)
            advance(len(rows))

        tables = {"buckets": self._bucket_table(by_bucket, first_document)}
        if by_context:
            tables["last_window"] = _per_document(
                by_context, self.contexts, "context_tokens", first_document
            )
        return tables

    def _measure_buckets(
        self,
        model: Readable,
        mode: Mode,
        rows: Tensor,
        sizes: Tensor,
        ends: Sequence[int],
        by_bucket: Losses,
    ) -> Tensor:
        """Measure the buckets with these ends in one pass, and return its losses."""
        starts = {end: start for start, end in self.buckets}
        length = ends[-1]
        # The caller takes the last window from the same losses.
        in_buckets = length - starts[ends[0]]
        in_last_window = min(self.last, length)
        scored = max(in_buckets, in_last_window)
        # Sums over thousands of tokens lose digits in float32.
        losses = mode.losses(model, rows[:, : length + 1], scored).double()

        first_position = length - scored
        for end in ends:
            start = starts[end]
            bucket = losses[:, start - first_position : end - first_position]
            by_bucket[end] += _nats_per_byte(bucket, sizes)
        return losses

    def _bucket_table(self, by_bucket: Losses, first_document: int) -> pd.DataFrame:
        starts = {end: start for start, end in self.buckets}
        table = _per_document(
            by_bucket, list(starts), "bucket_end_tokens", first_document
        )
        table.insert(1, "bucket_start_tokens", table["bucket_end_tokens"].map(starts))
        return table

    def examples(self, count: int, length: int) -> Tensor:
        """Return some of the documents that are measured, cut to a length."""
        tokens, _ = self.corpus.documents(self.length + 1, self.documents)
        return tokens[:count, :length]

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss from `beyond` on, on windows of the training text."""
        assert self.beyond is not None, "nothing is searched on this text"
        texts = self.corpus.windows(SEARCH_SEED, self.length + 1, SEARCH_WINDOWS)
        mode.prepare(model, [self.length])
        losses = mode.losses(model, texts, self.length - self.beyond)
        return float(losses.mean())


def _nats_per_byte(losses: Tensor, bytes_per_token: Tensor) -> list[float]:
    """Return the mean loss of each row of losses per token."""
    means: list[float] = (losses.mean(dim=1) / bytes_per_token).tolist()
    return means


def _per_document(
    losses: Losses, places: Sequence[int], column: str, first_document: int
) -> pd.DataFrame:
    """Return a row per place and document, numbered from `first_document`."""
    records = []
    for place in places:
        for document, value in enumerate(losses[place], first_document):
            records.append((document, place, value))
    return pd.DataFrame(records, columns=["document", column, "nll_nats_per_byte"])
