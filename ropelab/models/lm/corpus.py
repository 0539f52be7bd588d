"""Real text as bytes: the running Python's standard library, or files of the user.

A corpus has two sets of documents: one to train on, and the held-out documents to
evaluate on. In a folder a document is a whole file. A hash of its content decides in
which set the document is, and of near-duplicates only one is kept. A single file is cut
instead: its beginning is for training, its end for evaluation.

`read_corpus` returns a `Corpus`. A `CorpusRef` describes a corpus without its text, so
that it can be sent to another process, which then reads the text.
"""

import errno
import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ropelab.models.lm.duplicates import mark_new_texts
from ropelab.runs.errors import InputError, MachineError, say_once
from ropelab.runs.files import check_name, read_regular
from ropelab.runs.folders import digest, list_files_below
from ropelab.runs.sentences import write_count

# Every random seed begins with one of these numbers, so that no sequence for evaluation
# is drawn with a seed that was used for training.
TRAINING = 0
EVALUATION = 1
# A token is a byte.
VOCABULARY = 256
# The 64 symbols of random stretches and records, in ascending order: the symbols of
# base64.
ALPHABET = np.frombuffer(
    b"+/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", np.uint8
).astype(np.int64)
# The share of files, or of the bytes of a single file, that is for evaluation.
HELD_OUT_SHARE = 0.2
LIBRARY = Path(sysconfig.get_path("stdlib"))
# Folders of the standard library that have other packages, or compiled files.
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__"}
# The name of the standard library in messages.
STANDARD_LIBRARY = "the standard library"
# The number of held-out documents that suffices of the standard library if more were
# asked for. Many Pythons come without their tests, two thirds of the text.
ENOUGH_DOCUMENTS = 10
# The number of first bytes of a file that are looked at. If one of them is zero, the
# file is not a text.
BINARY_PROBE = 8192
# The most bytes of all files together, since they are held in memory.
MOST_BYTES = 2**30
# The kind of the documents that a single file was cut into.
KIND_OF_PIECES = "text"
# The suffixes of files whose kind is prose.
PROSE = {".md", ".rst", ".txt"}
# The name of a hidden file in a folder of text. Its first line names the source of the
# text.
SOURCE = ".source"
# The most bytes of the file SOURCE.
MOST_SOURCE_BYTES = 4096


class Origin(NamedTuple):
    """The name and the kind of a document, without its text."""

    name: str
    kind: str


@dataclass(frozen=True)
class TextDocument:
    text: bytes
    # The kind of text, such as code, prose or tests (`find_kind`).
    kind: str = KIND_OF_PIECES
    # The path of the document in the corpus.
    name: str = ""

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.kind)


@dataclass(frozen=True)
class Corpus:
    """Documents for training and for evaluation.

    Their order depends only on their content.
    """

    # The name in messages.
    name: str
    training: tuple[bytes, ...]
    held_out: tuple[TextDocument, ...]
    # The sha256 of the texts of all documents.
    fingerprint: str
    # The number of documents that are not used, because they are near-duplicates of
    # other documents.
    left_out: int = 0

    @property
    def names(self) -> str:
        """The hash of the names and kinds of the held-out documents.

        Tables show names and kinds, and `fingerprint` does not depend on them.
        """
        return digest({"names": [document.origin for document in self.held_out]})

    def say_left_out(self) -> None:
        """Say once how many documents of the user's are not used."""
        if self.left_out and self.name != STANDARD_LIBRARY:
            documents = write_count(self.left_out, "document")
            say_once(f"{self.name}: {documents} left out as near-duplicates of others")

    def windows(
        self, seed: int, step: int, window: int, rows: int
    ) -> Int[Tensor, "rows window"]:
        """Return windows of text for one training step.

        Every place at which a window fits into a document is equally likely.
        """
        random = np.random.default_rng((TRAINING, seed, step))
        long_texts = [text for text in self.training if len(text) >= window]
        # The places are numbered through all documents.
        places_in_each = [len(text) - window + 1 for text in long_texts]
        first_places = np.cumsum([0, *places_in_each])
        total = first_places[-1]

        places = random.integers(total, size=rows)
        documents = np.searchsorted(first_places, places, side="right") - 1
        texts = [long_texts[document] for document in documents]
        starts = places - first_places[documents]
        return _cut_windows(texts, starts, window)

    def list_long_documents(self, length: int, count: int) -> list[TextDocument]:
        """Return the first `count` held-out documents of at least `length` bytes.

        InputError: there are too few. Of the standard library ENOUGH_DOCUMENTS are
        enough, even if `count` is larger.
        """
        candidates = [each for each in self.held_out if len(each.text) >= length]
        needed = count
        if self.name == STANDARD_LIBRARY:
            needed = min(count, ENOUGH_DOCUMENTS)
        if len(candidates) < needed:
            left_out = ""
            if self.left_out:
                left_out = f" ({self.left_out} left out as near-duplicates of others)"
            raise InputError(
                f"{self.name} has {len(candidates)} held-out documents of at least"
                f" {length} bytes{left_out}, {needed} are needed; give more or longer"
                " text, or ask for fewer documents"
            )
        return candidates[:count]

    def held_out_windows(
        self, length: int, count: int
    ) -> Int[Tensor, "documents length"]:
        """Return a window of each document that `list_long_documents` returns."""
        documents = self.list_long_documents(length, count)
        texts = [document.text for document in documents]
        # The windows are at random places, so that they are not only heads of files
        # (licences, imports).
        random = np.random.default_rng((EVALUATION, length))
        starts = [int(random.integers(len(text) - length + 1)) for text in texts]
        return _cut_windows(texts, starts, length)

    def check(self, window: int, length: int, documents: int) -> None:
        """Raise InputError unless windows can be drawn to train and to evaluate."""
        if not any(len(text) >= window for text in self.training):
            raise InputError(
                f"{self.name} has no document of at least {window} bytes to learn from;"
                " give longer text or shorten the training length"
            )
        available = len(self.held_out_windows(length, documents))
        if available < documents:
            say_once(
                f"{self.name} has {available} documents of {length} bytes, not"
                f" {documents}"
            )


