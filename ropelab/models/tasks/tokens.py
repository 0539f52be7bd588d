"""Text in the tokens of a model given: all of a corpus, since nothing learns from it.

Documents are whole files, in an order that follows from their content and takes one kind of text
after the other; of near-duplicates the first is kept. A single file is cut into pieces by tokens,
and so are documents that are packed: one after another with an end-of-sequence token between, as in
pretraining.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.errors import InputError, MachineError
from ropelab.models.lm.corpus import Document, Origin, read_documents, without_near_duplicates
from ropelab.models.released.facts import vocabulary_of
from ropelab.models.released.tokens import first_token, load_tokenizer

Bos = Literal["auto", "yes", "no"]
Item = TypeVar("Item")
LONGEST_TOKEN = 16
"""Bytes: so many per token are enough text to tokenize; on average a token has three or four."""


@dataclass(frozen=True)
class Windows:
    """Rows of tokens that a model is shown.

    Attributes:
        bytes_per_token: of each row, over the tokens that are predicted.
        origins: what document each row is from.
    """

    tokens: Int[Tensor, "rows length"]
    bytes_per_token: Float[Tensor, " rows"]
    origins: tuple[Origin, ...]


@dataclass(frozen=True)
class TokenText:
    """A corpus in a model's tokens, small enough to be part of a cell's description.

    Attributes:
        path: a text file or a folder, empty for the standard library of this Python.
        fingerprint: of its content; what has changed since is not taken for it.
        model: whose tokenizer is meant. It is no part of the key: a cell names its model.
        bos: whether every row begins with the beginning-of-sequence token; auto: where the
            tokenizer itself puts one in front.
        packed: whether documents are put one after another and cut into rows.
    """

    path: str
    fingerprint: str
    model: str
    bos: Bos = "auto"
    packed: bool = False

    @classmethod
    def of(cls, path: str, model: str, bos: Bos = "auto", packed: bool = False) -> Self:
        """The corpus as it is now. InputError if there is none."""
        return cls(path, _read(path).fingerprint, model, bos, packed)

    @property
    def key(self) -> dict[str, Any]:
        """What documents depend on besides the tokenizer, json-able."""
        return {**self.stream_key, "drawn": "kinds in turn"}

    @property
    def stream_key(self) -> dict[str, Any]:
        """What stretches of the packed text depend on."""
        return {
            "corpus": self.fingerprint,
            "tokenizer": True,
            "bos": self.bos,
            "packed": self.packed,
        }

    @property
    def tokenizer(self) -> Any:
        """That of the model. InputError if it has none."""
        return load_tokenizer(Path(self.model))

    @property
    def front(self) -> list[int]:
        """What stands in front of every row.

        Raises:
            InputError: a token that begins texts is wanted, and the tokenizer has none.
        """
        wanted = {"auto": None, "yes": True, "no": False}[self.bos]
        return first_token(self.tokenizer, Path(self.model), wanted)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text and nothing beside it.

        Raises:
            InputError: the tokenizer makes tokens that its model does not know.
        """
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        known = vocabulary_of(self.model)
        if ids and max(ids) >= known:
            raise InputError(
                f"the tokenizer of {self.model} makes token {max(ids)}, and the model knows "
                f"{known} tokens"
            )
        return ids

    def windows(self, length: int, count: int) -> Windows:
        """`count` rows of `length` tokens, what stands in front included.

        Raises:
            InputError: the corpus does not hold so many.
        """
        return _windows(self, length, count)

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        """Name and kind of the document that each of those rows is from."""
        return self.windows(length, count).origins

    def documents(self, length: int, count: int) -> tuple[Tensor, Tensor]:
        """The tokens of those rows, and how many bytes one has on average."""
        rows = self.windows(length, count)
        return rows.tokens, rows.bytes_per_token

    def stretch(self, number: int, length: int) -> list[int]:
        """One of the stretches that the packed text is cut into; after the last comes the first.

        Raises:
            InputError: the corpus holds none of that length.
        """
        stream = _stream(self, (number + 1) * length)
        whole = len(stream) // length
        if not whole:
            raise InputError(
                f"{_read(self.path).name} has fewer than {length} tokens; give more text (--corpus)"
            )
        start = number % whole * length
        return stream[start : start + length]


@dataclass(frozen=True)
class _Whole:
    """All documents of a corpus; `single` where it is one file."""

    name: str
    documents: tuple[Document, ...]
    single: bool
    fingerprint: str


