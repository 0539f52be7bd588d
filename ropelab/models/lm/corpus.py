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
TRAINING, EVALUATION = 0, 1
VOCABULARY = 256
# The 64 symbols of random stretches and records, ascending: those of base64.
ALPHABET = np.frombuffer(
    b"+/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", np.uint8
).astype(np.int64)
# Of the files, or of a single file's bytes.
HELD_OUT = 0.2
LIBRARY = Path(sysconfig.get_path("stdlib"))
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__"}
# Many Pythons come without their tests, two thirds of that text: fewer documents do.
STANDARD, FEWEST = "the standard library", 10
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
# One in so many is kept, by its hash, so the same ones in every document.
SAMPLED = 32
# Share of known shingles from which on a document is a near-duplicate.
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
class Document:
    text: bytes
    kind: str = SINGLE
    name: str = ""  # its path in the corpus

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.kind)


@dataclass(frozen=True)
class Corpus:
    """Documents for training and for evaluation, in an order that depends on content
    only.
    """

    name: str  # in messages
    training: tuple[bytes, ...]
    held_out: tuple[Document, ...]
    fingerprint: str  # sha256 over both halves
    left_out: int = 0  # copies and near-duplicates of other documents

    def say_left_out(self) -> None:
        """Say once how many documents of the user's are not used."""
        if self.left_out and self.name != STANDARD:
            documents = count_of(self.left_out, "document")
            say_once(f"{self.name}: {documents} left out as near-duplicates of others")

    @property
    def names(self) -> str:
        """The fingerprint of names and kinds, which tables show and `fingerprint`
        leaves out.
        """
        return digest({"names": [document.origin for document in self.held_out]})

    def windows(
        self, seed: int, step: int, window: int, rows: int
    ) -> Int[Tensor, "rows window"]:
        """Return the text of one training step: windows at equally likely places in
        documents.
        """
        random = np.random.default_rng((TRAINING, seed, step))
        long_enough = [text for text in self.training if len(text) >= window]
        places = np.cumsum([0, *(len(text) - window + 1 for text in long_enough)])
        draws = random.integers(places[-1], size=rows)
        documents = np.searchsorted(places, draws, side="right") - 1
        texts = [long_enough[document] for document in documents]
        return _cut(texts, draws - places[documents], window)

    def long_enough(self, length: int, documents: int) -> list[Document]:
        """Return the first held-out documents of that many bytes; InputError if too
        few.
        """
        found = [document for document in self.held_out if len(document.text) >= length]
        if len(found) < (
            enough := min(documents, FEWEST) if self.name == STANDARD else documents
        ):
            raise InputError(
                f"{self.name} has {len(found)} held-out documents of at least"
                f" {length} bytes, {enough} are needed; give more or longer text, or"
                " ask for fewer documents"
            )
        return found[:documents]

    def held_out_windows(
        self, length: int, documents: int
    ) -> Int[Tensor, "documents length"]:
        """Return a window of each of the documents that are long enough."""
        texts = [document.text for document in self.long_enough(length, documents)]
        # Not only heads of files (licences, imports).
        random = np.random.default_rng((EVALUATION, length))
        starts = [int(random.integers(len(text) - length + 1)) for text in texts]
        return _cut(texts, starts, length)

    def check(self, window: int, length: int, documents: int) -> None:
        """Raise InputError unless windows of training and of evaluation can be
        drawn.
        """
        if not any(len(text) >= window for text in self.training):
            raise InputError(
                f"{self.name} has no document of at least {window} bytes to learn from;"
                " give longer text or shorten the training length"
            )
        if (there := len(self.held_out_windows(length, documents))) < documents:
            say_once(
                f"{self.name} has {there} documents of {length} bytes, not {documents}"
            )


def _cut(texts: Sequence[bytes], starts: Iterable[int], length: int) -> Tensor:
    windows = zip(texts, starts, strict=True)
    cut = [np.frombuffer(text, np.uint8, length, start) for text, start in windows]
    return torch.from_numpy(np.stack(cut).astype(np.int64))


