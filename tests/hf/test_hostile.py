"""A folder that no model was saved in is refused in one line, and nothing in it is run."""

import shutil

import pytest

from ropelab.errors import InputError
from ropelab.hf.facts import read_facts
from ropelab.hf.fingerprint import fingerprint_of
from ropelab.hf.model import HuggingFaceModel
from ropelab.hf.tokens import tokenized
from tests.hf.hostile import HOSTILE
from tests.hf.tiny import rope, saved, write_byte_tokenizer

TEXTS = (b"some words that are longer than sixteen bytes",) * 2


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder in which nothing is wrong."""
    folder = saved(tmp_path_factory.mktemp("sound"), "llama", vocab_size=256)
    write_byte_tokenizer(folder)
    return folder


def measured(folder):
    """Everything that a run does with a folder."""
    read_facts(str(folder))
    fingerprint_of(folder)
    tokens, _ = tokenized(folder, TEXTS, 16, 2)
    model = HuggingFaceModel(folder)
    as_shipped = model.head(model.hidden(tokens))
    model.encoding = rope(folder, "pi", 256)
    return as_shipped, model.head(model.hidden(tokens))


def test_a_sound_folder_is_measured(sound):
    for logits in measured(sound):
        assert logits.shape == (2, 16, 256)
        assert logits.isfinite().all()


@pytest.mark.parametrize("wrong", HOSTILE)
def test_a_hostile_folder_is_refused_in_one_line(wrong, sound, tmp_path, capfd):
    folder = shutil.copytree(sound, tmp_path / "hostile")
    HOSTILE[wrong](folder)
    with pytest.raises(InputError) as refusal:
        measured(folder)
    message = str(refusal.value)
    assert message.isprintable(), message
    assert len(message) < 500
    assert "hostile" in message
    assert not (folder / "planted").exists()
    assert capfd.readouterr() == ("", "")