@lru_cache(maxsize=2)
def _read(path: str) -> _Whole:
    name, found = read_documents(Path(path) if path else None)
    by_hash = {hashlib.sha256(document.text).digest(): document for document in found}
    documents = [by_hash[digest] for digest in sorted(by_hash)]
    new = without_near_duplicates([document.text for document in documents])
    kept = tuple(d for d, keep in zip(documents, new, strict=True) if keep)
    digest = hashlib.sha256(b"".join(hashlib.sha256(d.text).digest() for d in kept))
    single = bool(path) and not Path(path).is_dir()
    return _Whole(name, kept, single, digest.hexdigest())


def _whole(text: TokenText) -> _Whole:
    corpus = _read(text.path)
    if corpus.fingerprint != text.fingerprint:
        raise MachineError(f"{corpus.name} changed while the run was going on; start it again")
    return corpus


@lru_cache(maxsize=4)
def _windows(text: TokenText, length: int, count: int) -> Windows:
    corpus, front = _whole(text), text.front
    needed = length - len(front)
    cut = text.packed or corpus.single
    found = _pieces(text, needed, count) if cut else _beginnings(text, needed, count)
    if len(found) < count:
        what = "pieces" if cut else "documents"
        longer = "" if cut else ", pack the documents (--packed)"
        raise InputError(
            f"{corpus.name} has {len(found)} {what} of {length} tokens, {count} are needed; give "
            f"more or longer text (--corpus){longer}, or ask for fewer (--documents)"
        )
    origins, pieces = zip(*found, strict=True)
    sizes = [_bytes_per_token(text, ids if front else ids[1:]) for ids in pieces]
    tokens = torch.tensor([front + ids for ids in pieces])
    return Windows(tokens, torch.tensor(sizes, dtype=torch.float64), origins)


def _beginnings(text: TokenText, length: int, count: int) -> list[tuple[Origin, list[int]]]:
    """Origin and first tokens of documents that are long enough: a kind after the other, in turn.

    The kind with most text comes first, so that a few documents are of several kinds.
    """
    by_kind: dict[str, list[Document]] = {}
    for document in _whole(text).documents:
        by_kind.setdefault(document.kind, []).append(document)
    sizes = {kind: sum(len(each.text) for each in found) for kind, found in by_kind.items()}
    kinds = sorted(by_kind, key=lambda kind: (-sizes[kind], kind))
    long_enough = [_long_enough(text, by_kind[kind], length) for kind in kinds]
    return list(islice(_in_turn(long_enough), count))


def _long_enough(
    text: TokenText, documents: Sequence[Document], length: int
) -> Iterator[tuple[Origin, list[int]]]:
    for document in documents:
        ids = _first_ids(text, document.text, length)
        if len(ids) == length:
            yield document.origin, ids


def _in_turn(waiting: Sequence[Iterator[Item]]) -> Iterator[Item]:
    """One of each, again and again, of those that still have one."""
    turns = deque(waiting)
    while turns:
        first = turns.popleft()
        for item in islice(first, 1):
            yield item
            turns.append(first)


def _pieces(text: TokenText, length: int, count: int) -> list[tuple[Origin, list[int]]]:
    """The packed text, cut."""
    stream = _stream(text, count * length)
    kind = _whole(text).documents[0].kind if _whole(text).single else "packed"
    starts = range(0, len(stream) - length + 1, length)[:count]
    return [
        (Origin(f"piece {number}", kind), stream[start : start + length])
        for number, start in enumerate(starts)
    ]


@lru_cache(maxsize=2)
def _stream(text: TokenText, length: int) -> list[int]:
    """The first tokens of all documents one after another, as far as there are so many."""
    stream: list[int] = []
    for ids in _separated(text, length):
        stream += ids
        if len(stream) >= length:
            break
    return stream[:length]


def _separated(text: TokenText, length: int) -> Iterator[list[int]]:
    end = text.tokenizer.eos_token_id
    for number, document in enumerate(_whole(text).documents):
        if number and end is not None:
            yield [end]
        yield _first_ids(text, document.text, length)


def _first_ids(text: TokenText, document: bytes, length: int) -> list[int]:
    """The first `length` tokens of a document, fewer where it is shorter."""
    beginning = document[: LONGEST_TOKEN * length].decode(errors="replace")
    return text.ids(beginning)[:length]


def _bytes_per_token(text: TokenText, ids: Sequence[int]) -> float:
    spelled = text.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    return len(spelled.encode()) / len(ids)
