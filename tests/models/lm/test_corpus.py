"""Text: no document in both halves, the same windows every time, clear refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ropelab.models.lm.corpus import (
    STANDARD_LIBRARY,
    Corpus,
    CorpusRef,
    TextDocument,
    find_kind,
    read_corpus,
    read_documents,
    split_documents,
    split_single,
)
from ropelab.runs.errors import InputError
from tests.texts import mentions


def documents(count: int, length: int = 200) -> list[TextDocument]:
    return [
        TextDocument(
            np.random.default_rng(n).integers(1, 256, length, np.uint8).tobytes(),
            f"kind {n}",
            f"{n}.txt",
        )
        for n in range(count)
    ]


def texts_of(corpus: Corpus) -> list[bytes]:
    return [*corpus.training, *(document.text for document in corpus.held_out)]


def test_no_document_is_in_both_halves() -> None:
    corpus = split_documents("test", documents(200) + documents(50))
    assert not set(corpus.training) & {each.text for each in corpus.held_out}
    assert len(corpus.training) + len(corpus.held_out) == 200
    assert 20 <= len(corpus.held_out) <= 60


def test_a_new_document_moves_no_other() -> None:
    before, after = (split_documents("test", documents(n)) for n in (100, 101))
    assert set(before.held_out) <= set(after.held_out)
    assert before.fingerprint != after.fingerprint


def test_order_of_files_does_not_matter() -> None:
    there, back = documents(30), documents(30)[::-1]
    assert split_documents("test", there) == split_documents("test", back)


def test_origins_belong_to_the_held_out_documents() -> None:
    by_text = {document.text: document.origin for document in documents(60)}
    corpus = split_documents("test", documents(60) + documents(3, length=50))
    assert all(
        by_text.get(each.text, each.origin) == each.origin for each in corpus.held_out
    )
    origins = [each.origin for each in corpus.list_long_documents(100, 5)]
    windows = corpus.held_out_windows(100, 5)
    for origin, window in zip(origins, windows, strict=True):
        (whole,) = (text for text in by_text if by_text[text] == origin)
        assert bytes(window.tolist()) in whole


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("encodings/cp1254.py", "character sets"),
        ("test/test_os.py", "tests"),
        ("idlelib/idle_test/mock_tk.py", "tests"),
        ("pydoc_data/topics.py", "prose"),
        ("guide/intro.md", "prose"),
        ("asyncio/events.py", "code"),
        ("kernel/sched.c", ".c"),
        ("LICENSE", "no suffix"),
    ],
)
def test_kinds_follow_from_the_path(path: str, kind: str) -> None:
    assert find_kind(Path(path)) == kind


def test_in_a_folder_of_ones_own_the_first_subfolder_is_the_kind(
    tmp_path: Path,
) -> None:
    for name in (
        "manual-1.2/ref/a/one.txt",
        "manual-1.2/howto/two.txt",
        "manual-1.2/three.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"what stands in {name}")
    _, found = read_documents(tmp_path)
    assert {document.origin for document in found} == {
        ("ref/a/one.txt", "ref"),
        ("howto/two.txt", "howto"),
        ("three.md", "prose"),
    }


def test_of_near_duplicates_one_is_kept_and_never_both_halves() -> None:
    originals = documents(60, length=4000)
    copies = [TextDocument(d.text[:3900] + b"end", d.kind) for d in originals]
    corpus = split_documents("test", originals + copies)
    assert len(corpus.training) + len(corpus.held_out) == 60
    assert corpus.left_out == 60
    starts = [text[:3900] for text in texts_of(corpus)]
    assert len(set(starts)) == 60


def test_a_single_text_is_cut_once() -> None:
    text = bytes(range(1, 101)) * 10
    corpus = split_single("test", text, piece=50)
    assert corpus.training == (text[:800],)
    assert b"".join(each.text for each in corpus.held_out) == text[800:]
    assert {len(piece.text) for piece in corpus.held_out} == {50}
    origins = [each.origin for each in corpus.held_out]
    assert origins == [(f"piece {number}", "text") for number in range(4)]


def test_windows_come_from_inside_documents() -> None:
    corpus = split_documents("test", documents(40))
    rows = corpus.windows(seed=0, step=1, window=30, rows=50)
    for row in rows:
        assert any(bytes(row.tolist()) in text for text in corpus.training)
    assert torch.equal(rows, corpus.windows(0, 1, 30, 50))
    assert not torch.equal(rows, corpus.windows(0, 2, 30, 50))


def test_every_window_of_a_document_is_reached() -> None:
    text = bytes(range(1, 13))
    corpus = split_single("test", text + b"xyz", piece=2)
    rows = corpus.windows(0, 0, window=10, rows=200)
    assert {bytes(row.tolist()) for row in rows} == {text[n : n + 10] for n in range(3)}


def test_held_out_windows_are_one_per_document() -> None:
    corpus = split_documents("test", documents(60))
    windows = corpus.held_out_windows(100, 5)
    for window, text in zip(
        windows, (each.text for each in corpus.held_out), strict=False
    ):
        assert bytes(window.tolist()) in text


def test_the_standard_library_is_large_enough_and_known() -> None:
    corpus = read_corpus(None, piece=8193)
    corpus.check(2049, 8193, 50)
    assert {"tests", "code"} <= {
        document.kind for document in corpus.list_long_documents(8193, 50)
    }
    assert any(b"class OrderedDict" in text for text in texts_of(corpus))
    assert corpus.fingerprint == read_corpus(None, piece=8193).fingerprint


def test_hidden_and_binary_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_text("hidden")
    (tmp_path / "image").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "text").write_text("plain text")
    corpus = read_corpus(tmp_path, piece=10)
    assert texts_of(corpus) == [b"plain text"]


def test_missing_empty_and_binary_corpora_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no corpus at .*give a text file or a folder"
    ):
        read_corpus(tmp_path / "nothing", piece=10)
    with pytest.raises(InputError, match="holds no text"):
        read_corpus(tmp_path, piece=10)
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="holds no text"):
        read_corpus(tmp_path / "empty", piece=10)
    (tmp_path / "binary").write_bytes(b"\0\1\2" * 100)
    with pytest.raises(InputError, match="holds no text"):
        read_corpus(tmp_path / "binary", piece=10)


def test_a_corpus_that_is_too_small_says_what_is_needed() -> None:
    corpus = split_single("my text", b"abcd" * 250, piece=101)
    with pytest.raises(
        InputError, match="1 held-out documents of at least 101 bytes, 2 are needed"
    ):
        corpus.check(50, 101, 2)
    with pytest.raises(
        InputError, match="no document of at least 2049 bytes to learn from"
    ):
        corpus.check(2049, 101, 1)


def test_of_the_library_of_a_python_without_tests_fewer_documents_are_read(
    capsys,
) -> None:
    texts = (TextDocument(b"%04d" % n * (30 if n < 12 else 10)) for n in range(30))
    library = Corpus(STANDARD_LIBRARY, (b"abcd" * 50,), tuple(texts), "")
    library.check(50, 100, 20)
    said = capsys.readouterr().err
    assert mentions(said, "12 documents", "100 bytes", "not 20")
    assert len(library.held_out_windows(100, 20)) == 12
    with pytest.raises(
        InputError, match="12 held-out documents of at least 100 bytes, 20 are"
    ):
        replace(library, name="my text").check(50, 100, 20)
    with pytest.raises(InputError, match=r"has 0 held-out documents .* 10 are needed"):
        replace(library, held_out=()).check(50, 100, 20)


def test_documents_that_are_left_out_are_said_once(tmp_path, capsys) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_bytes(b"the same text of two files " * 50)
    for _ in range(2):
        CorpusRef.of(str(tmp_path), 0).corpus().say_left_out()
    said = capsys.readouterr().err
    assert said.count("2 documents left out") == 1
