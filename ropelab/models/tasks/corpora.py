"""Which text: a description small enough to send to another process, which reads it there, once."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.errors import MachineError
from ropelab.models.lm.batch import Batch
from ropelab.models.lm.corpus import VOCABULARY, Corpus, Origin, read_corpus, stamp_of
from ropelab.models.lm.source import Mixture, Source
from ropelab.models.lm.trained import Task


@dataclass(frozen=True)
class CorpusRef:
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
        return _provided.get(self) or _read_once(self)

    def content(self) -> Corpus:
        """The text, for a process on another machine."""
        return self.corpus()

    def provide(self, content: Corpus) -> None:
        """Take this for the text, on a machine that need not have it."""
        _provided.clear()
        _provided[self] = content

    @property
    def key(self) -> dict[str, Any]:
        """What its documents depend on; every byte is a token."""
        return {"corpus": self.fingerprint, "tokenizer": False}

    def documents(
        self, length: int, count: int
    ) -> tuple[Int[Tensor, "documents length"], Float[Tensor, "documents"]]:
        """Held-out windows of `length` tokens, and how many bytes a token has: one."""
        tokens = _held_out(self, length, count)
        return tokens, torch.ones(count, dtype=torch.float64)

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Windows of the text that is learned from, at places that the seed draws."""
        return self.corpus().windows(seed, 0, length, rows).tokens

    def task(self, mixture: Mixture) -> Task:
        """Learning to read, to copy and to look up, from a mixture over this corpus."""
        return Task(
            name="mixture",
            vocabulary=VOCABULARY,
            batches=Batches(self, mixture),
            key={"corpus": self.fingerprint, "mixture": asdict(mixture)},
            supplies=(self,),
        )


@dataclass(frozen=True)
class Batches:
    """The training batches of a mixture, small enough to send to another process."""

    corpus: CorpusRef
    mixture: Mixture

    def __call__(self, seed: int, step: int, window: int, rows: int) -> Batch:
        return Source(self.corpus.corpus(), self.mixture).batch(seed, step, window, rows)


def read(path: str, piece: int) -> Corpus:
    """The corpus at a place, `piece` as in `CorpusRef`. InputError if there is none.

    Many runs ask for the same one: it is read again only when its files have changed.
    """
    place = Path(path) if path else None
    cut = piece if place is not None and place.is_file() else 0
    return _read_as_it_is(place, cut, stamp_of(place))


@lru_cache(maxsize=1)
def _read_as_it_is(path: Path | None, piece: int, stamp: object) -> Corpus:
    return read_corpus(path, piece)


_provided: dict[CorpusRef, Corpus] = {}
"""In a process that has been given its text: the last one."""


@lru_cache(maxsize=2)
def _read_once(place: CorpusRef) -> Corpus:
    corpus = read(place.path, place.piece)
    if corpus.fingerprint != place.fingerprint:
        raise MachineError(f"{corpus.name} changed while the run was going on; start it again")
    return corpus


@lru_cache(maxsize=8)
def _held_out(place: CorpusRef, length: int, count: int) -> Tensor:
    return place.corpus().held_out_windows(length, count)


def origins(place: CorpusRef, length: int, count: int) -> tuple[Origin, ...]:
    """What each of those documents is called, and of which kind it is: tests, code, ..."""
    return place.corpus().held_out_origins(length, count)
