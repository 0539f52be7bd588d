"""Which text: a description small enough to send to another process, which reads it there, once."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.errors import MachineError
from ropelab.lm.corpus import VOCABULARY, Corpus, read_corpus
from ropelab.lm.huggingface import tokenized
from ropelab.lm.tasks import Batch
from ropelab.lm.trained import Task


@dataclass(frozen=True)
class Source:
    """A corpus by its place and content.

    Attributes:
        path: a text file or a folder, empty for the standard library of this Python.
        piece: into how many bytes the held-out end of a single file is cut.
        fingerprint: of its content; what has changed since is not taken for it.
    """

    path: str
    piece: int
    fingerprint: str

    @classmethod
    def of(cls, path: str, piece: int) -> Self:
        """The corpus as it is now. InputError if there is none."""
        return cls(path, piece, read(path, piece).fingerprint)

    def corpus(self) -> Corpus:
        """The text, read once per process.

        Raises:
            MachineError: it is not the text it was when the run began.
        """
        return _read_once(self)

    def batches(self, seed: int, step: int, window: int, rows: int) -> Batch:
        """The training batch of one step: windows from inside documents."""
        return self.corpus().windows(seed, step, window, rows)

    def task(self) -> Task:
        """Predicting the bytes of this corpus."""
        return Task(
            name="text",
            vocabulary=VOCABULARY,
            batches=self.batches,
            fingerprint=self.fingerprint,
        )


def read(path: str, piece: int) -> Corpus:
    """The corpus at a place, `piece` as in `Source`. InputError if there is none."""
    return read_corpus(Path(path) if path else None, piece)


@lru_cache(maxsize=2)
def _read_once(source: Source) -> Corpus:
    corpus = read(source.path, source.piece)
    if corpus.fingerprint != source.fingerprint:
        raise MachineError(f"{corpus.name} changed while the run was going on; start it again")
    return corpus


@lru_cache(maxsize=2)
def documents(
    source: Source, length: int, count: int, tokenizer: str = ""
) -> tuple[Int[Tensor, "documents length"], Float[Tensor, "documents"]]:
    """Held-out windows of `length` tokens, and how many bytes a token of each has on average.

    Args:
        tokenizer: the folder of a model whose tokens are meant; empty: every byte is a token.
    """
    corpus = source.corpus()
    if tokenizer:
        return tokenized(Path(tokenizer), corpus.held_out, length, count)
    tokens = corpus.held_out_windows(length, count)
    return tokens, torch.ones(count, dtype=torch.float64)
