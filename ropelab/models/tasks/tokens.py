"""Text in the tokens of a released model, for its evaluation.

A `TokenText` describes a corpus and a tokenizer, so that another process can read and
tokenize the text, once. Like `CorpusRef`, which does the same for bytes, it gives

- documents: rows of tokens whose loss is measured;
- stretches: text to hide something in;
- symbols: ordinary tokens that stand for the symbols of retrieval tasks.

Documents are whole files without near-duplicates, one of each kind (tests, code, ...)
in turn. A single file is cut into pieces. Packed documents are joined, with an
end-of-sequence token between them as in pretraining, and then cut into pieces.
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
from ropelab.models.released.facts import read_facts
from ropelab.models.released.folder import identify_files, locate
from ropelab.models.released.loading import load_tokenizer
from ropelab.runs.errors import InputError, MachineError

# Whether a row begins with the token that begins a text (bos); auto: if the tokenizer
# itself adds it.
Bos = Literal["auto", "yes", "no"]
# The name and kind of a piece of text, and its tokens.
Piece = tuple[Origin, list[int]]
# The number of bytes of text that are tokenized for each token that is wanted. On
# average a token has three or four bytes.
BYTES_PER_TOKEN = 16
# The largest difference between the bytes of a text and the bytes of its decoded tokens,
# as a share of the text. Some tokenizers drop a first space, or change a few characters.
MOST_CHANGED_SHARE = 0.02
# The number of bytes at the beginning of each document that are decoded to measure this
# share.
TESTED_BYTES = 4096


@dataclass(frozen=True)
class TokenText:
    """A corpus in a released model's tokens, small enough for a cell's description."""

    # A text file or a folder; empty for the standard library of this Python.
    path: str
    # The hash of the text. If the text on disk no longer has this hash, it is refused.
    fingerprint: str
    # The folder of the tokenizer. It is not in the key: the key of a cell has its model.
    model: str
    bos: Bos = "auto"
    # True: documents are joined one after another and cut into rows.
    packed: bool = False
    # A stamp of the files in the folder of the tokenizer. It is a field so that rows in
    # memory are not used after the tokenizer was replaced.
    files: tuple[object, ...] = ()

    @classmethod
    def of(
        cls, path: str, model: str, bos: Bos = "auto", packed: bool = False
    ) -> "TokenText":
        """Describe the corpus at a path. InputError if there is none."""
        files = identify_files(locate(Path(model)))
        corpus = _read_corpus(path)
        corpus.say_left_out()
        return cls(path, corpus.fingerprint, model, bos, packed, files)

    @property
    def key(self) -> dict[str, Any]:
        """The facts that results on documents depend on."""
        return {**self.stretch_key, "drawn": "kinds in turn"}

    @property
    def stretch_key(self) -> dict[str, Any]:
        """The facts that results on stretches depend on."""
        return {
            "corpus": self.fingerprint,
            "tokenizer": True,
            "bos": self.bos,
            "packed": self.packed,
        }

    def symbols_key(self, task: str, reads_text: bool) -> dict[str, Any]:
        """Return the facts that results on a retrieval task depend on."""
        if reads_text:
            return self.key
        return {"bos": self.bos}

    @property
    def is_single_file(self) -> bool:
        return bool(self.path) and not Path(self.path).is_dir()

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer. InputError if it has none."""
        return load_tokenizer(Path(self.model))

    @property
    def front(self) -> list[int]:
        """The tokens with which every row begins: none, or the token that begins a
        text.

        InputError: the user asks for the token that begins a text, and the tokenizer
        has none.
        """
        bos_token = self.tokenizer.bos_token_id
        if bos_token is None:
            if self.bos == "yes":
                raise InputError(
                    f"the tokenizer in {self.model} has no token that begins a text"
                )
            return []
        tokens = self.tokenizer("a text")["input_ids"]
        tokenizer_adds_it = tokens[:1] == [bos_token]
        if self.bos == "yes" or (self.bos == "auto" and tokenizer_adds_it):
            return [bos_token]
        return []

    @property
    def symbols(self) -> Tensor:
        """The tokens that stand for the symbols of `ALPHABET`; it raises the errors of
        `ids`.
        """
        tokens = _draw_symbols(self)
        self._check(int(tokens.max()))
        return tokens

    def ids(self, text: str) -> list[int]:
        """Tokenize a text, without `front`; InputError for tokens unknown to the model."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        self._check(max(ids, default=0))
        return ids

    def _check(self, token: int) -> None:
        """Raise InputError if the model does not know a token."""
        known_tokens = read_facts(self.model).vocabulary
        if token >= known_tokens:
            raise InputError(
                f"the tokenizer of {self.model} makes token {token}, and the model"
                f" knows {known_tokens} tokens"
            )

    def documents(self, length: int, count: int) -> tuple[Tensor, Tensor]:
        """Return tokens [count, length] of documents, and the bytes per token of each.

        InputError: there are too few documents.
        """
        tokens, bytes_per_token, _ = _make_rows(self, length, count)
        return tokens, bytes_per_token

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        """Return name and kind of each document of which `documents` returns tokens.

        Kinds are tests, code, ...
        """
        _, _, origins = _make_rows(self, length, count)
        return origins

    @property
    def names(self) -> str:
        """The hash of the names and kinds of all documents."""
        return _read_corpus(self.path).names

    def stretch(self, number: int, length: int) -> list[int]:
        """Return piece `number` of all documents joined, as a list of tokens.

        After the last piece the first follows again. InputError: no piece is that long.
        """
        stream = _join_documents(self, (number + 1) * length)
        pieces = len(stream) // length
        if pieces == 0:
            raise InputError(
                f"{_read_corpus(self.path).name} has fewer than {length} tokens (--corpus)"
            )
        start = number % pieces * length
        return stream[start : start + length]

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Refuse the text of a search: no text is kept that is never measured."""
        raise NotImplementedError("no parameters are searched on a released model")


