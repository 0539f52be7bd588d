"""Real text as bytes: the running Python's standard library, or your own files.

Documents are whole files; a hash of the content decides which half one belongs to, and
of near-duplicates only one is kept. A single file is cut: its beginning is for
training, its end for evaluation.
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

from ropelab.runs.errors import InputError, MachineError, say_once
from ropelab.runs.files import check_name, read_regular
from ropelab.runs.folders import digest, files_below
from ropelab.runs.sentences import count_of

# First word of every random seed: training data never come back as evaluation data.
TRAINING = 0
EVALUATION = 1
VOCABULARY = 256
# The 64 symbols of random stretches and records, ascending: those of base64.
ALPHABET = np.frombuffer(
    b"+/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", np.uint8
).astype(np.int64)
# Share of the files, or of a single file's bytes, that is for evaluation.
HELD_OUT = 0.2
LIBRARY = Path(sysconfig.get_path("stdlib"))
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__"}
STANDARD = "the standard library"
# Documents of the standard library that are enough: many Pythons come without their
# tests, two thirds of that text.
FEWEST = 10
# Text has no zero byte among its first.
BINARY_PROBE = 8192
# Bytes of all files together, which are held in memory.
LARGEST = 2**30
# The kind of the documents that a single file was cut into.
SINGLE = "text"
PROSE = {".md", ".rst", ".txt"}
# A hidden file in a folder of text: its first line names the source.
SOURCE = ".source"
LONGEST_SOURCE = 4096

# Documents are compared by their shingles, all runs of SHINGLE bytes (Broder 1997):
# most of a line of code, so that idioms and imports are no duplicates.
WORD = 8
SHINGLE = 4 * WORD
# One shingle in so many is kept. Its hash decides, so that every document keeps the same
# shingles.
SAMPLED = 32
# The share of known shingles from which on a document is a near-duplicate.
MOST_KNOWN = 0.5
# Odd numbers with no pattern in their bits, one for each word of a shingle.
MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93],
    np.uint64,
)


class Origin(NamedTuple):
    name: str
    kind: str


@dataclass(frozen=True)
class TextDocument:
    text: bytes
    kind: str = SINGLE
    # The path of the document in the corpus.
    name: str = ""

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.kind)


@dataclass(frozen=True)
class Corpus:
    """Documents for training and for evaluation; the content alone orders them."""

    # The name in messages.
    name: str
    training: tuple[bytes, ...]
    held_out: tuple[TextDocument, ...]
    # sha256 over both halves.
    fingerprint: str
    # Copies and near-duplicates of other documents.
    left_out: int = 0

    @property
    def names(self) -> str:
        """The fingerprint of names and kinds, which tables show.

        `fingerprint` leaves these out.
        """
        return digest({"names": [document.origin for document in self.held_out]})

    def say_left_out(self) -> None:
        """Say once how many documents of the user's are not used."""
        if self.left_out and self.name != STANDARD:
            documents = count_of(self.left_out, "document")
            say_once(f"{self.name}: {documents} left out as near-duplicates of others")

    def windows(
        self, seed: int, step: int, window: int, rows: int
    ) -> Int[Tensor, "rows window"]:
        """Return the text of one training step.

        All places in documents that hold a window are equally likely.
        """
        random = np.random.default_rng((TRAINING, seed, step))
        long_enough = [text for text in self.training if len(text) >= window]
        places_in_each = [len(text) - window + 1 for text in long_enough]
        first_places = np.cumsum([0, *places_in_each])

        draws = random.integers(first_places[-1], size=rows)
        documents = np.searchsorted(first_places, draws, side="right") - 1
        texts = [long_enough[document] for document in documents]
        return _cut(texts, draws - first_places[documents], window)

    def long_enough(self, length: int, documents: int) -> list[TextDocument]:
        """Return the first held-out documents of at least that many bytes.

        InputError: there are too few.
        """
        candidates = [each for each in self.held_out if len(each.text) >= length]
        needed = documents
        if self.name == STANDARD:
            needed = min(documents, FEWEST)
        if len(candidates) < needed:
            left_out = ""
            if self.left_out:
                left_out = f" ({self.left_out} left out as near-duplicates of others)"
            raise InputError(
                f"{self.name} has {len(candidates)} held-out documents of at least"
                f" {length} bytes{left_out}, {needed} are needed; give more or longer"
                " text, or ask for fewer documents"
            )
        return candidates[:documents]

    def held_out_windows(
        self, length: int, documents: int
    ) -> Int[Tensor, "documents length"]:
        """Return a window of each of the documents that are long enough."""
        texts = [document.text for document in self.long_enough(length, documents)]
        # The windows are at random places, so that they are not only heads of files
        # (licences, imports).
        random = np.random.default_rng((EVALUATION, length))
        starts = [int(random.integers(len(text) - length + 1)) for text in texts]
        return _cut(texts, starts, length)

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


def _cut(texts: Sequence[bytes], starts: Iterable[int], length: int) -> Tensor:
    windows = []
    for text, start in zip(texts, starts, strict=True):
        windows.append(np.frombuffer(text, np.uint8, length, start))
    return torch.from_numpy(np.stack(windows).astype(np.int64))


