"""The base of the tasks that models are evaluated on, and the first of them: real
text.
"""

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
from ropelab.runs.cell import Advance, Supply

# Rows and tokens in each, pass by pass.
Windows = Sequence[tuple[int, int]]
# Sequences to search with: no training seed, and not the seed 0 of those that are
# measured.
SEARCH_SEED = 1_000_003
# Documents between two reports of progress.
ROWS_AT_ONCE = 5
SEARCH_WINDOWS = 2
# The mean loss of each document, by the end of the bucket or the length of the context.
Losses = defaultdict[int, list[float]]


@dataclass(frozen=True, kw_only=True)
class EvaluationTask(ABC):
    """Real text, or something to be found again. Small, and identified by its key."""

    name: str  # as configs spell it; the kind of its cells
    corpus: Text
    scores_all: ClassVar[bool] = False  # tokens of its longest pass

    @property
    def version(self) -> int:
        """Raised when the values change their meaning."""
        return 1

    @property
    def title(self) -> str:
        return self.name

    @property
    def key(self) -> dict[str, Any]:
        """Everything its values depend on besides the model and its evaluation mode."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        # The kind of the cell has the name already.
        del own["name"], own["corpus"]
        return {
            **{name: v for name, v in own.items() if v is not None},
            **self.text_key,
        }

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.key

    @property
    def supplies(self) -> tuple[Supply, ...]:
        """The corpus as an input that can be sent."""
        # A released model is evaluated where its files are, and so is its text.
        return (self.corpus,) if isinstance(self.corpus, CorpusRef) else ()

    @property
    @abstractmethod
    def windows(self) -> Windows:
        """Roughly the passes of a measurement."""

    @property
    def steps(self) -> int:
        """The rows that it reports as progress."""
        return sum(rows for rows, _ in self.windows)

    @property
    def searched(self) -> Windows:
        """The passes of one evaluation of a search."""
        return []

    def check(self) -> None:
        """Raise InputError if its text or its contexts are too short."""
        return

    def inside(self, length: int) -> Self | None:
        """Return an easy task in a context of that length; None if every model does
        some.
        """
        return None

    def parts(self) -> Sequence[Self]:
        """Return tasks that together are this one, each kept when it is done."""
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
class Texts(EvaluationTask):
    scores_all: ClassVar[bool] = True
    name: str = "text"
    documents: int
    only: int | None = None  # the number of the one that is read; None: all of them
    buckets: Sequence[tuple[int, int]]  # [start, end) of positions, without a gap
    contexts: Sequence[int] = ()  # tokens before the end of the text
    last: int = 0  # final tokens that are compared as that context grows
    # The position from which on a search looks at the loss; None: nothing is searched.
    beyond: int | None = None

    @property
    def title(self) -> str:
        return (
            self.name
            if self.only is None
            else f"document {self.only + 1} of {self.documents}"
        )

    @property
    def key(self) -> dict[str, Any]:
        found = super().key
        if self.only is not None:  # it is the same one among more or fewer
            del found["documents"]
        return found

    @property
    def steps(self) -> int:
        return self.documents if self.only is None else 1

    @property
    def windows(self) -> Windows:
        return [(self.steps, length) for length in {self.length, *self.contexts}]

    @property
    def searched(self) -> Windows:
        return [(SEARCH_WINDOWS, self.length + 1)]

    @property
    def length(self) -> int:
        """The number of tokens of a document that are predicted."""
        return self.buckets[-1][1]

    def check(self) -> None:
        self.corpus.documents(self.length + 1, self.documents)

    def at_the_end(self, length: int) -> Self:
        """Return the same task, of growing contexts the longest only."""
        return replace(self, contexts=(length,))

    def parts(self) -> Sequence[Self]:
        return [replace(self, only=number) for number in range(self.documents)]

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return nats per byte and document: `buckets` in one pass, `last_window` by
        context.
        """
        tokens, bytes_per_token = self.corpus.documents(self.length + 1, self.documents)
        first = self.only or 0
        read = slice(first, first + self.steps)
        blocks = (each[read].split(ROWS_AT_ONCE) for each in (tokens, bytes_per_token))
        starts = {end: start for start, end in self.buckets}
        in_bucket, at_end = Losses(list), Losses(list)
        for rows, size in zip(*blocks, strict=True):
            left = set(self.contexts)
            for ends in mode.passes(model, list(starts)):
                asked = max(ends[-1] - starts[ends[0]], min(self.last, ends[-1]))
                # In float64, as sums over thousands of tokens lose digits in float32.
                losses = mode.losses(model, rows[:, : ends[-1] + 1], asked).double()
                for end in ends:
                    bucket = losses[
                        :, asked - ends[-1] + starts[end] : asked - ends[-1] + end
                    ]
                    in_bucket[end] += (bucket.mean(dim=1) / size).tolist()
                if ends[-1] == self.length and self.length in left:
                    at_end[self.length] += (
                        losses[:, -self.last :].mean(dim=1) / size
                    ).tolist()
                    left.remove(self.length)
            for context in left:
                for _ in mode.passes(model, [context]):
                    last = mode.losses(
                        model, rows[:, -context - 1 :], self.last
                    ).double()
                    at_end[context] += (last.mean(dim=1) / size).tolist()
            advance(len(rows))
        buckets = _per_document(in_bucket, list(starts), "bucket_end_tokens", first)
        buckets.insert(
            1, "bucket_start_tokens", buckets["bucket_end_tokens"].map(starts)
        )
        contexts = _per_document(at_end, self.contexts, "context_tokens", first)
        return {"buckets": buckets, **({"last_window": contexts} if at_end else {})}

    def examples(self, count: int, length: int) -> Tensor:
        """Return some of the documents that are measured, cut to a length."""
        return self.corpus.documents(self.length + 1, self.documents)[0][
            :count, :length
        ]

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss from `beyond` on, on windows of the text that is learned
        from.
        """
        assert self.beyond is not None, "nothing is searched on this text"
        texts = self.corpus.windows(SEARCH_SEED, self.length + 1, SEARCH_WINDOWS)
        next(mode.passes(model, [self.length]))
        return float(mode.losses(model, texts, self.length - self.beyond).mean())


def _per_document(
    losses: Losses, places: Sequence[int], column: str, first: int
) -> pd.DataFrame:
    records = [
        (document, place, value)
        for place in places
        for document, value in enumerate(losses[place], first)
    ]
    return pd.DataFrame(records, columns=["document", column, "nll_nats_per_byte"])
