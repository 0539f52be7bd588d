"""Real text: losses by position, and of the same last tokens as their context grows.

Values are per document; intervals are made when everything that is compared is there.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import pandas as pd
import torch
from torch import Tensor

from ropelab.models.lm.evaluation import Readable
from ropelab.models.tasks.corpora import CorpusRef, Text
from ropelab.models.tasks.readers import Reader
from ropelab.runs.cell import Advance, Supply

# Documents between two reports of progress.
ROWS_AT_ONCE = 5
# Windows for searching: no training seed, and not the seed 0 of what is measured.
SEARCH_SEED = 1_000_003
SEARCH_WINDOWS = 2
# Mean losses of some documents, by the place where they are taken.
Losses = dict[int, Tensor]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Documents of a corpus.

    Attributes:
        corpus: where they are from.
        documents: how many.
        buckets: ranges [start, end) of positions, without a gap; the last end is the length read.
        contexts: how many tokens are read before the end of the text.
        last: how many final tokens are compared as that context grows.
        beyond: the position from which on a search looks at the loss; None: nothing is searched.
    """

    corpus: Text
    documents: int
    buckets: Sequence[tuple[int, int]]
    contexts: Sequence[int] = ()
    last: int = 0
    beyond: int | None = None
    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1

    @property
    def key(self) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return {**fields, **self.corpus.key}

    @property
    def steps(self) -> int:
        return self.documents

    @property
    def supplies(self) -> tuple[Supply, ...]:
        return supplied(self.corpus)

    @property
    def windows(self) -> list[tuple[int, int]]:
        return [(self.documents, length) for length in {self.length, *self.contexts}]

    @property
    def searched(self) -> list[tuple[int, int]]:
        return [(SEARCH_WINDOWS, self.length + 1)]

    @property
    def length(self) -> int:
        """The number of tokens of a document that are predicted."""
        return self.buckets[-1][1]

    def at_the_end(self, length: int) -> Self:
        """The same task, of growing contexts the longest only."""
        return replace(self, contexts=(length,))

    def inside(self, length: int) -> None:
        """Text needs no probe: every model reads some."""

    def measure(self, model: Readable, reader: Reader, advance: Advance) -> dict[str, pd.DataFrame]:
        """Nats per byte and document: `buckets` in one pass, `last_window` by context."""
        tokens, bytes_per_token = self.corpus.documents(self.length + 1, self.documents)
        blocks = []
        for rows in tokens.split(ROWS_AT_ONCE):
            blocks.append(self._read(model, reader, rows))
            advance(len(rows))
        by_bucket, by_context = (
            {at: torch.cat([part[at] for part in parts]) / bytes_per_token for at in parts[0]}
            for parts in zip(*blocks, strict=True)
        )
        starts = {end: start for start, end in self.buckets}
        buckets = _per_document(by_bucket, "bucket_end_tokens")
        buckets.insert(1, "bucket_start_tokens", buckets["bucket_end_tokens"].map(starts))
        last = {"last_window": _per_document(by_context, "context_tokens")} if by_context else {}
        return {"buckets": buckets, **last}

    def _read(self, model: Readable, reader: Reader, rows: Tensor) -> tuple[Losses, Losses]:
        """Mean losses of each row by the end of the bucket, and by the context before the end."""
        starts = {end: start for start, end in self.buckets}
        in_bucket: Losses = {}
        at_end: Losses = {}
        for ends in reader.passes(model, list(starts)):
            losses = reader.losses(model, rows[:, : ends[-1] + 1]).double()
            in_bucket |= {end: losses[:, starts[end] : end].mean(dim=1) for end in ends}
            if ends[-1] == self.length:
                at_end[self.length] = losses[:, -self.last :].mean(dim=1)
        for context in set(self.contexts) - set(at_end):
            for _ in reader.passes(model, [context]):
                last = reader.losses(model, rows[:, -context - 1 :], self.last)
                at_end[context] = last.double().mean(dim=1)
        return in_bucket, {c: at_end[c] for c in self.contexts if c in at_end}

    def examples(self, count: int, length: int) -> Tensor:
        """The beginnings of the first documents."""
        return self.corpus.documents(self.length + 1, self.documents)[0][:count, :length]

    def search_loss(self, model: Readable, reader: Reader) -> float:
        """The mean loss from `beyond` on, on two windows of the text that is learned from."""
        assert self.beyond is not None, "nothing is searched on this text"
        texts = self.corpus.windows(SEARCH_SEED, self.length + 1, SEARCH_WINDOWS)
        next(reader.passes(model, [self.length]))
        return float(reader.losses(model, texts)[:, self.beyond :].mean())


def supplied(corpus: Text) -> tuple[Supply, ...]:
    """The corpus as an input that can be sent; a released model is asked where its files are."""
    return (corpus,) if isinstance(corpus, CorpusRef) else ()


def _per_document(losses: Losses, column: str) -> pd.DataFrame:
    """document, the place, nll_nats_per_byte: place by place."""
    return pd.DataFrame(
        [
            {"document": document, column: place, "nll_nats_per_byte": value}
            for place, values in losses.items()
            for document, value in enumerate(values.tolist())
        ],
        columns=["document", column, "nll_nats_per_byte"],
    )
