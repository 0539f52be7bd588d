"""A corpus in a model's tokens: all of it, begun as asked, cut where asked, known by
its key.
"""

import hashlib
import json
import os
from dataclasses import fields, replace
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers
from torch import Tensor

from ropelab.models.tasks.grid import RetrievalPlace
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.tokens import TokenText
from ropelab.runs.errors import InputError, MachineError
from tests.models.released.tiny import reader_of_bytes, saved, write_byte_tokenizer

BOS = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A model whose tokens are bytes and whose tokenizer begins texts."""
    return reader_of_bytes(tmp_path_factory.mktemp("model"), bos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten documents of different letters and lengths."""
    folder = tmp_path_factory.mktemp("documents")
    for number in range(10):
        text = "".join(f"{chr(97 + number)}{i} " for i in range(20 * (number + 1)))
        (folder / f"{number}.md").write_text(text)
    return folder


def spelled(text: TokenText, row: Tensor) -> str:
    return str(text.tokenizer.decode(row[row != BOS].tolist()))


def test_every_document_of_a_folder_is_used_from_its_beginning(folder, model):
    text = TokenText.of(str(folder), model)
    tokens, bytes_per_token = text.documents(60, 10)
    written = [path.read_text() for path in folder.iterdir()]
    assert tokens.shape == (10, 60)
    assert (tokens[:, 0] == BOS).all()
    assert {spelled(text, row) for row in tokens} == {each[:59] for each in written}
    assert bytes_per_token.tolist() == [1.0] * 10
    assert {origin.kind for origin in text.origins(60, 10)} == {"prose"}
    assert {origin.name for origin in text.origins(60, 10)} == {
        path.name for path in folder.iterdir()
    }


def test_documents_come_in_an_order_that_follows_from_their_content(
    folder, model, tmp_path
):
    text = TokenText.of(str(folder), model)
    contents = sorted((path.read_bytes() for path in folder.iterdir()), key=sha256)
    first = [spelled(text, row) for row in text.documents(40, 3)[0]]
    assert first == [content[:39].decode() for content in contents[:3]]
    for number, content in enumerate(contents):
        (tmp_path / f"renamed{number}.md").write_bytes(content)
    assert TokenText.of(str(tmp_path), model).fingerprint == text.fingerprint


def test_a_few_documents_are_of_several_kinds(tmp_path, model):
    """The kind with most text first, then one of each kind in turn, as long as it has
    any.
    """
    for kind, documents in {"a": 2, "b": 5, "c": 1}.items():
        (tmp_path / kind).mkdir()
        for number in range(documents):
            words = "".join(f"{kind}{number}{i} " for i in range(30))
            (tmp_path / kind / f"{number}.md").write_text(words)
    (tmp_path / "c" / "short.md").write_text("too short")
    text = TokenText.of(str(tmp_path), model)
    drawn = [origin.kind for origin in text.origins(60, 8)]
    assert drawn == ["b", "a", "c", "b", "a", "b", "b", "b"]
    assert [origin.kind for origin in text.origins(60, 2)] == ["b", "a"]
    # The same text under other names comes in another order: it is not the same corpus.
    (tmp_path / "c").rename(tmp_path / "z")
    (tmp_path / "a" / "0.md").rename(tmp_path / "b" / "9.md")
    moved = TokenText.of(str(tmp_path), model)
    assert not text.documents(60, 8)[0].equal(moved.documents(60, 8)[0])
    assert text.fingerprint != moved.fingerprint
    assert len({spelled(text, row) for row in text.documents(60, 8)[0]}) == 8


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def test_a_single_file_is_cut_into_pieces_of_tokens_from_its_beginning(tmp_path, model):
    file = tmp_path / "one.txt"
    file.write_text("".join(f"{i} " for i in range(500)))
    text = TokenText.of(str(file), model, bos="no")
    rows = text.documents(100, 10)[0]
    assert "".join(spelled(text, row) for row in rows) == file.read_text()[:1000]
    with_bos = TokenText.of(str(file), model).documents(100, 10)[0]
    assert "".join(spelled(text, row) for row in with_bos) == file.read_text()[:990]


