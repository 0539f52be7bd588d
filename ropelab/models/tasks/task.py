"""The tasks that models are evaluated on: their base class, and the task of real text.

A task describes what is measured. It holds no data, so that it can be a part of the
description of a cell, and makes its sequences when a cell measures a model. How the
model is evaluated (its encoding, windows) is a `Mode` (ropelab/models/tasks/modes.py).
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import pandas as pd
from torch import Tensor

from ropelab.models.lm.corpus import CorpusRef
from ropelab.models.lm.evaluation import EvaluableModel
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.tokens import Text
from ropelab.runs.cell import Advance, Input

# The passes of a measurement: for each pass the number of rows, and the number of tokens
# in a row.
Windows = Sequence[tuple[int, int]]
# The seed of the sequences on which parameters of methods are searched. No training has
# this seed, and the sequences that are measured have the seed 0.
SEARCH_SEED = 1_000_003
# The number of documents that are evaluated between two reports of progress.
ROWS_AT_ONCE = 5
# The number of windows of text on which parameters are searched.
SEARCH_WINDOWS = 2
# A list of the mean loss of each document, by the place at which it was measured: the end
# of a bucket of positions, or the length of a context.
LossesByPlace = defaultdict[int, list[float]]


@dataclass(frozen=True, kw_only=True)
class EvaluationTask(ABC):
    """A description of the data on which a model is evaluated.

    The data are text, or contexts in which something has to be found again.
    """

    # The name in configs, which is also the kind of the cells.
    name: str
    corpus: Text
    # True if all tokens of the longest pass are scored; False if only some are.
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
        """All that the results depend on besides the model and the evaluation mode."""
        key = {}
        for field in fields(self):
            value = getattr(self, field.name)
            # The name is the kind of the cell, and `text_key` stands for the corpus.
            if field.name not in ("name", "corpus") and value is not None:
                key[field.name] = value
        return {**key, **self.text_key}

    @property
    def text_key(self) -> dict[str, Any]:
        """The part of the key that stands for the corpus."""
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

    def make_easy_version(self, length: int) -> Self | None:
        """Return an easy version of the task, in contexts of `length` tokens.

        A model that fails the easy version cannot be judged by the task. None: the task
        needs no easy version, since every model can be judged by its loss of text.
        """
        return None

    def parts(self) -> Sequence[Self]:
        """Split the task into parts whose results are stored separately."""
        return [self]

    @abstractmethod
    def measure(
        self, model: Any, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return tables by name, with a row for each document or sequence."""

    def search_loss(self, model: EvaluableModel, mode: Mode) -> float:
        """Return the loss that a search for parameters lowers.

        It is computed on other sequences than the sequences of the result.
        """
        raise NotImplementedError(f"nothing is searched on {self.name}")


@dataclass(frozen=True, kw_only=True)
class DocumentTask(EvaluationTask):
    """A task on documents of real text, with results in buckets of positions.

    A bucket is a range [start, end) of positions.
    """

    scores_all: ClassVar[bool] = True
    # The number of documents of the corpus that are used.
    documents: int
    # The number of the only document that is evaluated; None: all documents.
    only: int | None = None
    # Each bucket starts where the bucket before ends.
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
            # The values of one document do not depend on the number of documents.
            del key["documents"]
        return key

    @property
    def steps(self) -> int:
        return self.documents if self.only is None else 1

    @property
    def length(self) -> int:
        """The number of tokens of a document that are predicted."""
        _, end_of_last_bucket = self.buckets[-1]
        return end_of_last_bucket

    def check(self) -> None:
        self.corpus.documents(self.length + 1, self.documents)

    def parts(self) -> Sequence[Self]:
        return [replace(self, only=number) for number in range(self.documents)]


