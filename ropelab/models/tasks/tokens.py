"""Text to evaluate on, described so that another process can read it there, once.

A corpus gives documents, stretches to hide something in, and tokens that serve as
symbols: as bytes, half of them to learn from (`CorpusRef`), or all in the tokens of a
released model.

Documents are whole files, ordered by their content, one kind after the other, without
near-duplicates. A single file is cut into pieces by tokens, as are packed documents:
one after another with an end-of-sequence token between, as in pretraining.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ropelab.models.lm import corpus as sources
from ropelab.models.lm.corpus import (
    ALPHABET,
    Corpus,
    CorpusRef,
    Origin,
    TextDocument,
    read_documents,
)
from ropelab.models.released.facts import facts_of
from ropelab.models.released.folder import locate, stamp
from ropelab.models.released.loading import load_tokenizer
from ropelab.runs.errors import InputError, MachineError

Bos = Literal["auto", "yes", "no"]
Piece = tuple[Origin, list[int]]
# Bytes: so many per token are enough text to tokenize; on average a token has three or
# four.
BYTES_PER_TOKEN = 16


@dataclass(frozen=True)
class TokenText:
    """A corpus in a released model's tokens, small enough to be part of a cell's
    description.
    """

    path: str  # a text file or a folder, empty for the standard library of this Python
    fingerprint: str  # of its content; a corpus that changed since is refused
    model: str  # the folder of its tokenizer; not in the key, as a cell names its model
    # begin rows with that token; auto: if the tokenizer itself adds one
    bos: Bos = "auto"
    packed: bool = False  # join documents one after another and cut them into rows
    # of that folder: a tokenizer that was replaced makes other rows
    files: tuple[object, ...] = ()

    @classmethod
    def of(
        cls, path: str, model: str, bos: Bos = "auto", packed: bool = False
    ) -> "TokenText":
        """Describe a corpus on disk. InputError if there is none."""
        files = stamp(locate(Path(model)))
        corpus = _read(path)
        corpus.say_left_out()
        return cls(path, corpus.fingerprint, model, bos, packed, files)

    @property
    def key(self) -> dict[str, Any]:
        return {**self.stretch_key, "drawn": "kinds in turn"}

    @property
    def stretch_key(self) -> dict[str, Any]:
        text = {"corpus": self.fingerprint, "tokenizer": True}
        return {**text, "bos": self.bos, "packed": self.packed}

    def symbols_key(self, task: str, reads_text: bool) -> dict[str, Any]:
        """Everything the sequences of a retrieval task depend on besides their
        places.
        """
        return self.key if reads_text else {"bos": self.bos}

    @property
    def single(self) -> bool:
        """True for one file, which is cut into pieces."""
        return bool(self.path) and not Path(self.path).is_dir()

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer. InputError if it has none."""
        return load_tokenizer(Path(self.model))

    @property
    def front(self) -> list[int]:
        """The tokens that every row begins with. InputError if the tokenizer has no
        such token.
        """
        tokenizer, wanted = self.tokenizer, self.bos == "yes"
        first = tokenizer.bos_token_id
        if self.bos == "auto" and first is not None:
            wanted = tokenizer("a text")["input_ids"][:1] == [first]
        if wanted and first is None:
            raise InputError(
                f"the tokenizer in {self.model} has no token that begins a text"
            )
        return [first] if wanted else []

    @property
    def symbols(self) -> Tensor:
        """An ordinary token for each symbol of `ALPHABET`, drawn once. Errors as
        `ids`.
        """
        drawn = _symbols(self)
        self._check(int(drawn.max()))
        return drawn

    def ids(self, text: str) -> list[int]:
        """Tokenize a text, without `front`. InputError for tokens that the model does
        not know.
        """
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        self._check(max(ids, default=0))
        return ids

    def _check(self, token: int) -> None:
        known = facts_of(self.model).vocabulary
        if token >= known:
            raise InputError(
                f"the tokenizer of {self.model} makes token {token}, and the model"
                f" knows {known} tokens"
            )

    def documents(self, length: int, count: int) -> tuple[Tensor, Tensor]:
        """Return tokens [count, length] and bytes per token. InputError if there are
        fewer.
        """
        return _rows(self, length, count)[:2]

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        """Return name and kind (tests, code, ...) of each of those documents."""
        return _rows(self, length, count)[2]

    @property
    def names(self) -> str:
        return _read(self.path).names

    def stretch(self, number: int, length: int) -> list[int]:
        """Return a piece of the packed text; the first follows the last. InputError if
        none is.
        """
        stream = _stream(self, (number + 1) * length)
        whole = len(stream) // length
        if not whole:
            raise InputError(
                f"{_read(self.path).name} has fewer than {length} tokens (--corpus)"
            )
        start = number % whole * length
        return stream[start : start + length]

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Text to search parameters on, which is never measured."""
        raise NotImplementedError("no parameters are searched on a released model")


Text = CorpusRef | TokenText


def _read(path: str) -> Corpus:
    place = Path(path) if path else None
    return _read_unchanged(place, sources.stamp_of(place))


@lru_cache(maxsize=2)
def _read_unchanged(path: Path | None, stamp: object) -> Corpus:
    name, found = read_documents(path)
    kept = sources.distinct(found)
    # Kinds follow from names, and decide which documents come first.
    kinds = [document.kind for document in kept.values()] if path else []
    by_kind = [f"/{kind}".encode() for kind in kinds] if len({*kinds}) > 1 else []
    fingerprint = hashlib.sha256(b"".join([*kept, *by_kind])).hexdigest()
    left_out = len(found) - len(kept)
    return Corpus(name, (), tuple(kept.values()), fingerprint, left_out)


def _whole(text: TokenText) -> Corpus:
    corpus = _read(text.path)
    if corpus.fingerprint != text.fingerprint:
        raise MachineError(
            f"{corpus.name} changed while the run was going on; start it again"
        )
    return corpus


@lru_cache(maxsize=2)
def _symbols(text: TokenText) -> Tensor:
    tokenizer = text.tokenizer
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    ordinary = [token for token in range(len(tokenizer)) if token not in special]
    drawn = np.random.default_rng(0).permutation(np.asarray(ordinary))
    return torch.from_numpy(np.resize(drawn, len(ALPHABET)))


@lru_cache(maxsize=4)
def _rows(
    text: TokenText, length: int, count: int
) -> tuple[Tensor, Tensor, tuple[Origin, ...]]:
    """Return rows of tokens, bytes per predicted token of each, and the document each
    is from.
    """
    corpus, front = _whole(text), text.front
    cut = text.packed or text.single
    wanted = length - len(front)
    # Tokenizing is slow, and a text has no more tokens than bytes, but for one that a
    # tokenizer puts before it.
    sizes_in_bytes = [len(document.text) + 1 for document in corpus.held_out]
    if cut:
        most = sum(sizes_in_bytes) // wanted
    else:
        most = sum(size >= wanted for size in sizes_in_bytes)
    if most < count:
        raise _too_little(corpus, most, count, length, cut)

    found = (_pieces if cut else _beginnings)(text, wanted, count)
    if len(found) < count:
        raise _too_little(corpus, len(found), count, length, cut)
    origins, pieces = zip(*found, strict=True)
    sizes = []
    for ids in pieces:
        # The first token of a row without a front is given, not predicted.
        predicted = ids if front else ids[1:]
        spelled = text.tokenizer.decode(predicted, clean_up_tokenization_spaces=False)
        sizes.append(len(spelled.encode()) / len(predicted))
    tokens = torch.tensor([front + ids for ids in pieces])
    return tokens, torch.tensor(sizes, dtype=torch.float64), origins


def _too_little(
    corpus: Corpus, there: int, count: int, length: int, cut: bool
) -> InputError:
    noun = "pieces" if cut else "documents"
    longer = "" if cut else ", pack the documents (--packed)"
    return InputError(
        f"{corpus.name} has {there} {noun} of {length} tokens, {count} are needed; give"
        f" more or longer text (--corpus){longer}, or ask for fewer (--documents)"
    )


def _beginnings(text: TokenText, length: int, count: int) -> list[Piece]:
    """Return the first tokens of long enough documents: one kind after the other, in
    turn.
    """
    # The kind with most text comes first, so that a few documents are of several kinds.
    by_kind: dict[str, list[TextDocument]] = defaultdict(list)
    for document in _whole(text).held_out:
        by_kind[document.kind].append(document)
    kinds = sorted(
        by_kind, key=lambda kind: (-sum(len(d.text) for d in by_kind[kind]), kind)
    )

    def long_enough(kind: str) -> Iterator[Piece]:
        for document in by_kind[kind]:
            ids = _first_ids(text, document.text, length)
            if len(ids) == length:
                yield document.origin, ids

    def in_turn() -> Iterator[Piece]:
        # Tokenizing is slow: no document is taken before its turn.
        left = [long_enough(kind) for kind in kinds]
        while left:
            for documents in list(left):
                if piece := next(documents, None):
                    yield piece
                else:
                    left.remove(documents)

    return list(islice(in_turn(), count))


def _pieces(text: TokenText, length: int, count: int) -> list[Piece]:
    stream, corpus = _stream(text, count * length), _whole(text)
    kind = corpus.held_out[0].kind if text.single else "packed"
    return [
        (
            Origin(f"piece {number}", kind),
            stream[number * length : (number + 1) * length],
        )
        for number in range(min(count, len(stream) // length))
    ]


@lru_cache(maxsize=2)
def _stream(text: TokenText, length: int) -> list[int]:
    """Return up to `length` tokens of all documents one after another."""
    end = text.tokenizer.eos_token_id
    stream: list[int] = []
    for number, document in enumerate(_whole(text).held_out):
        if len(stream) >= length:
            break
        stream += [end] if number and end is not None else []
        stream += _first_ids(text, document.text, length)
    return stream[:length]


def _first_ids(text: TokenText, document: bytes, length: int) -> list[int]:
    taken, ids = BYTES_PER_TOKEN * max(1, length), list[int]()
    while len(ids) <= length:
        ids = text.ids(document[:taken].decode(errors="replace"))
        if taken >= len(document):
            break
        taken *= 2  # a token of a long run of spaces has more
    return ids[:length]
