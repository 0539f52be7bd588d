"""Text to evaluate on, described so that another process can read it there, once.

A corpus gives documents, stretches to hide something in, and tokens that serve as symbols: as
bytes, half of them to learn from (`CorpusRef`), or in a released model's tokens (`TokenText`).
"""

from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropelab.models.lm.batch import Batch
from ropelab.models.lm.corpus import VOCABULARY, Corpus, Origin, read_corpus, stamp_of
from ropelab.models.lm.source import ALPHABET, Mixture, training_batch
from ropelab.models.lm.trained import Task
from ropelab.models.tasks.tokens import TokenText
from ropelab.runs.errors import InputError, MachineError


@dataclass(frozen=True)
class CorpusRef:
    """A corpus whose tokens are bytes, by its path and content."""

    path: str  # a text file or a folder, empty for the standard library of this Python
    piece: int  # bytes into which the held-out end of a single file is cut
    fingerprint: str  # of its content; a corpus that changed since is refused

    def corpus(self) -> Corpus:
        """Return the text, read once per process. MachineError if it changed since."""
        return _provided.get(self) or _read_once(self)

    # The two methods of an input of a cell: a process on another machine need not have the files.
    def content(self) -> Corpus:
        return self.corpus()

    def provide(self, content: Corpus) -> None:
        _provided.clear()
        _provided[self] = content

    @property
    def key(self) -> dict[str, Any]:
        return {"corpus": self.fingerprint, "tokenizer": False}

    @property
    def stretch_key(self) -> dict[str, Any]:
        return self.key

    def symbols_key(self, task: str, reads_text: bool) -> dict[str, Any]:
        # 0 stood for bytes when there were vocabularies of other sizes: it names stored cells.
        return {"name": task, "corpus": self.fingerprint if reads_text else "", "vocabulary": 0}

    @property
    def front(self) -> list[int]:
        return []

    @property
    def symbols(self) -> Tensor:
        return torch.from_numpy(ALPHABET)

    def ids(self, text: str) -> list[int]:
        return list(text.encode())

    def documents(self, length: int, count: int) -> tuple[Tensor, Tensor]:
        """Return held-out windows of `length` bytes; a token has one byte."""
        tokens = _held_out(self, length, count)
        return tokens, torch.ones(count, dtype=torch.float64)

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        return self.corpus().held_out_origins(length, count)

    def stretch(self, number: int, length: int) -> list[int]:
        """Return a window of a held-out document. InputError if none is that long."""
        corpus = self.corpus()
        there = sum(len(text) >= length for text in corpus.held_out)
        if not there:
            raise InputError(
                f"{corpus.name} has no held-out document of {length} bytes; give longer text "
                "(--corpus)"
            )
        found: list[int] = _held_out(self, length, there)[number % there].tolist()
        return found

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Return windows of the text that is learned from, at places drawn by the seed."""
        return self.corpus().windows(seed, 0, length, rows).tokens

    def task(self, mixture: Mixture) -> Task:
        """Return the data of a model that learns to read, to copy and to look up."""
        return Task(
            name="mixture",
            vocabulary=VOCABULARY,
            batches=partial(_batch, self, mixture),
            key={"corpus": self.fingerprint, "mixture": asdict(mixture)},
            supplies=(self,),
        )


Text = CorpusRef | TokenText
# The last text that was sent to this process.
_provided: dict[CorpusRef, Corpus] = {}


def _batch(
    corpus: CorpusRef, mixture: Mixture, seed: int, step: int, window: int, rows: int
) -> Batch:
    return training_batch(mixture, corpus.corpus(), seed, step, window, rows)


def read(path: str, piece: int) -> Corpus:
    """Read a corpus, `piece` as in `CorpusRef`. InputError if there is none."""
    place = Path(path) if path else None
    cut = piece if place is not None and place.is_file() else 0
    # Many runs ask for the same one: it is read again only when its files have changed.
    return _read_unchanged(place, cut, stamp_of(place))


@lru_cache(maxsize=1)
def _read_unchanged(path: Path | None, piece: int, stamp: object) -> Corpus:
    return read_corpus(path, piece)


@lru_cache(maxsize=2)
def _read_once(place: CorpusRef) -> Corpus:
    corpus = read(place.path, place.piece)
    if corpus.fingerprint != place.fingerprint:
        raise MachineError(f"{corpus.name} changed while the run was going on; start it again")
    return corpus


@lru_cache(maxsize=8)
def _held_out(place: CorpusRef, length: int, count: int) -> Tensor:
    return place.corpus().held_out_windows(length, count)