@dataclass(frozen=True)
class CorpusRef:
    """A corpus whose tokens are bytes, by its path and content: another process reads
    it once.
    """

    path: str  # a text file or a folder, empty for the standard library of this Python
    piece: int  # bytes into which the held-out end of a single file is cut
    fingerprint: str  # of its content; a corpus that changed since is refused
    names: str  # as in `Corpus`: none are kept that have changed
    front: ClassVar[list[int]] = []
    symbols: ClassVar[Tensor] = torch.from_numpy(ALPHABET)

    @classmethod
    def of(cls, path: str, piece: int) -> Self:
        """Describe a corpus on disk. InputError if there is none."""
        found = read_corpus(Path(path) if path else None, piece)
        found.say_left_out()
        return cls(path, piece, found.fingerprint, found.names)

    def corpus(self) -> Corpus:
        """Return the text, read once per process. MachineError if it changed since."""
        return _provided.get(self) or _read_once(self)

    # The two methods of an input of a cell: a process on another machine need not have
    # the files.
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
        found = _held_out(self, length, count)
        return found, torch.ones(len(found), dtype=torch.float64)

    def origins(self, length: int, count: int) -> tuple[Origin, ...]:
        return tuple(each.origin for each in self.corpus().long_enough(length, count))

    def stretch(self, number: int, length: int) -> list[int]:
        """Return a window of a held-out document. InputError if none is that long."""
        corpus = self.corpus()
        there = sum(len(document.text) >= length for document in corpus.held_out)
        if not there:
            raise InputError(
                f"{corpus.name} has no text of {length} bytes; give a longer --corpus"
            )
        found: list[int] = _held_out(self, length, there)[number % there].tolist()
        return found

    def windows(self, seed: int, length: int, rows: int) -> Tensor:
        """Return windows of the text that is learned from, at places drawn by the
        seed.
        """
        return self.corpus().windows(seed, 0, length, rows)


# The last text that was sent to this process.
_provided: dict[CorpusRef, Corpus] = {}


@lru_cache(maxsize=2)
def _read_once(place: CorpusRef) -> Corpus:
    corpus = read_corpus(Path(place.path) if place.path else None, place.piece)
    if corpus.fingerprint != place.fingerprint:
        raise MachineError(
            f"{corpus.name} changed while the run was going on; start it again"
        )
    return corpus


@lru_cache(maxsize=8)
def _held_out(place: CorpusRef, length: int, count: int) -> Tensor:
    return place.corpus().held_out_windows(length, count)


def read_corpus(path: Path | None, piece: int) -> Corpus:
    """Read a corpus; documents of a single file have `piece` bytes. Errors:
    `read_documents`.
    """
    single = path is not None and not path.is_dir()
    # Many runs ask for the same one: it is read again only when its files have changed.
    return _read_unchanged(path, piece if single else 0, stamp_of(path))


@lru_cache(maxsize=1)
def _read_unchanged(path: Path | None, piece: int, stamp: object) -> Corpus:
    name, documents = read_documents(path)
    if piece:
        return from_single(name, documents[0].text, piece)
    return from_documents(name, documents)


def read_documents(path: Path | None) -> tuple[str, list[Document]]:
    """Return a corpus's name and documents: of a file, a folder or Python's standard
    library.

    InputError: nothing there, nothing readable, or no text in it.
    """
    files = _files(path)
    if path is None:
        return STANDARD, _documents(files, LIBRARY, kind_of)
    for file in files:
        check_name(file)
    if not os.path.lexists(path):
        raise InputError(
            f"no corpus at {path}; give a text file or a folder of text files"
        )
    # Names are paths below the deepest folder that holds all of these files.
    root = (
        Path(os.path.commonpath([file.parent for file in files])) if files else Path()
    )
    documents = _documents(files, root, folder_or_kind)
    if not documents:
        raise InputError(
            f"{path} holds no text: its files are empty or binary; give text files"
        )
    return f"the corpus {path}", documents


def distinct(
    documents: Iterable[Document], rank: Callable[[bytes], Any] | None = None
) -> dict[bytes, Document]:
    """Return documents by the hash of their content, sorted by it, without
    near-duplicates.
    """
    by_hash = {
        hashlib.sha256(document.text).digest(): document for document in documents
    }
    ordered = sorted(by_hash, key=rank)
    new = without_near_duplicates([by_hash[digest].text for digest in ordered])
    return {digest: by_hash[digest] for digest in compress(ordered, new)}