def _cut_windows(texts: Sequence[bytes], starts: Iterable[int], length: int) -> Tensor:
    """Cut a window of `length` bytes from each text, [texts, length]."""
    windows = []
    for text, start in zip(texts, starts, strict=True):
        windows.append(np.frombuffer(text, np.uint8, length, start))
    return torch.from_numpy(np.stack(windows).astype(np.int64))


@dataclass(frozen=True)
class CorpusRef:
    """The description of a corpus whose tokens are bytes; other processes can read it.

    `TokenText` in ropelab/models/tasks/tokens.py has the same methods for the tokens of
    a released model.
    """

    # A text file or a folder; empty for the standard library of this Python.
    path: str
    # The number of bytes of a document, if the path is a single file that is cut.
    piece: int
    # The hash of the text. If the text on disk no longer has this hash, it is refused.
    fingerprint: str
    # The hash of names and kinds, as in `Corpus`. It is a field so that results which
    # show other names are not reused.
    names: str
    # The tokens with which every row begins.
    front: ClassVar[list[int]] = []
    # The tokens that stand for the symbols of ALPHABET.
    symbols: ClassVar[Tensor] = torch.from_numpy(ALPHABET)

    @classmethod
    def of(cls, path: str, piece: int) -> Self:
        """Describe the corpus at a path. InputError if there is none."""
        corpus = read_corpus(Path(path) if path else None, piece)
        return cls(path, piece, corpus.fingerprint, corpus.names)

    def corpus(self) -> Corpus:
        """Return the text, read once per process. MachineError if it changed since."""
        if self in _provided:
            return _provided[self]
        return _read_once(self)

    # `content` takes the text, and `provide` gives it to a worker on another machine,
    # which need not have the files.
    content = corpus

    def provide(self, content: Corpus) -> None:
        """Make this process use a corpus that was sent to it."""
        _provided.clear()
        _provided[self] = content

    @property
    def key(self) -> dict[str, Any]:
        """The facts that results on documents depend on."""
        return {"corpus": self.fingerprint, "tokenizer": False}

    # The facts that results on stretches depend on.
    stretch_key = key

    def symbols_key(self, task: str, reads_text: bool) -> dict[str, Any]:
        """Return the facts that results on a retrieval task depend on."""
        return {
            "name": task,
            "corpus": self.fingerprint if reads_text else "",
            # Keys of stored cells have this entry; 0 stands for bytes.
            "vocabulary": 0,
        }

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(text.encode())

    def documents(self, length: int, count: int) -> tuple[Tensor, Tensor]:
        """Return tokens [count, length] of held-out documents, and bytes per token.

        The bytes per token of each document are 1.
        """
        windows = _held_out_windows(self, length, count)
        return windows, torch.ones(len(windows), dtype=torch.float64)

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        """Return name and kind of each document of which `documents` returns tokens."""
        documents = self.corpus().list_long_documents(length, count)
        return tuple(document.origin for document in documents)

    def stretch(self, number: int, length: int) -> list[int]:
        """Return window `number` of held-out text, as a list of tokens.

        Each window is of another document. After the last document the first follows
        again. InputError: no document is that long.
        """
        corpus = self.corpus()
        sizes = [len(document.text) for document in corpus.held_out]
        count = len([size for size in sizes if size >= length])
        if count == 0:
            raise InputError(
                f"{corpus.name} has no text of {length} bytes; give a longer --corpus"
            )
        windows = _held_out_windows(self, length, count)
        stretch: list[int] = windows[number % count].tolist()
        return stretch

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Return windows of the training text, at places drawn by the seed."""
        return self.corpus().windows(seed, 0, length, rows)


# The last corpus that was sent to this process.
_provided: dict[CorpusRef, Corpus] = {}


@lru_cache(maxsize=2)
def _read_once(reference: CorpusRef) -> Corpus:
    path = Path(reference.path) if reference.path else None
    corpus = read_corpus(path, reference.piece)
    if corpus.fingerprint != reference.fingerprint:
        raise MachineError(
            f"{corpus.name} changed while the run was going on; start it again"
        )
    return corpus


@lru_cache(maxsize=8)
def _held_out_windows(reference: CorpusRef, length: int, count: int) -> Tensor:
    return reference.corpus().held_out_windows(length, count)


def read_corpus(path: Path | None, piece: int) -> Corpus:
    """Read a corpus; None is the standard library.

    If the path is a single file, its held-out end is cut into documents of `piece`
    bytes. It raises the errors of `read_documents`.
    """
    if path is None or path.is_dir():
        piece = 0
    # Many runs ask for the same corpus. A changed file changes the stamp, and only then
    # are the files read again.
    return _read_unchanged(path, piece, read_stamp(path))


@lru_cache(maxsize=1)
def _read_unchanged(path: Path | None, piece: int, stamp: object) -> Corpus:
    name, documents = read_documents(path)
    if piece:
        return split_single(name, documents[0].text, piece)
    return split_documents(name, documents)


def read_documents(path: Path | None) -> tuple[str, list[TextDocument]]:
    """Return the name and the documents of a file or folder.

    None is Python's standard library. InputError: nothing there, nothing readable, or
    no text in it.
    """
    files = _list_files(path)
    if path is None:
        return STANDARD_LIBRARY, _read_texts(files, LIBRARY, find_kind)

    for file in files:
        check_name(file)
    if not os.path.lexists(path):
        raise InputError(
            f"no corpus at {path}; give a text file or a folder of text files"
        )

    # Names are paths below the deepest folder that holds all files.
    root = Path()
    if files:
        root = Path(os.path.commonpath([file.parent for file in files]))

    documents = _read_texts(files, root, find_folder_or_kind)
    if not documents:
        raise InputError(
            f"{path} holds no text: its files are empty or binary; give text files"
        )
    return f"the corpus {path}", documents


def drop_near_duplicates(
    documents: Iterable[TextDocument], rank: Callable[[bytes], Any] | None = None
) -> dict[bytes, TextDocument]:
    """Return documents by the hash of their content, without near-duplicates.

    The documents are sorted by the `rank` of their hash (None: by the hash itself). Of
    several near-duplicates the first document is kept.
    """
    by_hash = {}
    for document in documents:
        by_hash[hashlib.sha256(document.text).digest()] = document

    hashes = sorted(by_hash, key=rank)
    is_kept = mark_new_texts([by_hash[each].text for each in hashes])
    return {each: by_hash[each] for each in compress(hashes, is_kept)}


def split_documents(name: str, documents: Iterable[TextDocument]) -> Corpus:
    """Divide whole documents by the hash of their content, dropping near-duplicates."""
    # Hashes are uniform, so that HELD_OUT_SHARE of all hashes is below this border.
    border = int(HELD_OUT_SHARE * 2**64).to_bytes(8, "big")

    def is_held_out(content_hash: bytes) -> bool:
        return content_hash[:8] < border

    def rank_training_first(content_hash: bytes) -> tuple[bool, bytes]:
        return is_held_out(content_hash), content_hash

    # Of near-duplicates the first is kept. With training documents first, it is the
    # held-out document that is dropped.
    all_documents = list(documents)
    by_hash = drop_near_duplicates(all_documents, rank_training_first)
    training = []
    held_out = []
    for content_hash, document in by_hash.items():
        if is_held_out(content_hash):
            held_out.append(document)
        else:
            training.append(document.text)
    corpus = _make_corpus(name, training, held_out)
    return replace(corpus, left_out=len(all_documents) - len(by_hash))


def split_single(name: str, text: bytes, piece: int) -> Corpus:
    """Cut one text; its end is held out in pieces of `piece` bytes."""
    cut = len(text) - int(len(text) * HELD_OUT_SHARE)
    documents: list[TextDocument] = []
    for start in range(cut, len(text) - piece + 1, piece):
        piece_name = f"piece {len(documents)}"
        documents.append(TextDocument(text[start : start + piece], name=piece_name))
    return _make_corpus(name, [text[:cut]], documents)


def find_kind(path: Path) -> str:
    """Return the kind of a file in a library: tests, character sets, code or prose.

    The kind of any other file is its suffix.
    """
    if any("test" in part for part in path.parts):
        return "tests"
    if "encodings" in path.parts:
        return "character sets"
    if path.suffix in PROSE or "pydoc_data" in path.parts:
        return "prose"
    if path.suffix == ".py":
        return "code"
    return path.suffix or "no suffix"


def find_folder_or_kind(path: Path) -> str:
    """Return the subfolder of a user's file; without one, the kind as in a library."""
    if len(path.parts) > 1:
        return path.parts[0]
    return find_kind(path)


