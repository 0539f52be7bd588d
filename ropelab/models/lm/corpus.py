"""Real text as bytes: the running Python's standard library, or your own files.

Documents are whole files; a hash of the content decides which half one belongs to, and of
near-duplicates only one is kept. A single file is cut: its beginning is for training, its end for
evaluation.
"""

import errno
import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ropelab.models.lm.batch import EVALUATION, TRAINING, Batch
from ropelab.runs.errors import InputError
from ropelab.runs.files import check_name, read_regular
from ropelab.runs.folders import files_below

VOCABULARY = 256
# Of the files, or of a single file's bytes.
HELD_OUT = 0.2
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__"}
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

# Documents are compared by their shingles, all runs of SHINGLE bytes (Broder 1997): most of a line
# of code, so that idioms and imports are no duplicates.
WORD = 8
SHINGLE = 4 * WORD
# One in so many is kept, by its hash, so the same ones in every document.
SAMPLED = 32
# Share of known shingles from which on a document is a near-duplicate.
MOST_KNOWN = 0.5
# Odd numbers with no pattern in their bits, one for each word of a shingle.
MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)


class Origin(NamedTuple):
    """Name and kind of a document."""

    name: str
    kind: str


@dataclass(frozen=True)
class Document:
    """A text; its name is its path in the corpus."""

    text: bytes
    kind: str = SINGLE
    name: str = ""

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.kind)


@dataclass(frozen=True)
class Corpus:
    """Documents for training and for evaluation, in an order that depends on content only."""

    name: str  # in messages
    training: tuple[bytes, ...]
    held_out: tuple[bytes, ...]
    origins: tuple[Origin, ...]  # of each held-out document
    fingerprint: str  # sha256 over both halves

    def windows(self, seed: int, step: int, window: int, rows: int) -> Batch:
        """Return the training batch of one step: windows at equally likely places in documents."""
        # A pure function of its arguments. Everything but the first byte is scored.
        random = np.random.default_rng((TRAINING, seed, step))
        long_enough = [text for text in self.training if len(text) >= window]
        places = np.cumsum([0, *(len(text) - window + 1 for text in long_enough)])
        draws = random.integers(places[-1], size=rows)
        documents = np.searchsorted(places, draws, side="right") - 1
        texts = [long_enough[document] for document in documents]
        scored = (torch.arange(window) > 0).expand(rows, window)
        return Batch(_cut(texts, draws - places[documents], window), scored)

    def held_out_windows(self, length: int, documents: int) -> Int[Tensor, "documents length"]:
        """Return a window of each of the first held-out documents; InputError if too few fit."""
        texts = [text for text in self.held_out if len(text) >= length]
        if len(texts) < documents:
            raise InputError(
                f"{self.name} has {len(texts)} held-out documents of at least {length} bytes, "
                f"{documents} are needed; give more or longer text, or ask for fewer documents"
            )
        # Not only heads of files (licences, imports).
        random = np.random.default_rng((EVALUATION, length))
        starts = [int(random.integers(len(text) - length + 1)) for text in texts[:documents]]
        return _cut(texts[:documents], starts, length)

    def held_out_origins(self, length: int, documents: int) -> tuple[Origin, ...]:
        """Return name and kind of each document of `held_out_windows`."""
        long_enough = zip(self.held_out, self.origins, strict=True)
        return tuple(origin for text, origin in long_enough if len(text) >= length)[:documents]

    def check(self, window: int, length: int, documents: int) -> None:
        """Raise InputError unless windows of training and of evaluation can be drawn."""
        if not any(len(text) >= window for text in self.training):
            raise InputError(
                f"{self.name} has no document of at least {window} bytes to learn from; "
                "give longer text or shorten the training length"
            )
        self.held_out_windows(length, documents)


def _cut(texts: Sequence[bytes], starts: Iterable[int], length: int) -> Tensor:
    windows = zip(texts, starts, strict=True)
    cut = [np.frombuffer(text, np.uint8, length, start) for text, start in windows]
    return torch.from_numpy(np.stack(cut).astype(np.int64))


def read_corpus(path: Path | None, piece: int) -> Corpus:
    """Read a corpus; documents of a single file have `piece` bytes. Errors: `read_documents`."""
    name, documents = read_documents(path)
    if path is None or path.is_dir():
        return from_documents(name, documents)
    return from_single(name, documents[0].text, piece)