@dataclass(frozen=True)
class CorpusRef:
    """A corpus whose tokens are bytes, described so that another process can read it."""

    # A text file or a folder; empty for the standard library of this Python.
    path: str
    # Bytes into which the held-out end of a single file is cut.
    piece: int
    # The hash of its content; a corpus that changed since is refused.
    fingerprint: str
    # The fingerprint of names in `Corpus`: results with others are not reused.
    names: str
    front: ClassVar[list[int]] = []
    symbols: ClassVar[Tensor] = torch.from_numpy(ALPHABET)

    @classmethod
    def of(cls, path: str, piece: int) -> Self:
        """Describe a corpus on disk. InputError if there is none."""
        corpus = read_corpus(Path(path) if path else None, piece)
        return cls(path, piece, corpus.fingerprint, corpus.names)

    def corpus(self) -> Corpus:
        """Return the text, read once per process. MachineError if it changed since."""
        if self in _provided:
            return _provided[self]
        return _read_once(self)

    # `content` and `provide` make this an input of a cell: a process on another machine
    # need not have the files.
    content = corpus

    def provide(self, content: Corpus) -> None:
        _provided.clear()
        _provided[self] = content

    @property
    def key(self) -> dict[str, Any]:
        return {"corpus": self.fingerprint, "tokenizer": False}

    stretch_key = key

    def symbols_key(self, task: str, reads_text: bool) -> dict[str, Any]:
        # 0 stood for bytes when there were vocabularies of other sizes: it names stored
        # cells.
        return {
            "name": task,
            "corpus": self.fingerprint if reads_text else "",
            "vocabulary": 0,
        }

    def ids(self, text: str) -> list[int]:
        return list(text.encode())

    def documents(self, length: int, count: int) -> tuple[Tensor, Tensor]:
        """Return held-out windows of `length` bytes; a token has one byte."""
        windows = _held_out_windows(self, length, count)
        return windows, torch.ones(len(windows), dtype=torch.float64)

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        documents = self.corpus().long_enough(length, count)
        return tuple(document.origin for document in documents)

    def stretch(self, number: int, length: int) -> list[int]:
        """Return a window of a held-out document. InputError if none is that long."""
        corpus = self.corpus()
        sizes = [len(document.text) for document in corpus.held_out]
        count = len([size for size in sizes if size >= length])
        if not count:
            raise InputError(
                f"{corpus.name} has no text of {length} bytes; give a longer --corpus"
            )
        windows = _held_out_windows(self, length, count)
        stretch: list[int] = windows[number % count].tolist()
        return stretch

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Return windows of the training text, at places drawn by the seed."""
        return self.corpus().windows(seed, 0, length, rows)


# The last text that was sent to this process.
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
    """Read a corpus; documents of a single file have `piece` bytes.

    Errors are those of `read_documents`.
    """
    if path is None or path.is_dir():
        piece = 0
    # Many runs ask for the same one: it is read again only when its files have changed.
    return _read_unchanged(path, piece, stamp_of(path))


@lru_cache(maxsize=1)
def _read_unchanged(path: Path | None, piece: int, stamp: object) -> Corpus:
    name, documents = read_documents(path)
    if piece:
        return from_single(name, documents[0].text, piece)
    return from_documents(name, documents)


def read_documents(path: Path | None) -> tuple[str, list[TextDocument]]:
    """Return the name and the documents of a file or folder.

    None is Python's standard library. InputError: nothing there, nothing readable, or
    no text in it.
    """
    files = _list_files(path)
    if path is None:
        return STANDARD, _read_texts(files, LIBRARY, kind_of)
    for file in files:
        check_name(file)
    if not os.path.lexists(path):
        raise InputError(
            f"no corpus at {path}; give a text file or a folder of text files"
        )
    # Names are paths below the deepest folder that holds all of these files.
    root = Path()
    if files:
        root = Path(os.path.commonpath([file.parent for file in files]))
    documents = _read_texts(files, root, folder_or_kind)
    if not documents:
        raise InputError(
            f"{path} holds no text: its files are empty or binary; give text files"
        )
    return f"the corpus {path}", documents


def distinct(
    documents: Iterable[TextDocument], rank: Callable[[bytes], Any] | None = None
) -> dict[bytes, TextDocument]:
    """Return documents by the hash of their content, without near-duplicates.

    They are sorted by the hash, or by its `rank`.
    """
    by_hash = {}
    for document in documents:
        by_hash[hashlib.sha256(document.text).digest()] = document

    hashes = sorted(by_hash, key=rank)
    is_kept = without_near_duplicates([by_hash[each].text for each in hashes])
    return {each: by_hash[each] for each in compress(hashes, is_kept)}


def from_documents(name: str, documents: Iterable[TextDocument]) -> Corpus:
    """Divide whole documents by the hash of their content, dropping near-duplicates."""
    border = int(HELD_OUT * 2**64).to_bytes(8, "big")

    def is_held_out(content_hash: bytes) -> bool:
        return content_hash[:8] < border

    # Training comes first: of near-duplicates in both halves the one in the training
    # half is kept.
    all_documents = list(documents)
    by_hash = distinct(all_documents, lambda each: (is_held_out(each), each))
    training = []
    held_out = []
    for content_hash, document in by_hash.items():
        if is_held_out(content_hash):
            held_out.append(document)
        else:
            training.append(document.text)
    corpus = _make_corpus(name, training, held_out)
    return replace(corpus, left_out=len(all_documents) - len(by_hash))


def from_single(name: str, text: bytes, piece: int) -> Corpus:
    """Cut one text; its end is held out in pieces of `piece` bytes."""
    cut = len(text) - int(len(text) * HELD_OUT)
    documents: list[TextDocument] = []
    for start in range(cut, len(text) - piece + 1, piece):
        piece_name = f"piece {len(documents)}"
        documents.append(TextDocument(text[start : start + piece], name=piece_name))
    return _make_corpus(name, [text[:cut]], documents)


def kind_of(path: Path) -> str:
    """Return the kind of a file in a library: tests, character sets, code or prose.

    Of other files it is the suffix.
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