# The text of an evaluation: in bytes for a model trained here, else in tokens.
Text = CorpusRef | TokenText


def _read_corpus(text_path: str) -> Corpus:
    """Read a corpus whose documents are all for evaluation.

    An empty path stands for the standard library.
    """
    path = Path(text_path) if text_path else None
    return _read_unchanged(path, sources.read_stamp(path))


@lru_cache(maxsize=2)
def _read_unchanged(path: Path | None, stamp: object) -> Corpus:
    name, documents = read_documents(path)
    by_hash = sources.drop_near_duplicates(documents)
    content = list(by_hash)

    # Kinds, which follow from the names of files, decide in which order documents are
    # used. So they are hashed, too. For the standard library that is not necessary,
    # since its files have the same names wherever they have the same content.
    kinds = [document.kind for document in by_hash.values()]
    if path is not None and len(set(kinds)) > 1:
        content += [f"/{kind}".encode() for kind in kinds]
    fingerprint = hashlib.sha256(b"".join(content)).hexdigest()
    left_out = len(documents) - len(by_hash)
    return Corpus(
        name,
        training=(),
        held_out=tuple(by_hash.values()),
        fingerprint=fingerprint,
        left_out=left_out,
    )


def _load_corpus(text: TokenText) -> Corpus:
    """Return the documents of a text; MachineError if they have changed."""
    corpus = _read_corpus(text.path)
    if corpus.fingerprint != text.fingerprint:
        raise MachineError(
            f"{corpus.name} changed while the run was going on; start it again"
        )
    return corpus


@lru_cache(maxsize=2)
def _draw_symbols(text: TokenText) -> Tensor:
    """Draw an ordinary token for each symbol, the same tokens every time."""
    tokenizer = text.tokenizer
    special_tokens = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ordinary_tokens = [
        token for token in range(len(tokenizer)) if token not in special_tokens
    ]
    shuffled_tokens = np.random.default_rng(0).permutation(np.asarray(ordinary_tokens))
    # If there are fewer tokens than symbols, `np.resize` repeats the tokens.
    return torch.from_numpy(np.resize(shuffled_tokens, len(ALPHABET)))


@lru_cache(maxsize=4)
def _make_rows(
    text: TokenText, length: int, count: int
) -> tuple[Tensor, Tensor, tuple[Origin, ...]]:
    """Make rows of tokens for `TokenText.documents`.

    Return the rows [count, length], the bytes per predicted token of each row, and the
    origin of each row.
    """
    corpus = _load_corpus(text)
    front = text.front
    is_cut = text.packed or text.is_single_file
    tokens_of_text = length - len(front)
    # Tokenizing is slow, so too little text is refused first. A text has at most as
    # many tokens as bytes, and one more that a tokenizer may put before the text.
    most_tokens = [len(document.text) + 1 for document in corpus.held_out]
    if is_cut:
        most_rows = sum(most_tokens) // tokens_of_text
    else:
        most_rows = len([most for most in most_tokens if most >= tokens_of_text])
    if most_rows < count:
        raise _make_shortage_error(corpus, most_rows, count, length, is_cut)

    if is_cut:
        pieces = _cut_pieces(text, tokens_of_text, count)
    else:
        pieces = _take_beginnings(text, tokens_of_text, count)
    if len(pieces) < count:
        raise _make_shortage_error(corpus, len(pieces), count, length, is_cut)
    _check_text_is_kept(text, corpus.held_out[:count])

    rows = []
    bytes_per_token = []
    for _, ids in pieces:
        rows.append(front + ids)
        # The first token of a row is not predicted.
        predicted = ids if front else ids[1:]
        decoded = text.tokenizer.decode(predicted, clean_up_tokenization_spaces=False)
        bytes_per_token.append(len(decoded.encode()) / len(predicted))
    sizes = torch.tensor(bytes_per_token, dtype=torch.float64)
    return torch.tensor(rows), sizes, tuple(origin for origin, _ in pieces)