def test_packed_documents_follow_one_another(folder, model):
    text = TokenText.of(str(folder), model, bos="no", packed=True)
    contents = sorted((path.read_bytes() for path in folder.iterdir()), key=sha256)
    whole = b"".join(contents).decode()
    quarter = len(whole) // 4
    rows = text.documents(quarter, 4)[0]
    assert "".join(spelled(text, row) for row in rows) == whole[: quarter * 4]
    assert text.origins(quarter, 4) == tuple((f"piece {n}", "packed") for n in range(4))
    assert text.stretch(1, 50) == text.ids(whole)[50:100]
    assert text.stretch(len(whole) // 50, 50) == text.stretch(0, 50)


def test_text_of_several_bytes_a_token_is_scored_by_the_byte(tmp_path, model):
    (tmp_path / "greek.txt").write_text("αβγδ" * 50)
    plain = TokenText.of(str(tmp_path / "greek.txt"), model, bos="no").documents(80, 2)[
        1
    ]
    assert plain.tolist() == pytest.approx([1.0, 1.0], abs=0.05)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (normalizers.Lowercase(), True),
        (normalizers.Replace(" ", ""), False),
        (normalizers.Replace("word", "<unknown>"), False),
    ],
)
def test_a_tokenizer_that_does_not_give_the_text_back_is_refused(
    tmp_path, change, kept
):
    """Bytes are those of the decoded tokens, which would be of another text."""
    folder = saved(tmp_path / "model", "llama", vocab_size=256)
    write_byte_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = change
    tokenizer.save(str(folder / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("A word and a Word " * 100)
    text = TokenText.of(str(tmp_path / "text.txt"), str(folder))
    if kept:
        assert text.documents(60, 2)[1].tolist() == [1.0, 1.0]
        return
    with pytest.raises(InputError, match="does not give the text back: 1800 bytes"):
        text.documents(60, 2)


def test_a_long_text_is_not_read_to_its_end(tmp_path, model, monkeypatch):
    (tmp_path / "long.txt").write_text("long text " * 10**5)
    read: list[int] = []
    whole = TokenText.ids

    def noted(self: TokenText, text: str) -> list[int]:
        read.append(len(text))
        return whole(self, text)

    monkeypatch.setattr(TokenText, "ids", noted)
    text = TokenText.of(str(tmp_path / "long.txt"), model)
    text.documents(20, 2)
    text.stretch(0, 20)
    assert 0 < max(read) < 1000


@pytest.mark.parametrize("packed", [False, True])
def test_a_piece_is_the_same_among_more_of_them(tmp_path, model, monkeypatch, packed):
    # A document is a cell of its own, whatever the number of documents of the run.
    # Tokens of long runs of spaces have 32 bytes and more.
    monkeypatch.setattr(
        TokenText, "ids", lambda self, text: [ord(one) for one in text[::32]]
    )
    for number in range(4):
        words = "".join(f"{number} {i} ".ljust(32) for i in range(300))
        (tmp_path / f"{number}.md").write_text(words)
    text = TokenText.of(str(tmp_path), model, bos="no", packed=packed)
    one, more = text.documents(100, 1)[0], text.documents(100, 4)[0]
    assert one.equal(more[:1])


def test_too_little_text_is_refused_with_what_would_help(folder, model):
    with pytest.raises(
        InputError, match=r"has 1 documents of 850 tokens, 2 are needed.*--packed"
    ):
        TokenText.of(str(folder), model).documents(850, 2)
    with pytest.raises(InputError, match="fewer than 100000 tokens"):
        TokenText.of(str(folder), model).stretch(0, 100_000)


def test_a_beginning_that_the_tokenizer_does_not_have_is_refused(folder, tmp_path):
    write_byte_tokenizer(saved(tmp_path, "llama", vocab_size=256))
    text = TokenText.of(str(folder), str(tmp_path))
    assert text.front == []
    with pytest.raises(InputError, match="no token that begins a text"):
        replace(text, bos="yes").documents(10, 1)


def test_a_tokenizer_of_another_model_is_refused(folder, tmp_path):
    write_byte_tokenizer(saved(tmp_path, "llama", vocab_size=97))
    with pytest.raises(
        InputError, match=r"makes token \d+, and the model knows 97 tokens"
    ):
        TokenText.of(str(folder), str(tmp_path)).documents(10, 1)
    task = Retrieval(
        name="copy",
        places=(RetrievalPlace(32, 64),),
        sequences=1,
        corpus=TokenText.of(str(folder), str(tmp_path)),
    )
    with pytest.raises(
        InputError, match=r"makes token \d+, and the model knows 97 tokens"
    ):
        task.check()


def test_every_field_but_its_place_and_the_model_is_in_the_key(folder, model):
    text = TokenText.of(str(folder), model)
    others: dict[str, Any] = {"fingerprint": "another", "bos": "no", "packed": True}
    assert set(others) | {"path", "model", "files"} == {
        field.name for field in fields(TokenText)
    }
    for name, value in others.items():
        assert replace(text, **{name: value}).key != text.key
        assert replace(text, **{name: value}).stretch_key != text.stretch_key


def test_text_that_changed_since_is_not_taken_for_what_it_was(folder, model):
    with pytest.raises(MachineError, match="changed while the run was going on"):
        replace(TokenText.of(str(folder), model), fingerprint="another").documents(
            10, 1
        )


def test_a_folder_that_changed_is_read_again(tmp_path, model):
    (tmp_path / "a.md").write_text("one text")
    before = TokenText.of(str(tmp_path), model)
    (tmp_path / "a.md").write_text("another text")
    after = TokenText.of(str(tmp_path), model)
    assert after.fingerprint != before.fingerprint
    assert "another" in spelled(after, after.documents(10, 1)[0][0])


def test_a_folder_whose_files_keep_their_size_and_time_is_read_again(tmp_path, model):
    (tmp_path / "a.txt").write_text("abcdefgh" * 50)
    stamp = (tmp_path / "a.txt").stat()
    before = TokenText.of(str(tmp_path), model).fingerprint
    (tmp_path / "a.txt").write_text("hgfedcba" * 50)
    os.utime(tmp_path / "a.txt", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert TokenText.of(str(tmp_path), model).fingerprint != before


def test_a_tokenizer_that_was_replaced_makes_other_tokens(tmp_path, folder):
    place = reader_of_bytes(tmp_path)
    before = TokenText.of(folder, place)
    rows, symbols = before.documents(40, 2)[0], before.symbols
    file = tmp_path / "tokenizer.json"
    written = json.loads(file.read_text())
    vocabulary = written["model"]["vocab"]
    written["model"]["vocab"] = {
        symbol: (n + 1) % 256 for symbol, n in vocabulary.items()
    }
    file.write_text(json.dumps(written))
    after = TokenText.of(folder, place)
    assert after.key == before.key
    assert after.documents(40, 2)[0].equal((rows + 1) % 256)
    # numbers of ordinary tokens, which are the same
    assert after.symbols.equal(symbols)
    first = int(symbols[0])
    content = next(s for s, n in written["model"]["vocab"].items() if n == first)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    written["added_tokens"] = [
        {"id": first, "content": content, "special": True, **flags}
    ]
    file.write_text(json.dumps(written))
    assert first not in TokenText.of(folder, place).symbols