def folder_or_kind(path: Path) -> str:
    """Return the subfolder of a user's file; without one, the kind as in a library."""
    if len(path.parts) > 1:
        return path.parts[0]
    return kind_of(path)


def _make_corpus(
    name: str, training: Sequence[bytes], held_out: Sequence[TextDocument]
) -> Corpus:
    digest = hashlib.sha256()
    for half in (training, [document.text for document in held_out]):
        digest.update(len(half).to_bytes(8, "big"))
        for text in half:
            digest.update(len(text).to_bytes(8, "big") + text)
    return Corpus(name, tuple(training), tuple(held_out), digest.hexdigest())


def source_of(place: Path) -> str:
    """Return the source that a folder of text names; empty if it names none."""
    file = place / SOURCE
    try:
        content = read_regular(file, LONGEST_SOURCE)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InputError(
            f"cannot read {file}, where the text is from: {error.strerror}"
        ) from None
    lines = content.decode(errors="replace").splitlines()
    return lines[0].strip() if lines else ""


def stamp_of(path: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of every file.

    The time is not that of the content, which `cp -p` sets back.
    """
    stamps = []
    for file in _list_files(path):
        if file.exists():
            status = file.stat()
            stamps.append((str(file), status.st_size, status.st_ctime_ns))
    return tuple(stamps)


def _list_files(path: Path | None) -> list[Path]:
    """Return the files of a corpus that are not hidden.

    InputError: they cannot be listed.
    """
    if path is None:
        files: list[Path] = []
        for folder, inside, names in os.walk(LIBRARY):
            inside[:] = [name for name in inside if name not in SKIPPED_FOLDERS]
            files += [Path(folder, name) for name in names if name.endswith(".py")]
        return sorted(files)
    try:
        if not path.is_dir():
            return [path]
        return [
            file
            for file in files_below(path)
            if file.is_file() and not _is_hidden(file.relative_to(path))
        ]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the corpus {path}: {error}") from None


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _read_texts(
    paths: Iterable[Path], root: Path, kind: Callable[[Path], str]
) -> list[TextDocument]:
    """Read the files that are text: not empty, no zero byte near the start."""
    documents = []
    bytes_left = LARGEST
    for path in paths:
        try:
            text = read_regular(path, bytes_left)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise InputError(
                    f"{path} is too large: {LARGEST >> 20} MiB at most"
                ) from None
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        bytes_left -= len(text)
        if text and b"\0" not in text[:BINARY_PROBE]:
            inside = path.relative_to(root)
            document = TextDocument(text, kind(inside), inside.as_posix())
            documents.append(document)
    return documents


def sampled_shingles(text: bytes) -> set[int]:
    """Return hashes of a sample of the shingles of a text."""
    count = len(text) - SHINGLE + 1
    if count < 1:
        return set()

    words = np.empty(len(text) - WORD + 1, np.uint64)
    for offset in range(WORD):
        whole = (len(text) - offset) // WORD
        words[offset::WORD] = np.frombuffer(text, "<u8", whole, offset)

    hashes = np.zeros(count, np.uint64)
    for number, multiplier in enumerate(MULTIPLIERS):
        start = number * WORD
        hashes = (hashes ^ words[start : start + count]) * multiplier
        hashes ^= hashes >> np.uint64(32)
    # A product's highest bits depend on all bits of its factors, its lowest on their
    # lowest alone.
    hashes *= MULTIPLIERS[0]
    return set(hashes[hashes < 2**64 // SAMPLED].tolist())


def without_near_duplicates(texts: Sequence[bytes]) -> list[bool]:
    """Return for every text in order whether it is kept, given those kept before it."""
    known: set[int] = set()
    is_kept = []
    for text in texts:
        shingles = sampled_shingles(text)
        is_new = len(shingles & known) <= MOST_KNOWN * len(shingles)
        if is_new:
            known |= shingles
        is_kept.append(is_new)
    return is_kept