def _check_text_is_kept(text: TokenText, documents: tuple[TextDocument, ...]) -> None:
    """Raise InputError if a tokenizer does not give the text back.

    Losses are divided by the bytes of the decoded tokens. Where characters are unknown or
    dropped, these are not the bytes of the text.
    """
    before = 0
    after = 0
    for document in documents:
        content = document.text[:TESTED_BYTES].decode(errors="replace")
        ids = text.tokenizer(content, add_special_tokens=False)["input_ids"]
        decoded = text.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        before += len(content.encode())
        after += len(decoded.encode())
    if abs(after - before) > MOST_CHANGED_SHARE * before:
        raise InputError(
            f"the tokenizer of {text.model} does not give the text back: {before} bytes"
            f" become {after}, so that losses per byte would be of another text; give"
            " text whose characters it knows (--corpus)"
        )


def _make_shortage_error(
    corpus: Corpus, available: int, count: int, length: int, is_cut: bool
) -> InputError:
    """Make the error for a corpus with fewer rows than were asked for."""
    noun = "pieces" if is_cut else "documents"
    advice = "" if is_cut else ", pack the documents (--packed)"
    return InputError(
        f"{corpus.name} has {available} {noun} of {length} tokens, {count} are needed; give"
        f" more or longer text (--corpus){advice}, or ask for fewer (--documents)"
    )


def _take_beginnings(text: TokenText, length: int, count: int) -> list[Piece]:
    """Return the first tokens of long enough documents, one of each kind in turn."""
    by_kind: dict[str, list[TextDocument]] = defaultdict(list)
    for document in _load_corpus(text).held_out:
        by_kind[document.kind].append(document)

    def rank_longest_first(kind: str) -> tuple[int, str]:
        bytes_of_kind = sum(len(document.text) for document in by_kind[kind])
        return -bytes_of_kind, kind

    def read_kind(kind: str) -> Iterator[Piece]:
        for document in by_kind[kind]:
            ids = _take_ids(text, document.text, length)
            if len(ids) == length:
                yield document.origin, ids

    # Kinds take turns, so that even a few documents are of several kinds. Tokenizing is
    # slow, so a document is tokenized only when its turn comes.
    pieces: list[Piece] = []
    unread_kinds = [read_kind(kind) for kind in sorted(by_kind, key=rank_longest_first)]
    while unread_kinds:
        for pieces_of_kind in list(unread_kinds):
            if len(pieces) == count:
                return pieces
            piece = next(pieces_of_kind, None)
            if piece is None:
                unread_kinds.remove(pieces_of_kind)
            else:
                pieces.append(piece)
    return pieces


def _cut_pieces(text: TokenText, length: int, count: int) -> list[Piece]:
    """Return pieces of one file, or of all documents one after another."""
    stream = _join_documents(text, count * length)
    kind = "packed"
    if text.is_single_file:
        kind = _load_corpus(text).held_out[0].kind
    pieces = []
    for number in range(min(count, len(stream) // length)):
        start = number * length
        origin = Origin(f"piece {number}", kind)
        pieces.append((origin, stream[start : start + length]))
    return pieces


@lru_cache(maxsize=2)
def _join_documents(text: TokenText, length: int) -> list[int]:
    """Return up to `length` tokens of all documents one after another."""
    # The end-of-sequence token is put between documents, if the tokenizer has one.
    separator = text.tokenizer.eos_token_id
    stream: list[int] = []
    for number, document in enumerate(_load_corpus(text).held_out):
        if len(stream) >= length:
            break
        is_first = number == 0
        if separator is not None and not is_first:
            stream.append(separator)
        stream += _take_ids(text, document.text, length)
    return stream[:length]


def _take_ids(text: TokenText, document: bytes, length: int) -> list[int]:
    """Return up to `length` tokens of the beginning of a document."""
    byte_count = BYTES_PER_TOKEN * max(1, length)
    while True:
        ids = text.ids(document[:byte_count].decode(errors="replace"))
        # If more of the document is read, the last token may become another token. So
        # the last token is used only at the end of the document.
        if len(ids) > length or byte_count >= len(document):
            return ids[:length]
        # Tokens can have more bytes than expected, such as tokens of long runs of
        # spaces.
        byte_count *= 2
