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
# Bytes per token that are enough text to tokenize; on average a token has three or four.
BYTES_PER_TOKEN = 16


@dataclass(frozen=True)
class TokenText:
    """A corpus in a released model's tokens, small enough for a cell's description."""

    # A text file or a folder; empty for the standard library of this Python.
    path: str
    # The hash of its content; a corpus that changed since is refused.
    fingerprint: str
    # The folder of the tokenizer; not in the key, as a cell names its model.
    model: str
    # Rows begin with that token; auto: if the tokenizer itself adds one.
    bos: Bos = "auto"
    # Documents are joined one after another and cut into rows.
    packed: bool = False
    # The files of that folder: a tokenizer that was replaced makes other rows.
    files: tuple[object, ...] = ()

    @classmethod
    def of(
        cls, path: str, model: str, bos: Bos = "auto", packed: bool = False
    ) -> "TokenText":
        """Describe a corpus on disk. InputError if there is none."""
        files = stamp(locate(Path(model)))
        corpus = _read_corpus(path)
        corpus.say_left_out()
        return cls(path, corpus.fingerprint, model, bos, packed, files)

    @property
    def key(self) -> dict[str, Any]:
        return {**self.stretch_key, "drawn": "kinds in turn"}

    @property
    def stretch_key(self) -> dict[str, Any]:
        return {
            "corpus": self.fingerprint,
            "tokenizer": True,
            "bos": self.bos,
            "packed": self.packed,
        }

    def symbols_key(self, task: str, reads_text: bool) -> dict[str, Any]:
        """Return all that sequences of a task depend on besides their places."""
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
        """The tokens that every row begins with; InputError if there is no such token."""
        first = self.tokenizer.bos_token_id
        if first is None:
            if self.bos == "yes":
                raise InputError(
                    f"the tokenizer in {self.model} has no token that begins a text"
                )
            return []
        adds_it = self.tokenizer("a text")["input_ids"][:1] == [first]
        if self.bos == "yes" or (self.bos == "auto" and adds_it):
            return [first]
        return []

    @property
    def symbols(self) -> Tensor:
        """An ordinary token for each symbol of `ALPHABET`; errors as those of `ids`."""
        tokens = _draw_symbols(self)
        self._check(int(tokens.max()))
        return tokens

    def ids(self, text: str) -> list[int]:
        """Tokenize a text, without `front`; InputError for tokens unknown to the model."""
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
        """Return tokens [count, length] and bytes per token; InputError if too few."""
        tokens, bytes_per_token, _ = _make_rows(self, length, count)
        return tokens, bytes_per_token

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        """Return name and kind (tests, code, ...) of each of those documents."""
        _, _, origins = _make_rows(self, length, count)
        return origins

    @property
    def names(self) -> str:
        return _read_corpus(self.path).names

    def stretch(self, number: int, length: int) -> list[int]:
        """Return a piece of the packed text; the first follows the last.

        InputError: there is none of that length.
        """
        stream = _stream(self, (number + 1) * length)
        whole = len(stream) // length
        if not whole:
            raise InputError(
                f"{_read_corpus(self.path).name} has fewer than {length} tokens (--corpus)"
            )
        start = number % whole * length
        return stream[start : start + length]

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Refuse a search: it would need text that is never measured."""
        raise NotImplementedError("no parameters are searched on a released model")


Text = CorpusRef | TokenText


def _read_corpus(text_path: str) -> Corpus:
    path = Path(text_path) if text_path else None
    return _read_unchanged(path, sources.stamp_of(path))


@lru_cache(maxsize=2)
def _read_unchanged(path: Path | None, stamp: object) -> Corpus:
    name, documents = read_documents(path)
    by_hash = sources.distinct(documents)
    content = list(by_hash)
    # Kinds follow from names, and decide which documents come first.
    kinds = [document.kind for document in by_hash.values()]
    if path is not None and len(set(kinds)) > 1:
        content += [f"/{kind}".encode() for kind in kinds]
    fingerprint = hashlib.sha256(b"".join(content)).hexdigest()
    left_out = len(documents) - len(by_hash)
    return Corpus(name, (), tuple(by_hash.values()), fingerprint, left_out)


def _corpus_of(text: TokenText) -> Corpus:
    """Return the documents of a text; MachineError if they have changed."""
    corpus = _read_corpus(text.path)
    if corpus.fingerprint != text.fingerprint:
        raise MachineError(
            f"{corpus.name} changed while the run was going on; start it again"
        )
    return corpus


@lru_cache(maxsize=2)
def _draw_symbols(text: TokenText) -> Tensor:
    tokenizer = text.tokenizer
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    ordinary = [token for token in range(len(tokenizer)) if token not in special]
    drawn = np.random.default_rng(0).permutation(np.asarray(ordinary))
    return torch.from_numpy(np.resize(drawn, len(ALPHABET)))


@lru_cache(maxsize=4)
def _make_rows(
    text: TokenText, length: int, count: int
) -> tuple[Tensor, Tensor, tuple[Origin, ...]]:
    """Return rows of tokens, bytes per predicted token of each, and their origins."""
    corpus = _corpus_of(text)
    front = text.front
    cut = text.packed or text.single
    wanted = length - len(front)
    # Tokenizing is slow, and a text has no more tokens than bytes, but for one that a
    # tokenizer puts before it.
    sizes_in_bytes = [len(document.text) + 1 for document in corpus.held_out]
    if cut:
        most = sum(sizes_in_bytes) // wanted
    else:
        most = len([size for size in sizes_in_bytes if size >= wanted])
    if most < count:
        raise _too_little_text(corpus, most, count, length, cut)

    if cut:
        pieces = _cut_pieces(text, wanted, count)
    else:
        pieces = _take_beginnings(text, wanted, count)
    if len(pieces) < count:
        raise _too_little_text(corpus, len(pieces), count, length, cut)

    rows = []
    bytes_per_token = []
    for _, ids in pieces:
        rows.append(front + ids)
        # The first token of a row without a front is given, not predicted.
        predicted = ids if front else ids[1:]
        decoded = text.tokenizer.decode(predicted, clean_up_tokenization_spaces=False)
        bytes_per_token.append(len(decoded.encode()) / len(predicted))
    sizes = torch.tensor(bytes_per_token, dtype=torch.float64)
    return torch.tensor(rows), sizes, tuple(origin for origin, _ in pieces)


def _too_little_text(
    corpus: Corpus, available: int, count: int, length: int, cut: bool
) -> InputError:
    noun = "pieces" if cut else "documents"
    longer = "" if cut else ", pack the documents (--packed)"
    return InputError(
        f"{corpus.name} has {available} {noun} of {length} tokens, {count} are needed; give"
        f" more or longer text (--corpus){longer}, or ask for fewer (--documents)"
    )


def _take_beginnings(text: TokenText, length: int, count: int) -> list[Piece]:
    """Return the first tokens of long enough documents, of one kind after the other."""
    by_kind: dict[str, list[TextDocument]] = defaultdict(list)
    for document in _corpus_of(text).held_out:
        by_kind[document.kind].append(document)

    def rank(kind: str) -> tuple[int, str]:
        # The kind with most text comes first.
        return -sum(len(document.text) for document in by_kind[kind]), kind

    def long_enough(kind: str) -> Iterator[Piece]:
        for document in by_kind[kind]:
            ids = _first_ids(text, document.text, length)
            if len(ids) == length:
                yield document.origin, ids

    # Kinds take turns, so that a few documents are of several kinds. Tokenizing is slow:
    # no document is taken before its turn.
    pieces: list[Piece] = []
    waiting = [long_enough(kind) for kind in sorted(by_kind, key=rank)]
    while waiting:
        for documents in list(waiting):
            if len(pieces) == count:
                return pieces
            piece = next(documents, None)
            if piece is None:
                waiting.remove(documents)
            else:
                pieces.append(piece)
    return pieces


def _cut_pieces(text: TokenText, length: int, count: int) -> list[Piece]:
    """Return pieces of one file, or of all documents one after another."""
    stream = _stream(text, count * length)
    kind = "packed"
    if text.single:
        kind = _corpus_of(text).held_out[0].kind
    pieces = []
    for number in range(min(count, len(stream) // length)):
        start = number * length
        origin = Origin(f"piece {number}", kind)
        pieces.append((origin, stream[start : start + length]))
    return pieces


@lru_cache(maxsize=2)
def _stream(text: TokenText, length: int) -> list[int]:
    """Return up to `length` tokens of all documents one after another."""
    end = text.tokenizer.eos_token_id
    stream: list[int] = []
    for number, document in enumerate(_corpus_of(text).held_out):
        if len(stream) >= length:
            break
        if number and end is not None:
            stream.append(end)
        stream += _first_ids(text, document.text, length)
    return stream[:length]


def _first_ids(text: TokenText, document: bytes, length: int) -> list[int]:
    """Return up to `length` tokens of the beginning of a document."""
    size = BYTES_PER_TOKEN * max(1, length)
    while True:
        ids = text.ids(document[:size].decode(errors="replace"))
        if len(ids) > length or size >= len(document):
            return ids[:length]
        # A token of a long run of spaces has more bytes.
        size *= 2