def from_documents(name: str, documents: Iterable[Document]) -> Corpus:
    """Divide whole documents by the hash of their content, dropping near-duplicates."""
    border = int(HELD_OUT * 2**64).to_bytes(8, "big")
    # Training first: of near-duplicates in both halves the one in the training half is
    # kept.
    every = list(documents)
    kept = distinct(every, lambda digest: (digest[:8] < border, digest))
    training = [
        document.text for digest, document in kept.items() if digest[:8] >= border
    ]
    held_out = [each for digest, each in kept.items() if digest[:8] < border]
    corpus = _corpus(name, training, held_out)
    return replace(corpus, left_out=len(every) - len(kept))


def from_single(name: str, text: bytes, piece: int) -> Corpus:
    """Cut one text; its end is held out in pieces of `piece` bytes."""
    cut = len(text) - int(len(text) * HELD_OUT)
    pieces = [text[at : at + piece] for at in range(cut, len(text) - piece + 1, piece)]
    documents = [
        Document(each, name=f"piece {number}") for number, each in enumerate(pieces)
    ]
    return _corpus(name, [text[:cut]], documents)


def kind_of(path: Path) -> str:
    """Return the kind of a file in a library: tests, character sets, code, prose,
    ...
    """
    if any("test" in part for part in path.parts):
        return "tests"
    if "encodings" in path.parts:
        return "character sets"
    if path.suffix in PROSE or "pydoc_data" in path.parts:
        return "prose"
    return "code" if path.suffix == ".py" else path.suffix or "no suffix"


def folder_or_kind(path: Path) -> str:
    """Return the subfolder of one of the user's files, without one the kind as in a
    library.
    """
    return path.parts[0] if len(path.parts) > 1 else kind_of(path)


def _corpus(
    name: str, training: Sequence[bytes], held_out: Sequence[Document]
) -> Corpus:
    digest = hashlib.sha256()
    for half in (training, [document.text for document in held_out]):
        digest.update(len(half).to_bytes(8, "big"))
        for text in half:
            digest.update(len(text).to_bytes(8, "big") + text)
    return Corpus(name, tuple(training), tuple(held_out), digest.hexdigest())


def source_of(place: Path) -> str:
    """Return the source that a folder of text names; empty if it names none or is a
    file.
    """
    file = place / SOURCE
    try:
        lines = read_regular(file, LONGEST_SOURCE).decode(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InputError(
            f"cannot read {file}, where the text is from: {error.strerror}"
        ) from None
    return lines[0].strip() if lines else ""


def stamp_of(path: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of every file; that of content `cp -p` sets
    back.
    """
    stats = ((str(file), file.stat()) for file in _files(path) if file.exists())
    return tuple((name, found.st_size, found.st_ctime_ns) for name, found in stats)


def _files(path: Path | None) -> list[Path]:
    """Return the files of a corpus, hidden ones left out; InputError if they cannot be
    listed.
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
        named = ((p, f"/{p.relative_to(path).as_posix()}") for p in files_below(path))
        return [p for p, name in named if p.is_file() and "/." not in name]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the corpus {path}: {error}") from None


def _documents(
    paths: Iterable[Path], root: Path, kind: Callable[[Path], str]
) -> list[Document]:
    """Read the files that are text: not empty, no zero byte near the start."""
    documents, left = [], LARGEST
    for path in paths:
        try:
            text = read_regular(path, left)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise InputError(
                    f"{path} is too large: {LARGEST >> 20} MiB at most"
                ) from None
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        left -= len(text)
        if text and b"\0" not in text[:BINARY_PROBE]:
            inside = path.relative_to(root)
            documents.append(Document(text, kind(inside), inside.as_posix()))
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
        hashes = (hashes ^ words[number * WORD : number * WORD + count]) * multiplier
        hashes ^= hashes >> np.uint64(32)
    # A product's highest bits depend on all bits of its factors, its lowest on their
    # lowest alone.
    hashes *= MULTIPLIERS[0]
    return set(hashes[hashes < 2**64 // SAMPLED].tolist())


def without_near_duplicates(texts: Sequence[bytes]) -> list[bool]:
    """Return for every text in order whether it is kept, given those kept before it."""
    seen: set[int] = set()
    new = []
    for text in texts:
        shingles = sampled_shingles(text)
        new.append(len(shingles & seen) <= MOST_KNOWN * len(shingles))
        if new[-1]:
            seen |= shingles
    return new