@dataclass(frozen=True, kw_only=True)
class Texts(DocumentTask):
    """The loss of real text, by position and by length of the context."""

    name: str = "text"
    # The lengths of contexts that end with the text, in tokens. In each context the
    # loss of the same final tokens is measured.
    contexts: Sequence[int] = ()
    # The number of final tokens; 0 if the task has no contexts.
    last: int = 0
    # A search lowers the loss from this position on; None: nothing is searched.
    beyond: int | None = None

    @property
    def windows(self) -> Windows:
        return [(self.steps, length) for length in {self.length, *self.contexts}]

    @property
    def search_windows(self) -> Windows:
        return [(SEARCH_WINDOWS, self.length + 1)]

    def restrict_to_context(self, length: int) -> Self:
        """Return the same task with one length of context before the final tokens."""
        return replace(self, contexts=(length,))

    def measure(
        self, model: EvaluableModel, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return two tables of the loss of each document in nats per byte.

        `buckets` has the loss in each bucket. Several buckets come from one pass, if the
        mode has the same encoding for their lengths. `last_window` has the loss of the
        final tokens in each context.
        """
        tokens, bytes_per_token = self.corpus.documents(self.length + 1, self.documents)
        first_document = 0 if self.only is None else self.only
        evaluated = slice(first_document, first_document + self.steps)
        row_blocks = tokens[evaluated].split(ROWS_AT_ONCE)
        size_blocks = bytes_per_token[evaluated].split(ROWS_AT_ONCE)
        ends_of_buckets = [end for _, end in self.buckets]

        by_bucket = LossesByPlace(list)
        by_context = LossesByPlace(list)
        for rows, sizes in zip(row_blocks, size_blocks, strict=True):
            unmeasured_contexts = set(self.contexts)
            for ends in mode.passes(model, ends_of_buckets):
                losses = self._measure_buckets(
                    model, mode, rows, sizes, ends, by_bucket
                )
                is_longest = ends[-1] == self.length
                if is_longest and self.length in unmeasured_contexts:
                    # The same pass has the final tokens of the longest context.
                    final_losses = losses[:, -self.last :]
                    by_context[self.length] += _convert_to_nats_per_byte(
                        final_losses, sizes
                    )
                    unmeasured_contexts.remove(self.length)
            for context in unmeasured_contexts:
                # The loop has one step, which sets the model's encoding for this context.
                # It has no step if the encoding is not defined for the context.
                for _ in mode.passes(model, [context]):
                    context_and_target = rows[:, -context - 1 :]
                    losses = mode.losses(model, context_and_target, self.last).double()
                    by_context[context] += _convert_to_nats_per_byte(losses, sizes)
            advance(len(rows))

        tables = {"buckets": self._make_bucket_table(by_bucket, first_document)}
        if by_context:
            tables["last_window"] = _make_document_table(
                by_context, self.contexts, "context_tokens", first_document
            )
        return tables

    def _measure_buckets(
        self,
        model: EvaluableModel,
        mode: Mode,
        rows: Tensor,
        sizes: Tensor,
        ends: Sequence[int],
        by_bucket: LossesByPlace,
    ) -> Tensor:
        """Measure the buckets with these ends in one pass, and append to `by_bucket`.

        Return the losses of the pass, [rows, final tokens].
        """
        starts = {end: start for start, end in self.buckets}
        length = ends[-1]
        # Only final tokens are scored: the tokens of the buckets, and the tokens that
        # the caller takes from the result.
        in_buckets = length - starts[ends[0]]
        in_last_window = min(self.last, length)
        scored_tokens = max(in_buckets, in_last_window)
        # Sums over thousands of tokens would lose digits in float32.
        losses = mode.losses(model, rows[:, : length + 1], scored_tokens).double()

        first_position = length - scored_tokens
        for end in ends:
            start = starts[end]
            bucket = losses[:, start - first_position : end - first_position]
            by_bucket[end] += _convert_to_nats_per_byte(bucket, sizes)
        return losses

    def _make_bucket_table(
        self, by_bucket: LossesByPlace, first_document: int
    ) -> pd.DataFrame:
        starts = {end: start for start, end in self.buckets}
        table = _make_document_table(
            by_bucket, list(starts), "bucket_end_tokens", first_document
        )
        table.insert(1, "bucket_start_tokens", table["bucket_end_tokens"].map(starts))
        return table

    def examples(self, count: int, length: int) -> Tensor:
        """Return some of the documents that are measured, cut to a length."""
        tokens, _ = self.corpus.documents(self.length + 1, self.documents)
        return tokens[:count, :length]

    def search_loss(self, model: EvaluableModel, mode: Mode) -> float:
        """Return the mean loss from `beyond` on, on windows of the training text."""
        assert self.beyond is not None, "nothing is searched on this text"
        texts = self.corpus.windows(SEARCH_SEED, self.length + 1, SEARCH_WINDOWS)
        mode.prepare(model, [self.length])
        losses = mode.losses(model, texts, self.length - self.beyond)
        return float(losses.mean())


def _convert_to_nats_per_byte(losses: Tensor, bytes_per_token: Tensor) -> list[float]:
    """Return the mean of each row of losses per token, as a loss per byte."""
    means: list[float] = (losses.mean(dim=1) / bytes_per_token).tolist()
    return means


def _make_document_table(
    losses: LossesByPlace, places: Sequence[int], column: str, first_document: int
) -> pd.DataFrame:
    """Return a table with a row per place and document.

    The place is in the column `column`. Documents are numbered from `first_document`
    on.
    """
    records = []
    for place in places:
        for document, value in enumerate(losses[place], first_document):
            records.append((document, place, value))
    return pd.DataFrame(records, columns=["document", column, "nll_nats_per_byte"])
