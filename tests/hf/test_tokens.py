"""Text in a model's own tokens."""

import pytest
import torch

from ropelab.errors import InputError
from ropelab.hf.tokens import tokenized
from tests.hf.tiny import saved, write_byte_tokenizer

TEXTS = tuple(f"text number {n} ".encode() * 40 for n in range(4))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "begun"])
def folder(request, tmp_path_factory):
    """A model whose tokens are bytes, with or without a token that begins a text."""
    folder = saved(tmp_path_factory.mktemp("model"), "llama", vocab_size=257)
    write_byte_tokenizer(folder, bos=request.param)
    return folder, request.param


def test_documents_begin_as_the_tokenizer_begins_a_text(folder):
    place, begun = folder
    tokens, per_token = tokenized(place, TEXTS, 50, 3)
    assert tokens.shape == (3, 50)
    assert (tokens[:, 0] == 256).all() == begun
    assert (tokens[:, begun:] < 256).all()
    assert per_token.tolist() == [1.0] * 3


def test_a_first_token_may_be_asked_for_or_left_out(folder):
    place, begun = folder
    plain, _ = tokenized(place, TEXTS, 50, 2, bos=False)
    assert (plain < 256).all()
    if not begun:
        with pytest.raises(InputError, match="has no token that begins a text"):
            tokenized(place, TEXTS, 50, 2, bos=True)
        return
    first, _ = tokenized(place, TEXTS, 50, 2, bos=True)
    assert torch.equal(first[:, 1:], plain[:, :-1])


def test_one_text_gives_its_consecutive_pieces(folder):
    place, begun = folder
    whole, _ = tokenized(place, TEXTS[:1], 300 + begun, 1)
    pieces, per_token = tokenized(place, TEXTS[:1], 100 + begun, 3)
    assert torch.equal(pieces[:, begun:].flatten(), whole[0, begun:])
    assert per_token.tolist() == [1.0] * 3


def test_bytes_of_longer_characters_are_counted(folder):
    place, _ = folder
    texts = ("é€" * 100).encode(), ("x" * 100).encode()
    _, per_token = tokenized(place, texts, 51, 2)
    assert 0.9 < per_token[1] / per_token[0] <= 1.02


def test_a_long_text_is_not_read_to_its_end(folder, monkeypatch):
    from ropelab.hf import tokens as module

    place, _ = folder
    read = []
    original = module._ids_and_ends
    monkeypatch.setattr(
        module, "_ids_and_ends", lambda t, text: read.append(len(text)) or original(t, text)
    )
    tokenized(place, (b"long text " * 10**5,) * 2, 20, 2)
    assert max(read) < 1000


def test_too_little_text_is_refused(folder):
    place, _ = folder
    with pytest.raises(InputError, match="only 4 documents have 500 tokens, 5 are needed"):
        tokenized(place, TEXTS, 500, 5)