def _make_corpus(
    name: str, training: Sequence[bytes], held_out: Sequence[TextDocument]
) -> Corpus:
    # The numbers of texts and bytes are hashed, too, so that the same bytes have
    # another hash if they are divided into other texts.
    content_hash = hashlib.sha256()
    for texts in (training, [document.text for document in held_out]):
        content_hash.update(len(texts).to_bytes(8, "big"))
        for text in texts:
            content_hash.update(len(text).to_bytes(8, "big") + text)
    return Corpus(name, tuple(training), tuple(held_out), content_hash.hexdigest())


def read_source_name(folder: Path) -> str:
    """Return the source that a folder of text names; empty if it names none."""
    file = folder / SOURCE
    try:
        content = read_regular(file, MOST_SOURCE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InputError(
            f"cannot read {file}, where the text is from: {error.strerror}"
        ) from None
    lines = content.decode(errors="replace").splitlines()
    return lines[0].strip() if lines else ""


def read_stamp(path: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of every file of a corpus."""
    stamps = []
    for file in _list_files(path):
        if file.exists():
            status = file.stat()
            # The time is the last change of the file's entry (ctime). The time of the
            # content (mtime) could be set back, as `cp -p` does.
            stamps.append((str(file), status.st_size, status.st_ctime_ns))
    return tuple(stamps)


def _list_files(path: Path | None) -> list[Path]:
    """Return the files of a corpus that are not hidden.

    InputError: they cannot be listed.
    """
    if path is None:
        files: list[Path] = []
        for folder, subfolders, names in os.walk(LIBRARY):
            # `os.walk` goes into the folders that are left in this list.
            subfolders[:] = [each for each in subfolders if each not in SKIPPED_FOLDERS]
            files += [Path(folder, name) for name in names if name.endswith(".py")]
        return sorted(files)

    try:
        if not path.is_dir():
            return [path]
        return [
            file
            for file in list_files_below(path)
            if file.is_file() and not _is_hidden(file.relative_to(path))
        ]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the corpus {path}: {error}") from None


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _read_texts(
    paths: Iterable[Path], root: Path, kind: Callable[[Path], str]
) -> list[TextDocument]:
    """Read the files that are text: not empty, no zero byte near the start.

    The name of a document is its path below `root`, from which `kind` makes its kind.
    """
    documents = []
    bytes_left = MOST_BYTES
    for path in paths:
        try:
            text = read_regular(path, bytes_left)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise InputError(
                    f"{path} is too large: {MOST_BYTES >> 20} MiB at most"
                ) from None
            raise InputError(f"cannot read {path}: {error.strerror}") from None

        bytes_left -= len(text)
        is_binary = b"\0" in text[:BINARY_PROBE]
        if text and not is_binary:
            name = path.relative_to(root)
            document = TextDocument(text, kind(name), name.as_posix())
            documents.append(document)
    return documents