def read_documents(path: Path | None) -> tuple[str, list[Document]]:
    """Return a corpus's name and documents: of a file, a folder or Python's standard library.

    InputError: nothing there, nothing readable, or no text in it.
    """
    if path is None:
        root = Path(sysconfig.get_path("stdlib"))
        return "the standard library", _documents(_library_files(root), root, kind_of)
    try:
        single = not path.is_dir()
        files = [path] if single else files_below(path)
        if not single:
            hidden = {p for p in files if "/." in f"/{p.relative_to(path).as_posix()}"}
            files = [p for p in files if p.is_file() and p not in hidden]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the corpus {path}: {error}") from None
    for file in files:
        check_name(file)
    if single and not os.path.lexists(path):
        raise InputError(f"no corpus at {path}; give a text file or a folder of text files")
    # Names are paths below the deepest folder that holds all of these files.
    root = Path(os.path.commonpath([file.parent for file in files])) if files else Path()
    documents = _documents(files, root, folder_or_kind)
    if not documents:
        raise InputError(f"{path} holds no text: its files are empty or binary; give text files")
    return f"the corpus {path}", documents


def from_documents(name: str, documents: Iterable[Document]) -> Corpus:
    """Divide whole documents by the hash of their content, dropping near-duplicates."""
    by_hash = {hashlib.sha256(document.text).digest(): document for document in documents}
    border = int(HELD_OUT * 2**64).to_bytes(8, "big")
    learned = [by_hash[digest] for digest in sorted(by_hash) if digest[:8] >= border]
    measured = [by_hash[digest] for digest in sorted(by_hash) if digest[:8] < border]
    # Training first: of near-duplicates in both halves the one in the training half is kept.
    new = without_near_duplicates([document.text for document in (*learned, *measured)])
    training = [d for d, keep in zip(learned, new, strict=False) if keep]
    held_out = [d for d, keep in zip(measured, new[len(learned) :], strict=True) if keep]
    return _corpus(name, [document.text for document in training], held_out)


def from_single(name: str, text: bytes, piece: int) -> Corpus:
    """Cut one text; its end is held out in pieces of `piece` bytes."""
    cut = len(text) - int(len(text) * HELD_OUT)
    pieces = [text[at : at + piece] for at in range(cut, len(text) - piece + 1, piece)]
    documents = [Document(each, name=f"piece {number}") for number, each in enumerate(pieces)]
    return _corpus(name, [text[:cut]], documents)


def kind_of(path: Path) -> str:
    """Return the kind of a file in a library: tests, character sets, code, prose, ..."""
    if any("test" in part for part in path.parts):
        return "tests"
    if "encodings" in path.parts:
        return "character sets"
    if path.suffix in PROSE or "pydoc_data" in path.parts:
        return "prose"
    return "code" if path.suffix == ".py" else path.suffix or "no suffix"


def folder_or_kind(path: Path) -> str:
    """Return the subfolder of one of the user's files, without one the kind as in a library."""
    return path.parts[0] if len(path.parts) > 1 else kind_of(path)


def _corpus(name: str, training: Sequence[bytes], held_out: Sequence[Document]) -> Corpus:
    measured = [document.text for document in held_out]
    digest = hashlib.sha256()
    for half in (training, measured):
        digest.update(len(half).to_bytes(8, "big"))
        for text in half:
            digest.update(len(text).to_bytes(8, "big") + text)
    origins = tuple(document.origin for document in held_out)
    return Corpus(name, tuple(training), tuple(measured), origins, digest.hexdigest())


def source_of(place: Path) -> str:
    """Return the source that a folder of text names; empty if it names none or is a file."""
    file = place / SOURCE
    try:
        lines = read_regular(file, LONGEST_SOURCE).decode(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise InputError(f"cannot read {file}, where the text is from: {error.strerror}") from None
    return lines[0].strip() if lines else ""


def stamp_of(path: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of every file."""
    if path is None:
        files = _library_files(Path(sysconfig.get_path("stdlib")))
    else:
        files = files_below(path) if path.is_dir() else [path]
    stats = ((str(file), file.stat()) for file in files if file.exists())
    return tuple((name, found.st_size, found.st_mtime_ns) for name, found in stats)


def _library_files(root: Path) -> list[Path]:
    files: list[Path] = []
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name not in SKIPPED_FOLDERS]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(files)


def _documents(paths: Iterable[Path], root: Path, kind: Callable[[Path], str]) -> list[Document]:
    """Read the files that are text: not empty, no zero byte near the start."""
    documents, left = [], LARGEST
    for path in paths:
        try:
            text = read_regular(path, left)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise InputError(f"{path} is too large: {LARGEST >> 20} MiB at most") from None
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
    # A product's highest bits depend on all bits of its factors, its lowest on their lowest alone.
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
